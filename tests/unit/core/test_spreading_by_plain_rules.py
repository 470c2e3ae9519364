# SPDX-License-Identifier: Apache-2.0
"""Whatever servers of a label hold, and whatever the agents show of it, a request for one more ends as plain rules say.

The rules: a server counts in each rack where it holds something; it is in one for certain if it holds nothing in
others, or if the agents show it on exactly one of the nodes that it holds.  One that Nova has deleted does not count,
also while its agent shows it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.spread_check import DEFERRAL_PAUSE_MAX_S
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Consumer
from tests.unit.core.racks import HINTS, WEB
from tests.unit.core.scheduler_driver import SchedulerDriver, claims_in, host_of, only, request, snapshot, taken

NODES = {"node-1": "r1", "node-2": "r2", "node-3": "r1", "node-4": "r3", "node-5": "r2"}
RACKS = frozenset(NODES.values())


@dataclass(frozen=True)
class Server:
    """``holds``: its nodes in Placement; ``shown``: those of them whose agents show it, as a claim if ``pending``;
    ``deleted``: Nova has it no more."""

    uuid: str
    holds: frozenset[str]
    shown: frozenset[str]
    pending: bool
    deleted: bool = False

    @property
    def is_built(self) -> bool:
        """Whether it is not looked up, because it counts where its agent has built it."""
        return len(self.shown) == 1 and not self.pending

    def racks(self) -> frozenset[str]:
        if self.deleted:
            return frozenset()
        return frozenset(NODES[node] for node in (self.shown if self.is_built else self.holds))

    def sure_racks(self) -> frozenset[str]:
        if len(self.shown) == 1 and not self.deleted:
            return frozenset(NODES[node] for node in self.shown)
        return self.racks() if len(self.racks()) == 1 else frozenset()


@st.composite
def servers(draw: st.DrawFn) -> list[Server]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        holds = draw(st.frozensets(st.sampled_from([*NODES]), min_size=1, max_size=3))
        shown = draw(st.frozensets(st.sampled_from(sorted(holds))))
        server = Server(f"server-{number}", holds, shown, draw(st.booleans()))
        found.append(replace(server, deleted=server.is_built and draw(st.booleans())))
    return found


FULL = st.frozensets(st.sampled_from([*NODES]), max_size=3)


def cloud(there: list[Server], full: frozenset[str]) -> SchedulerDriver:
    driver = SchedulerDriver(decision=DecisionSettings(spread_keys=("rack",))).with_agents(*NODES, vcpus=16)
    for node in NODES:
        shown = {one.uuid: Consumer(taken(node), True, WEB) for one in there if node in one.shown}
        claims = {f"claim-{one.uuid}": one.uuid for one in there if node in one.shown and one.pending}
        vcpus = len(shown) if node in full and shown else 16
        other = {"other": Consumer({node: {"VCPU": 16}}, True)} if node in full and not shown else {}
        driver.hear(snapshot(node, 2, vcpus=vcpus, consumers=shown | other, claims=claims))
    hosts = {rack: frozenset(host_of(node) for node in NODES if NODES[node] == rack) for rack in sorted(RACKS)}
    facts = (AggregateFacts(n, f"aggregate-{n}", rack, hosts[rack], {"rack": rack}) for n, rack in enumerate(hosts, 1))
    driver.give(ev.AggregatesRead(tuple(facts)))
    return driver


def after(driver: SchedulerDriver, there: list[Server], effect: ef.Effect) -> list[ef.Effect]:
    """What follows when the world has done what the scheduler wanted."""
    match effect:
        case ef.Send() if claims := claims_in([effect]):
            return driver.written(only(ef.WriteAllocation, driver.accept(claims[0])))
        case ef.AskGroup(ask_id=ask_id, known=known):
            standing = {one.uuid: one.holds for one in there if one.uuid not in known and not one.deleted}
            gone = frozenset(one.uuid for one in there if one.deleted) & known
            return driver.give(ev.GroupAnswered(ask_id, standing, gone=gone, cause=effect.cause))
        case ef.AskFitting(ask_id=ask_id):
            return driver.give(ev.FittingAnswered(ask_id, frozenset(), cause=effect.cause))
        case ef.DeleteAllocation():
            return driver.deleted(effect) + driver.wait(DEFERRAL_PAUSE_MAX_S / 10)
    return []


def ended(driver: SchedulerDriver, there: list[Server], name: str) -> ef.Answer | ef.Fail:
    """How the request for one more, with this name, ends."""
    todo = driver.ask(request(name, request_id=f"for {name}", hints=HINTS))
    while not (ends := [one for one in todo if isinstance(one, ef.Answer | ef.Fail)]):
        todo = [each for one in todo for each in after(driver, there, one)] or driver.wait(0.01)
    return ends[0]


def may_have_one_more(there: list[Server], rack: str) -> bool:
    counts, sure = Counter(rack for one in there for rack in one.racks()), Counter[str]()
    sure.update(rack for one in there for rack in one.sure_racks())
    sure[rack] += 1
    return counts[rack] + 1 - min(sure[each] for each in RACKS) <= 1


@given(servers(), FULL)
def test_a_request_for_one_more_ends_as_plain_rules_say(there: list[Server], full: frozenset[str]) -> None:
    end = ended(cloud(there, full), there, "server-9")
    assert_rules(end, there, full)


def assert_rules(end: ef.Answer | ef.Fail, there: list[Server], full: frozenset[str]) -> None:
    if isinstance(end, ef.Answer):
        assert may_have_one_more(there, NODES[end.choices[0][0].node])
    else:
        assert end.code == ef.FailureCode.NO_VALID_HOST
        assert not any(may_have_one_more(there, NODES[node]) for node in NODES.keys() - full)


@given(servers(), FULL)
def test_the_next_ones_end_so_with_what_was_read_for_the_first_one(there: list[Server], full: frozenset[str]) -> None:
    driver = cloud(there, full)
    for number in range(6, 10):
        end = ended(driver, there, f"server-{number}")
        assert_rules(end, there, full)
        if isinstance(end, ef.Answer):
            node = frozenset({end.choices[0][0].node})
            there = [*there, Server(f"server-{number}", node, frozenset(), False)]

# SPDX-License-Identifier: Apache-2.0
"""A refusal for lack of room tells who held it at that moment."""

from __future__ import annotations

from typing import Any

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.held_room import HOLDERS_MAX, REJECTED_HOSTS_MAX, held_room_of_rejected
from shared_scheduler.core.request_state import ATTEMPTS_WITH_HOLDERS_MAX
from shared_scheduler.decision.explain import ExplainedHost, explain
from shared_scheduler.decision.pipeline import NOVA_DEFAULTS, Decider
from shared_scheduler.decision.request import PlacementForm
from shared_scheduler.protocol.messages import Consumer, Increment, Leaf, Reason, RefusalCode, Verdict
from tests.unit.core.scheduler_driver import SchedulerDriver, claims_in, node_leaves, of_kind, only, only_claim, request

FULL: dict[str, Leaf] = {"provider": "node-1", "resource_class": "VCPU", "asked": 1, "used": 4, "capacity": 4}


def vcpus(count: int, memory_mb: int = 512, node: str = "node-1") -> Consumer:
    amounts = {"VCPU": count, "MEMORY_MB": memory_mb}
    return Consumer({node: {name: amount for name, amount in amounts.items() if amount}}, member=True)


def refused(driver: SchedulerDriver, reason: Reason, news: tuple[Increment, ...] = ()) -> dict[str, Any]:
    """What the record of the first attempt tells of the room, when node-1 refuses the only claim."""
    claim = only_claim(driver.ask())
    effects = driver.hear(Verdict(claim.claim_id, "node-1", 1, False, reason, 0, news))
    effects += [effect for ask in of_kind(ef.AskFitting, effects)
                for effect in driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause))]  # fmt: skip
    [attempt] = of_kind(ef.Fail, effects)[0].record.attempts
    return dict(attempt.held)


def test_the_servers_that_the_verdict_brings_are_named() -> None:
    # given a node with one server, on which another scheduler has placed a larger one that this one has not heard of
    driver = SchedulerDriver().with_agents("node-1", consumers={"old": vcpus(1)})
    news = Increment("node-1", 1, 2, {}, {"new": vcpus(3)}, {"claim-of-another": "new"})
    # when the node refuses a third one
    held = refused(driver, Reason(RefusalCode.NO_CAPACITY, FULL), (news,))
    # then both are named, the larger one first, of which nova-compute knows nothing yet
    assert held == {
        "servers": 2, "pending": 1, "amounts": {"VCPU": 4}, "epoch": 1, "sequence": 2,
        "largest": [{"server": "new", "amounts": {"VCPU": 3}, "pending": True},
                    {"server": "old", "amounts": {"VCPU": 1}, "pending": False}],
    }  # fmt: skip


def test_the_claims_of_this_scheduler_count_and_the_refused_one_does_not() -> None:
    # given two servers of one request that are claimed at the same moment
    driver = SchedulerDriver().with_agents("node-1")
    first, second = claims_in(driver.ask(request("a", "b")))
    # when the node refuses the second one before it has told of the first one
    reason = Reason(RefusalCode.NO_CAPACITY, FULL)
    effects = driver.hear(Verdict(second.claim_id, "node-1", 1, False, reason))
    for ask in of_kind(ef.AskFitting, effects):
        effects += driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause))
    # then the first one holds the room
    [attempt] = [one for one in of_kind(ef.Fail, effects)[0].record.attempts if one.instance == "b"]
    assert attempt.held["largest"] == [{"server": first.consumer, "amounts": {"VCPU": 1}, "pending": True}]


def test_only_the_largest_are_named_and_all_are_counted() -> None:
    many = {f"vm-{number:03}": vcpus(1 + number, 0) for number in range(100)}
    driver = SchedulerDriver().with_agents("node-1", vcpus=10_000, consumers=many)

    held = refused(driver, Reason(RefusalCode.NO_CAPACITY, FULL))

    assert (held["servers"], held["amounts"]) == (100, {"VCPU": 5050})
    assert [one["server"] for one in held["largest"]] == [f"vm-{number:03}" for number in (99, 98, 97, 96, 95)]
    assert len(held["largest"]) == HOLDERS_MAX


@pytest.mark.parametrize("reason", [
    Reason(RefusalCode.NO_CAPACITY, {"provider": "node-1", "resource_class": "VCPU", "asked": 5, "max_unit": 4}),
    Reason(RefusalCode.NOT_AUTHORITATIVE), Reason(RefusalCode.NO_INVENTORY, FULL),
])  # fmt: skip
def test_a_refusal_for_another_reason_names_nobody(reason: Reason) -> None:
    driver = SchedulerDriver().with_agents("node-1", consumers={"old": vcpus(1)})
    assert refused(driver, reason) == {}


def test_a_refusal_without_numbers_tells_all_that_was_asked_for() -> None:
    driver = SchedulerDriver().with_agents("node-1", consumers={"old": vcpus(1)})
    held = refused(driver, Reason(RefusalCode.TOPOLOGY, {"why": "no NUMA cell fits"}))
    assert held["largest"] == [{"server": "old", "amounts": {"VCPU": 1, "MEMORY_MB": 512}, "pending": False}]


def test_a_refusal_of_placement_tells_what_the_last_read_showed() -> None:
    # given a node without an agent
    driver = SchedulerDriver().without_agents("node-1")
    write = only(ef.WriteAllocation, driver.ask())
    # when Placement refuses the write
    effects = driver.written(write, ev.WriteCode.NO_CAPACITY)
    for ask in of_kind(ef.AskFitting, effects):
        effects += driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause))
    # then the read of the node shows no server, which says that the row is behind
    [attempt] = of_kind(ef.Fail, effects)[0].record.attempts
    assert attempt.held == {
        "servers": 0, "pending": 0, "amounts": {}, "largest": [], "epoch": 0, "sequence": 0,
    }  # fmt: skip


def test_only_the_first_attempts_of_a_record_name_holders() -> None:
    nodes = tuple(f"node-{number}" for number in range(ATTEMPTS_WITH_HOLDERS_MAX + 2))
    driver = SchedulerDriver(attempts_max=len(nodes)).with_agents(*nodes)
    claims = claims_in(driver.ask())
    effects: list[ef.Effect] = []
    while claims:
        effects = driver.refuse(claims[0])
        claims = claims_in(effects)
    for ask in of_kind(ef.AskFitting, effects):
        effects += driver.give(ev.FittingAnswered(ask.ask_id, frozenset(), cause=ask.cause))
    named = [bool(attempt.held) for attempt in of_kind(ef.Fail, effects)[0].record.attempts]
    assert named == [True] * ATTEMPTS_WITH_HOLDERS_MAX + [False] * 2


def test_a_claim_that_was_written_names_nobody() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))))
    assert [attempt.held for attempt in answer.record.attempts] == [{}]


def rejected(driver: SchedulerDriver, **amounts: int) -> tuple[ExplainedHost, ...]:
    """The hosts, all of which a decision rejects."""
    form = PlacementForm({"VCPU": 1, **amounts})
    found = explain(Decider(driver.table, NOVA_DEFAULTS), request(forms=(form,))).listed
    assert all(host.code for host in found)
    return found


def test_a_host_that_a_decision_rejects_names_who_holds_what_it_lacks() -> None:
    # given a node whose cores are taken, one of them by a claim of this scheduler
    driver = SchedulerDriver().with_agents("node-1", consumers={"old": vcpus(3)})
    claim = only_claim(driver.ask(request("new")))
    # when the next decision rejects it
    [host] = rejected(driver)
    assert host.code == "no_room:VCPU"
    # then both are named
    assert held_room_of_rejected(driver.table, [host]) == {"node-1": {
        "servers": 2, "pending": 1, "amounts": {"VCPU": 4}, "epoch": 1, "sequence": 1,
        "largest": [{"server": "old", "amounts": {"VCPU": 3}, "pending": False},
                    {"server": claim.consumer, "amounts": {"VCPU": 1}, "pending": True}],
    }}  # fmt: skip


def test_only_the_first_rejected_hosts_name_holders() -> None:
    nodes = tuple(f"node-{number:02}" for number in range(REJECTED_HOSTS_MAX + 2))
    driver = SchedulerDriver()
    for node in nodes:
        driver.with_agents(node, consumers={f"old-{node}": vcpus(4, node=node)})
    assert list(held_room_of_rejected(driver.table, rejected(driver))) == list(nodes[:REJECTED_HOSTS_MAX])


@pytest.mark.parametrize(("facts", "amounts"), [
    ({}, {"VCPU": 5}),  # more than a server may have
    ({}, {"VGPU": 1}),  # it has no inventory of it
    ({"agent__ready": False}, {}),
])  # fmt: skip
def test_a_host_that_is_rejected_for_another_reason_names_nobody(facts: Any, amounts: dict[str, int]) -> None:
    driver = SchedulerDriver().with_agents("node-1", consumers={"old": vcpus(1)}, **facts)
    assert held_room_of_rejected(driver.table, rejected(driver, **amounts)) == {}


def test_an_empty_host_that_is_too_small_names_nobody() -> None:
    # given a node that reserves most of its memory
    leaves: Any = node_leaves("node-1", vcpus=4, free_mb=8192)
    leaves["rp.node-1"]["inventories"]["MEMORY_MB"][1] = 8000
    driver = SchedulerDriver().with_agents("node-1", **{"rp__node-1": leaves["rp.node-1"]})
    # when a decision rejects it, then nothing is used, so nobody holds it
    found = rejected(driver, MEMORY_MB=512)
    assert [(host.code, host.detail["used"], host.detail["capacity"]) for host in found] == [
        ("no_room:MEMORY_MB", 0, 192)
    ]
    assert held_room_of_rejected(driver.table, found) == {}


def test_a_host_that_has_gone_meanwhile_names_nobody() -> None:
    driver = SchedulerDriver().with_agents("node-1", consumers={"old": vcpus(4)})
    assert held_room_of_rejected(SchedulerDriver().table, rejected(driver)) == {}

# SPDX-License-Identifier: Apache-2.0
"""One fault after the other under a steady stream of requests, and what each fault costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.laboratory.errors import LabError
from tools.laboratory.fire.environment import Environment
from tools.laboratory.fire.fault_effects import Effect, Observed, observed
from tools.laboratory.fire.faults import Fault
from tools.laboratory.fire.observer import Observer
from tools.laboratory.fire.stream import Call, Stream
from tools.laboratory.processes.control import ControlError

CALM_S = 2.0
"""The duration of the stream before a fault and after it."""
HEAL_TIMEOUT_S = 300.0
TRUTH_TIMEOUT_S = 180.0
EFFECT_TIMEOUT_S = 60.0
"""The maximum time by which a fault is prolonged until its effect is observed."""
POLL_S = 0.1
OBSERVED_EVERY_S = 0.2
"""How often each process is asked how it is. A scheduler whose rows are all fresh reads all of them for that."""
WRONG_SHOWN_MAX = 3


@dataclass(frozen=True)
class Tally:
    """The counters of all processes since their start. `lives`: the schedulers' addresses."""

    lives: tuple[str, ...] = ()
    published: int = 0
    to_agents: int = 0
    heard_by_schedulers: int = 0
    heard_by_agents: int = 0
    snapshots: int = 0
    resyncs: int = 0
    gaps: int = 0
    outbox_full: int = 0
    refused_by_agents: int = 0
    refused_by_placement: int = 0
    overcommitted: int = 0


@dataclass
class Finding:
    """The results of one fault. Times in seconds; `wrong`: failed checks; `unseen`: effects that were required and did
    not occur."""

    fault: str
    story: str
    lasted_s: float = 0.0
    detected_s: float | None = None
    healed_s: float = 0.0
    lost_to_schedulers: int | None = None
    lost_to_agents: int | None = None
    published: int = 0
    snapshots: int = 0
    resyncs: int = 0
    requests: dict[str, int] = field(default_factory=dict)
    median_ms: float = 0.0
    slowest_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds of all processes of a kind, from the begin of the fault until all have recovered."""
    heard: dict[str, int] = field(default_factory=dict)
    """Messages that all schedulers together received, by kind."""
    refused_by_agents: int = 0
    refused_by_placement: int = 0
    wrong: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


class Drill:
    """Injects faults, and compares all records after each; `say` prints progress."""

    def __init__(
        self, environment: Environment, say: Callable[[str], None], interval_s: float = OBSERVED_EVERY_S
    ) -> None:
        self._environment, self._say = environment, say
        self._observer = Observer(environment, interval_s)
        self._stream = Stream(environment, say)
        self._last: dict[str, Counter[str]] = {}  # address of a scheduler -> its counters

    def end(self) -> None:
        self._stream.end()
        self._observer.end()

    # -- joining

    def join(self) -> Finding:
        """All agents join at once; the schedulers know them from the databases only."""
        finding = Finding("join", f"{self._environment.sizes.agents} agents join at once")
        begun_s, cpu_s = time.monotonic(), self._environment.cpu_s()
        self._environment.let_agents_join()
        self._wait_whole(begun_s, finding)
        finding.healed_s = time.monotonic() - begun_s
        finding.cpu_s = self._cpu_since(cpu_s)
        tally = self._settled(finding)
        _add(finding, Tally(), tally)
        return finding

    # -- rest

    def rest(self, seconds: float) -> Finding:
        """Nothing happens for some time: what an idle fleet costs."""
        finding = Finding("rest", f"no requests and no faults for {seconds:.0f} s")
        self._observer.pause(True)
        time.sleep(CALM_S)
        before, heard, begun_s, cpu_s = self._tally(), self._heard(), time.monotonic(), self._environment.cpu_s()
        time.sleep(seconds)
        finding.lasted_s, finding.cpu_s = time.monotonic() - begun_s, self._cpu_since(cpu_s)
        finding.heard = dict(self._heard() - heard)
        _add(finding, before, self._tally())
        self._observer.pause(False)
        return finding

    def _cpu_since(self, before: dict[str, float]) -> dict[str, float]:
        return {kind: round(now_s - before[kind], 2) for kind, now_s in self._environment.cpu_s().items()}

    def _heard(self) -> Counter[str]:
        """What the schedulers received so far, by kind, and what they cast."""
        total: Counter[str] = Counter()
        for said in self._environment.all_schedulers("status"):
            if said is not None:
                names = ("cast", *(name for name in said["counters"] if name.startswith("received_")))
                total.update({name: said["counters"].get(name, 0) for name in names})
        return total

    # -- a fault

    def inflict(self, fault: Fault) -> Finding:
        """One fault, between two states of rest."""
        self._say(f"{fault.name}: {fault.story}")
        finding = Finding(fault.name, fault.story)
        before, calls_before, seen_before = self._tally(), len(self._stream.calls), observed(self._environment)
        self._stream.flow()
        time.sleep(CALM_S)
        self._observer.expect_trouble()
        struck_s = time.monotonic()
        try:
            fault.begin(self._environment)
            time.sleep(fault.lasts_s)
            finding.unseen += self._wait_for(fault.effect, seen_before)
        except LabError as error:
            finding.wrong.append(f"the fault could not be injected: {error}")
        fault.end(self._environment)
        over_s = time.monotonic()
        finding.lasted_s = over_s - struck_s
        self._wait_whole(over_s, finding)
        finding.healed_s = time.monotonic() - over_s
        if (noticed_s := self._observer.first_noticed_s) is not None:
            finding.detected_s = max(0.0, noticed_s - struck_s)
        finding.unseen += self._wait_for(fault.effect_after, seen_before)
        time.sleep(CALM_S)
        self._stream.pause()
        after = self._settled(finding)
        _add(finding, before, after)
        self._judge_calls(finding, self._stream.calls[calls_before:])
        return finding

    def _wait_for(self, effect: Effect, before: Observed) -> list[str]:
        """Wait for an effect; returns what is missing after `EFFECT_TIMEOUT_S`."""
        end_s = time.monotonic() + EFFECT_TIMEOUT_S
        while missing := self._missing(effect, before):
            if time.monotonic() > end_s:
                return [missing]
            time.sleep(POLL_S)
        return []

    def _missing(self, effect: Effect, before: Observed) -> str:
        try:
            return effect(self._environment, before)
        except ControlError as error:  # a very slow machine
            return str(error)

    def _wait_whole(self, since_s: float, finding: Finding) -> None:
        end_s = time.monotonic() + HEAL_TIMEOUT_S
        while not self._observer.whole_since(since_s):
            if time.monotonic() > end_s:
                finding.wrong.append(f"not healed within {HEAL_TIMEOUT_S:.0f} s: {self._state()}")
                return
            time.sleep(POLL_S)

    def _state(self) -> str:
        said = self._environment.all_schedulers("status", 10.0)
        return "; ".join("no answer" if one is None else f"{one['freshness']} {one['cells']}" for one in said)

    def _judge_calls(self, finding: Finding, calls: Sequence[Call]) -> None:
        rpc_s = self._environment.pace.rpc_s
        finding.requests = dict(Counter(call.outcome for call in calls))
        took_s = sorted(call.took_s for call in calls)
        finding.median_ms = round(1000 * took_s[len(took_s) // 2], 1) if took_s else 0.0
        finding.slowest_s = round(took_s[-1], 1) if took_s else 0.0
        if self._stream.in_flight:
            finding.wrong.append(f"{self._stream.in_flight} requests hang")
        if broken := finding.requests.get("error", 0):
            finding.wrong.append(f"{broken} requests ended with an internal error")
        hung = [call for call in calls if call.outcome == "answered" and call.took_s > rpc_s]
        if hung:
            finding.wrong.append(f"{len(hung)} answers after the RPC timeout of {rpc_s:.0f} s")

    # -- comparison of all records

    def _settled(self, finding: Finding) -> Tally:
        """Wait until every table, every agent, Placement and the answers agree."""
        end_s = time.monotonic() + TRUTH_TIMEOUT_S
        while wrong := self._differences():
            if time.monotonic() > end_s:
                finding.wrong += wrong[:WRONG_SHOWN_MAX]
                break
            time.sleep(POLL_S)
        if self._stream.overcommitted:
            finding.wrong.append(f"over-committed: {dict(self._stream.overcommitted)}")
        tally = self._tally()
        if tally.overcommitted:
            finding.wrong.append(f"{tally.overcommitted} agents count more than their capacity")
        return tally

    def _differences(self) -> list[str]:
        if not self._stream.delivered():
            return ["not all orders have reached the nova-computes"]
        states = {node: said for part in self._environment.all_agents("node_states") for node, said in part.items()}
        return [*self._of_tables(states), *self._of_servers(states)]

    def _of_tables(self, states: dict[str, Any]) -> list[str]:
        found = []
        positions = self._environment.all_schedulers("positions")
        for scheduler, rows in zip(self._environment.schedulers, positions, strict=True):
            differ = [node for node in states if (rows or {}).get(node) != states[node]["position"]]
            if differ:
                found.append(f"{scheduler.name} has wrong rows of {len(differ)} nodes ({differ[0]})")
        return found

    def _of_servers(self, states: dict[str, Any]) -> list[str]:
        live, found = dict(self._stream.live), []
        counted = {consumer: node for node, said in states.items() for consumer in said["members"]}
        pending = [consumer for said in states.values() for consumer in said["pending"]]
        written = self._environment.placement.ask("consumers")
        if counted != live:
            found.append(f"agents count other servers than the answers have: {_sample(counted, live)}")
        if written != live:
            found.append(f"Placement has other servers than the answers have: {_sample(written, live)}")
        if pending:
            found.append(f"{len(pending)} claims without an owner are pending at agents")
        return found

    def _tally(self) -> Tally:
        agents: Counter[str] = Counter()
        for said in self._environment.all_agents("status"):
            agents.update(said)
        said_by = [said for said in self._environment.all_schedulers("status") if said is not None]
        self._last |= {said["address"]: Counter(said["counters"]) for said in said_by}
        schedulers = sum(self._last.values(), Counter())  # the counters of killed schedulers are kept
        heard = ("buildresult", "heartbeat", "leave", "increment", "resync", "snapshot", "verdict")
        return Tally(
            lives=tuple(said["address"] for said in said_by),
            published=agents["broadcast"] * self._environment.sizes.schedulers + agents["cast"],
            to_agents=schedulers["cast"],
            heard_by_schedulers=sum(schedulers[f"received_{kind}"] for kind in heard),
            heard_by_agents=agents["received"],
            snapshots=schedulers["snapshots_applied"],
            resyncs=schedulers["resyncs_asked"],
            gaps=schedulers["gaps"],
            outbox_full=agents["dropped"] + schedulers["outbox_full"],
            refused_by_agents=agents["refused"],
            refused_by_placement=self._environment.placement.ask("status")["refused_for_capacity"],
            overcommitted=agents["overcommitted"],
        )


def _add(finding: Finding, before: Tally, after: Tally) -> None:
    """The differences between two tallies. A killed scheduler's last counters, and so its losses, are unknown."""
    finding.published = after.published - before.published
    finding.snapshots = after.snapshots - before.snapshots
    finding.resyncs = after.resyncs - before.resyncs
    finding.refused_by_agents = after.refused_by_agents - before.refused_by_agents
    finding.refused_by_placement = after.refused_by_placement - before.refused_by_placement
    if before.lives and before.lives != after.lives:
        return
    heard = after.heard_by_schedulers - before.heard_by_schedulers
    finding.lost_to_schedulers = max(0, finding.published - heard)
    heard = after.heard_by_agents - before.heard_by_agents
    finding.lost_to_agents = max(0, after.to_agents - before.to_agents - heard)


def _sample(one: dict[str, str], other: dict[str, str]) -> str:
    extra, missing = sorted(one.items() - other.items()), sorted(other.items() - one.items())
    return f"{len(extra)} more {extra[:2]}, {len(missing)} fewer {missing[:2]}"

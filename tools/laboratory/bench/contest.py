# SPDX-License-Identifier: Apache-2.0
"""The order of measurements.

For each size, the contestants are measured one after the other, and the whole is repeated, so that other load of the
machine affects all of them. A round of a contestant starts anew: empty hosts, a started scheduler, the wait until it
has all data, some idle seconds, one caller, many callers, the check of the allocations.
"""

import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shared_scheduler.core.write_pace import WRITERS
from tools.laboratory.bench import checks, host_rows, readiness
from tools.laboratory.bench.claim_counters import claims, counters
from tools.laboratory.bench.environment import World
from tools.laboratory.bench.message_counters import Counts, only_messages
from tools.laboratory.bench.meters import Meters, Reading, Used
from tools.laboratory.bench.profiler import profiled
from tools.laboratory.bench.results import Burst, Measurement, Messages, Results, Round, burst_of, measured
from tools.laboratory.fleet.orders import SPAWN_S
from tools.laboratory.processes.controlled import ask_all, start_all
from tools.laboratory.processes.startup import wait_for
from tools.laboratory.processes.usage import memory_mb
from tools.laboratory.report import ProgressLine

WARM_UP_CALLS = 3
BURST_CALLERS = 64
"""Concurrent callers of a burst; a write without a scheduler has as many as our scheduler has writers."""
LIMIT_S = 3600.0
JOIN_TIMEOUT_S = 180.0
ENDS_TIMEOUT_S = 120.0
AGENT_COUNTS = (
    "claims", "accepted", "refused", "released", "built", "reads", "failed_reads", "broadcast", "cast", "dropped",
    "overcommitted",
)  # fmt: skip
"""The counters of all agents together that are stored for each round."""


@dataclass(frozen=True)
class Contestant:
    """A scheduler (its program) with or without agents beside the nodes."""

    name: str
    program: str
    agents: bool
    workers: int = 1
    """Scheduler processes."""
    records: bool = True
    """Whether it keeps records of its decisions, as it does by default."""
    host_keys: bool = False
    """Whether scheduler and agents require host keys."""

    def with_workers(self, workers: int) -> "Contestant":
        """The same with this number of scheduler processes."""
        return self if workers == 1 else replace(self, name=f"{self.name} x{workers}", workers=workers)


FLOOR = Contestant("write alone", "", agents=False)
"""No scheduler: the cost of one write to Placement."""
STOCK = Contestant("stock", "nova-scheduler", agents=False)
SHARED = Contestant("shared", "shared-scheduler", agents=True)
SHARED_WITHOUT_RECORDS = Contestant("shared, no records", "shared-scheduler", agents=True, records=False)
"""The difference to `SHARED` is what the records cost."""
SHARED_WITH_HOST_KEYS = Contestant("shared, host keys", "shared-scheduler", agents=True, host_keys=True)
"""The difference to `SHARED` is what it costs to sign and to verify all messages."""
SHARED_WITHOUT_AGENTS = Contestant("shared, no agents", "shared-scheduler", agents=False)


@dataclass(frozen=True)
class Plan:
    """The extent of the measurements. Times in seconds."""

    sizes: tuple[int, ...]
    contestants: tuple[Contestant, ...]
    repeats: int = 3
    callers: tuple[int, ...] = (1, 8)
    seconds: float = 20.0
    """The minimum duration of each measurement ..."""
    least: int = 16
    """... and its minimum number of requests."""
    idle_s: float = 10.0
    agent_processes: int = 1
    profile: str = ""
    """Directory for sampled stacks of the scheduler; empty for exact figures, because sampling costs CPU time."""
    burst: int = 0
    """Servers that are asked for at the same moment; 0: callers that call again and again."""
    limit_s: float = LIMIT_S
    """A burst or a measurement begins no request later than this after its start."""
    pack: bool = False
    """Whether the hosts with the least free are preferred, instead of those with the most."""
    placement_app: bool = False
    """Whether Placement has the write path of `shared_scheduler.placement_app`."""
    durable: bool = False
    """Whether each commit of MariaDB waits for the disk."""
    takes_over_after_s: float = 1.0
    """How long a simulated nova-compute needs until its tracker counts a new server; the build ends `SPAWN_S` later."""

    @property
    def builds_end_after_s(self) -> float:
        """From an answer until the end of the build was sent for the first time; later, a heartbeat carries it."""
        return self.takes_over_after_s + SPAWN_S


def run(world: World, plan: Plan, results: Results, progress: ProgressLine) -> None:
    """Measure all rounds of a plan; `results` grows as they end."""
    progress.expect(len(plan.sizes) * plan.repeats * len(plan.contestants), "rounds")
    for size in plan.sizes:
        began = time.monotonic()
        host_rows.settle(world.layout, size)
        progress.say(f"{size} hosts in the databases after {time.monotonic() - began:.1f} s")
        with host_rows.Heartbeat(world.layout) as heartbeat:
            for repeat in range(1, plan.repeats + 1):
                for contestant in in_turn(plan.contestants, repeat):
                    one = Round(contestant.name, size, repeat)
                    results.rounds.append(one)
                    Life(world, plan, contestant, one, heartbeat, progress).live()
                    progress.step()


def in_turn(contestants: Sequence[Contestant], repeat: int) -> list[Contestant]:
    """Every other repeat has the reverse order, so that no contestant is always first."""
    return list(contestants if repeat % 2 else reversed(contestants))


class Life:
    """One round."""

    def __init__(self, world: World, plan: Plan, contestant: Contestant, one: Round,
                 heartbeat: host_rows.Heartbeat, progress: ProgressLine) -> None:  # fmt: skip
        self.world, self.plan, self.contestant, self.round = world, plan, contestant, one
        self.heartbeat, self.say = heartbeat, progress.say
        self.told: dict[str, str] = {}
        one.schedulers = contestant.workers
        self.client = world.program("client")
        self.agents = (
            world.agents(one.hosts, plan.agent_processes, plan.takes_over_after_s, contestant.host_keys)
            if contestant.agents
            else []
        )

    def live(self) -> None:
        host_rows.vacate(self.world.layout)
        self.heartbeat.heartbeat()
        try:
            start_all(self.world.processes, self.agents)
            self._let_agents_join()
            if self.contestant.program:
                self._start_scheduler()
            self.client.runs("bench.caller", str(self.world.nova_conf), str(self.client.socket)).start()
            self._warm()
            self._measure()
            self.round.check = checks.check(self.world.layout, self.told)
            self._say_check()
        finally:
            self.world.stop(["client", "scheduler", *(one.name for one in self.agents)])

    def _let_agents_join(self) -> None:
        """Wait until they have joined and know Placement; later they read like those that have run for long."""
        ask_all(self.agents, "go")
        wanted = sum(len(one.hosts) for one in self.agents)

        def are_there() -> bool:
            found = sum((Counter(said) for said in ask_all(self.agents, "glance")), Counter[str]())
            return found["connected"] == wanted and found["first_reads"] == 2 * wanted

        wait_for("agents to join", are_there, JOIN_TIMEOUT_S)

    def _start_scheduler(self) -> None:
        began = time.monotonic()
        one = self.contestant
        self.world.start_scheduler(one.program, one.workers, one.records, self.plan.pack, one.host_keys)
        self.round.ready_s = round(time.monotonic() - began, 1)

    def _warm(self) -> None:
        began = time.monotonic()
        if self.contestant.program == STOCK.program:
            readiness.warm_stock(self.world, self.client, self.round.hosts)
        elif self.contestant.program:
            readiness.wait_fresh(self.world, self.round.hosts, self.contestant.agents, self.contestant.workers)
        self.round.warm_s = round(time.monotonic() - began, 1)
        self._remember(self._call(1, 0, WARM_UP_CALLS * self.contestant.workers))

    def _call(self, callers: int, seconds: float, least: int) -> dict[str, Any]:
        """The fields of `client.Tally`."""
        much: dict[str, Any] = {"callers": callers, "seconds": seconds, "least": least, "most_s": self.plan.limit_s}
        if not self.contestant.program:
            much |= {"endpoint": self.world.layout.url("placement"), "hosts": self.round.hosts}
        found: dict[str, Any] = self.client.ask("call" if self.contestant.program else "write", None, **much)
        return found

    def _measure(self) -> None:
        meters = Meters(self.world)
        self._idle(meters)
        if self.plan.burst:
            self._burst(meters, self.plan.burst)
        else:
            self._call_on(meters)
        counts = sum((Counter(found) for found in ask_all(self.agents, "status")), Counter[str]())
        self.round.agents = {name: counts[name] for name in AGENT_COUNTS if self.agents}
        claimed = sum((Counter(found) for found in ask_all(self.agents, "claimed_hosts")), Counter[str]())
        self.round.hosts_of_schedulers = sorted(claimed.values())
        for name in ("scheduler", "placement", "mariadb", "rabbitmq"):
            process = self.world.processes.alive(name)
            if process:
                self.round.memory_mb[name] = memory_mb(process)

    def _call_on(self, meters: Meters) -> None:
        for callers in self.plan.callers:
            measurement = self._one(meters, callers)
            self.round.measurements.append(measurement)
            self.say(line(self.contestant, self.round, measurement))

    def _burst(self, meters: Meters, servers: int) -> None:
        """One request for all, and then one request for each."""
        for requests in (1, servers) if self.contestant.program else (servers,):
            load, before = os.getloadavg()[0], meters.read()
            callers = min(servers, BURST_CALLERS if self.contestant.program else WRITERS)
            tally = self._call(callers, 0, servers) if requests > 1 else self._ask_for(servers)
            burst = burst_of(tally, meters.since(before), servers, requests, load)
            self._remember(tally)
            self.round.bursts.append(burst)
            self.say(burst_line(self.contestant, self.round, burst))

    def _ask_for(self, servers: int) -> dict[str, Any]:
        found: dict[str, Any] = self.client.ask("burst", None, servers=servers)
        return found

    def _idle(self, meters: Meters) -> None:
        self._let_builds_end()  # those of the first calls
        counted, before = self._counted(), meters.read()
        time.sleep(self.plan.idle_s)
        used = meters.since(before)
        self.round.idle_messages = self._messages(counted)
        self.round.idle_cpu_share = {name: round(value / used.wall_s, 4) for name, value in used.cpu_s.items()}
        self.round.idle_calls = {name: round(value / used.wall_s, 2) for name, value in used.calls().items()}

    def _one(self, meters: Meters, callers: int) -> Measurement:
        load, counted, before = os.getloadavg()[0], self._counted(), meters.read()
        with self._profiled(callers):
            tally = self._call(callers, self.plan.seconds, self.plan.least)
        used = self._used(meters, before)
        self._remember(tally)
        became, loads = claims(self._counted().since(counted).counters), (load, os.getloadavg()[0])
        return measured(tally, used, callers, loads, became, self._messages(counted), self.round.idle_cpu_share)

    def _used(self, meters: Meters, before: Reading) -> Used:
        """What was used until all builds have ended, without what the processes use in any case meanwhile."""
        waited_s = self._let_builds_end()
        return meters.since(before).without_idle(self.round.idle_cpu_share, self.round.idle_calls, waited_s)

    def _let_builds_end(self) -> float:
        """Wait until the agents have sent all ends of builds once; returns the time that it took."""
        if not self.agents:
            return 0.0
        began = time.monotonic()
        time.sleep(self.plan.builds_end_after_s)

        def have_ended() -> bool:
            found = sum((Counter(said) for said in ask_all(self.agents, "status")), Counter[str]())
            sent = sum(said.get("sent_buildresult", 0) for said in ask_all(self.agents, "messages"))
            return found["building"] == 0 and sent >= found["built"]

        wait_for("builds to end", have_ended, ENDS_TIMEOUT_S)
        return time.monotonic() - began

    def _counted(self) -> Counts:
        """The counters of all schedulers, and the messages of all agents."""
        found = counters(self.world)
        for said in ask_all(self.agents, "messages"):
            found.update(only_messages(said))
        return Counts(time.monotonic(), found)

    def _messages(self, before: Counts) -> Messages:
        """Those since then; none without agents."""
        since = self._counted().since(before)
        return Messages(round(since.at_s, 3), dict(only_messages(since.counters))) if self.agents else Messages()

    def _profiled(self, callers: int) -> AbstractContextManager[None]:
        if not (self.plan.profile and self.contestant.program):
            return nullcontext()
        name = f"{self.contestant.name.replace(', ', '-').replace(' ', '-')}-{self.round.hosts}-{callers}.stacks"
        return profiled(self.world, "scheduler", Path(self.plan.profile) / name)

    def _remember(self, tally: dict[str, dict[str, str]]) -> None:
        self.told.update(tally["hosts"])

    def _say_check(self) -> None:
        found = self.round.check
        if not found.good():
            self.say(f"  CHECK FAILED: over {found.over[:3]}, {found.missing} answered but not held, "
                     f"{found.surplus} held but not answered; {found.examples[:3]}")  # fmt: skip


def line(contestant: Contestant, one: Round, measurement: Measurement) -> str:
    """One measurement as a line of progress."""
    failed = f", {measurement.failures} FAILED" if measurement.failures else ""
    failed += f" ({measurement.errors[0].splitlines()[0]})" if measurement.errors else ""
    return (
        f"  {one.hosts} hosts, repeat {one.repeat}, {contestant.name}, {measurement.callers} callers: "
        f"{measurement.per_second:.2f}/s, {measurement.median_ms:.0f} ms, "
        f"scheduler {1000 * measurement.cpu_s_each.get('scheduler', 0):.1f} ms CPU{failed}"
    )


def burst_line(contestant: Contestant, one: Round, burst: Burst) -> str:
    """One burst as a line of progress."""
    failed = f", {burst.failures} FAILED" if burst.failures else ""
    failed += f" ({burst.errors[0].splitlines()[0]})" if burst.errors else ""
    failed += f", {burst.not_asked} not asked in time" if burst.not_asked else ""
    return (
        f"  {one.hosts} hosts, repeat {one.repeat}, {contestant.name}, {burst.servers} servers in {burst.requests} "
        f"requests: {burst.wall_s:.2f} s, {burst.writes} writes, Placement {burst.placement_s:.1f} s CPU{failed}"
    )

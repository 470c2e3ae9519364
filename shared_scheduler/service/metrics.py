# SPDX-License-Identifier: Apache-2.0
"""The metrics of one scheduler process, for Prometheus.

What a decision took and how it ended is counted when it ends (``observe``).  Everything else is read from the engine
when somebody asks (``collect``), some rows at a time as ``status`` does, so that metrics cost nothing in between.
The counters of ``status`` are one metric, ``shared_scheduler_events_total``; ``answers/terms.py`` defines its values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as CounterMetric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared_scheduler.answers import terms
from shared_scheduler.conf.mode import Mode
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.decision.record import DecisionRecord
from shared_scheduler.protocol.phases import WindowPhase
from shared_scheduler.records.store import PLACED
from shared_scheduler.release import UNKNOWN, release
from shared_scheduler.service import inspection
from shared_scheduler.service.engine import Engine
from shared_scheduler.service.inspection import Queues
from shared_scheduler.table.row import Freshness

PREFIX = "shared_scheduler_"
#: from a decision in memory to a request that waits until its deadline
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
#: parts of the reporting agents whose last message is younger than the value
QUANTILES = (0.5, 0.99, 1.0)
#: Releases that a process shows by their names, its own among them.  A peer says its release itself and may say another
#: one each time; each name would be a time series for ever.
RELEASES_NAMED_MAX = 16
OTHER_RELEASE = "other"

#: the rows of ``Revalidator.report``
Reads = Callable[[], Sequence[Mapping[str, Any]]]
#: name, meaning, labels; then label values -> value
Gauge = tuple[str, str, Sequence[str], Mapping[tuple[str, ...], float]]


class SchedulerMetrics(Collector):
    """``observe`` may be called by any thread; ``collect`` is called by the one that serves the metrics."""

    def __init__(
        self,
        engine: Engine,
        reads: Reads,
        queues: Queues,
        registry: CollectorRegistry,
        mode: Callable[[], Mode | None],
        foreign_changes: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """``mode`` returns None while the scheduler loads: it serves nothing, and may never get further.
        ``foreign_changes``: kind -> number."""
        self._engine = engine
        self._foreign_changes = foreign_changes
        self._reads = reads
        self._queues = queues
        self._mode = mode
        self._named = {release(), UNKNOWN}
        self._decisions = CounterMetric(
            f"{PREFIX}decisions", "Requests that ended, by their result.", ["outcome"], registry=registry
        )
        self._attempts = CounterMetric(f"{PREFIX}attempts", "Claims, by their ending.", ["outcome"], registry=registry)
        self._seconds = Histogram(
            f"{PREFIX}decision_seconds",
            "Time of a whole request (total), of the agent's verdict, and of the write to Placement.",
            ["stage"], registry=registry, buckets=SECONDS,
        )  # fmt: skip
        self._begin_at_zero()
        registry.register(self)

    def _begin_at_zero(self) -> None:
        """Prometheus sees no increase in a series that begins with its first event."""
        for outcome in terms.FAILURES.terms:
            self._decisions.labels(outcome)
        for outcome in terms.ATTEMPTS.terms:
            self._attempts.labels(outcome)

    def observe(self, record: DecisionRecord) -> None:
        """Count a request that has ended."""
        self._decisions.labels(record.failure or PLACED).inc()
        if (total_ms := record.timings_ms.get("total")) is not None:
            self._seconds.labels("total").observe(total_ms / 1000)
        for attempt in record.attempts:
            self._attempts.labels(attempt.outcome).inc()
            for stage, took_ms in (("verdict", attempt.verdict_ms), ("write", attempt.write_ms)):
                if took_ms is not None:
                    self._seconds.labels(stage).observe(took_ms / 1000)

    def describe(self) -> Iterable[Metric]:
        """Nothing, because ``collect`` would ask an engine that may not have started."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """What the engine says of itself now."""
        status = inspection.status(self._engine)
        rows = inspection.rows(self._engine, partial(_agent_row, self._engine.clock()))
        peers = self._of_peers(status["releases"])
        sources = _of_sources(self._reads())
        yield from map(_gauge, (*_of_status(status), peers, *_of_agents(rows), *sources, *self._of_own()))
        yield from _counters(status["counters"], self._reads())
        changes = {**dict.fromkeys(terms.CHANGE_KINDS.terms, 0), **self._foreign_changes()}  # as _begin_at_zero
        yield _counter("foreign_changes", "Allocations that another writer changed.", "kind", changes)

    def _of_peers(self, releases: Mapping[str, Mapping[str, int]]) -> Gauge:
        """The releases that most peers have get names first."""
        told = [(count, role, name) for role, found in releases.items() for name, count in found.items()]
        peers = Counter[tuple[str, ...]]()
        for count, role, name in sorted(told, reverse=True):
            if len(self._named) < RELEASES_NAMED_MAX:
                self._named.add(name)
            peers[role, name if name in self._named else OTHER_RELEASE] += count
        meaning = "Live schedulers and reporting agents, by release."
        return "peers", meaning, ["role", "release"], {of: float(count) for of, count in peers.items()}

    def _of_own(self) -> Iterator[Gauge]:
        depths = {name: waiting() for name, waiting in self._queues.items()}
        yield "queue_depth", "Items that wait.", ["queue"], _labelled(depths)
        now = self._mode()
        modes = {mode.value: mode is now for mode in Mode}
        meaning = "1 for the mode of this scheduler, once it has loaded; 0 for the others."
        yield "mode", meaning, ["mode"], _labelled(modes)


def _of_status(status: Mapping[str, Any]) -> Iterator[Gauge]:
    yield "info", "The release of this scheduler.", ["release"], {(status["release"],): 1.0}
    freshness = {each.value: 0 for each in Freshness} | status["freshness"]
    yield "nodes", "Rows of the host table, by freshness.", ["freshness"], _labelled(freshness)
    yield "nodes_quarantined", "Nodes in quarantine.", [], {(): float(len(status["quarantined"]))}
    yield "claims_open", "Claims that have not ended.", [], {(): float(status["claims_open"])}
    yield "requests_in_flight", "Requests that are not answered yet.", [], {(): float(status["in_flight"])}
    cells = status["cells"]
    connected = {cell: found["connected"] for cell, found in cells.items()}
    yield "cell_connected", "Whether the state channel of a cell is connected.", ["cell"], _labelled(connected)
    ages = {cell: found["heard_ago_s"] for cell, found in cells.items() if found["heard_ago_s"] is not None}
    yield "cell_heard_age_seconds", "Age of the last message from a cell.", ["cell"], _labelled(ages)


def _agent_row(now: float, core: SchedulerCore, node: str) -> dict[str, Any]:
    known = core.nodes.get(node)
    if known is None:
        return {"state": WindowPhase.NEW.value, "age_s": None}
    heard_at_s = known.window.heard_at_s
    return {"state": known.window.phase.value, "age_s": now - heard_at_s if isfinite(heard_at_s) else None}


def _of_agents(rows: Sequence[Mapping[str, Any]]) -> Iterator[Gauge]:
    states = {each.value: 0 for each in WindowPhase} | Counter(row["state"] for row in rows)
    yield "windows", "Windows of nodes, by state.", ["state"], _labelled(states)
    silent = (WindowPhase.NEW.value, WindowPhase.SILENT.value)
    ages = sorted(row["age_s"] for row in rows if row["age_s"] is not None and row["state"] not in silent)
    lags = {f"{part:g}": ages[round(part * (len(ages) - 1))] for part in QUANTILES} if ages else {}
    yield "agent_lag_seconds", "Age of the last message of the agents that report.", ["quantile"], _labelled(lags)


def _of_sources(reads: Sequence[Mapping[str, Any]]) -> Iterator[Gauge]:
    ages = {read["source"]: read["oldest_s"] for read in reads if read["oldest_s"] is not None}
    yield "source_age_seconds", "Age of the oldest key of a source that is read.", ["source"], _labelled(ages)
    failing = {read["source"]: read["failing"] for read in reads}
    yield "source_failing", "Keys of a source whose last read failed.", ["source"], _labelled(failing)


def _counters(counters: dict[str, int], reads: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    begun = dict.fromkeys(terms.COUNTERS.terms, 0)  # as _begin_at_zero
    yield _counter("events", "The counters of status.", "event", begun | counters)
    for name, key, meaning in (
        ("source_reads", "reads", "Reads of a source."),
        ("source_read_failures", "failures", "Failed reads of a source."),
        ("source_read_seconds", "seconds", "Time of all reads of a source."),
    ):
        yield _counter(name, meaning, "source", {read["source"]: read[key] for read in reads})


def _labelled(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(name,): float(value) for name, value in values.items()}


def _gauge(gauge: Gauge) -> Metric:
    name, meaning, labels, values = gauge
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=labels)
    for of, value in values.items():
        family.add_metric(of, value)
    return family


def _counter(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, meaning, labels=[label])
    for of, value in values.items():
        family.add_metric([of], value)
    return family

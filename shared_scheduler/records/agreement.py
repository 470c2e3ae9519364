# SPDX-License-Identifier: Apache-2.0
"""Mode shadow as data: the record of one comparison with nova-scheduler ("stock"), and the sum of many.

=====================  ========================================================  ============================
result                 when                                                      reason
=====================  ========================================================  ============================
same                   both chose the same hosts                                 -
different              they chose different hosts                                ``Rank.reason``, or why ours
                                                                                 refuses stock's host
ours_refused           ours found no host, stock did                             why ours refuses stock's host
stock_refused          stock found no host, ours did                             stock's exception
both_refused           neither found a host                                      -
ours_failed            ours ended with another failure, or raised                failure code or exception
stock_failed           stock raised something else than NoValidHost, did not     exception
                       answer in time, or its answer could not be read
dropped                ours was not asked, because too many comparisons waited   -
=====================  ========================================================  ============================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared_scheduler.decision.record import DecisionRecord
from shared_scheduler.records.reason_names import told
from shared_scheduler.records.store import COMPARISON, Record, RecordConditions, Store

#: failure codes with which ours says that no host fits
REFUSALS = frozenset({"no_valid_host", "no_candidates"})
#: the exception of Nova that says so
REFUSAL = "NoValidHost"
#: the reason if one of Nova's request filters refused before any host was considered
REQUEST_FILTER = "request_filter"
#: our table has no such node; it is refused no more
UNKNOWN_HOST, PASSES_NOW = "unknown_host", "passes_now"
EQUAL_WEIGHT, NEAR_TIE, WEIGHT = "equal_weight", "near_tie", "weight"
#: Longest time and maximum number of the comparisons that are read at once.
PART_S, PART_MAX = 3600.0, 10_000
#: the precision of the times of records
TIME_DIGITS, TICK_S = 6, 1e-6
#: weights that differ by less are equal; they are sums of floats
EQUAL_WITHIN = 1e-9


class Agreement(StrEnum):
    """The results of a comparison."""

    SAME = "same"
    DIFFERENT = "different"
    OURS_REFUSED = "ours_refused"
    STOCK_REFUSED = "stock_refused"
    BOTH_REFUSED = "both_refused"
    OURS_FAILED = "ours_failed"
    STOCK_FAILED = "stock_failed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one scheduler answered: (node uuid, host) for each instance, or the error that it raised."""

    nodes: tuple[tuple[str, str], ...] = ()
    error: str = ""
    took_ms: float | None = None

    @property
    def hosts(self) -> list[str]:
        """The host of each instance."""
        return [host for _, host in self.nodes]


@dataclass(frozen=True, slots=True)
class Rank:
    """Stock's host in our order of hosts.  ``place``: 1 for the best."""

    place: int
    ours: float
    stocks: float

    @classmethod
    def of(cls, weights: Mapping[str, float], ours: str, stocks: str) -> Rank | None:
        """None if stock's node did not pass our filters.  ``weights``: node -> weight of those that passed."""
        if stocks not in weights or ours not in weights:
            return None
        weight = weights[stocks]
        return cls(1 + sum(each > weight + EQUAL_WITHIN for each in weights.values()), weights[ours], weight)

    def reason(self, near_tie: float) -> str:
        """Why ours preferred another host.  ``near_tie``: up to this difference any host may be chosen."""
        difference = self.ours - self.stocks
        if abs(difference) <= EQUAL_WITHIN:
            return EQUAL_WEIGHT
        return NEAR_TIE if difference <= near_tie else WEIGHT


@dataclass(frozen=True, slots=True)
class ComparedRequest:
    """One request; ``asked`` are the fields of a record that name the request."""

    asked: Mapping[str, Any]
    result: Agreement
    reason: str
    ours: Chosen
    stock: Chosen
    rank: Rank | None = None

    def entry(self, scheduler: str, at_s: float) -> dict[str, Any]:
        """The record that stores keep."""
        rank = self.rank
        return {
            "kind": COMPARISON,
            "at": round(at_s, TIME_DIGITS),
            "scheduler": scheduler,
            **self.asked,
            "hosts": sorted({*self.ours.hosts, *self.stock.hosts}),
            "result": self.result.value,
            "reason": self.reason,
            "ours": {"hosts": self.ours.hosts, "error": self.ours.error, "ms": self.ours.took_ms},
            "stock": {"hosts": self.stock.hosts, "error": self.stock.error, "ms": self.stock.took_ms},
            "rank": None if rank is None else rank.place,
            "weights": None if rank is None else [round(rank.ours, 6), round(rank.stocks, 6)],
        }


def compare(
    asked: Mapping[str, Any],
    record: DecisionRecord,
    ours: Chosen,
    stock: Chosen,
    near_tie: float,
    why_refused: Callable[[str], str],
) -> ComparedRequest:
    """Compare two answers.  ``why_refused`` returns the reason for which ours refuses a node now."""
    result = _result(record, ours, stock)
    reason, rank = "", None
    if result is Agreement.OURS_FAILED:
        reason = record.failure
    elif result in (Agreement.STOCK_FAILED, Agreement.STOCK_REFUSED):
        reason = stock.error
    elif result is Agreement.OURS_REFUSED:
        reason = _refusal(record, stock.nodes[0][0], why_refused)
    elif result is Agreement.DIFFERENT:
        rank = Rank.of(record.weights, *_apart(ours, stock))
        node = _apart(ours, stock)[1]
        reason = _refusal(record, node, why_refused) if rank is None else rank.reason(near_tie)
    return ComparedRequest(asked, result, reason, ours, stock, rank)


def _result(record: DecisionRecord, ours: Chosen, stock: Chosen) -> Agreement:
    if stock.error and stock.error != REFUSAL:
        return Agreement.STOCK_FAILED
    if record.failure and record.failure not in REFUSALS:
        return Agreement.OURS_FAILED
    if record.failure:
        return Agreement.BOTH_REFUSED if stock.error else Agreement.OURS_REFUSED
    if stock.error:
        return Agreement.STOCK_REFUSED
    return Agreement.SAME if sorted(ours.nodes) == sorted(stock.nodes) else Agreement.DIFFERENT


def _apart(ours: Chosen, stock: Chosen) -> tuple[str, str]:
    """A node that ours chose more often, and one that stock chose more often; the servers of one request are
    interchangeable."""
    only_ours, only_stock = Counter(ours.nodes), Counter(stock.nodes)
    only_ours.subtract(stock.nodes)
    only_stock.subtract(ours.nodes)
    return only_ours.most_common(1)[0][0][0], only_stock.most_common(1)[0][0][0]


def _refusal(record: DecisionRecord, node: str, why_refused: Callable[[str], str]) -> str:
    """The reason that the decision recorded for a node, or the present one."""
    for attempt in record.attempts:
        if attempt.node == node:
            return told(attempt.outcome, attempt.detail).name
    return why_refused(node)


def comparisons(store: Store, since_s: float, until_s: float) -> Iterator[Record]:
    """All comparisons of a time, oldest first.  They are read in parts, because a week may not fit into memory.

    :raises RecordsError: when the records cannot be read
    """
    length_s = until_s - since_s
    if length_s <= PART_S:
        found = store.last(PART_MAX, RecordConditions(COMPARISON, since_s=since_s, until_s=until_s))
        if len(found) < PART_MAX or length_s <= TICK_S:
            yield from found
            return
    middle_s = round(since_s + length_s / 2, TIME_DIGITS)
    yield from comparisons(store, since_s, middle_s)
    yield from comparisons(store, middle_s + TICK_S / 2, until_s)


@dataclass(slots=True)
class AgreementSum:
    """All comparisons of a time.  ``took_ms`` and ``places`` are values of single comparisons."""

    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    took_ms: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "stock": []})
    places: list[int] = field(default_factory=list)
    differences: list[Record] = field(default_factory=list)
    first_s: float | None = None
    last_s: float | None = None

    @classmethod
    def of(cls, records: Iterable[Record], differences_max: int) -> AgreementSum:
        """The sum of records of comparisons, oldest first; keeps the last ``differences_max`` that differ."""
        found = cls()
        for record in records:
            found._add(record, differences_max)
        return found

    def _add(self, record: Record, differences_max: int) -> None:
        result = record["result"]
        self.results[result] += 1
        if record["reason"]:
            self.reasons[result, record["reason"]] += 1
        for side, values in self.took_ms.items():
            if record[side]["ms"] is not None:
                values.append(record[side]["ms"])
        if record["rank"] is not None:
            self.places.append(record["rank"])
        if result not in (Agreement.SAME, Agreement.BOTH_REFUSED, Agreement.DROPPED):
            self.differences = [*self.differences, record][-differences_max:] if differences_max else []
        self.first_s = record["at"] if self.first_s is None else self.first_s
        self.last_s = record["at"]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "first_at": self.first_s,
            "last_at": self.last_s,
            "requests": self.results.total(),
            "results": {each.value: self.results[each] for each in Agreement},
            "reasons": [
                {"result": result, "reason": reason, "requests": count}
                for (result, reason), count in sorted(self.reasons.items(), key=lambda one: (one[0][0], -one[1]))
            ],
            "latency_ms": {side: quantiles(values) for side, values in self.took_ms.items()},
            "rank_of_stocks_host": quantiles(self.places),
            "differences": [dict(one) for one in self.differences],
        }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum; empty without values."""
    if not values:
        return {}
    ordered = sorted(values)
    return {name: ordered[round(part * (len(ordered) - 1))] for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1))}

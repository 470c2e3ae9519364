# SPDX-License-Identifier: Apache-2.0
"""Asks Placement before a request fails because of mirrored data of Placement or because of stale rows.

The rows of the hosts that fit according to Placement are read again, and the request is decided again.

The question costs Placement time for each fitting host, so it is bounded.  One question is in flight, and each
*shape* (the query strings) is asked at most once within ``recheck_interval_s``, or within a part of that in a small
cloud, where it costs little.  Requests of the same shape share a question; requests of other shapes wait in a queue,
each until its own deadline.

=========  ===================================  =========  =========================================
shape      event                                next       action
=========  ===================================  =========  =========================================
(unknown)  a request has no host                WAITING    wait until no other question is in flight
WAITING    its turn                             ASKING     AskFitting
WAITING    its turn, all its requests ended     (unknown)
ASKING     Placement names hosts that fit       MENDING    read their rows again; an agent reads
                                                           Placement before it answers
ASKING     no such host, an error, or too late  (settled)  the requests fail
MENDING    all those rows arrived, or no cell   (settled)  decide the requests again
           has their nodes; or too late
MENDING    no cell has any of those nodes       (settled)  the requests fail
(settled)  a request has no host, soon after    (settled)  it fails at once; if it is not root-only,
                                                           and hosts were named, these are tried
=========  ===================================  =========  =========================================
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from cachetools import FIFOCache

from shared_scheduler.core.effects import AskFitting
from shared_scheduler.core.events import FittingAnswered
from shared_scheduler.core.request_state import RequestState
from shared_scheduler.core.row_corrections import RowCorrections
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Fact, Step, Timers

Shape = tuple[str, ...]

#: shapes remembered as settled; the oldest is forgotten (and may be asked again)
SETTLED_MAX = 1_024
#: a cloud of fewer hosts is asked the same question more often, in proportion
WHOLE_INTERVAL_HOSTS = 1_000


@dataclass(frozen=True, slots=True)
class Rechecked(Fact):
    """Placement was asked for these requests; ``corrected``: rows may have changed."""

    keys: tuple[int, ...]
    corrected: bool


class RecheckState(StrEnum):
    """The states of a shape."""

    WAITING = "waiting"
    ASKING = "asking"
    MENDING = "mending"


@dataclass(slots=True)
class ShapeQuestion:
    """One shape that requests wait for."""

    shape: Shape
    request_id: str
    state: RecheckState = RecheckState.WAITING
    keys: list[int] = field(default_factory=list)
    #: the hosts that Placement named, and those whose rows are being read again
    fitting: frozenset[str] = frozenset()
    mending: set[str] = field(default_factory=set)
    #: when these reads were requested, and whether one of the rows has arrived
    mending_s: float = float("inf")
    corrected: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """When a shape was settled, and the hosts that Placement named then."""

    at_s: float
    fitting: frozenset[str]


#: a shape that was not settled recently
NEVER = Settled(float("-inf"), frozenset())


class Recheck:
    """All questions that wait or are in flight, and the shapes that were settled recently."""

    def __init__(
        self, settings: SchedulerSettings, timers: Timers, corrections: RowCorrections, hosts: Callable[[], int]
    ) -> None:
        """``hosts``: how many there are."""
        self._settings = settings
        self._hosts = hosts
        self._timers = timers
        self._corrections = corrections
        self._questions: OrderedDict[Shape, ShapeQuestion] = OrderedDict()
        self._settled: FIFOCache[Shape, Settled] = FIFOCache(SETTLED_MAX)
        self._asked: ShapeQuestion | None = None
        self._count = 0

    def __len__(self) -> int:
        return len(self._questions)

    def ask(self, step: Step, state: RequestState) -> bool:
        """Recheck a request without a host.  False if its shape was settled recently or cannot be asked."""
        shape = state.request.queries
        settled = self._settled.get(shape, NEVER)
        if not shape or step.now - settled.at_s < self._interval_s():
            return False
        question = self._questions.get(shape)
        if question is None:
            question = self._questions[shape] = ShapeQuestion(shape, state.request.request_id)
        question.keys.append(state.key)
        self.ask_next(step)
        return True

    def _interval_s(self) -> float:
        return self._settings.recheck_interval_s * min(1.0, self._hosts() / WHOLE_INTERVAL_HOSTS)

    def withdraw(self, state: RequestState) -> None:
        """Remove a request that does not need the answer any more."""
        question = self._questions.get(state.request.queries)
        if question is not None and state.key in question.keys:
            question.keys.remove(state.key)

    def fitting(self, shape: Shape) -> frozenset[str]:
        """The hosts that Placement named in its last answer for this shape."""
        return self._settled.get(shape, NEVER).fitting

    def ask_next(self, step: Step) -> None:
        """Send the oldest question to Placement, unless one is in flight."""
        question = None if self._asked is not None else self._next()
        if question is None:
            return
        self._asked = question
        question.state = RecheckState.ASKING
        self._count += 1
        step.emit(AskFitting(f"fitting.{self._count}", question.shape, question.request_id))
        self._timers.set(("recheck", ""), step.now + self._settings.recheck_timeout_s)

    def _next(self) -> ShapeQuestion | None:
        """The oldest question for which a request still waits; questions without a request are dropped."""
        while self._questions:
            question = next(iter(self._questions.values()))
            if question.keys:
                return question
            del self._questions[question.shape]
        return None

    def on_fitting(self, step: Step, event: FittingAnswered) -> None:
        """Have the rows of the root providers that fit corrected."""
        question = self._asked
        late = event.ask_id != f"fitting.{self._count}"
        if question is None or late or question.state != RecheckState.ASKING:
            return
        step.trigger = question.request_id
        question.fitting, question.mending_s = event.nodes, step.now
        for node in self._corrections.known_first(event.nodes)[: self._settings.recheck_rows_max]:
            if self._corrections.correct(step, node, "Placement says that it fits"):
                question.mending.add(node)
        question.state = RecheckState.MENDING
        if not question.mending:
            self._settle(step, question, False)

    @property
    def awaited(self) -> frozenset[str]:
        """The nodes whose rows are waited for."""
        return frozenset() if self._asked is None else frozenset(self._asked.mending)

    def row_read(self, step: Step, node: str, read_at_s: float) -> None:
        """Handle a whole row that was read; an increment does not count as an answer, nor does an older read."""
        question = self._asked
        if question is None or node not in question.mending or read_at_s < question.mending_s:
            return
        question.corrected = True
        self._arrived(step, question, [node])

    def not_found(self, step: Step, node: str, read_at_s: float) -> None:
        """Handle a search that has found nothing; one that began before Placement answered may have missed a new node.

        The search that the question has requested begins after it.
        """
        if self._asked is not None and self._asked.mending_s <= read_at_s:
            self.no_row(step, [node])

    def no_row(self, step: Step, nodes: Iterable[str]) -> None:
        """Do not wait for the rows of nodes that no cell has, such as the one of a provider that a compute has left, or
        that no cell can tell."""
        question = self._asked
        if question is not None and not question.mending.isdisjoint(nodes):
            self._arrived(step, question, nodes)

    def _arrived(self, step: Step, question: ShapeQuestion, nodes: Iterable[str]) -> None:
        question.mending.difference_update(nodes)
        if not question.mending:
            self._settle(step, question, question.corrected)

    def on_timer(self, step: Step, _name: str) -> None:
        """End the wait: continue with the rows that have arrived."""
        question = self._asked
        if question is not None:
            self._settle(step, question, question.state == RecheckState.MENDING)

    def _settle(self, step: Step, question: ShapeQuestion, corrected: bool) -> None:
        self._timers.cancel(("recheck", ""))
        self._asked = None
        del self._questions[question.shape]
        self._settled[question.shape] = Settled(step.now, question.fitting)
        step.report(Rechecked(tuple(question.keys), corrected))

# SPDX-License-Identifier: Apache-2.0
""" "No" is checked: before NoValidHost leaves because of what the mirror of Placement says, or of rows that
are stale, Placement is asked, and the rows of hosts that it says fit are read again.

The question costs Placement time for each fitting host, so it is bounded: one question in flight at a
time, and each *shape* (the query strings) at most once within ``doubt_interval_s``.  Requests of the
same shape share a question; those of another shape wait for their turn, each until its own deadline.

=========  ===================================  =========  ==========================================
shape      event                                next       what is done
=========  ===================================  =========  ==========================================
(unknown)  a request has no host                WAITING    its turn comes when nothing is in flight
WAITING    its turn                             ASKING     AskFitting
WAITING    its turn, all its requests ended     (unknown)
ASKING     hosts fit, Placement says            MENDING    their rows are read again; an agent looks in
                                                           Placement before it answers
ASKING     no such host, an error, or too late  (settled)  the requests fail
MENDING    all those rows came, or too late     (settled)  the requests are decided again
(settled)  a request has no host, soon after    (settled)  it fails at once
=========  ===================================  =========  ==========================================
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from shared_scheduler.core.effects import AskFitting
from shared_scheduler.core.events import FittingAnswered
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.settings import Settings
from shared_scheduler.core.turn import Timers, Turn
from shared_scheduler.core.work import Work

Shape = tuple[str, ...]

#: shapes remembered as settled; the oldest is forgotten (and may be asked again)
SETTLED_MAX = 1_024


class DoubtListener(Protocol):
    """Who asked (``requests.Requests``)."""

    def doubt_resolved(self, turn: Turn, key: int, corrected: bool) -> None:
        """Placement was asked for request ``key``; ``corrected``: rows may have changed."""

    def waits_for_doubt(self, key: int) -> bool:
        """Whether the answer is still of use to request ``key``."""


class DoubtState(StrEnum):
    """Where a shape is."""

    WAITING = "waiting"
    ASKING = "asking"
    MENDING = "mending"


@dataclass(slots=True)
class Question:
    """One shape that requests wait for."""

    shape: Shape
    request_id: str
    state: DoubtState = DoubtState.WAITING
    keys: list[int] = field(default_factory=list)
    mending: set[str] = field(default_factory=set)


class Doubt:
    """All questions that wait or are in flight."""

    def __init__(self, settings: Settings, timers: Timers, nodes: Nodes) -> None:
        self._settings = settings
        self._timers = timers
        self._nodes = nodes
        self._questions: OrderedDict[Shape, Question] = OrderedDict()
        self._settled_s: OrderedDict[Shape, float] = OrderedDict()
        self._fitting: dict[Shape, frozenset[str]] = {}  # of shapes that were asked, as Placement answered
        self._asked: Question | None = None
        self._count = 0
        self.listener: DoubtListener | None = None

    def __len__(self) -> int:
        return len(self._questions)

    def ask(self, turn: Turn, work: Work) -> bool:
        """Check this request's "No".  False: it was checked a moment ago, or cannot be."""
        shape = work.request.queries
        settled_s = self._settled_s.get(shape, float("-inf"))
        if not shape or turn.now - settled_s < self._settings.doubt_interval_s:
            return False
        question = self._questions.get(shape)
        if question is None:
            question = self._questions[shape] = Question(shape, work.request.request_id)
        question.keys.append(work.key)
        self._ask_next(turn)
        return True

    def fitting(self, shape: Shape) -> frozenset[str]:
        """The hosts that Placement named when it was asked for this shape last."""
        return self._fitting.get(shape, frozenset())

    def _ask_next(self, turn: Turn) -> None:
        question = None if self._asked is not None else self._next()
        if question is None:
            return
        self._asked = question
        question.state = DoubtState.ASKING
        self._fitting.pop(question.shape, None)
        self._count += 1
        turn.emit(AskFitting(f"fitting.{self._count}", question.shape, question.request_id))
        self._timers.set(("doubt", ""), turn.now + self._settings.doubt_timeout_s)

    def _next(self) -> Question | None:
        """The oldest that anybody still waits for; what nobody waits for is dropped, unasked."""
        while self._questions:
            question = next(iter(self._questions.values()))
            if any(map(self._listen().waits_for_doubt, question.keys)):
                return question
            del self._questions[question.shape]
        return None

    def on_fitting(self, turn: Turn, event: FittingAnswered) -> None:
        """Placement named the root providers that fit."""
        question = self._asked
        late = event.ask_id != f"fitting.{self._count}"
        if question is None or late or question.state != DoubtState.ASKING:
            return
        self._fitting[question.shape] = event.nodes
        for node in sorted(event.nodes)[: self._settings.doubt_refresh_max]:
            if self._nodes.doubt_row(turn, node, "Placement says that it fits"):
                question.mending.add(node)
        question.state = DoubtState.MENDING
        if not question.mending:
            self._settle(turn, question, False)

    def row_read(self, turn: Turn, node: str) -> None:
        """A whole row came; what changes a part of it is no answer."""
        question = self._asked
        if question is None or node not in question.mending:
            return
        question.mending.discard(node)
        if not question.mending:
            self._settle(turn, question, True)

    def on_timer(self, turn: Turn, _name: str) -> None:
        """Too late: go on with what is there."""
        question = self._asked
        if question is not None:
            self._settle(turn, question, question.state == DoubtState.MENDING)

    def _settle(self, turn: Turn, question: Question, corrected: bool) -> None:
        self._timers.cancel(("doubt", ""))
        self._asked = None
        del self._questions[question.shape]
        self._settled_s[question.shape] = turn.now
        self._settled_s.move_to_end(question.shape)
        if len(self._settled_s) > SETTLED_MAX:
            oldest, _ = self._settled_s.popitem(last=False)
            self._fitting.pop(oldest, None)
        for key in question.keys:
            self._listen().doubt_resolved(turn, key, corrected)
        self._ask_next(turn)

    def _listen(self) -> DoubtListener:
        assert self.listener is not None, "Doubt needs a listener before the first question"
        return self.listener

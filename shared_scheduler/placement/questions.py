# SPDX-License-Identifier: Apache-2.0
"""Answers ``AskCandidates``, ``AskFitting`` and ``LookUpConsumer`` from Placement.

Two kinds of threads, so that a question over the whole cloud (``AskFitting``: 0.35 ms of Placement for
each fitting host) never stands in the way of the quick ones.  ``AskFitting`` is asked one at a time.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from shared_scheduler.core.effects import AskCandidates, AskFitting, LookUpConsumer
from shared_scheduler.core.events import (
    Candidate,
    CandidatesAnswered,
    ConsumerAnswered,
    FittingAnswered,
)
from shared_scheduler.placement.client import FITTING_LIMIT, PlacementClient
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.placement.sharing import divisions, needs_whole_cloud

LOG = logging.getLogger(__name__)

Question = AskCandidates | AskFitting | LookUpConsumer
Answered = CandidatesAnswered | FittingAnswered | ConsumerAnswered

#: Threads for the quick questions.
WORKERS = 2
#: Questions that may wait, of each kind.
MAX_WAITING = 1024
#: How long ``stop`` waits for a thread in the middle of a call.
JOIN_S = 12.0


class Questions:
    """Start it after any fork.  Each question is answered exactly once, through ``answer``, until
    ``stop`` returns."""

    def __init__(
        self,
        client: PlacementClient,
        answer: Callable[[Answered], None],
        *,
        workers: int = WORKERS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._client = client
        self._answer = answer
        self._quick: queue.Queue[Question | None] = queue.Queue(max_waiting + workers)
        self._wide: queue.Queue[Question | None] = queue.Queue(max_waiting + 1)
        self._max_waiting = max_waiting
        self._turned_away: queue.Queue[Question | None] = queue.Queue()
        self.stopping = False
        sources = [self._quick] * workers + [self._wide]
        self._threads = [
            threading.Thread(target=self._work, args=(source,), name=f"placement-questions-{n}",
                             daemon=True)
            for n, source in enumerate(sources)
        ]  # fmt: skip
        self._threads.append(
            threading.Thread(target=self._turn_away, name="placement-questions-no", daemon=True)
        )

    def start(self) -> None:
        """Begin to answer."""
        for thread in self._threads:
            thread.start()

    def submit(self, question: Question) -> None:
        """Queue one; never blocks."""
        target = self._wide if isinstance(question, AskFitting) else self._quick
        if self.stopping or target.qsize() >= self._max_waiting:
            target = self._turned_away
        target.put(question)

    def stop(self) -> None:
        """Answer what is queued with an error, end the threads."""
        self.stopping = True
        for source in [self._quick] * (len(self._threads) - 2) + [self._wide]:
            source.put(None)
        for thread in self._threads[:-1]:
            if thread.ident is not None:
                thread.join(JOIN_S)
        self._turned_away.put(None)
        if self._threads[-1].ident is not None:
            self._threads[-1].join(JOIN_S)

    # -- threads -----------------------------------------------------------------------------

    def _work(self, source: queue.Queue[Question | None]) -> None:
        while (question := source.get()) is not None:
            if self.stopping:
                self._turned_away.put(question)
                continue
            self._tell(self._ask(question))

    def _turn_away(self) -> None:
        while (question := self._turned_away.get()) is not None:
            why = "the scheduler stops" if self.stopping else "too many questions wait for it"
            self._tell(_no_answer(question, f"Placement was not asked: {why}"))

    def _tell(self, answered: Answered) -> None:
        try:
            self._answer(answered)
        except Exception:
            LOG.exception("nobody took the answer %s", answered)

    # -- questions ---------------------------------------------------------------------------

    def _ask(self, question: Question) -> Answered:
        try:
            if isinstance(question, AskCandidates):
                return CandidatesAnswered(question.ask_id, self._candidates(question), cause=question.cause)
            if isinstance(question, AskFitting):
                return FittingAnswered(question.ask_id, self._fitting(question), cause=question.cause)
            standing = self._client.consumer(question.consumer)
            return ConsumerAnswered(question.consumer, standing.allocations, cause=question.cause)
        except PlacementError as error:
            return _no_answer(question, str(error))
        except Exception as error:
            LOG.exception("a question to Placement failed in an unforeseen way")
            return _no_answer(question, f"internal error: {error}")

    def _candidates(self, ask: AskCandidates) -> tuple[Candidate, ...]:
        found: list[Candidate] = []
        for query in ask.queries:
            if needs_whole_cloud(query, ask.sharing):
                found += self._of_whole_cloud(query, ask)
            else:
                found += self._of_tree(query, ask)
        return tuple(found)

    def _of_tree(self, query: str, ask: AskCandidates) -> list[Candidate]:
        found = list(self._client.candidates(query, ask.node, request_id=ask.request_id).requests)
        for division in divisions(query, ask.sharing):
            rest = self._client.candidates(division.query, ask.node, request_id=ask.request_id)
            found += map(division.candidate, rest.requests)
        return found

    def _of_whole_cloud(self, query: str, ask: AskCandidates) -> list[Candidate]:
        """Dear, and right."""
        wide = self._client.candidates(query, request_id=ask.request_id)
        return [one for one in wide.requests if ask.node in one.allocations]

    def _fitting(self, ask: AskFitting) -> frozenset[str]:
        fitting: set[str] = set()
        for query in ask.queries:
            answer = self._client.candidates(
                query, limit=FITTING_LIMIT, request_id=ask.request_id
            )
            fitting |= answer.roots()
        return frozenset(fitting)


def _no_answer(question: Question, error: str) -> Answered:
    if isinstance(question, AskCandidates):
        return CandidatesAnswered(question.ask_id, (), error, cause=question.cause)
    if isinstance(question, AskFitting):
        return FittingAnswered(question.ask_id, frozenset(), error, cause=question.cause)
    return ConsumerAnswered(question.consumer, {}, error, cause=question.cause)

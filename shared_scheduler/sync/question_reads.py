# SPDX-License-Identifier: Apache-2.0
"""The questions that the core asks Placement, until the revalidator has read the answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from shared_scheduler.core.effects import AskCandidates, AskFitting, AskGroup
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.questions import (
    Answered,
    HostsOf,
    MembersOf,
    MembersUnreadableError,
    PlacementQuestions,
    Question,
    no_answer,
)
from shared_scheduler.sync.databases import DatabaseError
from shared_scheduler.sync.flight import Key, Place, ReadRequest
from shared_scheduler.sync.read_registry import CANDIDATES, CONSUMER, FITTING, GROUP
from shared_scheduler.sync.revalidator import Revalidator

#: The maximum number of waiting questions.
MAX_WAITING = 1024
ASKED = (CANDIDATES, FITTING, CONSUMER, GROUP)


class QuestionReads:
    """Answers each question once: when it was read, at once if too many wait, or with an error at the stop."""

    def __init__(
        self,
        client: PlacementClient,
        revalidator: Revalidator,
        answer: Callable[[Answered], None],
        members_of: MembersOf,
        hosts_of: HostsOf,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        """``members_of`` and ``hosts_of`` may raise ``DatabaseError``."""
        self._questions = PlacementQuestions(client, partial(_members, members_of), partial(_hosts, hosts_of))
        self._revalidator = revalidator
        self._answer = answer
        self._max_waiting = max_waiting
        self._waiting: dict[Place, Question] = {}
        self._lock = threading.Lock()
        self._stopping = False
        revalidator.provide({source: partial(self._read, source) for source in ASKED})

    def submit(self, question: Question) -> None:
        """Request the read; never blocks."""
        place = _place(question)
        with self._lock:
            taken = not self._stopping and len(self._waiting) < self._max_waiting
            if taken:
                self._waiting[place] = question
        if taken:
            self._revalidator.request(ReadRequest(*place))
        else:
            why = "the scheduler stops" if self._stopping else "too many questions wait"
            self._answer(no_answer(question, f"Placement was not asked: {why}"))

    def _read(self, source: str, key: Key, _: float) -> Iterator[Answered]:
        question = self._waiting.pop((source, key), None)  # None: an earlier read has answered it
        if question is not None:
            yield self._questions.answer(question)

    def stop(self) -> None:
        """Answer the questions that are left after the revalidator was stopped."""
        with self._lock:
            self._stopping = True
        while self._waiting:
            _, question = self._waiting.popitem()
            self._answer(no_answer(question, "Placement was not asked: the scheduler stops"))


def _members(read: MembersOf, question: AskGroup) -> Mapping[str, str | None]:
    try:
        return read(question)
    except DatabaseError as error:
        raise MembersUnreadableError(str(error)) from error


def _hosts(read: HostsOf, cell: str, servers: Collection[str], undecided: bool) -> Mapping[str, str]:
    try:
        return read(cell, servers, undecided)
    except DatabaseError as error:
        raise MembersUnreadableError(str(error)) from error


def _place(question: Question) -> Place:
    match question:
        case AskCandidates():
            return CANDIDATES, (question.ask_id,)
        case AskFitting():
            return FITTING, (question.ask_id,)
        case AskGroup():
            return GROUP, (question.ask_id,)
    return CONSUMER, (question.consumer,)

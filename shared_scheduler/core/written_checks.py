# SPDX-License-Identifier: Apache-2.0
"""The checks of a request whose allocations are written and that is not answered yet.

The server group is checked first (``group_check.py``), and then hard spreading (``spread_check.py``).  Each asks, and
judges the answer; here is which of them is next, and what keeps a request from yielding as they want:

- A soft group fails no request, and makes none late: if its members cannot be read, or if little time or one attempt is
  left, its member is answered where it is.
- A request fails when it would yield more than ``YIELDS_MAX`` times, without those that cost no attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.core.events import GroupAnswered
from shared_scheduler.core.group_check import (
    SOFT_YIELD_LEFT_S,
    YIELDS_MAX,
    Agreed,
    GroupCheck,
    Outcome,
    Yield,
    is_soft_affinity,
)
from shared_scheduler.core.request_state import InstancePlacement, RequestState
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.spread_check import SpreadCheck
from shared_scheduler.core.step import Step


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The request fails; ``text`` says why."""

    text: str


class WrittenChecks:
    """Both checks.  The state of those of a request is ``RequestState.check``."""

    def __init__(self, settings: SchedulerSettings, group_check: GroupCheck, spread_check: SpreadCheck) -> None:
        self._settings = settings
        self._group_check = group_check
        self._spread_check = spread_check

    def chosen(self, state: RequestState, instance: InstancePlacement) -> None:
        """A host was chosen for an instance: note what the check of its group has to know of that."""
        self._group_check.chosen(state, instance)

    def is_needed(self, state: RequestState) -> bool:
        """Whether a request that is written must be checked before it is answered."""
        return self._group_check.is_needed(state) or self._spread_check.is_needed(state)

    def may_be_left_out(self, state: RequestState) -> bool:
        """Whether a request that is written may be answered without a check, because its group is soft."""
        return is_soft_affinity(state.request.group) and not self._spread_check.is_needed(state)

    def ask(self, step: Step, state: RequestState) -> None:
        """Emit the question of the next check."""
        self._next(state).ask(step, state)

    def judge(self, state: RequestState, event: GroupAnswered, now: float) -> Outcome | Unsettled:
        """What follows from the answer to that question."""
        check = self._next(state)
        is_soft = check is self._group_check and is_soft_affinity(state.request.group)
        if event.error:
            return _leave_it_there(state) if is_soft else _unread(state, event)
        outcome = check.judge(state, event)
        if not isinstance(outcome, Yield):
            return outcome
        if is_soft and self._has_to_stay(state, now):
            return _leave_it_there(state)
        if state.check.yields > YIELDS_MAX:
            return Unsettled(f"other members of {group_of(state)} were placed at the same time, {YIELDS_MAX} times")
        return outcome

    def may_read_label(self, state: RequestState, now: float) -> bool:
        """Whether a request that has no host because of its spreading may find one when it is read where the servers
        are, and it is time for that."""
        return self._spread_check.may_read_label(state, now)

    def read_label(self, step: Step, state: RequestState) -> None:
        """Emit the question where they are, before everything is written."""
        self._spread_check.read_label(step, state)

    def recall(self, state: RequestState, now: float) -> bool:
        """Use what was found for another request, if there is something; the next decision sees it."""
        return self._spread_check.recall(state, now)

    def label_read_pause_s(self, state: RequestState, now: float) -> float | None:
        """How long the request waits until it tries both again; None if it does not."""
        return self._spread_check.label_read_pause_s(state, now)

    def learn(self, state: RequestState, event: GroupAnswered, now: float) -> Unsettled | None:
        """Note where they are, for the next decision; returns why they could not be read."""
        self._spread_check.learn(state, event, now)
        return _unread(state, event) if event.error else None

    def overhear(self, event: GroupAnswered, now: float) -> None:
        """Take in an answer for which its request does not wait any more."""
        self._spread_check.overhear(event, now)

    def _next(self, state: RequestState) -> GroupCheck | SpreadCheck:
        return self._group_check if self._group_check.is_needed(state) else self._spread_check

    def _has_to_stay(self, state: RequestState, now: float) -> bool:
        """Whether a request might find no host in time, or have no attempt for one, if it yielded."""
        attempts = max(instance.attempts for instance in state.instances)
        return state.deadline_s - now <= SOFT_YIELD_LEFT_S or attempts + 1 >= self._settings.attempts_max


def _unread(state: RequestState, event: GroupAnswered) -> Unsettled:
    return Unsettled(f"the members of {group_of(state)} could not be read: {event.error}")


def _leave_it_there(state: RequestState) -> Agreed:
    """A member of a soft group stays where it is."""
    state.check.passed = True
    return Agreed()


def others_first(state: RequestState) -> str:
    """Why a request has no host in time although it was written; empty if it has not waited for others."""
    check = state.check
    is_waiting = check.unsettled and (check.yields or check.checks_made)
    if not (check.deferrals or is_waiting):
        return ""
    return f"other servers of {group_of(state)} came first: it has yielded {check.deferrals + check.yields} times"


def group_of(state: RequestState) -> str:
    """The server group or the label of a request, in a message."""
    request = state.request
    if request.label:
        return f"label {request.label}"
    return "no server group" if request.group is None else f"server group {request.group.uuid}"

# SPDX-License-Identifier: Apache-2.0
"""Checks that a failure has the correct reason, with the samples and without any report of a scheduler.

"No valid host" is wrong if some host that the request allowed was open and had room during the whole operation, also
if everything else that was in progress had used room there. A request without an answer needs a scheduler that was
killed at that time.
"""

from collections import Counter
from collections.abc import Iterable

from tools.laboratory.chaos.history import History, Operation
from tools.laboratory.chaos.sampler import Samples

NO_HOST = "No valid host"
NO_ANSWER = ("MessagingTimeout", "Timed out waiting for a reply")
AFTERMATH_S = 60.0
"""How long the nodes hold the claims of a killed scheduler, until they have read Placement."""


def false_reasons(history: History, seen: Samples) -> list[str]:
    """One sentence for each failure whose reason is wrong."""
    return [f"user {operation.user}, {operation.name} of {operation.server}: {why}: {operation.why[:300]}"
            for operation in history.failed() if (why := why_false(operation, history, seen))]  # fmt: skip


def why_false(operation: Operation, history: History, seen: Samples) -> str:
    """Why the reason is wrong; empty if it is correct."""
    if any(text in operation.why for text in NO_ANSWER):
        return "" if scheduler_was_down(history, operation, 0.0) else "no answer, and no scheduler was killed"
    if NO_HOST not in operation.why:
        return "a reason that no request may have here"
    if operation.requirement is None:
        return "it needs no host"
    ended_at = operation.ended_at or operation.began_at
    others = [other.requirement for other in history.concurrent_with(operation) if other.requirement]
    others_mb = sum(other.memory_mb * other.count for other in others)
    if scheduler_was_down(history, operation, AFTERMATH_S):
        others_mb += max(seen.memory_mb.values())
    wanted_mb = operation.requirement.memory_mb * operation.requirement.count + others_mb
    room = seen.had_room(operation.requirement.hosts, operation.began_at, ended_at, wanted_mb)
    return f"{', '.join(room)} had room for {wanted_mb} MB all the time" if room else ""


def scheduler_was_down(history: History, operation: Operation, before_s: float) -> bool:
    """Whether a scheduler was down during the operation, or at most `before_s` before it."""
    ended_at = operation.ended_at or operation.began_at
    return any(
        fault.began_at <= ended_at and fault.ended_at + before_s >= operation.began_at
        for fault in history.faults
        if fault.name == "scheduler killed"
    )


def why_counts(operations: Iterable[Operation]) -> dict[str, int]:
    """Failures by operation and the first words of their reason."""
    return dict(sorted(Counter(f"{operation.name}: {_short(operation.why)}" for operation in operations).items()))


def _short(why: str) -> str:
    if NO_HOST in why:
        return "no valid host"
    return "no answer" if any(text in why for text in NO_ANSWER) else why[:120]

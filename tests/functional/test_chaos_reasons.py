# SPDX-License-Identifier: Apache-2.0
"""``tools/lab chaos`` finds failures with a wrong reason."""

from __future__ import annotations

import pytest

from tools.laboratory.chaos import reasons
from tools.laboratory.chaos.history import Fault, History, Operation, Requirement
from tools.laboratory.chaos.sampler import Sample, Samples

NO_HOST = "No valid host was found. There are not enough hosts available."
NO_ANSWER = "MessagingTimeout: Timed out waiting for a reply to message ID 1"
BOTH = frozenset({"c1", "c2"})


def seen(*used_mb: int, open_hosts: frozenset[str] = BOTH) -> Samples:
    """One sample a second at two hosts of 1200 MB: c1 is full, c2 holds so much."""
    taken = [Sample(float(at), {"c1": 1200, "c2": used}, open_hosts) for at, used in enumerate(used_mb)]
    return Samples({"c1": 1200, "c2": 1200}, taken)


def failed(why: str = NO_HOST, began_at: float = 1.0, requirement: Requirement | None = None) -> Operation:
    requirement = requirement or Requirement(400, BOTH)
    return Operation(1, "boot", "server", began_at, requirement, ended_at=began_at + 1, ok=False, why=why)


def told(operation: Operation, samples: Samples, *others: Operation, faults: tuple[Fault, ...] = ()) -> str:
    return reasons.why_false(operation, History([operation, *others], list(faults)), samples)


def test_no_host_is_false_where_a_host_had_room_all_the_time() -> None:
    assert "c2 had room" in told(failed(), seen(800, 800, 800, 800))


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        (seen(1200, 1200, 1200, 1200), "it was full"),
        (seen(800, 1200, 800, 800), "it was full for a moment"),
        (seen(800, 800, 800, 800, open_hosts=frozenset({"c1"})), "it was closed"),
    ],
)
def test_no_valid_host_is_correct_if_no_host_had_room(samples: Samples, why: str) -> None:
    assert told(failed(), samples) == "", why


def test_room_that_concurrent_operations_may_have_used_counts_as_used() -> None:
    beside = Operation(2, "boot", "other", 0.5, Requirement(400, BOTH))
    before = Operation(2, "boot", "other", 0.1, Requirement(400, BOTH), ended_at=0.5, ok=True)

    assert told(failed(), seen(800, 800, 800, 800), beside) == ""
    assert "c2 had room" in told(failed(), seen(800, 800, 800, 800), before)


def test_a_host_that_was_not_allowed_does_not_count() -> None:
    assert told(failed(requirement=Requirement(400, frozenset({"c1"}))), seen(800, 800, 800, 800)) == ""


def test_no_answer_is_true_only_while_a_scheduler_is_down() -> None:
    operation, samples = failed(NO_ANSWER, began_at=10.0), seen(800)

    assert told(operation, samples, faults=(Fault("scheduler killed", "sched1", 5.0, 10.5),)) == ""
    assert "no scheduler was killed" in told(operation, samples, faults=(
        Fault("scheduler killed", "sched1", 1.0, 9.0),
    ))  # fmt: skip
    assert "no scheduler was killed" in told(operation, samples, faults=(Fault("host disabled", "c1", 5.0, 10.5),))


def test_a_reason_other_than_no_valid_host_is_reported() -> None:
    assert told(failed("KeyError: 'cell1'"), seen(1200, 1200)) == "a reason that no request may have here"

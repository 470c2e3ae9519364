# SPDX-License-Identifier: Apache-2.0
"""For how long a record is kept because a write without an answer may still be carried out."""

from __future__ import annotations

from shared_scheduler.placement.late_writes import LateWrites
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S


def test_each_write_without_an_answer_is_waited_for_from_its_own_beginning() -> None:
    # given a write without an answer, and another one of the same server half of the time later
    late = LateWrites()
    late.add("server-1", 100.0)
    late.add("server-1", 100.0 + CARRIED_OUT_WITHIN_S / 2)
    # then the second one may arrive when the first one cannot any more
    assert late.may_arrive("server-1", 100.0 + CARRIED_OUT_WITHIN_S)
    assert not late.may_arrive("server-1", 100.0 + 1.5 * CARRIED_OUT_WITHIN_S)


def test_the_oldest_are_forgotten_first_and_a_second_write_is_a_young_one() -> None:
    late = LateWrites(max_consumers=2)
    for number, consumer in enumerate(("server-1", "server-2", "server-1", "server-3")):
        late.add(consumer, float(number))
    assert [late.may_arrive(f"server-{number}", 4.0) for number in (1, 2, 3)] == [True, False, True]

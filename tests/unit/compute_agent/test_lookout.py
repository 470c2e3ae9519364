# SPDX-License-Identifier: Apache-2.0
"""Whom the agent looks for until Placement has let go."""

from __future__ import annotations

from compute_agent.lookout import Watch
from compute_agent.settings import Settings

GONE_SOON = Settings(first_look_s=1.0, last_look_s=8.0)


def test_looks_are_twice_as_far_apart_each_time_and_end() -> None:
    watch = Watch(GONE_SOON)
    looks = [watch.add("c", 0.0)]
    while (due_s := looks[-1]) is not None:
        looks.append(watch.read({"c"}, due_s))
    assert looks == [1.0, 3.0, 7.0, 15.0, None]


def test_what_is_read_for_somebody_else_does_not_shorten_the_watch() -> None:
    # given one who is watched
    watch = Watch(GONE_SOON)
    watch.add("patient", 0.0)

    # when Placement is read many times for others, who are gone at once
    for number in range(20):
        watch.add(f"hasty-{number}", number / 100)
        due_s = watch.read({"patient"}, number / 100 + 0.001)

    # then the first one's look is where it was
    assert due_s == 1.0


def test_who_is_gone_is_watched_no_more() -> None:
    watch = Watch(GONE_SOON)
    watch.add("c", 0.0)
    assert watch.read(set(), 0.5) is None

# SPDX-License-Identifier: Apache-2.0
"""The core's alarms."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.core.step import Timers

KEYS = st.sampled_from([("a", "1"), ("a", "2"), ("b", "1")])


def test_setting_a_timer_again_moves_it() -> None:
    timers = Timers()
    timers.set(("verdict", "c-1"), 5.0)
    timers.set(("verdict", "c-1"), 9.0)
    assert timers.next_s() == 9.0
    assert timers.due(8.0) is None
    assert timers.due(9.0) == ("verdict", "c-1")
    assert timers.next_s() is None


def test_a_cancelled_timer_does_not_ring() -> None:
    timers = Timers()
    timers.set(("verdict", "c-1"), 5.0)
    timers.cancel(("verdict", "c-1"))
    timers.cancel(("verdict", "never set"))
    assert timers.due(100.0) is None and len(timers) == 0


def test_memory_depends_on_the_number_of_active_timers() -> None:
    timers = Timers()
    for i in range(100_000):
        timers.set(("window", "node-1"), float(i))
    assert len(timers._heap) < 100


@given(st.lists(st.tuples(st.sampled_from(["set", "cancel", "due"]), KEYS, st.integers(0, 20)), max_size=60))
def test_timers_behave_like_a_dictionary(steps: list[tuple[str, tuple[str, str], int]]) -> None:
    timers, model = Timers(), dict[tuple[str, str], int]()
    for what, key, at in steps:
        if what == "set":
            timers.set(key, at)
            model[key] = at
        elif what == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            rung = set()
            while (found := timers.due(at)) is not None:
                rung.add(found)
            assert rung == {k for k, at_s in model.items() if at_s <= at}
            model = {k: at_s for k, at_s in model.items() if at_s > at}
        assert timers.next_s() == min(model.values(), default=None)

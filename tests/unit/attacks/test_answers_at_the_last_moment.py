# SPDX-License-Identifier: Apache-2.0
"""A host answers each claim shortly before it would be late, so that all schedulers wait longer for late agents."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from shared_scheduler.core.verdict_limit import SHORTEST_S, VerdictLimit


@given(st.lists(st.floats(0.0, 3.0), max_size=80), st.integers(0, 3))
@example([0.99] * 80, 1)
@example([0.33, 0.0] * 40, 0)
@example([0.0] * 20 + [0.34] * 40, 0)
def test_one_agent_can_hardly_raise_the_limit_for_the_others(parts: list[float], honest: int) -> None:
    # given a fleet that answers promptly
    limit = VerdictLimit(3.0)
    for number in range(50):
        limit.answered(f"node-{number}", 0.004)
    # when one agent takes as long as it likes, each time a part of the limit of the moment
    for part in parts:
        limit.answered("node-7", part * limit.after())
        for number in range(honest):
            limit.answered(f"node-{number}", 0.004)
        # then the others are waited for about as long as before
        assert limit.after() <= 2.5 * SHORTEST_S

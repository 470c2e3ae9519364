# SPDX-License-Identifier: Apache-2.0
"""The log of the newest changes."""

from __future__ import annotations

import pytest

from shared_scheduler.table.host_table import CHANGES_MAX, ChangeLog


@pytest.mark.parametrize("before", [0, 5, CHANGES_MAX - 3, CHANGES_MAX, 5 * CHANGES_MAX + 1])
@pytest.mark.parametrize("after", [0, 1, 7, CHANGES_MAX - 1, CHANGES_MAX])
def test_the_slots_that_changed_since_are_returned_in_order(before, after):
    log = ChangeLog()
    for _ in range(before):
        log.note(-1)
    then = log.generation
    for slot in range(after):
        log.note(slot)
    assert log.since(then).tolist() == list(range(after))


def test_an_unknown_request_is_reported():
    log = ChangeLog()
    then = log.generation
    for slot in range(CHANGES_MAX + 1):
        log.note(slot)
    assert log.since(then) is None
    assert log.since(log.generation).tolist() == []

# SPDX-License-Identifier: Apache-2.0
"""What label reads have found is kept for a short time, and for so many servers only."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, takewhile

from shared_scheduler.core.label_reads import (
    KEPT_S,
    KEPT_SERVERS_MAX,
    LABEL_READ_INTERVAL_S,
    LABEL_READ_WAITS_MAX,
    LabelReads,
    Located,
    pause_s,
)


def servers(number: int, prefix: str = "server") -> Located:
    """So many servers, each on a node."""
    placed = {f"{prefix}-{one}": frozenset({f"node-{one}"}) for one in range(number)}
    return Located(placed, frozenset(), frozenset(), {})


def test_what_was_found_is_forgotten_when_the_label_may_be_read_again() -> None:
    # given a label read with an answer
    reads, found = LabelReads(), servers(2)
    assert reads.may_begin("web", "project", 100.0)
    reads.keep("web", found, 100.0)
    # then it is there while the label may not be read, and not longer
    assert not reads.may_begin("web", "project", 100.0 + LABEL_READ_INTERVAL_S - 0.1)
    assert reads.kept("web", 100.0 + LABEL_READ_INTERVAL_S - 0.1) == found
    assert reads.kept("web", 100.1 + KEPT_S) is None
    assert reads.may_begin("web", "project", 100.1 + KEPT_S)


def test_the_newest_read_counts() -> None:
    reads, newer = LabelReads(), servers(1, "other")
    reads.keep("web", servers(2), 100.0)
    reads.keep("web", newer, 105.0)
    assert reads.kept("web", 106.0) == newer


def test_a_read_that_began_earlier_and_took_longer_is_not_kept() -> None:
    reads, newer = LabelReads(), replace(servers(1, "other"), asked_s=100.0)
    reads.keep("web", newer, 101.0)
    reads.keep("web", replace(servers(2), asked_s=95.0), 102.0)
    assert reads.kept("web", 103.0) == newer


def test_a_read_that_has_found_nothing_is_kept_too() -> None:
    reads = LabelReads()
    reads.keep("web", servers(0), 100.0)
    assert reads.kept("web", 101.0) == servers(0)


def test_the_oldest_labels_are_forgotten_first_when_they_have_too_many_servers() -> None:
    # given three labels, of which two have as many servers as are kept
    reads, half = LabelReads(), servers(KEPT_SERVERS_MAX // 2)
    for label in ("first", "second", "third"):
        reads.keep(label, half, 100.0)
    assert [reads.kept(label, 101.0) is not None for label in ("first", "second", "third")] == [False, True, True]


def test_of_a_label_with_too_many_servers_nothing_is_kept() -> None:
    # given what was found earlier, and that there are more servers than are kept
    reads = LabelReads()
    reads.keep("web", servers(2), 100.0)
    reads.keep("db", servers(2), 100.0)
    reads.keep("web", servers(KEPT_SERVERS_MAX + 1), 101.0)
    # then not even the earlier ones are, and the other label is as before
    assert reads.kept("web", 101.0) is None
    assert reads.kept("db", 101.0) == servers(2)


def test_the_servers_of_a_request_are_left_out_wherever_they_are() -> None:
    # given two servers of which everything is known
    both = {"server-1": frozenset({"node-1"}), "server-2": frozenset({"node-2"})}
    told = frozenset({("server-1", "node-3"), ("server-2", "node-4")})
    located = Located(both, told, frozenset(both), both)
    # then one of them is left
    left = {"server-2": frozenset({"node-2"})}
    assert located.without(["server-1"]) == Located(
        left, frozenset({("server-2", "node-4")}), frozenset({"server-2"}), left
    )


def test_a_request_waits_for_more_than_the_interval_and_has_an_end() -> None:
    pauses = [pause_s(waits) for waits in takewhile(lambda waits: pause_s(waits) is not None, count())]
    assert LABEL_READ_INTERVAL_S < sum(filter(None, pauses)) < 2 * LABEL_READ_INTERVAL_S


def test_a_request_waits_for_another_interval_if_a_read_begins_at_last_and_has_an_end() -> None:
    pauses = list(takewhile(lambda pause: pause is not None, (pause_s(waits, True) for waits in count())))
    more_s = sum(filter(None, pauses[LABEL_READ_WAITS_MAX:]))
    assert LABEL_READ_INTERVAL_S < more_s < 2 * LABEL_READ_INTERVAL_S

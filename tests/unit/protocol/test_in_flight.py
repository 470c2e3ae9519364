# SPDX-License-Identifier: Apache-2.0
"""Unanswered requests of one host must not block those of others, and no request is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from shared_scheduler.protocol import limits
from shared_scheduler.protocol.messages import Heartbeat, Leave, Snapshot
from shared_scheduler.protocol.phases import WindowFreshness
from shared_scheduler.protocol.rate_limits import TokenBucket
from shared_scheduler.protocol.resync_turns import UNLISTED, ResyncTurns
from shared_scheduler.protocol.window import MessageWindow, ResyncWish

NODES = 500
STEP_S = 0.05
HOST_MAX, ALL_MAX = limits.HOST_RESYNCS_IN_FLIGHT_MAX, limits.RESYNCS_IN_FLIGHT_MAX
PATIENCE_S = limits.RESYNC_PATIENCE_S


def host_of(node: str) -> str:
    """The host of "a/1" is a; no database has "/1"."""
    return node.partition("/")[0]


def nodes_of(host: str, count: int) -> list[str]:
    return [f"{host}/{number}" for number in range(count)]


def many_turns(per_s: float = 1e6) -> ResyncTurns:
    """Turns for which only places are scarce, unless ``per_s`` is low."""
    return ResyncTurns(host_of, TokenBucket(per_s, 1e6 if per_s == 1e6 else 1.0))


def begun(turns: ResyncTurns, nodes: Sequence[str], now: float = 0.0) -> list[str]:
    """The nodes that need not wait."""
    return [node for node in nodes if turns.begin(node, now)]


def called(turns: ResyncTurns, now: float) -> list[str]:
    """The nodes that waited and whose turn it is now; each takes it."""
    found = []
    while (node := turns.next(now)) is not None:
        assert turns.begin(node, now)
        found.append(node)
    turns.validate()
    return found


class Fleet:
    """Many windows of one scheduler, all of which have heard a heartbeat and hold no state."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = ResyncTurns(str)
        rng = Random(1)
        self.windows = {f"node-{n}": MessageWindow(f"node-{n}", rng, self.turns) for n in range(NODES)}
        for window in self.windows.values():
            window.receive(Heartbeat(window.node, 7, 3, "host", 0), self.now, lambda: 0)

    def pass_s(self, seconds: float) -> list[MessageWindow]:
        """Time passes; who asked, once for each ask."""
        asked = []
        end_s = self.now + seconds
        while self.now < end_s:
            self.now += STEP_S
            for window in self.windows.values():
                if isinstance(window.on_tick(self.now).resync, ResyncWish):
                    asked.append(window)
            while (node := self.turns.next(self.now)) is not None:
                if isinstance(self.windows[node].on_turn(self.now).resync, ResyncWish):
                    asked.append(self.windows[node])
            self.turns.validate()
        return asked


def test_asks_without_answers_are_few() -> None:
    fleet = Fleet()
    asked = fleet.pass_s(30.0)
    turns = 1 + 30.0 / PATIENCE_S
    assert 0 < len(asked) <= ALL_MAX * turns


def test_answers_make_room_for_the_next_asks() -> None:
    fleet = Fleet()
    served: set[str] = set()
    while len(served) < NODES:
        for window in fleet.pass_s(STEP_S):
            served.add(window.node)
            window.receive(Snapshot(window.node, 7, 3, "host", {}, {}, {}, 0), fleet.now, lambda: 0)
        assert fleet.now < 60.0, f"only {len(served)} were asked"
    assert not fleet.turns.waiting


def test_an_unanswered_request_frees_its_place_after_a_while() -> None:
    # given a host whose places were taken at two times
    turns, nodes = many_turns(), nodes_of("a", HOST_MAX + 3)
    assert begun(turns, nodes[:2], 0.0) + begun(turns, nodes[2:], 1.0) == nodes[:HOST_MAX]
    # then
    assert turns.next_s(2.0) == PATIENCE_S and called(turns, 0.999 * PATIENCE_S) == []
    assert called(turns, PATIENCE_S) == nodes[HOST_MAX : HOST_MAX + 2]
    assert turns.next_s(PATIENCE_S) == 1.0 + PATIENCE_S
    assert called(turns, 1.0 + PATIENCE_S) == nodes[HOST_MAX + 2 :]
    assert turns.next_s(2.0 + PATIENCE_S) is None


def test_an_answer_frees_all_places_of_its_node_at_once() -> None:
    turns, nodes = many_turns(), nodes_of("a", 4)
    first = [nodes[0]] * HOST_MAX
    assert begun(turns, [*first, *nodes[1:]]) == first
    turns.in_flight.end(nodes[0])
    assert called(turns, 0.0) == nodes[1:]
    turns.in_flight.end(nodes[0])  # one too many is harmless
    turns.validate()


@pytest.mark.parametrize("leaves", [True, False])
def test_a_snapshot_frees_the_places_of_a_node_that_was_silent_since_it_was_asked(leaves: bool) -> None:
    # given a node that was asked for a snapshot
    turns = many_turns()
    window = MessageWindow("a/0", Random(1), turns)
    window.receive(Heartbeat("a/0", 7, 3, "a", 0), 0.0, lambda: 0)
    assert window.on_tick(limits.SILENT_AFTER_S - 1.0).resync is not None
    # when its agent stops, or is silent for too long
    now = limits.SILENT_AFTER_S + 1.0
    if leaves:
        window.receive(Leave("a/0", 7, 3), now, lambda: 0)
    else:
        window.on_tick(now)
    assert window.freshness is WindowFreshness.SILENT
    # and its snapshot comes
    window.receive(Snapshot("a/0", 8, 1, "a", {}, {}, {}, 0), now + 1.0, lambda: 0)
    # then other nodes of the host need not wait
    assert turns.next_s(now + 1.0) is None and turns.in_flight.next_end_s() is None


def test_a_host_whose_places_are_taken_leaves_those_of_others() -> None:
    turns = many_turns()
    assert begun(turns, nodes_of("a", 1000)) == nodes_of("a", HOST_MAX)
    others = [f"{number}/0" for number in range(ALL_MAX - HOST_MAX + 1)]
    assert begun(turns, others) == others[:-1]


def test_nodes_that_no_database_has_use_places_of_their_own() -> None:
    # given so many hosts that all places are taken
    turns = many_turns()
    hosts = [f"{number}/0" for number in range(ALL_MAX + 1)]
    assert begun(turns, hosts) == hosts[:-1]
    # when
    unlisted = nodes_of(UNLISTED, 100)
    assert begun(turns, unlisted) == unlisted[: limits.UNLISTED_RESYNCS_IN_FLIGHT_MAX]
    # then these do not matter to a host either
    turns.in_flight.end(hosts[0])
    assert called(turns, 0.0) == hosts[-1:]


def test_hosts_take_turns() -> None:
    # given a host with many nodes that came first, and one token at a time
    turns = many_turns(per_s=1.0)
    begun(turns, [*nodes_of("a", 100), *nodes_of("b", 3), *nodes_of("c", 1)])
    # when
    order = [node for second in range(1, 9) for node in called(turns, float(second))]
    # then each host has its turn, and its oldest node
    assert order == ["a/1", "b/0", "c/0", "a/2", "b/1", "a/3", "b/2", "a/4"]


def test_a_node_waits_once_and_keeps_its_turn() -> None:
    turns = many_turns(per_s=1.0)
    assert begun(turns, ["a/0", "a/1", "a/2", "a/1"]) == ["a/0"]
    assert [called(turns, float(second)) for second in range(1, 4)] == [["a/1"], ["a/2"], []]


def test_a_node_that_needs_no_turn_any_more_is_passed_over() -> None:
    turns = many_turns(per_s=1.0)
    begun(turns, ["a/0", "a/1", "b/0"])
    turns.leave("a/1")
    turns.leave("a/1")
    assert called(turns, 1.0) == ["b/0"] and not turns.waiting


def test_a_node_that_the_database_has_now_waits_with_those_of_its_host() -> None:
    # given a node behind others that no database has
    hosts = {"n": UNLISTED}
    turns = ResyncTurns(lambda node: hosts.get(node, UNLISTED), TokenBucket(1.0, 1.0))
    begun(turns, ["1", "2", "3", "n"])
    # when
    hosts["n"] = "host"
    turns.moved("n")
    turns.moved("unknown")
    # then
    assert [called(turns, float(second)) for second in range(1, 5)] == [["2"], ["n"], ["3"], []]


@pytest.mark.parametrize("host", ["a", UNLISTED])
def test_requests_that_do_not_wait_are_few_for_each_host(host: str) -> None:
    turns = many_turns()
    at_once = [turns.take(node, 0.0) for node in nodes_of(host, 1000)]
    assert sum(at_once) == limits.HOST_PROMPT_RESYNCS_BURST
    assert turns.take("b/0", 0.0)
    assert turns.take(f"{host}/0", 1 / limits.HOST_PROMPT_RESYNCS_PER_S)


def test_requests_that_wait_leave_tokens_to_those_that_do_not() -> None:
    turns = ResyncTurns(host_of)
    hosts = [f"{number}/0" for number in range(ALL_MAX)]
    assert len(begun(turns, hosts)) == limits.SCHEDULER_RESYNCS_BURST
    assert sum(turns.take(f"{number}/x", 0.0) for number in range(100)) == limits.PROMPT_RESYNCS_BURST


def test_requests_that_do_not_wait_leave_tokens_to_those_that_do() -> None:
    # given many hosts whose messages make the scheduler ask at once, one after the other
    turns = ResyncTurns(host_of)
    for tick in range(500):
        now = tick / 100
        for number in range(tick % 10, 50, 10):
            turns.take(f"{number}/0", now)
        # when a node of another one needs a resync each second
        if tick % 100 == 50:
            turns.begin(f"a/{tick}", now)
        called(turns, now)
    # then it is asked
    assert not turns.waiting

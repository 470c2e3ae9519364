# SPDX-License-Identifier: Apache-2.0
"""Single nodes, read from the databases and Placement."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from shared_scheduler.core.events import AggregateFacts, NodeRead, NodesGone
from shared_scheduler.placement.mirror import PlacementMirror, Tree
from shared_scheduler.service.node_reads import (
    NodeReads,
    ReadQueue,
    node_read,
    read_node,
    with_host_aggregates,
)
from tests.unit.placement.conftest import placement_app, world  # noqa: F401 (fixtures)
from tests.unit.placement.world import World, in_trouble
from tests.unit.service.nova_databases import NovaDatabases

WAIT_S = 60.0


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


def test_what_is_due_first_is_taken_first() -> None:
    reads = ReadQueue()
    assert reads.put("cell", "late", 20.0) and reads.put("cell", "soon", 10.0)
    assert reads.take(9.0) is None and reads.next_due_s() == 10.0
    assert reads.take(30.0) == ("cell", "soon")
    assert reads.take(30.0) == ("cell", "late")
    assert reads.take(30.0) is None and reads.next_due_s() is None


def test_what_waits_for_its_time_is_not_late() -> None:
    # given one that is late, and others that the slow audit has spread over the next minute
    reads = ReadQueue()
    for number in range(10):
        reads.put("cell", f"node-{number}", 10.0 * number)
    assert (reads.due(0.0), reads.due(25.0), len(reads)) == (1, 3, 10)
    reads.take(0.0)
    assert reads.due(0.0) == 0


def test_a_node_waits_once_and_for_the_soonest() -> None:
    reads = ReadQueue()
    for due_s in (20.0, 10.0, 30.0):
        reads.put("cell", "node", due_s)
    assert len(reads) == 1
    assert reads.take(10.0) == ("cell", "node")
    assert reads.take(99.0) is None


def test_a_node_that_is_being_read_is_read_again_afterwards() -> None:
    reads = ReadQueue()
    reads.put("cell", "node", 0.0)
    reads.take(0.0)
    reads.put("cell", "node", 0.0)
    assert reads.take(1.0) is None
    reads.done("node")
    assert reads.take(1.0) == ("cell", "node")


def test_too_many_are_not_taken_in() -> None:
    reads = ReadQueue(max_waiting=1)
    assert reads.put("cell", "a", 0.0)
    assert not reads.put("cell", "b", 0.0)
    assert reads.put("cell", "a", 0.0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.booleans()), max_size=40))
def test_every_wish_is_read_at_or_after_its_time(wishes: list[tuple[str, int, bool]]) -> None:
    reads, wanted, reading = ReadQueue(), dict[str, int](), list[str]()
    for node, due_s, work in wishes:
        reads.put("cell", node, float(due_s))
        wanted[node] = min(due_s, wanted.get(node, due_s))
        if work:
            for one in reading:
                reads.done(one)
            found = reads.take(5.0)
            ready = [due for due in wanted.values() if due <= 5]
            assert (found is not None) is bool(ready)
            reading = [] if found is None else [found[1]]
            if found is not None:
                assert wanted.pop(found[1]) == min(ready)
    for one in reading:
        reads.done(one)
    left = []
    while (found := reads.take(100.0)) is not None:
        left.append(found[1])
    assert sorted(left) == sorted(wanted)


def test_a_node_as_an_agent_would_tell_it(nova: NovaDatabases, world: World) -> None:  # noqa: F811
    own = nova.compute("cmp-1", world.provider(vcpus=8))
    instance = nova.instance("cmp-1")
    world.take(instance, {own: {"VCPU": 2}})
    event = read_node(nova.cell(), PlacementMirror(world.client), own, lambda: 7.0)
    assert event is not None
    assert (event.cell, event.node, event.host) == (nova.cell_uuid, own, "cmp-1")
    assert (event.nodename, event.read_at_s) == ("cmp-1.example.org", 7.0)
    assert event.members == {instance}
    assert event.consumers == {instance: {own: {"VCPU": 2}}}
    assert event.leaves["cn.memory_mb"] == 4096 and f"rp.{own}" in event.leaves


def test_an_overview_gets_the_aggregates_that_nova_mirrors() -> None:
    tree = Tree({"rp.node": {"inventories": {}, "aggregates": []}})
    row = {"uuid": "node", "host": "cmp-1", "hypervisor_hostname": "n", "stats": "{}"}
    event = node_read("cell", row, frozenset(), tree, 0.0)
    assert event is not None
    mine = AggregateFacts(1, "agg-1", "a", frozenset({"cmp-1"}), {})
    other = AggregateFacts(2, "agg-2", "b", frozenset({"cmp-2"}), {})
    leaf = with_host_aggregates(event, [mine, other]).leaves["rp.node"]
    assert leaf["aggregates"] == ["agg-1"]  # type: ignore[index,call-overload]


def test_a_record_that_does_not_parse_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    row = {"uuid": "node", "host": "cmp-1", "hypervisor_hostname": "n", "stats": "{garbage"}
    assert node_read("cell", row, frozenset(), Tree(), 0.0) is None
    assert "cmp-1 is left out" in caplog.text


class Reader:
    def __init__(self, nova: NovaDatabases, world: World) -> None:  # noqa: F811
        self.heard: queue.Queue[Any] = queue.Queue()
        self.spoken_for: set[str] = set()
        self.reads = NodeReads(
            PlacementMirror(world.client), self.heard.put, time.monotonic,
            agent_speaks_for=self.spoken_for.__contains__,
        )  # fmt: skip
        self.reads.use({nova.cell_uuid: nova.cell()})
        self.reads.start()


@pytest.fixture
def reader(nova: NovaDatabases, world: World) -> Iterator[Reader]:  # noqa: F811
    one = Reader(nova, world)
    yield one
    one.reads.stop()


def test_who_asks_is_told(nova: NovaDatabases, world: World, reader: Reader) -> None:  # noqa: F811
    own = nova.compute("cmp-1", world.provider())
    reader.reads.put(nova.cell_uuid, own)
    assert isinstance(reader.heard.get(timeout=WAIT_S), NodeRead)


def test_a_node_that_is_gone_is_said_to_be_gone(nova: NovaDatabases, reader: Reader) -> None:
    reader.reads.put(nova.cell_uuid, "no-such-node")
    assert reader.heard.get(timeout=WAIT_S) == NodesGone(nova.cell_uuid, frozenset(["no-such-node"]))


def test_a_node_of_a_cell_that_nobody_reads_is_nothing(nova: NovaDatabases, world: World, reader: Reader) -> None:  # noqa: F811
    reader.reads.put("another cell", "node")
    own = nova.compute("cmp-1", world.provider())
    reader.reads.put(nova.cell_uuid, own)
    assert reader.heard.get(timeout=WAIT_S).node == own


def test_a_node_whose_agent_has_spoken_meanwhile_is_not_read(
    nova: NovaDatabases, world: World, reader: Reader,  # noqa: F811
) -> None:  # fmt: skip
    spoken_for, silent = nova.compute("cmp-1", world.provider()), nova.compute("cmp-2", world.provider())
    reader.spoken_for.add(spoken_for)
    reader.reads.put(nova.cell_uuid, spoken_for)
    reader.reads.put(nova.cell_uuid, silent)
    reader.reads.put(nova.cell_uuid, "no-such-node")
    heard = [reader.heard.get(timeout=WAIT_S) for _ in range(2)]
    assert {type(one).__name__ for one in heard} == {"NodeRead", "NodesGone"}
    assert [one.node for one in heard if isinstance(one, NodeRead)] == [silent]


def test_placement_away_is_waited_for(
    nova: NovaDatabases, world: World, reader: Reader, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("shared_scheduler.service.node_reads.AGAIN_S", 0.01)
    own = nova.compute("cmp-1", world.provider())
    world.http.faults = [in_trouble] * 3
    with caplog.at_level("INFO"):
        reader.reads.put(nova.cell_uuid, own)
        assert reader.heard.get(timeout=WAIT_S).node == own
    said = [record.message for record in caplog.records]
    [outage] = [text for text in said if "cannot be read" in text]  # "503" alone may be part of a uuid
    assert "503" in outage
    assert len([text for text in said if "works again" in text]) == 1

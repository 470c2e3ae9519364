# SPDX-License-Identifier: Apache-2.0
"""A scheduler asks for a recheck of the agent's mirror: the agent reads Placement before it answers."""

from __future__ import annotations

from dataclasses import replace

from compute_agent.effects import ReadAllocations, ReadTree
from shared_scheduler.model import leaves as names
from shared_scheduler.protocol.messages import Resync, Snapshot
from tests.unit.compute_agent.core_node import SCHEDULER, Node, said
from tests.unit.compute_agent.node_facts import NODE

RECHECK = Resync(NODE, SCHEDULER, 0, 0, recheck=True)


def started() -> Node:
    node = Node()
    node.start()
    node.pass_s(2)
    return node


def test_the_answer_has_the_present_state_of_placement() -> None:
    # given a host that was put into an aggregate since the agent read its provider
    node = started()
    node.tree = (replace(node.tree[0], aggregates=frozenset({"aggregate"})),)

    # when a scheduler asks for a recheck
    effects = node.send(RECHECK) + node.pass_s(1)

    # then one snapshot comes, and it has the aggregate
    [snapshot] = said(effects, Snapshot)
    assert snapshot.leaves[names.PROVIDER + NODE]["aggregates"] == ["aggregate"]


def test_an_answer_is_sent_even_without_a_change() -> None:
    node = started()

    assert len(said(node.send(RECHECK) + node.pass_s(1), Snapshot)) == 1


def test_an_answer_is_sent_even_if_placement_does_not_answer() -> None:
    node = started()
    node.reachable = False

    assert len(said(node.send(RECHECK) + node.pass_s(1), Snapshot)) == 1


def test_many_rechecks_cost_one_read_a_second() -> None:
    node = started()
    node.done.clear()

    for _ in range(50):
        node.send(RECHECK)
        node.pass_s(0.1)

    for kind in (ReadTree, ReadAllocations):
        assert len([read for read in node.done if isinstance(read, kind)]) <= 6


def test_a_resync_for_a_gap_reads_nothing_from_placement() -> None:
    node = started()
    node.done.clear()

    node.send(Resync(NODE, SCHEDULER, 0, 0))
    node.pass_s(1)

    assert [read for read in node.done if isinstance(read, ReadTree | ReadAllocations)] == []

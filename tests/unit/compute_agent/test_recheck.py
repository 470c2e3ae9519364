# SPDX-License-Identifier: Apache-2.0
"""A scheduler asks for a recheck of the agent's mirror: the agent reads Placement before it answers."""

from __future__ import annotations

from dataclasses import replace

from compute_agent import events as ev
from compute_agent.effects import Effect, ReadAllocations, ReadTree
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


def reads(effects: list[Effect]) -> list[ReadTree | ReadAllocations]:
    return [one for one in effects if isinstance(one, ReadTree | ReadAllocations)]


def step(node: Node, *events: ev.Event) -> list[Effect]:
    """What follows while Placement takes its time: nobody answers the reads."""
    return [effect for event in events for effect in node.core.step(event, node.now)]


def test_questions_while_placement_is_read_put_no_answer_off() -> None:
    # given a scheduler that asks five times a second, and a Placement that takes 0.3 s
    node, begun, sent = started(), list[tuple[float, ReadTree | ReadAllocations]](), list[Snapshot]()
    # when ten seconds pass
    for tick in range(100):
        node.now += 0.1
        ended = [(at_s, read) for at_s, read in begun if node.now - at_s >= 0.3]
        begun = [one for one in begun if one not in ended]
        told: list[ev.Event] = [
            ev.TreeRead(node.tree, at_s) if isinstance(read, ReadTree) else ev.AllocationsRead({}, at_s)
            for at_s, read in ended
        ]
        asked = [ev.MessagesArrived((RECHECK,), node.now)] if tick % 2 == 0 else []
        effects = step(node, *told, *asked, ev.Tick())
        begun += [(node.now, read) for read in reads(effects)]
        sent += said(effects, Snapshot)
    # then it gets an answer for each read, of the provider or of the allocations, and either is one a second
    assert 6 <= len(sent) <= 20


def test_a_question_while_placement_is_read_is_answered_with_the_next_read() -> None:
    # given a question for which Placement is being read
    node = started()
    begun_s, effects = node.now, step(node, ev.MessagesArrived((RECHECK,), node.now))
    assert len(reads(effects)) == 2
    # when the same scheduler asks again, and then the read ends
    node.now += 0.1
    step(node, ev.MessagesArrived((RECHECK,), node.now))
    ended = step(node, ev.TreeRead(node.tree, begun_s), ev.AllocationsRead({}, begun_s))
    # then the first question has its answer, and the second one that of a read which has begun since
    assert len(said(ended, Snapshot)) == 1
    answered = node.tell(*map(node.placement, reads(ended))) + node.pass_s(2)
    assert len(said(answered, Snapshot)) == 1

# SPDX-License-Identifier: Apache-2.0
"""The core's questions to Placement, and the answers."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Collection
from typing import Any

import pytest

from shared_scheduler.core.effects import AskCandidates, AskConsumer, AskFitting, AskGroup
from shared_scheduler.placement.client import narrowed
from shared_scheduler.placement.mirror import PlacementMirror
from shared_scheduler.sync.databases import DatabaseError
from shared_scheduler.sync.question_reads import QuestionReads
from shared_scheduler.sync.read_registry import SOURCES
from shared_scheduler.sync.revalidator import Revalidator
from tests.unit.placement.real_placement import World, in_trouble

QUERY = "limit=1000&resources=VCPU:2&root_required=!COMPUTE_STATUS_DISABLED"


class Asker:
    """The core's side."""

    def __init__(self, world: World, **bounds: int) -> None:
        self.heard: queue.Queue[Any] = queue.Queue()
        self.revalidator = Revalidator(self.heard.put, sources=[each for each in SOURCES if each.is_on_request])
        self.members: dict[str, dict[str, str | None]] = {}
        #: the members at the second read, where they differ
        self.later: dict[str, dict[str, str | None]] = {}
        #: cell -> server -> host
        self.hosts: dict[str, dict[str, str]] = {}
        #: servers that move to a host that Nova has named
        self.decided = set[str]()
        self.questions = QuestionReads(
            world.client, self.revalidator, self.heard.put, self._members_of, self._hosts_of, **bounds
        )

    def _members_of(self, question: AskGroup) -> dict[str, str | None]:
        if question.group not in self.members:
            raise DatabaseError("[api_database] connection: no server answers")
        members = self.members[question.group]
        self.members |= self.later
        return members

    def _hosts_of(self, cell: str, servers: Collection[str], undecided: bool) -> dict[str, str]:
        if cell not in self.hosts:
            raise DatabaseError("database_connection of cell cell1: no server answers")
        left_out = self.decided if undecided else set[str]()
        return {server: host for server, host in self.hosts[cell].items() if server in {*servers} - left_out}

    def ask(self, question: Any) -> Any:
        self.questions.submit(question)
        self.revalidator.work_off()
        return self.heard.get_nowait()


@pytest.fixture
def asker(world: World) -> Asker:
    return Asker(world)


def test_the_members_of_a_group_are_read_before_their_allocations(world: World, asker: Asker) -> None:
    # given a group of three: one stands on a node, one nowhere, one is known to the scheduler, as is one that has left
    node = world.provider()
    standing, known, nowhere = (str(uuid.uuid4()) for _ in range(3))
    asker.members["group"] = {standing: None, known: None, nowhere: None}
    world.take(standing, {node: {"VCPU": 1}})

    answer = asker.ask(AskGroup("ask", "group", frozenset({known, "left"}), "req-1"))

    # then the one that stands is named, whose request has no answer yet, and the one that has left
    assert (answer.ask_id, answer.standing, answer.error) == ("ask", {standing: frozenset({node})}, "")
    assert (answer.unanswered, answer.gone) == ({standing}, {"left"})


def test_the_hosts_of_members_are_read_in_the_cells_that_the_core_names(asker: Asker) -> None:
    # given a member that leaves a host, and holds nothing in its own name
    asker.members["group"] = {"moves": "cell-1", "own": None}
    asker.hosts |= {"cell-1": {"moves": "host-1", "own": "host-1", "other": "host-1"}, "cell-2": {"moves": "host-2"}}

    answer = asker.ask(AskGroup("ask", "group", frozenset({"own"}), "req-1", cells=frozenset({"cell-1"})))

    assert (answer.standing, answer.hosts, answer.error) == ({}, {"moves": "host-1"}, "")


def test_the_hosts_of_members_that_hold_nothing_are_read_in_their_cells(world: World, asker: Asker) -> None:
    # given a member that leaves a host, one that stands, and one that is not built yet
    node = world.provider()
    moves, standing, new = (str(uuid.uuid4()) for _ in range(3))
    asker.members["group"] = {moves: "cell-1", standing: "cell-1", new: None}
    asker.hosts["cell-1"] = {moves: "host-1", standing: "host-2"}
    world.take(standing, {node: {"VCPU": 1}})

    answer = asker.ask(AskGroup("ask", "group", frozenset(), "req-1", leaving=True))

    assert (answer.standing, answer.hosts, answer.error) == (
        {standing: frozenset({node})}, {moves: "host-1", standing: "host-2"}, "",
    )  # fmt: skip


def test_the_hosts_of_members_that_move_are_read_until_nova_names_their_targets(world: World, asker: Asker) -> None:
    # given two members that hold allocations for their targets; the conductor has had an answer for one of them
    target = world.provider()
    undecided, decided = str(uuid.uuid4()), str(uuid.uuid4())
    asker.members["group"] = {undecided: "cell-1", decided: "cell-1"}
    asker.hosts["cell-1"] = {undecided: "host-1", decided: "host-1"}
    asker.decided = {decided}
    for server in (undecided, decided):
        world.take(server, {target: {"VCPU": 1}})

    answer = asker.ask(AskGroup("ask", "group", frozenset(), "req-1", leaving=True))

    assert (answer.standing.keys(), answer.hosts) == ({undecided, decided}, {undecided: "host-1"})


def test_a_member_that_gets_a_cell_while_allocations_are_read_is_found(asker: Asker) -> None:
    # given a member without a cell, that is built and begins to leave its host before its allocations are read
    asker.members["group"] = {"moves": None}
    asker.later["group"] = {"moves": "cell-1"}
    asker.hosts["cell-1"] = {"moves": "host-1"}

    answer = asker.ask(AskGroup("ask", "group", frozenset(), "req-1", leaving=True))

    assert answer.hosts == {"moves": "host-1"}


def test_a_group_is_not_answered_if_a_cell_cannot_be_read(asker: Asker) -> None:
    asker.members["group"] = {"moves": "cell-1"}
    answer = asker.ask(AskGroup("ask", "group", frozenset(), "req-1", cells=frozenset({"cell-1"})))
    assert answer.error == "database_connection of cell cell1: no server answers"


def test_a_group_that_cannot_be_read_is_answered_with_the_reason(asker: Asker) -> None:
    answer = asker.ask(AskGroup("ask", "group", frozenset(), "req-1"))
    assert (answer.standing, answer.error) == ({}, "[api_database] connection: no server answers")


def test_candidates_of_one_node(world: World, asker: Asker) -> None:
    node, _other = world.provider(), world.provider()
    answer = asker.ask(AskCandidates("ask", node, (QUERY,), ""))
    assert answer.error == ""
    assert [one.allocations for one in answer.candidates] == [{node: {"VCPU": 2}}]
    assert answer.candidates[0].mappings == {"": (node,)}


def test_answers_of_all_queries_follow_one_another(world: World, asker: Asker) -> None:
    node = world.provider(inventories={"VCPU": {"total": 4}, "PCPU": {"total": 4}})
    answer = asker.ask(AskCandidates("ask", node, ("resources=PCPU:1", "resources=VCPU:1"), ""))
    assert [set(one.allocations[node]) for one in answer.candidates] == [{"PCPU"}, {"VCPU"}]


def test_a_numbered_group_is_answered_from_a_child(world: World, asker: Asker) -> None:
    node = world.provider()
    gpu = world.provider(parent=node, inventories={"VGPU": {"total": 1}})
    answer = asker.ask(AskCandidates("ask", node, ("resources=VCPU:1&resources_gpu=VGPU:1",), ""))
    (one,) = answer.candidates
    assert one.allocations == {node: {"VCPU": 1}, gpu: {"VGPU": 1}}
    assert one.mappings["_gpu"] == (gpu,)


def test_numbered_groups_alone_are_kept_to_the_node_too(world: World, asker: Asker) -> None:
    node, _other = world.provider(), world.provider()
    answer = asker.ask(AskCandidates("ask", node, ("resources1=VCPU:1",), ""))
    assert [set(one.allocations) for one in answer.candidates] == [{node}]


def test_a_full_node_has_no_candidates(world: World, asker: Asker) -> None:
    node = world.provider(vcpus=1)
    answer = asker.ask(AskCandidates("ask", node, (QUERY,), ""))
    assert (answer.candidates, answer.error) == ((), "")


def test_storage_that_is_shared_is_found_although_in_tree_hides_it(world: World, asker: Asker) -> None:
    pool = str(uuid.uuid4())
    node = world.provider(aggregates=(pool,))
    other = world.provider(aggregates=(pool,))
    share = world.provider(
        inventories={"DISK_GB": {"total": 100}}, traits=("MISC_SHARES_VIA_AGGREGATE",), aggregates=(pool,),
    )  # fmt: skip
    sharing = tuple(PlacementMirror(world.client).sharing().values())
    answer = asker.ask(AskCandidates("ask", node, ("resources=VCPU:1,DISK_GB:10",), "", sharing))
    assert [one.allocations for one in answer.candidates] == [{node: {"VCPU": 1}, share: {"DISK_GB": 10}}]
    fitting = asker.ask(AskFitting("fit", ("resources=VCPU:1,DISK_GB:10",), ""))
    assert {node, other} <= fitting.nodes


def test_which_nodes_fit(world: World, asker: Asker) -> None:
    big, small = world.provider(vcpus=64), world.provider(vcpus=2)
    answer = asker.ask(AskFitting("fit", ("resources=VCPU:33",), ""))
    assert big in answer.nodes and small not in answer.nodes


def test_an_allocation_on_a_child_provider_counts_for_its_root(world: World, asker: Asker) -> None:
    node = world.provider()
    world.provider(parent=node, inventories={"VGPU": {"total": 7}})
    answer = asker.ask(AskFitting("fit", ("resources1=VGPU:7",), ""))
    assert node in answer.nodes


def test_a_consumer(world: World, asker: Asker) -> None:
    node, consumer = world.provider(), str(uuid.uuid4())
    world.take(consumer, {node: {"VCPU": 3}})
    assert asker.ask(AskConsumer(consumer, cause="req-1")).allocations == {node: {"VCPU": 3}}
    nobody = asker.ask(AskConsumer(str(uuid.uuid4()), cause="req-1"))
    assert (nobody.allocations, nobody.error) == ({}, "")


@pytest.mark.parametrize(
    "question",
    [AskCandidates("a", str(uuid.uuid4()), (QUERY,), ""), AskFitting("a", (QUERY,), ""),
     AskConsumer(str(uuid.uuid4()), cause="req-1")],
    ids=["candidates", "fitting", "consumer"],
)  # fmt: skip
def test_errors_are_returned(world: World, asker: Asker, question: Any) -> None:
    world.http.faults = [in_trouble]
    assert "503" in asker.ask(question).error


def test_a_query_that_placement_refuses_is_reported(world: World, asker: Asker) -> None:
    answer = asker.ask(AskFitting("fit", ("resources=NO_SUCH:1",), ""))
    assert "400" in answer.error


def ask_consumers(asker: Asker, count: int) -> list[str]:
    consumers = [str(uuid.uuid4()) for _ in range(count)]
    for consumer in consumers:
        asker.questions.submit(AskConsumer(consumer, cause="req-1"))
    return consumers


def test_a_consumer_that_is_asked_for_twice_is_read_once(world: World, asker: Asker) -> None:
    consumer = str(uuid.uuid4())
    for _ in range(2):
        asker.questions.submit(AskConsumer(consumer, cause="req-1"))
    asker.revalidator.work_off()
    assert [answer.consumer for answer in asker.heard.queue] == [consumer]


def test_beyond_the_bound_the_answer_is_that_too_many_wait(world: World) -> None:
    asker = Asker(world, max_waiting=2)
    consumers = ask_consumers(asker, 3)
    assert [(answer.consumer, "too many" in answer.error) for answer in asker.heard.queue] == [(consumers[2], True)]


def test_questions_that_wait_at_the_stop_get_an_answer(world: World) -> None:
    # given two threads that Placement keeps waiting, and one question more
    asker, held, busy = Asker(world), threading.Event(), threading.Semaphore(0)

    def slow(_: str, __: str, go: Callable[[], Any]) -> Any:
        busy.release()
        held.wait(30)
        return go()

    world.http.faults = [slow, slow]
    asker.revalidator.start()
    consumers = ask_consumers(asker, 3)
    busy.acquire(timeout=30), busy.acquire(timeout=30)

    # when the service stops
    stopper = threading.Thread(target=asker.revalidator.stop)
    stopper.start()
    held.set()
    stopper.join(30)
    asker.questions.stop()
    consumers += ask_consumers(asker, 1)

    # then each has its answer, and a later one too
    heard = {answer.consumer: answer.error for answer in asker.heard.queue}
    assert set(heard) == set(consumers)
    assert "stops" in heard[consumers[3]]


def test_a_query_is_narrowed_to_a_tree() -> None:
    assert narrowed("limit=1000&resources=VCPU:1", "node", None) == "resources=VCPU:1&in_tree=node"
    both = narrowed("resources1=VCPU:1&resources_b=VGPU:1&group_policy=none", "node", None)
    assert both.endswith("&in_tree1=node&in_tree_b=node")
    assert narrowed("resources=VCPU:1&in_tree=old", "node", 5).endswith("&limit=5&in_tree=node")
    assert narrowed("member_of=in:a,b&member_of=!in:c", "", None) == "member_of=in:a,b&member_of=!in:c"

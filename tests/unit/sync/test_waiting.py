# SPDX-License-Identifier: Apache-2.0
"""How long a decision may wait when sources hang, fail or come and go, and that it misses nothing for it."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from shared_scheduler.core.events import AggregatesRead, Event
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.sync.databases import DatabaseError
from shared_scheduler.sync.fleet import KnownNodes
from shared_scheduler.sync.flight import Key, ReadRequest
from shared_scheduler.sync.read_registry import (
    AGGREGATES,
    NODE,
    NODE_LIST,
    PROVIDERS,
    RECORDS,
    RETRY_MOST_S,
    SERVICES,
    SOURCES,
)
from shared_scheduler.sync.revalidator import MAX_WAIT_S, Revalidator

WAIT_S = 60.0
#: What a database driver or an HTTP client waits for an answer.
TIMEOUT_S = 10.0


class SchedulerDriver:
    """A revalidator without threads, on a clock that reads move."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.read_at: list[Key] = []
        self.answer: Callable[[Key], Any] = lambda key: ()
        self.sut = Revalidator(lambda event: None, lambda: self.now_s, random.Random(1))

    def provide(self, *names: str) -> Revalidator:
        self.sut.provide({name: self.read for name in names})
        return self.sut

    def read(self, key: Key, _: float) -> Iterator[Any]:
        self.read_at.append(key)
        yield from self.answer(key)

    def time_out(self, error: Exception) -> None:
        self.now_s += TIMEOUT_S
        raise error


def found() -> AggregatesRead:
    return AggregatesRead((), frozenset({1}))


def row(sut: Revalidator, source: str) -> dict[str, Any]:
    return next(each for each in sut.report() if each["source"] == source)


# -- how long one decision waits -------------------------------------------------------------------


def test_a_decision_waits_for_one_time_out_of_a_database_at_most() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(SERVICES, NODE_LIST, RECORDS)
    sut.add_cell("cell-1")
    driver.answer = lambda key: driver.time_out(DatabaseError("no answer"))
    began_s = driver.now_s
    for source in (SERVICES, NODE_LIST, RECORDS):
        sut.wait_for([(source, ("cell-1",))], 0.0)
    assert driver.now_s - began_s == TIMEOUT_S


def test_another_cell_is_waited_for_while_one_refuses() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(SERVICES, NODE_LIST)
    for cell in ("cell-1", "cell-2"):
        sut.add_cell(cell)

    def refuse(key: Key) -> list[Event]:
        if key == ("cell-1",):
            raise DatabaseError("access denied")
        return []

    driver.answer = refuse
    for source in (SERVICES, NODE_LIST):
        sut.wait_for([(source, ("cell-1",)), (source, ("cell-2",))], 0.0)
    assert driver.read_at == [("cell-1",), ("cell-2",), ("cell-2",)]


def test_a_decision_waits_for_one_time_out_of_placement_at_most() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(NODE)
    driver.answer = lambda key: driver.time_out(PlacementError("no answer"))
    nodes = [ReadRequest(NODE, ("cell-1", f"node-{number}")) for number in range(10)]
    for wanted in nodes:
        sut.request(wanted)
    began_s = driver.now_s
    sut.wait_for_requested([wanted.place for wanted in nodes])
    assert driver.now_s - began_s == TIMEOUT_S


def test_a_placement_that_times_out_does_not_keep_decisions_from_the_databases() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(SERVICES, NODE)
    sut.add_cell("cell-1")
    driver.answer = lambda key: driver.time_out(PlacementError("no answer")) if len(key) == 2 else ()
    sut.request(ReadRequest(NODE, ("cell-1", "node")))
    sut.wait_for_requested([(NODE, ("cell-1", "node"))])
    sut.wait_for([(SERVICES, ("cell-1",))], 0.0)
    assert driver.read_at == [("cell-1", "node"), ("cell-1",)]


def test_an_authority_that_answers_again_is_waited_for_again() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(SERVICES, NODE_LIST)
    sut.add_cell("cell-1")
    driver.answer = lambda key: driver.time_out(DatabaseError("no answer"))
    sut.wait_for([(SERVICES, ("cell-1",))], 0.0)
    # when the database answers the reads that are tried again soon
    driver.answer = lambda key: ()
    for _ in range(int(RETRY_MOST_S / 2)):
        driver.now_s += 1.0
        sut.work_off()
    # then decisions wait for each of its sources
    driver.read_at.clear()
    for source in (SERVICES, NODE_LIST):
        sut.wait_for([(source, ("cell-1",))], 0.0)
    assert len(driver.read_at) == 2


def test_many_nodes_that_changed_are_not_all_waited_for() -> None:
    # given 500 new nodes, each read in half a second
    driver = SchedulerDriver()
    sut = driver.provide(NODE)

    def slowly(_: Key) -> list[Event]:
        driver.now_s += 0.5
        return [found()]

    driver.answer = slowly
    nodes = [ReadRequest(NODE, ("cell-1", f"node-{number}")) for number in range(500)]
    for wanted in nodes:
        sut.request(wanted)
    began_s = driver.now_s
    # when a refusal waits for them
    sut.wait_for_requested([wanted.place for wanted in nodes])
    # then not much longer than for one that hangs
    assert driver.now_s - began_s <= MAX_WAIT_S + 0.5
    assert row(sut, NODE)["due"] == 500 - len(driver.read_at)


def test_a_cell_that_hangs_holds_up_one_decision_and_not_one_for_each_of_its_sources() -> None:
    begun, answer = threading.Semaphore(0), threading.Event()

    def hang(*_: object) -> tuple[()]:
        begun.release()
        answer.wait()
        return ()

    # given a decision that hangs in the query for services
    sut = Revalidator(lambda event: None, max_wait_s=0.05)
    sut.provide({SERVICES: hang, NODE_LIST: hang})
    sut.add_cell("cell-1")
    first = threading.Thread(target=sut.wait_for, args=([(SERVICES, ("cell-1",))], 0.0), daemon=True)
    first.start()
    assert begun.acquire(timeout=WAIT_S)

    # when another one comes, which waits for the list of nodes too
    def decide() -> None:
        for source in (SERVICES, NODE_LIST):
            sut.wait_for([(source, ("cell-1",))], 0.0)

    second = threading.Thread(target=decide, daemon=True)
    second.start()
    second.join(WAIT_S)
    # then it does not ask that cell anything
    hung = second.is_alive()
    answer.set()
    first.join(WAIT_S)
    assert not hung


def test_a_decision_goes_on_without_a_read_that_hangs_although_it_has_begun_it() -> None:
    answer = threading.Event()

    # given two cells, one of which accepts queries and does not answer them
    def read(key: Key, _: float) -> Iterator[Event]:
        if key == ("cell-1",):
            answer.wait()
        yield found()

    sut = Revalidator(lambda event: None, max_wait_s=0.05)
    sut.provide({SERVICES: read})
    for cell in ("cell-1", "cell-2"):
        sut.add_cell(cell)
    # when a decision reads both itself
    wanted = [(SERVICES, ("cell-1",)), (SERVICES, ("cell-2",))]
    deciding = threading.Thread(target=sut.wait_for, args=(wanted, 0.0), daemon=True)
    deciding.start()
    deciding.join(WAIT_S / 2)
    # then it does not wait until the query ends
    waits = deciding.is_alive()
    answer.set()
    deciding.join(WAIT_S)
    assert not waits


# -- nothing is missed -----------------------------------------------------------------------------


def test_a_node_that_an_earlier_read_wants_read_is_waited_for_until_it_has_been() -> None:
    driver = SchedulerDriver()
    sut = driver.provide(PROVIDERS, NODE)
    node = (NODE, ("cell-1", "node"))
    # given a read that finds a change of a node, which only it can see
    driver.answer = lambda key: [ReadRequest(*node)] if not key else [found()]
    sut.wait_for([(PROVIDERS, ())], 0.0)
    # when the next read begins before that node has been read
    driver.answer = lambda key: [found()] if key else []
    requested = sut.wait_for([(PROVIDERS, ())], 0.0)
    # then a decision waits for the node as well
    assert requested == {node}
    sut.wait_for_requested(requested)
    assert driver.read_at[-1] == node[1]
    # and the next one no longer
    assert sut.wait_for([(PROVIDERS, ())], 0.0) == frozenset()


class OneCell:
    """With one node, which has an agent."""

    cell = "cell-1"
    nodes = frozenset({"node"})

    def silent(self) -> list[str]:
        return []


def test_decisions_that_come_together_after_a_start_both_see_that_few_nodes_have_no_agent() -> None:
    # given a cloud of three nodes, one of them without an agent, that has not been counted
    answers: list[bool] = []
    fleet = KnownNodes(2, lambda: 100.0)

    class Counted(OneCell):
        nodes = frozenset("abc")

        def silent(self) -> list[str]:
            if not answers:  # when the second decision asks while the first one counts
                answers.append(True)
                answers.append(fleet.few_are_silent)
            return ["a"]

    fleet.cells = {"cell-1": Counted()}  # type: ignore[dict-item]
    assert fleet.few_are_silent
    assert answers == [True, True]


# -- threads ---------------------------------------------------------------------------------------


class OneHangs:
    """A read that does not end for a key with a name of "hangs" before ``answer`` is set."""

    def __init__(self) -> None:
        self.answer, self.quick = threading.Event(), threading.Event()

    def read(self, key: Key, _: float) -> tuple[()]:
        if any(name.startswith("hangs") for name in key):
            self.answer.wait()
        else:
            self.quick.set()
        return ()

    def ends_another(self, sut: Revalidator) -> bool:
        """Whether another read ends meanwhile."""
        ended = self.quick.wait(WAIT_S)
        self.answer.set()
        sut.stop()
        return ended


def test_nodes_that_are_requested_together_are_read_side_by_side() -> None:
    reads = OneHangs()
    sut = Revalidator(lambda event: None)
    sut.provide({NODE: reads.read})
    sut.start()
    time.sleep(0.1)  # both threads rest
    for node in ("hangs", "quick"):
        sut.request(ReadRequest(NODE, ("cell-1", node)))
    assert reads.ends_another(sut)


def test_a_cell_that_hangs_does_not_keep_the_nodes_of_another_one_from_being_read() -> None:
    reads = OneHangs()
    # given many nodes of a cell whose database hangs
    sut = Revalidator(lambda event: None)
    sut.provide({NODE: reads.read})
    sut.start()
    for cell in ("hangs", "quick"):
        sut.add_cell(cell)
    for number in range(10):
        sut.request(ReadRequest(NODE, ("hangs", f"node-{number}")))
    # when a node of another cell is to be read
    sut.request(ReadRequest(NODE, ("quick", "node")))
    assert reads.ends_another(sut)


def test_a_node_that_was_waited_for_is_forgotten_too() -> None:
    begun, answer = threading.Event(), threading.Event()

    def read(*_: object) -> tuple[()]:
        begun.set()
        assert answer.wait(WAIT_S)
        return ()

    sut = Revalidator(lambda event: None, max_wait_s=WAIT_S)
    sut.provide({NODE: read})
    sut.start()
    node = ReadRequest(NODE, ("cell-1", "node"))
    sut.request(node)
    assert begun.wait(WAIT_S)
    late = threading.Thread(target=sut.wait_for_requested, args=([node.place],))
    late.start()
    until_s = time.monotonic() + WAIT_S
    while not row(sut, NODE)["waiting"]:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    answer.set()
    late.join(WAIT_S)
    sut.stop()
    assert row(sut, NODE)["keys"] == 0


def test_a_cell_may_come_and_go_while_decisions_wait_for_it() -> None:
    sut = Revalidator(lambda event: None)
    sut.provide({SERVICES: lambda *_: (), PROVIDERS: lambda *_: ()})
    for cell in ("cell-1", "cell-2"):
        sut.add_cell(cell)
    failed: list[BaseException] = []
    stop = threading.Event()

    def decide() -> None:
        while not stop.is_set():
            for _ in range(100):
                try:
                    sut.wait_for([(SERVICES, ("cell-1",)), (SERVICES, ("cell-2",))], 0.0)
                except BaseException as error:
                    failed.append(error)
            time.sleep(0.0)  # eventlet changes threads nowhere else

    deciding = [threading.Thread(target=decide) for _ in range(4)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in deciding:
            thread.start()
        for _ in range(1000):
            sut.remove_cell("cell-2")
            sut.add_cell("cell-2")
    finally:
        sys.setswitchinterval(interval_s)
        stop.set()
        for thread in deciding:
            thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in deciding)
    assert failed == []

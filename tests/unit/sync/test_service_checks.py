# SPDX-License-Identifier: Apache-2.0
"""The nova-compute service of a selected host is read again before the allocation is written."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nova.db.main import models

from shared_scheduler.core.effects import ConsumerPolicy, DeleteAllocation, WriteAllocation
from shared_scheduler.core.events import AllocationDeleted, AllocationWritten, ServicesRead, WriteCode
from shared_scheduler.sync import service_checks
from shared_scheduler.sync.databases import DatabaseError
from shared_scheduler.sync.read_registry import COUNTERS
from shared_scheduler.sync.service_checks import ServiceChecks
from shared_scheduler.sync.state_sync import OPENED_AGAIN_AFTER_S
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import World
from tests.unit.sync.nova_databases import NovaDatabases
from tests.unit.sync.one_cell import Site

WAIT_S = 60.0


class Placement:
    """The writer: what was passed on to it."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.stopped = False

    def start(self) -> None: ...

    def submit(self, work: Any) -> None:
        self.given.append(work)

    def stop(self) -> None:
        self.stopped = True


class Cloud:
    """A cell of two computes that decisions have seen, and the checks before its writer."""

    def __init__(self, nova: NovaDatabases, site: Site) -> None:
        self.nova, self.site, self.placement = nova, site, Placement()
        for host in ("cmp-1", "cmp-2"):
            site.agent(nova.compute(host))
        site.decide()
        site.heard.clear()
        self.checks = ServiceChecks(self.placement, site.sync.fleet, site.sync.revalidator, site.heard.append)

    def write(self, host: str, claim: str = "claim-1") -> WriteAllocation:
        work = WriteAllocation(
            claim_id=claim, consumer=f"server of {claim}", allocations={}, mappings={}, project_id="p", user_id="u",
            policy=ConsumerPolicy.NEW, serialise=False, request_id="req-1", deadline_s=1000.0,
            cell=self.nova.cell_uuid, service_host=host,
        )  # fmt: skip
        self.checks.submit(work)
        return work

    def expect(self, claim: str, host: str) -> None:
        """The claim is cast, and the check ends before the verdict comes."""
        self.checks.expect(claim, self.nova.cell_uuid, host)
        assert self.checks.checked(claim, WAIT_S)

    def run(self) -> None:
        """Pass on all that waits, then stop."""
        self.checks.start()
        self.checks.stop()

    def refused(self) -> list[tuple[str, WriteCode]]:
        answers = [event for event in self.site.heard if isinstance(event, AllocationWritten)]
        return [(event.claim_id, event.code) for event in answers]


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    return NovaDatabases(tmp_path)


@pytest.fixture
def cloud(nova: NovaDatabases, world: World, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    # a busy machine makes no read late
    monkeypatch.setattr(service_checks, "MAX_WAIT_S", WAIT_S)
    monkeypatch.setattr(service_checks, "JOIN_S", WAIT_S)
    return Cloud(nova, Site(nova, world, nodes_max=2))


@pytest.mark.parametrize("change", [{"disabled": True}, {"forced_down": True}, {"deleted": 1}])
def test_a_host_whose_service_has_changed_since_the_decision_gets_nothing(
    cloud: Cloud, change: dict[str, object]
) -> None:
    # given a service that an administrator changed after the last poll
    cloud.nova.change(models.Service, "cmp-1", **change)
    # when a write for its host and one for another host come
    cloud.write("cmp-1")
    other = cloud.write("cmp-2", "claim-2")
    cloud.run()
    # then the first one is not sent, and the core learns of the service before it looks for the next host
    assert cloud.placement.given == [other]
    assert [type(event) for event in cloud.site.heard] == [ServicesRead, AllocationWritten]
    assert cloud.refused() == [("claim-1", WriteCode.HOST_CHANGED)]


def test_a_host_is_checked_while_its_agent_judges_the_claim(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    # given the two services, read when their claims were cast; one of them was disabled before
    cloud.nova.change(models.Service, "cmp-1", disabled=True)
    cloud.expect("claim-1", "cmp-1")
    cloud.expect("claim-2", "cmp-2")
    # when the agents have accepted, and the writes come
    monkeypatch.setattr(cloud.site.cell.database, "accepting", lambda hosts: pytest.fail("it was read before"))
    cloud.write("cmp-1", "claim-1")
    accepted = cloud.write("cmp-2", "claim-2")
    cloud.run()
    # then they wait for no further read
    assert cloud.placement.given == [accepted]
    assert cloud.refused() == [("claim-1", WriteCode.HOST_CHANGED)]


def test_what_waits_for_nothing_is_passed_on_by_its_own_thread(cloud: Cloud) -> None:
    # given a check that has ended, and no thread of the checks
    cloud.expect("claim-1", "cmp-1")
    # when the write comes, and the delete after it
    write = cloud.write("cmp-1", "claim-1")
    delete = DeleteAllocation("claim-1", "server of claim-1", {}, "req-1")
    cloud.checks.submit(delete)
    # then both have gone
    assert cloud.placement.given == [write, delete]
    # and a delete waits for the writes before it
    waits = cloud.write("cmp-2", "claim-2")
    cloud.checks.submit(delete)
    assert cloud.placement.given == [write, delete]
    cloud.run()
    assert cloud.placement.given == [write, delete, waits, delete]


def test_a_write_waits_for_the_check_that_began_with_its_claim(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a query that takes longer than the verdict, of a service that was disabled
    cloud.nova.change(models.Service, "cmp-1", disabled=True)
    asked, answers = threading.Event(), threading.Event()
    read = cloud.site.cell.database.accepting

    def slow(hosts: frozenset[str]) -> Any:
        asked.set()
        assert answers.wait(WAIT_S)
        return read(hosts)

    monkeypatch.setattr(cloud.site.cell.database, "accepting", slow)
    cloud.checks.expect("claim-1", cloud.nova.cell_uuid, "cmp-1")
    assert asked.wait(WAIT_S)
    # when the write comes before the answer
    cloud.write("cmp-1", "claim-1")
    cloud.checks.start()
    assert cloud.placement.given == [] and cloud.refused() == []
    answers.set()
    cloud.checks.stop()
    # then the answer decides
    assert cloud.placement.given == []
    assert cloud.refused() == [("claim-1", WriteCode.HOST_CHANGED)]


def test_changes_found_by_a_poll_since_the_decision_count_too(cloud: Cloud) -> None:
    cloud.nova.change(models.Service, "cmp-1", disabled=True)
    cloud.site.decide()
    cloud.write("cmp-1")
    cloud.run()
    assert cloud.refused() == [("claim-1", WriteCode.HOST_CHANGED)]


def test_a_service_that_accepts_servers_again_gets_the_next_one(cloud: Cloud) -> None:
    cloud.nova.change(models.Service, "cmp-1", deleted=1)
    cloud.write("cmp-1")
    cloud.checks.start()
    until_s = time.monotonic() + WAIT_S
    while not cloud.refused() and time.monotonic() < until_s:
        time.sleep(0.01)
    cloud.nova.change(models.Service, "cmp-1", deleted=0)
    again = cloud.write("cmp-1", "claim-2")
    cloud.checks.stop()
    assert cloud.placement.given == [again]


def test_a_host_that_did_not_accept_servers_at_the_decision_is_not_checked(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given an administrator who forces a server onto a disabled host
    cloud.nova.change(models.Service, "cmp-1", disabled=True)
    monkeypatch.setattr(cloud.site.cell.database, "accepting", lambda hosts: pytest.fail("not needed"))
    forced = cloud.write("")
    cloud.run()
    assert cloud.placement.given == [forced]


def test_effects_keep_their_order(cloud: Cloud) -> None:
    write = cloud.write("cmp-1")
    delete = DeleteAllocation("claim-1", "server of claim-1", {}, "req-1")
    cloud.checks.submit(delete)
    cloud.run()
    assert cloud.placement.given == [write, delete] and cloud.placement.stopped


def test_writes_that_come_together_share_one_query(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a query that is under way for a first one
    asked: list[frozenset[str]] = []
    begun, others_wait = threading.Event(), threading.Event()
    read = cloud.site.cell.database.accepting

    def accepting(hosts: frozenset[str]) -> Any:
        asked.append(hosts)
        begun.set()
        assert others_wait.wait(WAIT_S)
        return read(hosts)

    monkeypatch.setattr(cloud.site.cell.database, "accepting", accepting)
    cloud.checks.expect("claim-0", cloud.nova.cell_uuid, "cmp-1")
    assert begun.wait(WAIT_S)
    # when others come meanwhile
    for number, host in enumerate(("cmp-1", "cmp-2", "cmp-1"), 1):
        cloud.checks.expect(f"claim-{number}", cloud.nova.cell_uuid, host)
        cloud.write(host, f"claim-{number}")
    others_wait.set()
    cloud.run()
    # then they share the next one
    assert asked == [frozenset({"cmp-1"}), frozenset({"cmp-1", "cmp-2"})] and len(cloud.placement.given) == 3


def test_a_database_that_does_not_answer_holds_up_no_write(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_hosts: object) -> Any:
        raise DatabaseError("cell1 is away")

    monkeypatch.setattr(cloud.site.cell.database, "services_of", away)
    write = cloud.write("cmp-1")
    cloud.run()
    assert cloud.placement.given == [write]


def test_a_write_beyond_the_bound_fails_and_a_delete_does_not(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_checks, "MAX_WAITING", 1)
    first = cloud.write("cmp-1")
    cloud.write("cmp-1", "claim-2")
    delete = DeleteAllocation("claim-3", "server of claim-3", {}, "req-1")
    cloud.checks.submit(delete)
    assert cloud.refused() == [("claim-2", WriteCode.NEVER_SENT)]
    cloud.run()
    assert cloud.placement.given == [first, delete]


def test_a_mistake_does_not_end_the_thread(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def broken(_hosts: object) -> None:
        failed.set()
        raise RuntimeError("a bug")

    with monkeypatch.context() as bug:
        bug.setattr(cloud.site.cell, "select", broken)
        first = cloud.write("cmp-1")
        cloud.checks.start()
        assert failed.wait(WAIT_S)
    second = cloud.write("cmp-1", "claim-2")
    cloud.checks.stop()
    assert cloud.placement.given == [first, second]


def test_a_thread_that_cannot_be_started_loses_no_write(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a process that may start no further thread
    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("service-checks-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    start = threading.Thread.start
    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", refused)
        # when a claim is cast, and a write and a delete come
        cloud.checks.expect("claim-0", cloud.nova.cell_uuid, "cmp-1")
        works: list[Any] = [cloud.write("cmp-1"), DeleteAllocation("claim-2", "server of claim-2", {}, "req-1")]
        cloud.checks.submit(works[1])
        cloud.checks.start()
        until_s = time.monotonic() + WAIT_S / 6
        while len(cloud.placement.given) < len(works) and time.monotonic() < until_s:
            time.sleep(0.01)
    # then both are passed on, by the result of the last poll
    assert cloud.placement.given == works
    # and the cell is checked again when that is possible
    cloud.nova.change(models.Service, "cmp-2", disabled=True)
    cloud.write("cmp-2", "claim-3")
    cloud.checks.stop()
    assert cloud.refused() == [("claim-3", WriteCode.HOST_CHANGED)]


def test_what_cannot_be_passed_on_is_answered(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a writer that fails on one write and on one delete
    def broken(work: Any) -> None:
        if work.claim_id in ("claim-1", "claim-2"):
            raise RuntimeError("a bug")
        take(work)

    take = cloud.placement.submit
    monkeypatch.setattr(cloud.placement, "submit", broken)
    # when they come with others
    cloud.write("cmp-1", "claim-1")
    cloud.checks.submit(DeleteAllocation("claim-2", "server of claim-2", {}, "req-1"))
    others: list[Any] = [cloud.write("cmp-1", "claim-3"), DeleteAllocation("claim-4", "server", {}, "req-1")]
    cloud.checks.submit(others[1])
    cloud.run()
    # then they are answered, and the others are passed on
    assert cloud.placement.given == others
    assert cloud.refused() == [("claim-1", WriteCode.UNREACHABLE)]
    assert [(one.claim_id, one.gone) for one in cloud.site.heard if isinstance(one, AllocationDeleted)] == [
        ("claim-2", False)
    ]


def test_a_cell_that_had_nothing_to_check_for_a_minute_is_checked_again(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a check of long ago
    now_s = [100.0]
    monkeypatch.setattr(service_checks, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    cloud.expect("claim-1", "cmp-1")
    now_s[0] += WAIT_S + 60.0
    # when a service is disabled after the last poll
    cloud.nova.change(models.Service, "cmp-1", disabled=True)
    # then the next check finds it, once the thread of the first one rests
    number, until_s = 1, time.monotonic() + WAIT_S
    while not cloud.site.heard and time.monotonic() < until_s:
        number += 1
        cloud.expect(f"claim-{number}", "cmp-1")
        time.sleep(0.01)
    assert [type(event) for event in cloud.site.heard] == [ServicesRead]


def hanging_queries(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Events: the database is asked; it answers, that it is away."""
    asked, answers = threading.Event(), threading.Event()

    def hang(_hosts: object) -> Any:
        asked.set()
        answers.wait(WAIT_S)
        raise DatabaseError("the database is away")

    monkeypatch.setattr(cloud.site.cell.database, "accepting", hang)
    return asked, answers


def test_a_database_that_hangs_holds_up_neither_writes_nor_deletes(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a database that accepts a query and does not answer it
    monkeypatch.setattr(service_checks, "MAX_WAIT_S", 0.1)
    asked, answers = hanging_queries(cloud, monkeypatch)
    cloud.checks.start()
    # when a write for one of its hosts, and later a write and a delete come
    works: list[Any] = [cloud.write("cmp-1")]
    assert asked.wait(WAIT_S)
    works += [cloud.write("cmp-2", "claim-2"), DeleteAllocation("claim-3", "server", {}, "req-1")]
    cloud.checks.submit(works[2])
    until_s = time.monotonic() + WAIT_S / 2
    while len(cloud.placement.given) < len(works) and time.monotonic() < until_s:
        time.sleep(0.01)
    passed_on = list(cloud.placement.given)
    answers.set()
    cloud.checks.stop()
    # then all are passed on, by the result of the last poll, while the query is still under way
    assert passed_on == works


def test_a_cell_that_was_opened_again_is_checked_while_a_query_of_before_hangs(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a check of which the query is never answered, and the cell opened again therefore
    asked, answers = hanging_queries(cloud, monkeypatch)
    cloud.checks.expect("claim-1", cloud.nova.cell_uuid, "cmp-1")
    assert asked.wait(WAIT_S)
    cloud.site.now_s += OPENED_AGAIN_AFTER_S
    cloud.site.sync.revalidator.read(COUNTERS)
    # when a service was disabled after the last poll, and a write for its host comes
    cloud.nova.change(models.Service, "cmp-2", disabled=True)
    cloud.expect("claim-2", "cmp-2")
    cloud.write("cmp-2", "claim-2")
    refused = cloud.refused()
    answers.set()
    cloud.run()
    # then nothing is written there
    assert refused == [("claim-2", WriteCode.HOST_CHANGED)]

# SPDX-License-Identifier: Apache-2.0
"""What no agent tells of the end of a build is read from Nova's databases."""

from __future__ import annotations

from typing import Any

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core.awaited_builds import AWAITED_MAX, READ_AFTER_S, WITH_AGENT
from shared_scheduler.core.events import (
    BuildFailure,
    BuildRead,
    BuildsRead,
    BuildState,
    UnfinishedBuild,
    UnfinishedBuildsFound,
)
from shared_scheduler.protocol.messages import BuildResult, Heartbeat
from tests.unit.core.scheduler_driver import ME, SchedulerDriver, claims_in, of_kind, only, request

SERVER = "server-1"
NO_ADDRESS = "No more IP addresses"
AT_S = 1_760_000_000.0


def place(driver: SchedulerDriver, server: str = SERVER) -> str:
    """A server is placed; returns its host."""
    effects = driver.ask(request(server))
    for claim in claims_in(effects):
        effects = driver.accept(claim)
    [answer] = of_kind(ef.Answer, driver.written(only(ef.WriteAllocation, effects)))
    return answer.choices[0][0].host


def failure(host: str, reason: str = NO_ADDRESS, on_node: bool = True) -> BuildFailure:
    return BuildFailure(host, reason, AT_S, on_node)


def read(driver: SchedulerDriver, state: BuildState, *failures: BuildFailure, host: str = "") -> list[tuple[Any, ...]]:
    """The databases answer; what is recorded."""
    effects = driver.give(BuildsRead((BuildRead(SERVER, state, host, AT_S if host else None, failures),)))
    return [(one.host, one.succeeded, one.reason, one.at_s) for one in of_kind(ef.RecordBuild, effects)]


@pytest.fixture
def driver() -> SchedulerDriver:
    return SchedulerDriver().without_agents("node-1", "node-2")


def test_a_server_on_a_node_without_an_agent_is_read_at_growing_intervals(driver: SchedulerDriver) -> None:
    host = place(driver)
    begun_s = driver.now
    driver.wait(READ_AFTER_S[2])

    assert [(one.server, one.age_s) for one in driver.build_reads] == [(SERVER, age_s) for age_s in READ_AFTER_S[:3]]
    assert read(driver, BuildState.UNDER_WAY) == []
    assert read(driver, BuildState.ACTIVE, host=host) == [(host, True, "", AT_S)]

    driver.wait(READ_AFTER_S[-1])
    assert len(driver.build_reads) == 3 and driver.now > begun_s, "an active server is read no more"


def test_each_failure_is_recorded_once_and_the_server_is_read_until_it_has_ended(driver: SchedulerDriver) -> None:
    first = place(driver)
    second = "host-2" if first == "host-1" else "host-1"
    driver.wait(READ_AFTER_S[0])

    assert read(driver, BuildState.UNDER_WAY, failure(first)) == [(first, False, NO_ADDRESS, AT_S)]
    assert read(driver, BuildState.ACTIVE, failure(first), host=second) == [(second, True, "", AT_S)]
    assert driver.core.counters()["builds_read"] == 2


def test_a_request_that_failed_before_any_node_began_has_the_fault_of_the_conductor(driver: SchedulerDriver) -> None:
    host = place(driver)
    fault = failure("conductor-1", "Quota exceeded", on_node=False)

    assert read(driver, BuildState.FAILED, fault) == [(host, False, "Quota exceeded", AT_S)]


def test_the_conductors_last_words_are_no_build(driver: SchedulerDriver) -> None:
    host = place(driver)
    fault = failure("conductor-1", "Exceeded maximum number of retries", on_node=False)

    assert read(driver, BuildState.FAILED, failure(host), fault) == [(host, False, NO_ADDRESS, AT_S)]


def test_what_an_agent_has_told_is_not_recorded_again() -> None:
    # given a node with an agent, which tells that the build has failed
    driver = SchedulerDriver().with_agents("node-1")
    host = place(driver)
    driver.wait(1)
    told = driver.hear(BuildResult("node-1", 1, SERVER, False, "NoMoreFixedIps", ME, 1))
    assert len(of_kind(ef.RecordBuild, told)) == 1
    # when the databases are read, because nova-conductor may have tried a node without an agent
    driver.wait(READ_AFTER_S[0])
    assert len(driver.build_reads) == 1
    # then only the other host is new
    assert read(driver, BuildState.ACTIVE, failure(host), host="host-9") == [("host-9", True, "", AT_S)]


def test_an_agent_that_tells_the_end_saves_the_read() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    place(driver)
    driver.hear(BuildResult("node-1", 1, SERVER, True, "", ME, 1))
    driver.wait(READ_AFTER_S[-1])

    assert driver.build_reads == []


def test_an_end_that_is_repeated_does_not_end_the_wait_for_a_later_build_of_its_server() -> None:
    # given a server that was built, shelved, and placed once more on the same host
    driver = SchedulerDriver().with_agents("node-1")
    place(driver)
    end = BuildResult("node-1", 1, SERVER, True, "", ME, 1)
    driver.hear(end)
    driver.wait(10)
    host = place(driver)
    # when a heartbeat carries the end of the first build once more, and nothing tells the end of the second one
    assert driver.hear(Heartbeat("node-1", 1, 1, "host-1", 0, 0, (end,))) == []
    driver.wait(READ_AFTER_S[WITH_AGENT])
    # then that is read
    assert [one.server for one in driver.build_reads] == [SERVER]
    assert read(driver, BuildState.ACTIVE, host=host) == [(host, True, "", AT_S)]


def test_an_end_whose_messages_were_all_lost_is_read() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    host = place(driver)
    driver.wait(READ_AFTER_S[WITH_AGENT])

    assert [one.server for one in driver.build_reads] == [SERVER]
    assert read(driver, BuildState.ACTIVE, host=host) == [(host, True, "", AT_S)]


@pytest.mark.parametrize("state", [BuildState.GONE, BuildState.FAILED])
def test_a_server_that_is_gone_or_tells_nothing_leaves_no_record(driver: SchedulerDriver, state: BuildState) -> None:
    place(driver)

    assert read(driver, state) == []
    driver.wait(READ_AFTER_S[-1])
    assert driver.build_reads == []


def test_a_server_that_never_ends_is_forgotten(driver: SchedulerDriver) -> None:
    place(driver)
    driver.wait(2 * READ_AFTER_S[-1])

    assert len(driver.build_reads) == len(READ_AFTER_S)
    assert driver.core.counters()["builds_forgotten"] == 1
    assert read(driver, BuildState.ACTIVE, host="host-1") == []


def test_a_build_that_only_the_last_read_shows_is_recorded(driver: SchedulerDriver) -> None:
    # given a server whose build takes most of an hour
    host = place(driver)
    driver.wait(READ_AFTER_S[-1])
    assert len(driver.build_reads) == len(READ_AFTER_S)
    # when the database answers the last read, some minutes later because it was away
    driver.wait(300.0)
    # then
    assert read(driver, BuildState.ACTIVE, host=host) == [(host, True, "", AT_S)]
    assert "builds_forgotten" not in driver.core.counters()


def test_a_request_that_only_asks_awaits_no_build(driver: SchedulerDriver) -> None:
    driver.ask(request(SERVER, dry_run=True))
    driver.wait(READ_AFTER_S[-1])

    assert driver.build_reads == []


def test_the_memory_is_bounded(driver: SchedulerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_scheduler.core.awaited_builds.AWAITED_MAX", 1)
    assert AWAITED_MAX > 1
    place(driver, "server-1")
    place(driver, "server-2")
    driver.wait(READ_AFTER_S[0])

    assert [one.server for one in driver.build_reads] == ["server-2"]
    assert driver.core.counters()["builds_forgotten"] == 1


def resume(driver: SchedulerDriver, *builds: UnfinishedBuild) -> None:
    """What the records tell when the scheduler has started."""
    driver.give(UnfinishedBuildsFound(builds))


def test_a_scheduler_that_was_restarted_reads_how_an_earlier_build_ended(driver: SchedulerDriver) -> None:
    resume(driver, UnfinishedBuild(SERVER, "host-1", 100.0))
    driver.wait(READ_AFTER_S[0])

    assert [(one.server, one.age_s) for one in driver.build_reads] == [(SERVER, 100.0 + READ_AFTER_S[0])]
    assert read(driver, BuildState.ACTIVE, host="host-1") == [("host-1", True, "", AT_S)]
    driver.wait(READ_AFTER_S[-1])
    assert len(driver.build_reads) == 1


def test_what_was_recorded_before_the_restart_is_not_recorded_again(driver: SchedulerDriver) -> None:
    resume(driver, UnfinishedBuild(SERVER, "host-1", 100.0, frozenset({"host-1"})))
    driver.wait(READ_AFTER_S[0])

    failures = failure("host-1"), failure("host-2")
    assert read(driver, BuildState.FAILED, *failures) == [("host-2", False, NO_ADDRESS, AT_S)]


def test_a_build_on_a_host_that_has_left_is_not_awaited(driver: SchedulerDriver) -> None:
    resume(driver, UnfinishedBuild(SERVER, "host-99", 100.0))
    driver.wait(READ_AFTER_S[-1])

    assert driver.build_reads == []


def test_a_placement_of_this_run_is_newer_than_what_the_records_tell(driver: SchedulerDriver) -> None:
    place(driver)
    resume(driver, UnfinishedBuild(SERVER, "host-1", 100.0))
    driver.wait(READ_AFTER_S[0])

    assert [one.age_s for one in driver.build_reads] == [READ_AFTER_S[0]]

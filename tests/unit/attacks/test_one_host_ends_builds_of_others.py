# SPDX-License-Identifier: Apache-2.0
"""A compromised host says that it has built the servers of other hosts, so that nobody reads how their builds end."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core.awaited_builds import READ_AFTER_S
from shared_scheduler.core.events import BuildFailure, BuildRead, BuildsRead, BuildState
from shared_scheduler.protocol.messages import BuildResult
from tests.unit.core.scheduler_driver import ME, SchedulerDriver, of_kind, only, request

VICTIM, LIAR, SERVER, AT_S = "node-1", "node-9", "server-1", 1_760_000_000.0
OTHERS = frozenset({"host-9"})


def told_by_the_liar(succeeded: bool = True) -> SchedulerDriver:
    """A server is placed on a node without an agent, and another host says that it runs there, or failed there."""
    driver = SchedulerDriver().without_agents(VICTIM).with_agents(LIAR)
    write = only(ef.WriteAllocation, driver.ask(request(SERVER, ignore_hosts=OTHERS)))
    only(ef.Answer, driver.written(write))
    driver.hear(BuildResult(LIAR, 1, SERVER, succeeded, "" if succeeded else "libvirtError", ME, 1))
    return driver


def read(driver: SchedulerDriver, build: BuildRead) -> list[tuple[str, bool]]:
    """The databases answer; what is recorded."""
    found = of_kind(ef.RecordBuild, driver.give(BuildsRead((build,))))
    return [(one.host, one.succeeded) for one in found]


def test_the_end_is_read_and_recorded_nevertheless() -> None:
    driver = told_by_the_liar()
    driver.wait(READ_AFTER_S[0])
    assert [one.server for one in driver.build_reads] == [SERVER]

    failure = BuildFailure("host-1", "No more IP addresses", AT_S, True)

    assert read(driver, BuildRead(SERVER, BuildState.FAILED, "", None, (failure,))) == [("host-1", False)]


def test_a_host_that_nova_conductor_has_tried_next_tells_the_truth_and_is_recorded_once() -> None:
    driver = told_by_the_liar()
    driver.wait(READ_AFTER_S[0])

    assert read(driver, BuildRead(SERVER, BuildState.ACTIVE, "host-9", AT_S, ())) == []

    driver.wait(READ_AFTER_S[-1])
    assert len(driver.build_reads) == 1


def test_the_lie_does_not_postpone_the_read_when_it_is_repeated() -> None:
    driver = told_by_the_liar()

    for number in range(2, 6):
        driver.wait(READ_AFTER_S[0] / 4)
        driver.hear(BuildResult(LIAR, 1, SERVER, True, "", ME, number))

    assert [one.server for one in driver.build_reads] == [SERVER]


def test_a_failure_that_another_host_tells_does_not_hide_that_of_nova_conductor() -> None:
    driver = told_by_the_liar(succeeded=False)
    driver.wait(READ_AFTER_S[0])

    failure = BuildFailure("host-1", "Exceeded maximum number of retries", AT_S, False)

    assert read(driver, BuildRead(SERVER, BuildState.FAILED, "", None, (failure,))) == [("host-1", False)]

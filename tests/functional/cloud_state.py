# SPDX-License-Identifier: Apache-2.0
"""The state of a test cloud: runs the commands for operators as programs, and prepares the cloud for a test."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from shared_scheduler.daemon import admin
from tests.support import forked_commands
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.cloud_settings import CloudSettings

#: How long a test waits for what must happen in the end; a machine with other work may stand still for many seconds.
SETTLE_S = 180

#: Options of every test: a machine that stands still for some seconds is no agent that does not answer, and an
#: allocation may still be written within the 13 seconds of its claim.
PATIENT: dict[str, dict[str, str]] = {"shared_scheduler": {"verdict_timeout_s": "8"}}

#: default settings of ``begin``
AS_A_TEST_FINDS_IT: dict[str, Any] = {
    "scheduler": "shared",
    "schedulers": 1,
    "scheduler_workers": 1,
    "backend": "threading",
    "forked": True,
    "computes": 3,
    "agents": "all",
    "premap": True,
    "compute_slots": (3,),
    "compute_ram_mb": (),
    "numa_cells": 0,
    "pages": {},
    "gpus": 0,
    "vfs": 0,
    "hardware_of": {},
    "nova_options": {},
    "update_resources_interval_s": 0,
    "allocation_conflict_retry_count": 0,
    "placement_app": False,
    "service_down_time_s": CloudSettings().service_down_time_s,
    "report_interval_s": CloudSettings().report_interval_s,
}
COMMAND_TIMEOUT_S = 300
UNDISTURBED_TRIES_MAX = 10
#: counters of claims that an agent did not answer, or not in the usual time
UNANSWERED = ("late", "verdicts_missed", "agents_gone")
#: the exit code of ``compare`` when a source could not be read
NOT_COMPARED = 2


def manage(cloud: Cloud, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``shared-scheduler-manage`` on the cloud's nova.conf."""
    return manage_without_configuration(
        cloud, arguments[0], "--config-file", str(cloud.layout.nova_conf()), *arguments[1:]
    )


def manage_without_configuration(cloud: Cloud, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``shared-scheduler-manage`` as on another machine."""
    command = [str(cloud.layout.nova / "bin" / "shared-scheduler-manage"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)


def assert_consistent(cloud: Cloud, wait_s: int = SETTLE_S) -> None:
    """Assert that every scheduler's table, every agent, Placement and Nova's database agree."""
    python, conf = cloud.layout.nova / "bin" / "python", str(cloud.layout.nova_conf())
    until_s = time.monotonic() + wait_s
    done = forked_commands.run(python, "compare", "--config-file", conf, "--wait", str(wait_s))
    while done.returncode == NOT_COMPARED and time.monotonic() < until_s:
        done = forked_commands.run(python, "compare", "--config-file", conf, "--wait", str(wait_s))
    assert done.returncode == 0, done.stdout + done.stderr


def sockets(cloud: Cloud) -> Path:
    """The directory of the admin sockets of the cloud's schedulers."""
    return cloud.layout.admin_sockets


def status(cloud: Cloud) -> list[dict[str, Any]]:
    """One row per scheduler: name, freshness counts, counters."""
    return ask_all(cloud, "status")


def ask_all(cloud: Cloud, question: str) -> list[Any]:
    """The answers of all schedulers, which run; one that gives none because the machine stands still is asked again.

    :raises LabError: when one does not answer
    """
    found: list[Any] = []

    def answered() -> bool:
        with suppress(admin.AdminError):
            found[:] = admin.ask_all(sockets(cloud), question)
        return bool(found)

    cloud.wait(answered, f"every scheduler to answer {question}", SETTLE_S)
    return found


def counter(cloud: Cloud, name: str) -> int:
    """The sum of a counter over all schedulers."""
    return sum_of(cloud, [name])


def sum_of(cloud: Cloud, names: Iterable[str]) -> int:
    """The sum of these counters over all schedulers."""
    rows = status(cloud)
    return sum(row["counters"].get(name, 0) for row in rows for name in names)


def tables(cloud: Cloud) -> dict[str, dict[str, dict[str, Any]]]:
    """Scheduler -> host -> row of its table."""
    return {answer["scheduler"]: {node["host"]: node for node in answer["nodes"]} for answer in ask_all(cloud, "nodes")}


def begin(cloud: Cloud, **changes: Any) -> None:
    """Prepare the cloud for a test: its settings, no servers, all hosts enabled.

    Servers go first, while their computes run: what nova-api deletes for a compute that is just
    starting, that compute goes on counting until its next audit.
    """
    cloud.reset()
    options = {group: dict(of_group) for group, of_group in changes.get("nova_options", {}).items()}
    for group, of_group in PATIENT.items():
        options[group] = of_group | options.get(group, {})
    cloud.up(**{**AS_A_TEST_FINDS_IT, **changes, "nova_options": options})
    cloud.reset()
    if cloud.settings.agent_count() == cloud.settings.computes:
        wait_fresh(cloud, set(cloud.hosts()))


def wait_fresh(cloud: Cloud, hosts: set[str], timeout_s: float = SETTLE_S) -> None:
    """Wait until every scheduler has a fresh row of each of these hosts and may select it."""

    def fresh() -> bool:
        found = tables(cloud)
        schedulers = len(cloud.names("scheduler-shared")) * cloud.settings.scheduler_workers
        return len(found) == schedulers and all(
            table.get(host, {}).get("freshness") == "fresh" and table[host]["choosable"]
            for table in found.values()
            for host in hosts
        )

    cloud.wait(fresh, f"fresh rows of {sorted(hosts)} in every scheduler", timeout_s)


def wait_most_free(cloud: Cloud, host: str) -> None:
    """Wait until every scheduler sees that this host has the most free memory.

    The row of a host that was restarted with another size is fresh, with the old size, until its first audit.
    """

    def most_free() -> bool:
        for answer in ask_all(cloud, "tables"):
            free = {row["host"]: row["leaves"].get("cn.free_ram_mb", 0) for row in answer["nodes"]}
            if free.pop(host, 0) <= max(free.values()):
                return False
        return True

    cloud.wait(most_free, f"{host} to have the most free memory in every scheduler", SETTLE_S)


def boot_until_active(cloud: Cloud, timeout_s: float = SETTLE_S, **extra: Any) -> str:
    """Boot one server; while the cloud still heals, try again.  Returns its uuid.

    A request may fail with a clear error while a component is down; it must not need an
    operator, and it must not stay so.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        [server] = cloud.boot(1, **extra)
        row = cloud.wait_built([server])[server]
        if row["status"] == "ACTIVE":
            return server
        assert time.monotonic() < deadline, f"still {row} after {timeout_s} s"
        cloud.delete([server])


def boot_undisturbed(cloud: Cloud, **extra: Any) -> tuple[str, int]:
    """Boot one server while no agent is late.  Returns its uuid, and how many requests the schedulers have answered.

    An agent that needs longer than usual for a claim, which happens on a busy machine, loses it to the next host, so
    the server is then not where the weights want it: it is deleted, and another one is booted.
    """
    for _ in range(UNDISTURBED_TRIES_MAX):
        unanswered, answered = sum_of(cloud, UNANSWERED), counter(cloud, "requests_answered")
        [server] = cloud.boot(1, **extra)
        cloud.wait_built([server])
        if sum_of(cloud, UNANSWERED) == unanswered:
            return server, counter(cloud, "requests_answered") - answered
        cloud.delete([server])
    raise AssertionError(f"an agent was late in each of {UNDISTURBED_TRIES_MAX} boots")

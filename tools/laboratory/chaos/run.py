# SPDX-License-Identifier: Apache-2.0
"""The whole run: users and faults at the same time, then a comparison of all records."""

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from tools.laboratory.chaos import reasons
from tools.laboratory.chaos.environment import Environment, prepare
from tools.laboratory.chaos.fault_injector import FaultInjector
from tools.laboratory.chaos.history import History
from tools.laboratory.chaos.sampler import Sampler
from tools.laboratory.chaos.servers import User
from tools.laboratory.chaos.traces import collect
from tools.laboratory.cloud import audit
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.host_tables import wait_followed, wait_idle
from tools.laboratory.errors import LabError
from tools.laboratory.report import ProgressLine

USERS = 4
SETTLE_S = 90
"""How long records may differ after the last operation, because agents check the claims of killed schedulers."""
COMMAND_TIMEOUT_S = 300


@dataclass(frozen=True)
class Report:
    """The results of a run."""

    seed: int
    minutes: float
    operations: dict[str, dict[str, int]]
    faults: dict[str, int]
    failures: dict[str, int]
    wrong: list[str]
    """The failed checks, one sentence each."""
    traces: list[str]
    """The operations on the servers that `wrong` names, and their log lines."""


def run(cloud: Cloud, seed: int, minutes: float, progress: ProgressLine, users: int = USERS) -> Report:
    """Start the cloud, run users and faults, then compare everything.

    :raises LabError: when the run cannot continue; failed checks are in the report
    """
    environment = prepare(cloud)
    history, sampler = History(), Sampler(cloud)
    progress.say(f"{users} users for {minutes:g} minutes, seed {seed}")
    began_at = time.monotonic()
    run_users(environment, history, sampler, seed, minutes, users, progress)
    lasted_min = round((time.monotonic() - began_at) / 60, 1)
    progress.say("users and faults have stopped; comparing all records")
    wrong = [*judge(cloud), *reasons.false_reasons(history, sampler.samples), *leave(cloud)]
    failures = reasons.why_counts(history.failed())
    traces = collect(cloud, history, wrong)
    return Report(seed, lasted_min, history.counts(), history.fault_counts(), failures, wrong, traces)


def run_users(environment: Environment, history: History, sampler: Sampler, seed: int, minutes: float, users: int,
              progress: ProgressLine) -> None:  # fmt: skip
    """Users, faults and samples at the same time; raises what ended one of them."""
    injector = FaultInjector(environment.cloud, history, seed)
    until = time.monotonic() + minutes * 60
    broken: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> Callable[[], None]:
        def guard() -> None:
            try:
                body()
            except BaseException as error:
                broken.append(error)

        return guard

    def use(user: User) -> None:
        while time.monotonic() < until and not broken:
            user.step()

    people = [User(number, environment, history, injector, seed) for number in range(1, users + 1)]
    sampling = threading.Thread(target=guarded(sampler.run))
    injecting = threading.Thread(target=guarded(injector.run))
    using = [threading.Thread(target=guarded(partial(use, user))) for user in people]
    for thread in (sampling, injecting, *using):
        thread.start()
    progress.expect(minutes * 60, "seconds")
    for thread in using:
        while thread.is_alive():
            thread.join(1.0)
            progress.step()
    injector.stop()
    injecting.join()
    sampler.stop()
    sampling.join()
    if broken:
        raise broken[0]


def judge(cloud: Cloud) -> list[str]:
    """Compare Placement's allocations with Nova's records, and run the operator's `compare`."""
    wait_followed(cloud)
    return [*settled(lambda: audit.wrong_allocations(cloud)), *compared(cloud)]


def settled(check: Callable[[], list[str]], timeout_s: float = SETTLE_S) -> list[str]:
    """The results of a check when it finds nothing, or at the end of the time, because some things are cleaned up
    later."""
    deadline = time.monotonic() + timeout_s
    while (found := check()) and time.monotonic() < deadline:
        time.sleep(1)
    return found


def compared(cloud: Cloud) -> list[str]:
    """The lines of `shared-scheduler-manage compare` if it found differences."""
    command = [
        str(cloud.layout.nova / "bin" / "shared-scheduler-manage"), "compare",
        "--config-file", str(cloud.layout.nova_conf()), "--wait", str(SETTLE_S),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    return [] if done.returncode == 0 else [f"compare: {line}" for line in (done.stdout + done.stderr).splitlines()]


def leave(cloud: Cloud) -> list[str]:
    """Delete everything; then Placement and all tables must be empty."""
    try:
        cloud.reset()
        wait_idle(cloud)
    except LabError as error:
        return [f"after everything was deleted: {error}", *audit.wrong_allocations(cloud)]
    return compared(cloud)


def as_dict(report: Report) -> dict[str, object]:
    return asdict(report)

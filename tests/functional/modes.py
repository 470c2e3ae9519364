# SPDX-License-Identifier: Apache-2.0
"""A cloud whose scheduler changes its mode: nova-scheduler behind it, SIGHUP, and users who boot all the time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shared_scheduler.conf.mode import Mode
from tests.functional import cloud_state
from tools.laboratory import ROOT
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.errors import LabError

#: three computes with room for three servers each
SLOTS = 9
FEW_USERS, MANY_USERS = 3, 6
STOP_S = 90.0
SWITCH_TIMEOUT_S = 240.0


class Behind:
    """``shared-scheduler-stock``, started as its unit does."""

    def __init__(self, cloud: Cloud, name: str) -> None:
        nova, etc = cloud.layout.nova, cloud.layout.etc / "nova"
        (etc / f"{name}.conf").write_text(f"[DEFAULT]\nhost = {name}\n")
        files = (cloud.layout.nova_conf(), etc / f"{name}.conf")
        self._cloud = cloud
        self._queue = f"scheduler_stock.{name}"
        self._argv = [str(nova / "bin" / "python"), "-P", "-m", "shared_scheduler.cmd.stock",
                      *(part for file in files for part in ("--config-file", str(file)))]  # fmt: skip
        self._log = cloud.layout.log_of(name)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it consumes its queue."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True
            )
        self._cloud.wait(lambda: self._cloud.consumers(self._queue) > 0, "nova-scheduler to be behind")

    def signal(self, number: int) -> None:
        """Send a signal to it and its workers."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def write_mode(cloud: Cloud, scheduler: str, mode: Mode) -> None:
    """Write the mode to the scheduler's own file."""
    file = cloud.layout.etc / "nova" / f"{scheduler}.conf"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(("mode =", "[shared_scheduler]"))]
    file.write_text("\n".join([*lines, "[shared_scheduler]", f"mode = {mode.value}", ""]))


def reload(cloud: Cloud, scheduler: str, mode: Mode) -> None:
    """Write the mode, and send SIGHUP."""
    write_mode(cloud, scheduler, mode)
    cloud.hangup(scheduler)


def modes(cloud: Cloud) -> dict[str, str]:
    """Scheduler -> mode, as ``status`` tells it."""
    return {row["scheduler"]: row["mode"] for row in cloud_state.status(cloud)}


def switch(cloud: Cloud, mode: Mode) -> None:
    """Change the mode of every scheduler of ours, and return when each tells it."""
    schedulers = cloud.names("scheduler-shared")
    for scheduler in schedulers:
        reload(cloud, scheduler, mode)
    wanted = {scheduler: mode.value for scheduler in schedulers}
    cloud.wait(lambda: modes(cloud) == wanted, f"mode {mode}", SWITCH_TIMEOUT_S)


class Users:
    """Each user boots a server, waits for its end, and deletes it."""

    def __init__(self, cloud: Cloud, count: int) -> None:
        self.count = count
        self.ended: Counter[str] = Counter()
        self.over: list[object] = []
        self.faults: list[object] = []
        self._cloud = cloud
        self._stopped = threading.Event()
        self._counting = threading.Lock()
        self._door = threading.Lock()
        self._at_work = threading.Semaphore(count)

    def live(self) -> None:
        while not self._stopped.is_set():
            with self._door:
                self._at_work.acquire()
            try:
                self._use_a_server()
            finally:
                self._at_work.release()

    def _use_a_server(self) -> None:
        [server] = self._cloud.boot(1)
        try:
            row = self._cloud.wait_built([server])[server]
        except LabError as error:
            raise LabError(f"{error}: {server}") from error
        over = self._cloud.overcommit()
        with self._counting:
            self.ended[row["status"]] += 1
            self.over += [over] if over else []
            self.faults += [row["fault"]] if row["fault"] else []
        self._cloud.delete([server])

    @contextmanager
    def away(self) -> Iterator[None]:
        """No user has a request under way."""
        with self._door:
            for _ in range(self.count):
                self._at_work.acquire()
            try:
                yield
            finally:
                self._at_work.release(self.count)

    def stop(self) -> None:
        self._stopped.set()


@contextmanager
def users(cloud: Cloud, count: int = FEW_USERS) -> Iterator[Users]:
    """So many users at work.  When they have left, no server was lost, and no host was ever over-committed."""
    crowd = Users(cloud, count)
    failures: list[BaseException] = []

    def live() -> None:
        try:
            crowd.live()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=live, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield crowd
    finally:
        crowd.stop()
        for thread in threads:
            thread.join()
    assert failures == [], f"{failures}; servers by status: {crowd.ended}"
    found = (set(crowd.ended), crowd.faults, crowd.over)
    assert found == ({"ACTIVE"}, [], []), found


def wait_for_servers(cloud: Cloud, crowd: Users, count: int) -> None:
    """Wait until the users have got so many servers more."""
    wanted = crowd.ended.total() + count
    cloud.wait(lambda: crowd.ended.total() >= wanted, f"{count} servers", 400)


def pause() -> None:
    """Some requests arrive in a mode that leaves them in the queue."""
    time.sleep(0.5)

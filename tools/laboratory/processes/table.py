# SPDX-License-Identifier: Apache-2.0
"""The processes that this tool has started.

A process is identified by its id *and* its start time, so a reused id is never mistaken for it. Each leads its own
session, to which its forked processes belong. All have a mark of this data directory in their environment, by which a
process without a record, because of an interruption, is found too.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.laboratory.errors import LabError

MARK = "SHARED_SCHEDULER_CLOUD_MARK"
KEEP_ENVIRONMENT = {"SPT_NOENV": "1"}
"""Without this, setproctitle writes a long title over the environment that /proc shows, and so over the mark."""
STOP_GRACE_S = 15.0
KILLED_S = 60.0
"""How long the kernel may take to end a killed process."""
POLL_S = 0.05


@dataclass(frozen=True)
class Process:
    """The record of a started process."""

    name: str
    pid: int
    start_ticks: int
    kind: str
    fingerprint: str
    """Hash of its command and configuration: a different one means that it needs a restart."""
    started_at: float


@dataclass(frozen=True)
class Stat:
    """The content of /proc/PID/stat."""

    state: str
    session: int
    start_ticks: int
    cpu_ticks: int


def stat_of(pid: int) -> Stat | None:
    """State of a process now, or None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the command may contain anything, even ")"
    return Stat(fields[0], int(fields[3]), int(fields[19]), int(fields[11]) + int(fields[12]))


def all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def session_of(leader: int) -> list[int]:
    """Every living process of the session that `leader` leads."""
    found = []
    for pid in all_pids():
        stat = stat_of(pid)
        if stat is not None and stat.session == leader and stat.state != "Z":
            found.append(pid)
    return found


class ProcessTable:
    """Records in `run/NAME.json`, one file a process."""

    def __init__(self, run: Path, mark: str) -> None:
        self.run = run
        self.mark = mark

    def spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path,
              kind: str, fingerprint: str) -> Process:  # fmt: skip
        """Start `argv` in its own session, with its output appended to `log`."""
        environment = {**clean_environment(), **env, MARK: f"{self.mark}/{name}", **KEEP_ENVIRONMENT}
        with log.open("ab") as output:
            child = subprocess.Popen(
                argv, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, cwd=self.run,
            )  # fmt: skip
        child.returncode = 0  # it runs longer than this process by design, so Popen must not warn
        return self.adopt(name, child.pid, kind, fingerprint)

    def adopt(self, name: str, pid: int, kind: str, fingerprint: str) -> Process:
        """Record a process that another process has started for this one."""
        stat = stat_of(pid)
        process = Process(name, pid, stat.start_ticks if stat else 0, kind, fingerprint, time.time())
        temporary = self.run / f".{name}.tmp"
        temporary.write_text(json.dumps(asdict(process)))
        temporary.rename(self._record(name))
        return process

    def _record(self, name: str) -> Path:
        return self.run / f"{name}.json"

    def find(self, name: str) -> Process | None:
        """The record of `name`, dead or alive."""
        try:
            return Process(**json.loads(self._record(name).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.run.glob("*.json"))

    def alive(self, name: str) -> Process | None:
        """The record of `name` if that process still runs."""
        process = self.find(name)
        return process if process is not None and is_alive(process) else None

    def forget(self, name: str) -> None:
        self._record(name).unlink(missing_ok=True)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to the whole session of `name`; an error if it does not run."""
        process = self.alive(name)
        if process is None:
            raise LabError(f"{name} does not run; `tools/lab cloud status` lists what does")
        send(session_of(process.pid), number)

    def kill(self, name: str) -> int:
        """kill -9 for `name` and its forked processes; returns when they have ended.

        Returns the signal that has ended a child of this process, according to the kernel; 0 for any other process.
        """
        process = self.alive(name)
        if process is None:
            raise LabError(f"{name} does not run; `tools/lab cloud status` lists what does")
        members = start_ticks_of(session_of(process.pid))
        kill_session(process.pid)
        wait_gone(members, KILLED_S)
        return ended_by(process.pid)

    def stop(self, names: Iterable[str], grace_s: float = STOP_GRACE_S) -> list[str]:
        """TERM all of `names` together, KILL the sessions of those that do not end; returns the names of the latter."""
        running = [process for name in names if (process := self.alive(name)) is not None]
        members = {process.name: start_ticks_of(session_of(process.pid)) for process in running}
        for process in running:
            send(session_of(process.pid), signal.SIGCONT)  # a frozen process would not see TERM
            send([process.pid], signal.SIGTERM)
        stubborn = wait_dead(running, grace_s)
        for process in running:
            if any(is_same(pid, ticks) for pid, ticks in members[process.name].items()):
                kill_session(process.pid)  # the session still exists, so its id was not reused
            wait_gone(members[process.name], KILLED_S)  # a process that ends may still use the port
        return [process.name for process in stubborn]

    def strays(self) -> list[int]:
        """Living processes with our mark, recorded or not."""
        wanted = f"{MARK}={self.mark}/".encode()
        found = []
        for pid in all_pids():
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{pid}/environ").read_bytes() and pid != os.getpid():
                    found.append(pid)
        return found

    def kill_strays(self) -> list[int]:
        """kill -9 for every living process with our mark; returns their ids when they have ended."""
        strays = start_ticks_of(self.strays())
        send(strays, signal.SIGKILL)
        wait_gone(strays, KILLED_S)
        return list(strays)

    def end_all(self, grace_s: float = STOP_GRACE_S) -> None:
        """Stop all recorded processes together, then kill living processes with our mark."""
        self.stop(self.names(), grace_s)
        self.kill_strays()


def clean_environment() -> dict[str, str]:
    """Our environment without variables that change paths or options of Python or OpenStack."""
    unwanted = ("PYTHON", "OS_", "VIRTUAL_ENV", "RABBITMQ_", "MYSQL_", "COVERAGE", "PYTEST")
    return {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}


def ended_by(pid: int) -> int:
    """The signal that has ended a child of this process, if its status was not read before; 0 of any other process."""
    with contextlib.suppress(ChildProcessError):
        ended, status = os.waitpid(pid, os.WNOHANG)
        return os.WTERMSIG(status) if ended and os.WIFSIGNALED(status) else 0
    return 0


def is_alive(process: Process) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)  # if it is our own child, do not leave a zombie
    return is_same(process.pid, process.start_ticks)


def is_same(pid: int, start_ticks: int) -> bool:
    """Whether the process that started at `start_ticks` still lives under this id."""
    stat = stat_of(pid)
    return stat is not None and stat.start_ticks == start_ticks and (stat.state != "Z" or has_threads(pid))


def has_threads(pid: int) -> bool:
    """Whether a process whose first thread has ended has other threads, which still hold its files and ports."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def start_ticks_of(pids: Iterable[int]) -> dict[int, int]:
    return {pid: stat.start_ticks for pid in pids if (stat := stat_of(pid)) is not None}


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_session(leader: int) -> None:
    send(session_of(leader), signal.SIGKILL)


def wait_dead(processes: Sequence[Process], timeout_s: float) -> list[Process]:
    """Wait until all are dead or the time is up; returns those alive."""
    deadline = time.monotonic() + timeout_s
    left = [process for process in processes if is_alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if is_alive(process)]
    return left


def wait_gone(start_ticks: Mapping[int, int], timeout_s: float) -> None:
    """Wait until none of these processes lives any more, or the time is up."""
    deadline = time.monotonic() + timeout_s
    while any(is_same(pid, ticks) for pid, ticks in start_ticks.items()) and time.monotonic() < deadline:
        time.sleep(POLL_S)

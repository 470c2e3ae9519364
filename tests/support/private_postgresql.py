# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL alone, on a Unix socket in a directory of its own, for tests.

It starts in seconds, can be killed and started again, and ends with the process that has started it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tools.laboratory.errors import LabError
from tools.laboratory.processes.guard import Guard
from tools.laboratory.processes.startup import wait_for
from tools.laboratory.processes.table import KILLED_S, ProcessTable, clean_environment, send, start_ticks_of, wait_gone

#: Debian's packages, one directory for each release; ``initdb`` and ``postgres`` are not on the PATH there.
PACKAGES = Path("/usr/lib/postgresql")
#: Who runs it for root, whom PostgreSQL refuses.
SYSTEM_USER = "postgres"
DATABASE_USER = "cloud"
NAME = "postgresql"
COMMAND_TIMEOUT_S = 300
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
LOG_TAIL = 2000


class PrivatePostgresql:
    """One server. ``start`` may follow ``kill``; ``stop`` also removes its directory."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="pg-"))
        _give(self._home)
        self._programs = programs()
        self._log = self._home / "server.log"
        self._table = ProcessTable(self._home, self._home.name)
        self._guard = Guard(self._table, self._home)

    def url(self, database: str) -> str:
        """As SQLAlchemy takes it."""
        return f"postgresql+psycopg2://{DATABASE_USER}@/{database}?host={self._home}"

    def start(self) -> None:
        """Start it, with an empty cluster at first; returns when it answers.

        :raises LabError: when it does not start; the text contains the end of its log
        """
        if not self._data.exists():
            self._run("initdb", "--auth=trust", f"--username={DATABASE_USER}", "--encoding=UTF8", "--locale=C",
                      "--no-sync", f"--pgdata={self._data}")  # fmt: skip
        self._table.spawn(NAME, self._server(), {}, self._log, NAME, "")
        try:
            wait_for(NAME, self._answers, START_TIMEOUT_S, lambda: self._table.alive(NAME) is None)
        except LabError as error:
            raise LabError(f"{error}; its log ends with:\n{self._end_of_log()}") from error

    def create(self, database: str) -> str:
        """The URL of a new database."""
        self._run("createdb", f"--host={self._home}", f"--username={DATABASE_USER}", database)
        return self.url(database)

    def kill(self) -> None:
        """``kill -9`` for the server and its children, each of which leads a session; returns when they have ended."""
        process = self._table.alive(NAME)
        if process is None:
            raise LabError(f"{NAME} does not run")
        children = start_ticks_of(_children(process.pid))
        self._table.kill(NAME)
        send(children, signal.SIGKILL)
        wait_gone(children, KILLED_S)

    def stop(self) -> None:
        """Stop it and remove all files."""
        if self._table.alive(NAME) is not None:
            self._table.signal(NAME, signal.SIGINT)  # it would wait for its clients after TERM alone
        self._table.stop([NAME], STOP_TIMEOUT_S)
        self._guard.release()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self._home / "data"

    def _server(self) -> list[str]:
        """Its data survive a kill -9, but not a power failure; what is shared by its processes is a file there too."""
        options = ("fsync=off", "listen_addresses=", f"unix_socket_directories={self._home}", "max_connections=200",
                   "dynamic_shared_memory_type=mmap")  # fmt: skip
        settings = (part for option in options for part in ("-c", option))
        return [*as_user(), str(self._programs / "postgres"), "-D", str(self._data), *settings]

    def _answers(self) -> bool:
        try:
            self._run("psql", f"--host={self._home}", f"--username={DATABASE_USER}", "--command=select 1", "postgres")
        except LabError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*as_user(), str(self._programs / program), *arguments], cwd=self._home, env=clean_environment(),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise LabError(f"{program} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL:]


def programs() -> Path:
    """The directory of the newest release's programs.

    :raises LabError: when there is none
    """
    found = sorted(PACKAGES.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("postgres")
    if not found and on_path is None:
        raise LabError("postgres is neither below /usr/lib/postgresql nor on the PATH; run tools/install")
    return (found[-1] if found else Path(str(on_path))).parent


def as_user() -> list[str]:
    """What precedes a command of PostgreSQL: it runs as another user for root, in the same process."""
    if os.geteuid():
        return []
    return ["setpriv", f"--reuid={SYSTEM_USER}", f"--regid={SYSTEM_USER}", "--init-groups"]


def _give(directory: Path) -> None:
    """To the user who runs it."""
    if os.geteuid() == 0:
        owner = pwd.getpwnam(SYSTEM_USER)
        os.chown(directory, owner.pw_uid, owner.pw_gid)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

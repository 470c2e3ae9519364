# SPDX-License-Identifier: Apache-2.0
"""Where the drill takes place: a private broker, and the processes around it. It ends only what it started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tools.realcloud.rabbitmq import PrivateRabbit

from .control import ControlError, ask
from .pace import Pace
from .proxy import Mode, Proxy

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.05


class DrillError(Exception):
    """The drill cannot go on; says why."""


@dataclass
class Process:
    """One of ours. `hosts` are the numbers of the hosts that it plays, if any."""

    name: str
    command: Sequence[str]
    control: Path
    log: Path
    hosts: range = field(default_factory=lambda: range(0))
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.control.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                self.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_ready(self) -> None:
        end_s = time.monotonic() + START_TIMEOUT_S
        while not self.control.exists():
            if self.popen is None or self.popen.poll() is not None or time.monotonic() > end_s:
                raise DrillError(f"{self.name} did not start: {self.log.read_text()[-2000:]}")
            time.sleep(POLL_S)

    def ask(self, question: str, timeout_s: float = 60.0, **fields: Any) -> Any:
        return ask(self.control, question, timeout_s, **fields)

    def signal(self, number: int) -> None:
        if self.popen is not None and self.popen.poll() is None:
            self.popen.send_signal(number)

    @property
    def stopped(self) -> bool:
        """Does the kernel say that SIGSTOP holds it?"""
        if self.popen is None or self.popen.poll() is not None:
            return False
        stat = Path(f"/proc/{self.popen.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    @property
    def ended_by(self) -> int:
        """The signal that ended it; 0 where it runs, or ended by itself."""
        return max(0, -(self.popen.returncode or 0)) if self.popen is not None else 0

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self.popen is not None:
            self.popen.wait(STOP_TIMEOUT_S)


@dataclass(frozen=True)
class Sizes:
    """How many of everything. `victims` are the agents that some faults are for, in a process of their own."""

    agents: int = 1000
    schedulers: int = 4
    processes: int = 4
    rate_per_s: float = 10.0

    @property
    def victims(self) -> int:
        return max(2, self.agents // 50)


class Ground:
    """A context manager: broker, stand-in for Placement, schedulers and agents; agents wait for `let_agents_join`.

    The first scheduler and the victims reach the broker through proxies.
    """

    def __init__(self, sizes: Sizes, pace: Pace, say: Callable[[str], None]) -> None:
        self.sizes, self.pace, self._say = sizes, pace, say
        self.rabbit = PrivateRabbit()
        self._home = Path(tempfile.mkdtemp(prefix="fire-"))
        self.placement = self._placement()
        self.proxies = {name: Proxy(self.rabbit.port) for name in ("scheduler", "victims")}
        self.schedulers = [self._scheduler(number) for number in range(1, sizes.schedulers + 1)]
        self.agents = [self._agents(number, hosts) for number, hosts in enumerate(_shares(sizes), 1)]

    def __enter__(self) -> Ground:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def processes(self) -> list[Process]:
        return [self.placement, *self.schedulers, *self.agents]

    @property
    def victims(self) -> Process:
        return self.agents[0]

    def _open(self) -> None:
        self._say("starting a broker")
        self.rabbit.start()
        self._say(f"starting {len(self.processes)} processes")
        for process in self.processes:
            process.start()
        for process in self.processes:
            process.wait_ready()
        for scheduler in self.schedulers:
            scheduler.ask("go")

    def close(self) -> None:
        """End everything, logs included."""
        for proxy in self.proxies.values():
            proxy.close()
        for process in self.processes:
            process.signal(signal.SIGCONT)
            process.kill()
        self.rabbit.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def let_agents_join(self) -> None:
        """All at once."""
        self.all_agents("go")

    def all_agents(self, question: str, **fields: Any) -> list[Any]:
        """The answers of all processes of agents, asked at the same time."""
        with ThreadPoolExecutor(len(self.agents)) as pool:
            return list(pool.map(lambda process: process.ask(question, **fields), self.agents))

    def all_schedulers(self, question: str, timeout_s: float = 60.0) -> list[Any]:
        """The same of all schedulers; None for one that does not answer."""

        def one(process: Process) -> Any:
            try:
                return process.ask(question, timeout_s)
            except ControlError:
                return None

        with ThreadPoolExecutor(len(self.schedulers)) as pool:
            return list(pool.map(one, self.schedulers))

    def restart_scheduler(self, process: Process) -> None:
        """A new life after `kill`."""
        process.start()
        process.wait_ready()
        process.ask("go")

    def set_proxies(self, mode: Mode) -> None:
        for proxy in self.proxies.values():
            proxy.set(mode)

    # -- commands

    def _url(self, port: int) -> str:
        return f"rabbit://guest:guest@127.0.0.1:{port}/"

    def _process(self, name: str, module: str, arguments: Sequence[str], hosts: range = range(0)) -> Process:
        command = (sys.executable, "-m", f"tools.firedrill.{module}", *arguments)
        return Process(name, command, self._home / f"{name}.sock", self._home / f"{name}.log", hosts)

    def _placement(self) -> Process:
        socket = os.fspath(self._home / "placement.sock")
        return self._process("placement", "placement", (socket, str(self.sizes.agents)))

    def _scheduler(self, number: int) -> Process:
        name = f"scheduler-{number}"
        port = self.proxies["scheduler"].port if number == 1 else self.rabbit.port
        return self._process(name, "scheduler", [json.dumps({
            "name": name, "url": self._url(port), "hosts": self.sizes.agents, **self._common(name),
        })])  # fmt: skip

    def _agents(self, number: int, hosts: range) -> Process:
        name = f"agents-{number}"
        port = self.proxies["victims"].port if number == 1 else self.rabbit.port
        return self._process(name, "agents", [json.dumps({
            "url": self._url(port), "first": hosts.start, "last": hosts.stop - 1, **self._common(name),
        })], hosts)  # fmt: skip

    def _common(self, name: str) -> dict[str, Any]:
        return {
            "control": os.fspath(self._home / f"{name}.sock"), "placement": os.fspath(self.placement.control),
            "pace": self.pace.as_dict(),
        }  # fmt: skip


def _shares(sizes: Sizes) -> list[range]:
    """Numbers of the hosts of each process of agents, the victims' first."""
    first = sizes.victims + 1
    others = sizes.agents - sizes.victims
    bounds = [first + others * part // sizes.processes for part in range(sizes.processes + 1)]
    return [range(1, first), *(range(*pair) for pair in pairwise(bounds))]

# SPDX-License-Identifier: Apache-2.0
"""A private broker and the processes around it: schedulers, agents, and a simulated Placement."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.laboratory.cloud.rabbitmq import PrivateRabbit
from tools.laboratory.fire.pace import Pace
from tools.laboratory.fire.proxy import Mode, Proxy
from tools.laboratory.fleet.orders import Orders
from tools.laboratory.processes.controlled import Program, ask_all, ask_those_that_answer, shares, start_all
from tools.laboratory.processes.guard import Guard
from tools.laboratory.processes.table import ProcessTable
from tools.laboratory.processes.usage import cpu_seconds

MARK = "fire"


@dataclass(frozen=True)
class Sizes:
    """The sizes. `victims`: the agents that some faults affect, in their own process."""

    agents: int = 1000
    schedulers: int = 4
    processes: int = 4
    rate_per_s: float = 10.0

    @property
    def victims(self) -> int:
        return max(2, self.agents // 50)


class Environment:
    """A context manager: broker, stand-in for Placement, schedulers and agents; agents wait for `let_agents_join`.

    The first scheduler and the victims reach the broker through proxies.
    """

    def __init__(self, sizes: Sizes, pace: Pace, say: Callable[[str], None]) -> None:
        self.sizes, self.pace, self._say = sizes, pace, say
        self.rabbit = PrivateRabbit()
        self._home = Path(tempfile.mkdtemp(prefix="fire-"))
        self._table = ProcessTable(self._home, f"{MARK}-{self._home.name}")
        self._guard = Guard(self._table, self._home)
        self.placement = self._placement()
        self.proxies = {name: Proxy(self.rabbit.port) for name in ("scheduler", "victims")}
        self.schedulers = [self._scheduler(number) for number in range(1, sizes.schedulers + 1)]
        self.agents = [self._agents(number, hosts) for number, hosts in enumerate(_shares(sizes), 1)]

    def __enter__(self) -> Environment:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def processes(self) -> list[Program]:
        return [self.placement, *self.schedulers, *self.agents]

    @property
    def victims(self) -> Program:
        return self.agents[0]

    def _open(self) -> None:
        self._say("starting a broker")
        self.rabbit.start()
        self._say(f"starting {len(self.processes)} processes")
        start_all(self._table, self.processes)
        for scheduler in self.schedulers:
            scheduler.ask("go")

    def close(self) -> None:
        """Stop all processes and remove the logs."""
        for proxy in self.proxies.values():
            proxy.close()
        self._table.stop([process.name for process in self.processes])
        self.rabbit.stop()
        self._guard.release()
        shutil.rmtree(self._home, ignore_errors=True)

    def let_agents_join(self) -> None:
        """Let all agents join at once."""
        self.all_agents("go")

    def all_agents(self, question: str, **fields: Any) -> list[Any]:
        """The answers of all processes of agents, asked at the same time."""
        return ask_all(self.agents, question, **fields)

    def all_schedulers(self, question: str, timeout_s: float = 60.0) -> list[Any]:
        """The same of all schedulers; None for one that does not answer."""
        return ask_those_that_answer(self.schedulers, question, timeout_s)

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds since the start: of the broker, all schedulers, all agents, the stand-in for Placement."""
        found = {"broker": self.rabbit.cpu_s()}
        kinds = {"schedulers": self.schedulers, "agents": self.agents, "placement": [self.placement]}
        for kind, programs in kinds.items():
            running = (self._table.alive(program.name) for program in programs)
            found[kind] = sum(cpu_seconds(process) for process in running if process)
        return found

    def kill_schedulers(self) -> None:
        """kill -9 to all schedulers."""
        for scheduler in self.schedulers:
            scheduler.kill()

    def restart_schedulers(self) -> None:
        """Start all of them at the same time after `kill_schedulers`; each joins the channel when it has loaded."""
        start_all(self._table, self.schedulers, lambda scheduler: scheduler.ask("go"))

    def restart_scheduler(self, process: Program) -> None:
        """Start it again after `kill`."""
        process.start()
        process.ask("go")

    def set_proxies(self, mode: Mode) -> None:
        for proxy in self.proxies.values():
            proxy.set(mode)

    # -- commands

    def _url(self, port: int) -> str:
        return f"rabbit://guest:guest@127.0.0.1:{port}/"

    def _program(self, name: str, hosts: range = range(0)) -> Program:
        return Program(self._table, self._home, name, hosts)

    def _placement(self) -> Program:
        made = self._program("placement")
        return made.runs("placement", str(made.socket), "small", str(self.sizes.agents))

    def _scheduler(self, number: int) -> Program:
        made = self._program(f"scheduler-{number}")
        port = self.proxies["scheduler"].port if number == 1 else self.rabbit.port
        return made.runs("fire.scheduler", json.dumps({
            "name": made.name, "url": self._url(port), "hosts": self.sizes.agents, "control": str(made.socket),
            "placement": str(self.placement.socket), "pace": self.pace.as_dict(),
        }))  # fmt: skip

    def _agents(self, number: int, hosts: range) -> Program:
        made = self._program(f"agents-{number}", hosts)
        port = self.proxies["victims"].port if number == 1 else self.rabbit.port
        orders = Orders(self._url(port), hosts.start, hosts.stop - 1, str(made.socket), hardware="small",
                        placement=str(self.placement.socket), heartbeat_s=self.pace.heartbeat_s,
                        amqp_heartbeat_s=self.pace.amqp_heartbeat_s)  # fmt: skip
        return made.runs("fleet.process", json.dumps(asdict(orders)))


def _shares(sizes: Sizes) -> list[range]:
    """The numbers of the hosts of each process of agents, the victims' first."""
    return [range(1, sizes.victims + 1), *shares(sizes.victims + 1, sizes.agents, sizes.processes)]

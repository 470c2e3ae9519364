# SPDX-License-Identifier: Apache-2.0
"""Selects a RabbitMQ, the machine's own or one unpacked elsewhere (``tools/install-rabbitmq-4``), and starts it, for a
cloud or alone.
"""

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.laboratory.cloud.layout import venvs
from tools.laboratory.cloud.ports import LOOPBACK
from tools.laboratory.errors import LabError
from tools.laboratory.processes.startup import Service

SYSTEM = ""
"""The machine's own RabbitMQ, in the directories of its package."""


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of RabbitMQ's scripts, instead of the caller's, so that every shell uses the same broker."""


def directory(text: str) -> str:
    """A broker's directory as an absolute path; `SYSTEM` is not changed."""
    return str(Path(text).absolute()) if text else SYSTEM


def chosen() -> str:
    """The directory in $SHARED_SCHEDULER_RABBITMQ, or `SYSTEM`."""
    return directory(os.environ.get("SHARED_SCHEDULER_RABBITMQ", ""))


def rabbitmq_4() -> str:
    """Directory of the broker that ``tools/install-rabbitmq-4`` unpacks."""
    return str(venvs() / "rabbitmq4")


@dataclass(frozen=True)
class Programs:
    """The programs of one RabbitMQ and its Erlang; ``directory``: where it is unpacked, or `SYSTEM`."""

    directory: str = SYSTEM

    @property
    def server(self) -> str:
        return str(self._scripts / "rabbitmq-server")

    @property
    def control(self) -> str:
        return str(self._scripts / "rabbitmqctl")

    @property
    def store(self) -> str:
        """The name of its data directory, because a release cannot read all data of another release."""
        return f"mnesia-{Path(self.directory).name}" if self.directory else "mnesia"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for its own Erlang."""
        return {"PATH": f"{self._root / 'usr/lib/erlang/bin'}:{PATH}"} if self.directory else {}

    @property
    def _root(self) -> Path:
        return Path(self.directory or "/")

    @property
    def _scripts(self) -> Path:
        return self._root / "usr/lib/rabbitmq/bin"  # those in /usr/sbin require the system's user rabbitmq

    def check(self) -> None:
        """Raise a `LabError` with the remedy if they do not exist."""
        for program in (self.server, self.epmd()):
            if shutil.which(program) is None:
                remedy = "run tools/install"
                if self.directory:
                    remedy = f"tools/install-rabbitmq-4 unpacks one into {rabbitmq_4()}"
                raise LabError(f"{program} does not exist; {remedy}")

    def epmd(self) -> str:
        """Erlang's port mapper."""
        return str(self._root / "usr/bin/epmd") if self.directory else "epmd"


@dataclass(frozen=True)
class Place:
    """The node of one broker: its Erlang name, its directories (`etc` has its configuration) and its ports."""

    node: str
    home: Path
    etc: Path
    log: Path
    port: int
    dist_port: int
    epmd_port: int


def services(programs: Programs, place: Place, ready: Callable[[], bool], stop_grace_s: float) -> list[Service]:
    """Erlang's port mapper and the broker; `ready` returns whether the broker can be used."""
    erlang = {
        "ERL_EPMD_PORT": str(place.epmd_port), "ERL_EPMD_ADDRESS": LOOPBACK, "HOME": str(place.home),
        "ERL_CRASH_DUMP": "/dev/null", **programs.environment,
    }  # fmt: skip
    broker = {
        **erlang, "RABBITMQ_NODENAME": place.node, "RABBITMQ_MNESIA_BASE": str(place.home / programs.store),
        "RABBITMQ_LOG_BASE": str(place.log), "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(place.etc / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(place.etc / "env.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place.etc / "enabled_plugins"),
        "RABBITMQ_DIST_PORT": str(place.dist_port), "RABBITMQ_NODE_PORT": str(place.port),
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK, "RABBITMQ_PID_FILE": str(place.home / "pid"),
        # an Erlang virtual machine that busy-waits would slow down everything else on two cores
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
    }  # fmt: skip
    return [
        # a broker that finds no port mapper starts one that never ends; this one is private and ends
        Service("epmd", "epmd", (programs.epmd(), "-port", str(place.epmd_port), "-address", LOOPBACK),
                place.log / "epmd.log", env=erlang, ready=lambda: answers(place.epmd_port)),
        Service("rabbitmq", "rabbitmq", (programs.server,), place.log / "rabbitmq.log", env=broker, needs=("epmd",),
                ready=ready, stop_grace_s=stop_grace_s, files=(place.etc / "rabbitmq.conf",)),
    ]  # fmt: skip


def answers(port: int) -> bool:
    """Whether a process listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0

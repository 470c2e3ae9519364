# SPDX-License-Identifier: Apache-2.0
"""A RabbitMQ of one's own, on free loopback ports, for tests and experiments with the transport.

The cloud of ``tools/cloud`` has its own; this is a broker alone: started in seconds, stopped and
started again, told to close connections.  It ends only what it started.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tools.realcloud.brokers import Programs, chosen
from tools.realcloud.errors import CloudError
from tools.realcloud.layout import LOOPBACK, PORT_BLOCK, PORT_BLOCKS, PORT_FIRST, port_is_free

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on now.

    Below the range of outgoing connections: a client that tries again and again to reach a broker that is down
    would sooner or later be given that very port as its own, be connected with itself, and keep the broker off it.
    """
    last = PORT_FIRST + PORT_BLOCKS * PORT_BLOCK
    candidates = random.sample(range(PORT_FIRST, last), 100 * count)
    return [port for port in candidates if port_is_free(port)][:count]


class PrivateRabbit:
    """One broker in a directory of its own; a context manager that starts and stops it.

    ``more`` are lines for its rabbitmq.conf.
    """

    def __init__(self, programs: Programs | None = None, more: str = "") -> None:
        self._programs = programs or Programs(chosen())
        self._more = more
        self.port, self._dist_port, self._epmd_port = free_ports(3)
        self._home = Path(tempfile.mkdtemp(prefix="rabbit-"))
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """As a transport_url."""
        return f"rabbit://guest:guest@{LOOPBACK}:{self.port}/"

    def __enter__(self) -> PrivateRabbit:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start epmd and the broker; returns when it takes connections."""
        self._programs.check()
        self._write_configuration()
        self._spawn(self._programs.epmd(), "-port", str(self._epmd_port), "-address", LOOPBACK)
        self.start_broker()

    def start_broker(self) -> None:
        """The broker alone, epmd is there; what was durable is there again."""
        self._spawn(self._programs.server)
        end_s = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if time.monotonic() > end_s or self._processes[-1].poll() is not None:
                raise CloudError(f"RabbitMQ did not start; its log is {self._home / 'log'}")
            time.sleep(0.2)
        self.ctl("await_startup")

    def end_broker(self) -> None:
        """As systemd would stop it."""
        _end(self._processes.pop())

    def kill_broker(self) -> None:
        """As if its machine had lost power; returns when its port is free, which takes a moment."""
        broker = self._processes.pop()
        os.killpg(broker.pid, signal.SIGKILL)
        broker.wait(STOP_TIMEOUT_S)
        while self._answers():
            time.sleep(0.05)

    def stop(self) -> None:
        """End what was started, and remove the directory."""
        for process in reversed(self._processes):
            _end(process)
        self._processes.clear()
        shutil.rmtree(self._home, ignore_errors=True)

    def ctl(self, *arguments: str) -> str:
        """Run rabbitmqctl; returns what it prints."""
        done = subprocess.run(
            [self._programs.control, "-q", *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        if done.returncode:
            raise CloudError(f"rabbitmqctl {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def queues(self, field: str = "messages") -> dict[str, str]:
        """Queue name -> one of its fields."""
        lines = self.ctl("list_queues", "name", field, "--no-table-headers").splitlines()
        return dict(line.split("\t", 1) for line in lines if "\t" in line)

    def close_connections(self, reason: str = "closed by the administrator") -> None:
        """As an operator would do."""
        self.ctl("close_all_connections", reason)

    def _write_configuration(self) -> None:
        (self._home / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {LOOPBACK}:{self.port}\nlog.console.level = warning\n{self._more}\n"
        )
        (self._home / "enabled_plugins").write_text("[].\n")
        (self._home / "env.conf").write_text("")

    def _environment(self) -> dict[str, str]:
        home = self._home
        return {
            **os.environ,
            **self._programs.environment,
            "HOME": str(home),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_CRASH_DUMP": "/dev/null",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_PID_FILE": str(home / "pid"),
            # a busy-waiting Erlang virtual machine is no neighbour for everything else
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def _spawn(self, *command: str) -> None:
        with open(self._home / "log", "ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM the session that we started, then KILL it."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signum)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue
        break

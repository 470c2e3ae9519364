# SPDX-License-Identifier: Apache-2.0
"""A RabbitMQ alone, on free loopback ports, for tests and experiments with the transport.

The cloud of ``tools/lab cloud`` has its own broker; this one starts in seconds, can be stopped, killed and restarted,
and can close connections.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tools.laboratory.cloud.brokers import Place, Programs, answers, chosen, services
from tools.laboratory.cloud.ports import LOOPBACK, lease
from tools.laboratory.errors import LabError
from tools.laboratory.processes.guard import Guard
from tools.laboratory.processes.startup import Startup, wait_for
from tools.laboratory.processes.table import ProcessTable, clean_environment
from tools.laboratory.processes.usage import cpu_seconds

CONTROL_TIMEOUT_S = 300
STOP_TIMEOUT_S = 60.0
PORT_FREE_TIMEOUT_S = 120.0


class PrivateRabbit:
    """One broker in a directory of its own; a context manager that starts and stops it.

    ``more`` are lines for its rabbitmq.conf.
    """

    def __init__(self, programs: Programs | None = None, more: str = "") -> None:
        self._programs = programs or Programs(chosen())
        self._more = more
        self._home = Path(tempfile.mkdtemp(prefix="rabbit-"))
        self.port, dist_port, epmd_port = lease(self._home, 3)
        self._table = ProcessTable(self._home, self._home.name)
        self._guard = Guard(self._table, self._home)
        place = Place(f"test{self.port}@localhost", self._home, self._home, self._home, self.port, dist_port, epmd_port)
        made = services(self._programs, place, lambda: answers(self.port), STOP_TIMEOUT_S)
        self._services = {service.name: service for service in made}

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
        """Start the port mapper and the broker; returns when it takes connections.

        :raises LabError: when it does not start; the text contains the end of its log
        """
        self._programs.check()
        self._write_configuration()
        self._start("epmd", "rabbitmq")

    def start_broker(self) -> None:
        """Start only the broker, while the port mapper runs; durable objects exist again."""
        self._start("rabbitmq")

    def end_broker(self) -> None:
        """Stop the broker as systemd would do."""
        self._table.stop(["rabbitmq"], STOP_TIMEOUT_S)

    def kill_broker(self) -> None:
        """Kill the broker, as in a power failure; returns when its port is free."""
        self._table.kill("rabbitmq")
        wait_for("the broker's port to be free", lambda: not answers(self.port), PORT_FREE_TIMEOUT_S)

    def cpu_s(self) -> float:
        """CPU time of the broker since its start; 0 while it does not run."""
        process = self._table.alive("rabbitmq")
        return cpu_seconds(process) if process else 0.0

    def stop(self) -> None:
        """Stop the processes, and remove the directory."""
        self._table.stop(["rabbitmq"], STOP_TIMEOUT_S)
        self._table.stop(["epmd"])
        self._guard.release()
        shutil.rmtree(self._home, ignore_errors=True)

    def ctl(self, *arguments: str) -> str:
        """Run rabbitmqctl; returns what it prints.

        :raises LabError: when it fails
        """
        done = subprocess.run(
            [self._programs.control, "-q", *arguments],
            env={**clean_environment(), **self._services["rabbitmq"].env}, capture_output=True, text=True,
            timeout=CONTROL_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise LabError(f"rabbitmqctl {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def queues(self, field: str = "messages") -> dict[str, str]:
        """Queue name -> one of its fields."""
        lines = self.ctl("list_queues", "name", field, "--no-table-headers").splitlines()
        return dict(line.split("\t", 1) for line in lines if "\t" in line)

    def close_connections(self, reason: str = "closed by the administrator") -> None:
        """Close all connections, as an operator may do."""
        self.ctl("close_all_connections", reason)

    def _start(self, *names: str) -> None:
        Startup(self._table, [], {name: self._services[name] for name in names}, lambda line: None).run()
        self.ctl("await_startup")

    def _write_configuration(self) -> None:
        (self._home / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {LOOPBACK}:{self.port}\nlog.console.level = warning\n{self._more}\n"
        )
        (self._home / "enabled_plugins").write_text("[].\n")
        (self._home / "env.conf").write_text("")

# SPDX-License-Identifier: Apache-2.0
"""The private services of a benchmark, and the processes of one contestant.

Only what a scheduler needs: MariaDB, RabbitMQ and Placement without Keystone (`noauth2`), each in a session of
its own, so that its CPU time can be told. Starting and ending is `realcloud`'s.
"""

import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..realcloud import configs, databases, probes, services
from ..realcloud.brokers import Programs
from ..realcloud.configs import ini, write
from ..realcloud.errors import CloudError
from ..realcloud.layout import LOOPBACK, PASSWORD, ROOT, Layout, cell_database, port_is_free
from ..realcloud.processes import ProcessTable
from ..realcloud.services import Service
from ..realcloud.settings import Settings
from ..realcloud.startup import Startup, Step

SCHEDULER_USER, PLACEMENT_USER = "bench_scheduler", "bench_placement"
"""Users of the database, so that their statements can be counted apart."""

SCHEDULER_HOST, CLIENT_HOST = "bench", "bench-client"
BASE = ("epmd", "mariadb", "rabbitmq", "placement")
STOP_GRACE_S = 60.0
SETTINGS = Settings(computes=0)
Say = Callable[[str], None]


class World:
    """Services that run until `close()`. Everything is in one data directory."""

    def __init__(self, data: Path, say: Say) -> None:
        self.layout = Layout(data)
        self.say = say
        self.nova_conf = self.layout.etc / "nova" / "nova.conf"
        self.admin_sockets = self.layout.admin_sockets
        self._check_installed()
        self.layout.prepare()
        if not all(port_is_free(port) for port in self.layout.ports.values()):
            self.layout.choose_ports()
        self.processes = ProcessTable(self.layout.run, self.layout.mark)

    def _check_installed(self) -> None:
        for program in (self.layout.nova / "bin" / "nova-scheduler", self.layout.openstack / "bin" / "uwsgi"):
            if not program.exists():
                raise CloudError(f"{program} is not there; run tools/install")
        if shutil.which("mariadbd") is None:
            raise CloudError("mariadbd is not on the PATH; run tools/install")
        Programs(SETTINGS.rabbitmq).check()

    def open(self) -> None:
        """Start the services that both contestants use."""
        self._write_configs()
        plan = services.plan(self.layout, SETTINGS)
        plan = {name: plan[name] for name in BASE}
        plan["placement"] = dataclasses.replace(plan["placement"], needs=("users",))
        steps = [
            Step("databases", (), lambda: databases.prepare(self.layout, self.say)),
            Step("cells", ("mariadb",), lambda: databases.ensure_cells(self.layout, SETTINGS)),
            Step("users", ("cells",), self._make_users),
        ]
        Startup(self.processes, steps, plan, self.say).run()

    def _write_configs(self) -> None:
        etc = self.layout.etc
        for name, text in configs.rabbitmq(self.layout, SETTINGS).items():
            write(etc / "rabbitmq" / name, text)
        write(etc / "placement" / "placement.conf", ini({
            "api": {"auth_strategy": "noauth2"},
            "placement_database": {"connection": self._database_url(PLACEMENT_USER, "placement")},
        }))  # fmt: skip
        write(self.nova_conf, self._nova_conf())
        (self.layout.run / "nova-lock").mkdir(exist_ok=True)

    def _nova_conf(self) -> str:
        """Nova's defaults, but for addresses. One worker: one core's worth of either contestant."""
        return ini({
            "DEFAULT": {"host": SCHEDULER_HOST, "my_ip": LOOPBACK, "transport_url": self.layout.transport_url(1),
                        "state_path": str(self.layout.state)},
            "database": {"connection": self._database_url(SCHEDULER_USER, cell_database(1))},
            "api_database": {"connection": self._database_url(SCHEDULER_USER, "nova_api")},
            "placement": {"auth_type": "admin_token", "endpoint": self.layout.url("placement"), "token": "admin"},
            "oslo_concurrency": {"lock_path": str(self.layout.run / "nova-lock")},
            "scheduler": {"workers": "1"},
            "shared_scheduler": {"admin_socket_dir": str(self.admin_sockets)},
        })  # fmt: skip

    def _database_url(self, user: str, name: str) -> str:
        return f"mysql+pymysql://{user}:{PASSWORD}@{LOOPBACK}:{self.layout.ports['mariadb']}/{name}?charset=utf8mb3"

    def _make_users(self) -> None:
        """Users to count by; the cells' records name the scheduler's, for what it finds through them."""
        with probes.database(self.layout) as connection, connection.cursor() as cursor:
            for user in (SCHEDULER_USER, PLACEMENT_USER):
                cursor.execute(f"CREATE USER IF NOT EXISTS '{user}'@'%%' IDENTIFIED BY %s", (PASSWORD,))
                for name in ("placement",) if user == PLACEMENT_USER else ("nova_api", "nova_cell0", "nova_cell1"):
                    cursor.execute(f"GRANT ALL ON {name}.* TO '{user}'@'%'")
            for name in ("nova_cell0", "nova_cell1"):
                cursor.execute(
                    "UPDATE nova_api.cell_mappings SET database_connection = %s WHERE database_connection LIKE %s",
                    (self._database_url(SCHEDULER_USER, name), f"%/{name}?%"),
                )
        databases.run([*databases.root_client(self.layout), "-e", "SET GLOBAL userstat = ON"], self.layout, "userstat")

    def start(self, name: str, argv: Sequence[str], ready: Callable[[], bool], arguments: Sequence[str] = ()) -> None:
        """Start one process and wait for its sign of life; its log is written anew."""
        self.layout.log_of(name).unlink(missing_ok=True)
        service = Service(name, name, (*argv, *arguments), self.layout.log_of(name),
                          env={"PYTHONPATH": str(ROOT)}, ready=ready)  # fmt: skip
        Startup(self.processes, [], {name: service}, lambda line: None).run()

    def stop(self, names: Sequence[str]) -> None:
        killed = self.processes.stop(names, STOP_GRACE_S)
        for name in names:
            self.processes.forget(name)
        if killed:
            self.say(f"had to be killed: {', '.join(killed)}")

    def start_scheduler(self, program: str) -> None:
        """`nova-scheduler` or `shared-scheduler`: the same arguments, the same sign of life."""
        queue = f"scheduler.{SCHEDULER_HOST}"
        argv = [str(self.layout.nova / "bin" / program), "--config-file", str(self.nova_conf)]
        self.start("scheduler", argv, lambda: probes.consumers(self.layout, queue) > 0)

    def close(self) -> None:
        """End everything that was started here, users before servers."""
        names = self.processes.names()
        self.stop([name for name in names if name not in BASE])
        self.stop([name for name in names if name in BASE and name != "epmd"])
        self.stop([name for name in names if name == "epmd"])


@contextmanager
def opened(data: Path | None, keep: bool, say: Say) -> Iterator[World]:
    """A world in `data`, or in a new temporary directory that is removed unless `keep`."""
    directory = data or Path(tempfile.mkdtemp(prefix="ssb-"))
    world = World(directory, say)
    try:
        world.open()
        yield world
    finally:
        world.close()
        if data is None and not keep:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            say(f"data and logs are in {directory}")

# SPDX-License-Identifier: Apache-2.0
"""The private services of a benchmark, and the processes of one contestant.

It has only the services that a scheduler needs: MariaDB, RabbitMQ and Placement without Keystone (`noauth2`), each in
its own session, so that its CPU time can be measured. They are started and stopped by the code of `tools/lab cloud`.
"""

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tools.laboratory import ROOT
from tools.laboratory.cloud import configs, databases, probes, services, template
from tools.laboratory.cloud.cloud_settings import CloudSettings
from tools.laboratory.cloud.configs import ini, write
from tools.laboratory.cloud.layout import PASSWORD, Layout, cell_database
from tools.laboratory.cloud.ports import LOOPBACK, is_free
from tools.laboratory.fleet.orders import Orders
from tools.laboratory.processes.controlled import Program, shares
from tools.laboratory.processes.guard import Guard
from tools.laboratory.processes.startup import Say, Service, Startup, Step
from tools.laboratory.processes.table import ProcessTable

SCHEDULER_USER, PLACEMENT_USER = "bench_scheduler", "bench_placement"
"""Users of the database, so that their statements can be counted separately."""

SCHEDULER_HOST, CLIENT_HOST = "bench", "bench-client"
#: the master of the host keys, which nothing outside of the benchmark uses
MASTER_LINE = "bench:" + bytes(range(32)).hex() + "\n"
BASE = ("epmd", "mariadb", "rabbitmq", "placement")
STOP_GRACE_S = 60.0
MULTIPLIERS = ("ram_weight_multiplier", "cpu_weight_multiplier", "disk_weight_multiplier")
SETTINGS = CloudSettings(computes=0)


class World:
    """Services that run until `close()`. Everything is in one data directory."""

    def __init__(self, data: Path, say: Say, settings: CloudSettings = SETTINGS) -> None:
        self.settings = settings
        self.layout = Layout(data)
        self.say = say
        self.nova_conf = self.layout.etc / "nova" / "nova.conf"
        self.admin_sockets = self.layout.admin_sockets
        self.host_keys_master = self.layout.etc / "nova" / "host-keys.master"
        services.check_installed(self.layout, settings.rabbitmq, "nova-scheduler")
        self.layout.prepare()
        if not all(is_free(port) for port in self.layout.ports.values()):
            self.layout.choose_ports()
        self.processes = ProcessTable(self.layout.run, self.layout.mark)

    def open(self) -> None:
        """Start the services that both contestants use."""
        self._write_configs()
        plan = services.plan(self.layout, self.settings)
        plan = {name: plan[name] for name in BASE}
        plan["placement"] = dataclasses.replace(plan["placement"], needs=("users",))
        steps = [
            Step("databases", (), lambda: template.prepare(self.layout, self.say)),
            Step("cells", ("mariadb",), lambda: databases.ensure_cells(self.layout, self.settings)),
            Step("users", ("cells",), self._make_users),
        ]
        Startup(self.processes, steps, plan, self.say).run()

    def _write_configs(self) -> None:
        etc = self.layout.etc
        for name, text in configs.rabbitmq(self.layout, self.settings).items():
            write(etc / "rabbitmq" / name, text)
        write(etc / "placement" / "placement.conf", ini({
            "api": {"auth_strategy": "noauth2"},
            "placement_database": {"connection": self._database_url(PLACEMENT_USER, "placement")},
        }))  # fmt: skip
        write(self.host_keys_master, MASTER_LINE)
        self.host_keys_master.chmod(0o600)
        write(self.nova_conf, self._nova_conf(1))
        (self.layout.run / "nova-lock").mkdir(exist_ok=True)

    def _nova_conf(self, workers: int, records: bool = True, pack: bool = False, host_keys: bool = False) -> str:
        """Nova's defaults except for addresses. A worker uses about one core. `pack`: the hosts with the least free are
        preferred."""
        keys = {"host_keys": "require", "host_keys_file": str(self.host_keys_master)}
        return ini({
            "DEFAULT": {"host": SCHEDULER_HOST, "my_ip": LOOPBACK, "transport_url": self.layout.transport_url(1),
                        "state_path": str(self.layout.state)},
            "database": {"connection": self._database_url(SCHEDULER_USER, cell_database(1))},
            "api_database": {"connection": self._database_url(SCHEDULER_USER, "nova_api")},
            "placement": {"auth_type": "admin_token", "endpoint": self.layout.url("placement"), "token": "admin"},
            "oslo_concurrency": {"lock_path": str(self.layout.run / "nova-lock")},
            "scheduler": {"workers": str(workers)},
            "filter_scheduler": dict.fromkeys(MULTIPLIERS, "-1.0") if pack else {},
            "shared_scheduler": {"admin_socket_dir": str(self.admin_sockets), "workers": str(workers),
                                 **({} if records else {"records_file": ""}), **(keys if host_keys else {})},
        })  # fmt: skip

    def _database_url(self, user: str, name: str) -> str:
        return f"mysql+pymysql://{user}:{PASSWORD}@{LOOPBACK}:{self.layout.ports['mariadb']}/{name}?charset=utf8mb3"

    def _make_users(self) -> None:
        """Create users to count statements by; the cell mappings name the scheduler's, because it reads them."""
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

    def program(self, name: str, hosts: range = range(0)) -> Program:
        """A process of this project that uses the services."""
        return Program(self.processes, self.layout.run, name, hosts)

    def agents(
        self,
        count: int,
        processes: int,
        builds_after_s: float,
        host_keys: bool = False,
    ) -> list[Program]:
        """A number of processes that together are the agents of hosts 1 to `count`."""
        made = [self.program(f"agents-{number}", part)
                for number, part in enumerate(shares(1, count, min(processes, count)), 1)]  # fmt: skip
        for one in made:
            orders = Orders(self.layout.transport_url(1), one.hosts.start, one.hosts.stop - 1, str(one.socket),
                            nova_conf=str(self.nova_conf), spread_polls=True, builds_after_s=builds_after_s,
                            master=MASTER_LINE if host_keys else "")  # fmt: skip
            one.runs("fleet.process", json.dumps(asdict(orders)))
        return made

    def stop(self, names: Sequence[str]) -> None:
        killed = self.processes.stop(names, STOP_GRACE_S)
        for name in names:
            self.processes.forget(name)
        if killed:
            self.say(f"had to be killed: {', '.join(killed)}")

    def start_scheduler(
        self, program: str, workers: int, records: bool = True, pack: bool = False, host_keys: bool = False
    ) -> None:
        """`nova-scheduler` or `shared-scheduler`, with the same arguments and the same check that it is ready."""
        write(self.nova_conf, self._nova_conf(workers, records, pack, host_keys))
        queue = f"scheduler.{SCHEDULER_HOST}"
        argv = (str(self.layout.nova / "bin" / program), "--config-file", str(self.nova_conf))
        log = self.layout.log_of("scheduler")
        log.unlink(missing_ok=True)
        service = Service("scheduler", "scheduler", argv, log, env={"PYTHONPATH": str(ROOT)},
                          ready=lambda: probes.consumers(self.layout, queue) >= workers)  # fmt: skip
        Startup(self.processes, [], {"scheduler": service}, lambda line: None).run()

    def close(self) -> None:
        """Stop everything that was started here, clients before servers."""
        names = self.processes.names()
        self.stop([name for name in names if name not in BASE])
        self.stop([name for name in names if name in BASE and name != "epmd"])
        self.stop([name for name in names if name == "epmd"])


@contextmanager
def opened(data: Path | None, keep: bool, say: Say, placement_app: bool, durable: bool) -> Iterator[World]:
    """A world in `data`, or in a new temporary directory that is removed unless `keep`."""
    directory = data or Path(tempfile.mkdtemp(prefix="ssb-"))
    world = World(directory, say, dataclasses.replace(SETTINGS, placement_app=placement_app, durable=durable))
    guard = Guard(world.processes, None if data or keep else directory)
    try:
        world.open()
        yield world
    finally:
        world.close()
        guard.release()
        if data is None and not keep:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            say(f"data and logs are in {directory}")

# SPDX-License-Identifier: Apache-2.0
"""The whole cloud: up, down, and single services by name."""

import contextlib
import fcntl
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.laboratory.cloud import cloud_settings, configs, databases, probes, provisioning, services, template
from tools.laboratory.cloud.api import Api
from tools.laboratory.cloud.cloud_settings import CloudSettings
from tools.laboratory.cloud.layout import Layout, cell_database
from tools.laboratory.cloud.ports import is_free
from tools.laboratory.errors import LabError
from tools.laboratory.processes.startup import QUICK_STOP_S, Say, Service, Startup, Step
from tools.laboratory.processes.table import ProcessTable
from tools.laboratory.processes.usage import cpu_seconds, memory_mb

STOP_ORDER = (
    ("scheduler-shared", "scheduler-nova", "agent", "compute"),
    ("launcher", "conductor", "api"),
    ("rabbitmq", "mariadb"),
    ("epmd",),
)
"""Kinds that are stopped together; a later group provides services to the earlier ones."""


class Lifecycle:
    """The processes of one data directory."""

    def __init__(self, data: Path, say: Say) -> None:
        self.layout = Layout(data)
        self.say = say
        self.api = Api(self.layout)

    @property
    def processes(self) -> ProcessTable:
        return ProcessTable(self.layout.run, self.layout.mark)

    @property
    def settings(self) -> CloudSettings:
        return cloud_settings.load(self.layout.settings_file)

    def plan(self) -> dict[str, Service]:
        return services.plan(self.layout, self.settings)

    def up(self, changes: dict[str, Any]) -> list[str]:
        """Start, change and stop services as the settings with `changes` require; returns the services that were
        started."""
        wanted = cloud_settings.changed(self.settings, changes)
        services.check_installed(self.layout, wanted.rabbitmq, "nova-compute")
        self.layout.prepare()
        with self._locked():
            self._check_ports()
            self._check_removals(wanted)
            configs.write_all(self.layout, wanted)
            cloud_settings.save(self.layout.settings_file, wanted)
            plan = self.plan()
            self._stop_what_is_not_in(plan)
            startup = Startup(self.processes, self._steps(wanted), plan, self.say)
            startup.run()
            self._retire_computes(wanted)
            return startup.started

    def _check_ports(self) -> None:
        """If another process uses one of our ports while our services are down, choose other ports."""
        if any(self.processes.alive(name) for name in self.processes.names()):
            return
        if not all(is_free(port) for port in self.layout.ports.values()):
            self.layout.choose_ports()
            self.say(f"ports taken by others, moved to {min(self.layout.ports.values())} and up")

    def _surplus_computes(self, wanted: CloudSettings) -> list[str]:
        """Computes that are not in the settings any more; their configuration files still exist."""
        found = [path.name for path in (self.layout.etc / "nova").glob("c[0-9]*") if path.is_dir()]
        return sorted(host for host in found if int(host[1:]) > wanted.computes)

    def _check_removals(self, wanted: CloudSettings) -> None:
        """Refuse a change that would leave servers or records behind, before anything has changed."""
        before = self.settings
        if wanted.cells != before.cells and list((self.layout.etc / "nova").glob("c[0-9]*")):
            raise LabError("--cells: can only change while there are no computes (`up --computes 0` first)")
        surplus = self._surplus_computes(wanted)
        if not surplus or not self.processes.alive("mariadb"):
            return
        for cell in range(1, before.cells + 1):
            with probes.database(self.layout, cell_database(cell)) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT host, count(*) FROM instances WHERE deleted = 0 GROUP BY host")
                for host, count in cursor.fetchall():
                    if host in surplus:
                        raise LabError(f"--computes {wanted.computes}: {host} still has {count} servers; delete them")

    def _stop_what_is_not_in(self, plan: dict[str, Service]) -> None:
        surplus = [name for name in self.processes.names() if name not in plan]
        if surplus:
            self.say(f"stopping {', '.join(surplus)}")
            self._stop(surplus)

    def _steps(self, wanted: CloudSettings) -> list[Step]:
        layout, api = self.layout, self.api

        def hosts() -> None:
            if wanted.premap:
                databases.map_hosts(layout, wanted)

        def image() -> None:
            provisioning.ensure_image(api)

        return [
            Step("databases", (), lambda: template.prepare(layout, self.say)),
            Step("cells", ("mariadb",), lambda: databases.ensure_cells(layout, wanted)),
            Step("hosts", ("cells",), hosts),
            Step("catalog", ("keystone",), lambda: provisioning.ensure_catalog(api)),
            Step("image", ("glance", "catalog"), image),
            Step("flavors", ("nova-api", "catalog"), lambda: provisioning.ensure_flavors(api)),
        ]

    def _retire_computes(self, wanted: CloudSettings) -> None:
        """Remove computes that are not in these settings any more from Nova and from disk."""
        for host in self._surplus_computes(wanted):
            for service in self.api.compute("GET", f"/os-services?host={host}").expect(200)["services"]:
                self.api.compute("DELETE", f"/os-services/{service['id']}").expect(204, 404)
            names = (self.layout.compute_dir(host), self.layout.state / host, self.layout.state / f"agent-{host}")
            for path in names:
                shutil.rmtree(path, ignore_errors=True)
            self.say(f"{host} removed")

    def down(self) -> list[str]:
        """Stop everything that this data directory started; returns the names of the processes that had to be
        killed."""
        if not self.layout.exists():
            return []
        with self._locked():
            killed = self._stop(self.processes.names())
            for pid in self.processes.kill_strays():
                self.say(f"killed process {pid}, which had no record but our mark")
            return killed

    def _stop(self, names: list[str]) -> list[str]:
        """Stop by kinds, clients before servers; those of one group together."""
        known = {name: record.kind for name in names if (record := self.processes.find(name)) is not None}
        killed = []
        for group in STOP_ORDER:
            members = [name for name, kind in known.items() if kind in group]
            grace_s = services.SLOW_STOP_S if "mariadb" in group else QUICK_STOP_S
            killed += self.processes.stop(members, grace_s)
            for name in members:
                self.processes.forget(name)
        return killed

    def start(self, names: list[str]) -> list[str]:
        """Start services by name, with the services that they need; returns those that were started."""
        plan = self._expect_up()
        chosen = self._with_needs(plan, names)
        startup = Startup(self.processes, [], chosen, self.say)
        startup.run()
        return startup.started

    def _with_needs(self, plan: dict[str, Service], names: list[str]) -> dict[str, Service]:
        chosen: dict[str, Service] = {}
        todo = [self._known(plan, name).name for name in names]
        while todo:
            service = plan[todo.pop()]
            chosen[service.name] = service
            todo += [n for n in service.needs if n in plan and n not in chosen and not self.processes.alive(n)]
        return chosen

    def stop(self, names: list[str]) -> list[str]:
        """Stop services by name with TERM; returns the names of those that had to be killed."""
        plan = self._expect_up()
        chosen = [self._known(plan, name) for name in names]
        return self.processes.stop([service.name for service in chosen], max(s.stop_grace_s for s in chosen))

    def kill(self, name: str) -> None:
        """kill -9 of one service with all its processes."""
        self.processes.kill(self._known(self._expect_up(), name).name)

    def signal(self, name: str, number: int) -> None:
        self.processes.signal(self._known(self._expect_up(), name).name, number)

    def _expect_up(self) -> dict[str, Service]:
        if not self.layout.settings_file.exists():
            raise LabError(self.layout.absence())
        return self.plan()

    def _known(self, plan: dict[str, Service], name: str) -> Service:
        if name not in plan:
            raise LabError(f"no service {name}; there are {', '.join(plan)}")
        return plan[name]

    def status(self) -> list[dict[str, Any]]:
        """Each planned service: name, kind, state, pid, uptime and CPU seconds, memory, port, log."""
        if not self.layout.settings_file.exists():
            return []
        return [self._status_of(service) for service in self.plan().values()]

    def _status_of(self, service: Service) -> dict[str, Any]:
        process = self.processes.alive(service.name)
        row: dict[str, Any] = {
            "name": service.name, "kind": service.kind, "state": "up" if process else "down", "pid": None,
            "uptime_s": None, "cpu_s": None, "memory_mb": None, "port": self.layout.ports.get(service.name),
            "log": str(service.log),
        }  # fmt: skip
        if process:
            row |= {"pid": process.pid, "uptime_s": round(time.time() - process.started_at),
                    "cpu_s": round(cpu_seconds(process), 2), "memory_mb": memory_mb(process)}  # fmt: skip
        return row

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One `up` or `down` at a time for one data directory."""
        with (self.layout.data / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say("another tools/lab cloud works on this data directory; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

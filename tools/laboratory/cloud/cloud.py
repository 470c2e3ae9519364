# SPDX-License-Identifier: Apache-2.0
"""The cloud as an object: the operations of `tools/lab cloud`, and those that tests need."""

import argparse
import concurrent.futures
import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pymysql

from tools.laboratory.cloud import probes
from tools.laboratory.cloud.access_log import Request, read
from tools.laboratory.cloud.cloud_settings import CloudSettings
from tools.laboratory.cloud.layout import Layout, cell_database, default_data
from tools.laboratory.cloud.lifecycle import Lifecycle
from tools.laboratory.cloud.provisioning import IMAGE, Flavor, add_flavor, ensure_image, ensure_zone, remove_zone
from tools.laboratory.errors import LabError
from tools.laboratory.processes.table import ProcessTable

ACTIVE_TIMEOUT_S = 240.0
FAULT_WAIT_S = 60.0
POLL_S = 0.1
PARALLEL_MAX = 64


class Cloud:
    """A cloud in one data directory.

    Methods that change something return when the change is complete; those that wait raise `LabError` at their time
    limit. `server` is always the uuid of a server.
    """

    def __init__(self, data: Path | None = None, say: Callable[[str], None] = lambda line: None) -> None:
        self._lifecycle = Lifecycle(data or default_data(), say)
        self._images: dict[str, str] = {}
        self._flavors: dict[str, str] = {}

    # Services

    @property
    def layout(self) -> Layout:
        return self._lifecycle.layout

    @property
    def settings(self) -> CloudSettings:
        return self._lifecycle.settings

    @property
    def processes(self) -> ProcessTable:
        """All processes that this cloud has started."""
        return self._lifecycle.processes

    def up(self, **changes: Any) -> list[str]:
        """Start, or change, the cloud; fields of `Settings` and `Hardware`. Returns what was started."""
        return self._lifecycle.up(changes)

    def down(self) -> list[str]:
        """Stop everything; the data stay. Returns the names of the processes that had to be killed."""
        return self._lifecycle.down()

    def status(self) -> list[dict[str, Any]]:
        return self._lifecycle.status()

    def start(self, *names: str) -> list[str]:
        return self._lifecycle.start(list(names))

    def stop(self, *names: str) -> list[str]:
        return self._lifecycle.stop(list(names))

    def kill(self, name: str) -> None:
        """kill -9, with all its forked processes."""
        self._lifecycle.kill(name)

    def restart(self, *names: str) -> list[str]:
        self.stop(*names)
        return self.start(*names)

    def freeze(self, name: str) -> None:
        """SIGSTOP: the process stays, but does not answer."""
        self._lifecycle.signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._lifecycle.signal(name, signal.SIGCONT)

    def hangup(self, name: str) -> None:
        """SIGHUP to the process itself, as an operator's reload does."""
        process = self._lifecycle.processes.alive(name)
        if process is None:
            raise LabError(f"{name} does not run")
        os.kill(process.pid, signal.SIGHUP)

    def alive(self, name: str) -> bool:
        return self._lifecycle.processes.alive(name) is not None

    def pid(self, name: str) -> int | None:
        process = self._lifecycle.processes.alive(name)
        return process.pid if process else None

    def names(self, *kinds: str) -> list[str]:
        """Names of all planned services, or of those of these kinds."""
        return [s.name for s in self._lifecycle.plan().values() if not kinds or s.kind in kinds]

    def consumers(self, queue: str, cell: int = 1) -> int:
        """Consumers of a queue in the broker."""
        return probes.consumers(self.layout, queue, cell)

    # Logs

    def log_path(self, name: str) -> Path:
        return self.layout.log_of(name)

    def log_size(self, name: str) -> int:
        path = self.log_path(name)
        return path.stat().st_size if path.exists() else 0

    def logs(self, name: str, offset: int = 0) -> str:
        """The log of a service, from `offset` bytes on."""
        path = self.log_path(name)
        if not path.exists():
            return ""
        with path.open(errors="replace") as log:
            log.seek(offset)
            return log.read()

    def requests(self, api: str = "placement", offset: int = 0) -> list[Request]:
        """HTTP requests that an API answered (keystone, placement, nova-api, glance, neutron)."""
        return read(self.layout.access_log(api), offset)

    def requests_size(self, api: str = "placement") -> int:
        path = self.layout.access_log(api)
        return path.stat().st_size if path.exists() else 0

    # Servers

    def boot(self, count: int = 1, flavor: str = "m400", parallel: int = 1, name: str = "s", **extra: Any) -> list[str]:
        """POST `count` servers, `parallel` at a time; returns their uuids. `extra` becomes a part of the request's
        `server` (availability_zone=...), `hints` is beside it, `headers` are those of HTTP."""
        hints, headers = extra.pop("hints", None), extra.pop("headers", None)

        def post(index: int) -> str:
            body = {"name": f"{name}{index}", "imageRef": self.image_id(), "flavorRef": self.flavor_id(flavor),
                    "networks": "none", **extra}  # fmt: skip
            request = {"server": body} | ({"os:scheduler_hints": hints} if hints else {})
            return str(self.compute("POST", "/servers", request, headers).expect(202)["server"]["id"])

        with concurrent.futures.ThreadPoolExecutor(max_workers=min(parallel, PARALLEL_MAX)) as pool:
            return list(pool.map(post, range(1, count + 1)))

    def servers(self) -> list[dict[str, Any]]:
        """All servers: id, name, status, host (None until placed), fault."""
        rows = self.compute("GET", "/servers/detail?all_tenants=1").expect(200)["servers"]
        return [_server(row) for row in rows]

    def _vm_states(self) -> dict[str, str]:
        """Server -> its state in the cells' databases; empty while they do not answer.

        A wait reads this first, because nova-api needs a hundred times as much CPU time for `servers`.
        """
        query = "SELECT uuid, vm_state FROM instances WHERE deleted = 0"
        with contextlib.suppress(pymysql.MySQLError):
            cells = range(self.settings.cells + 1)
            return {uuid: state for cell in cells for uuid, state in self.sql(cell_database(cell), query)}
        return {}

    def server(self, server: str) -> dict[str, Any]:
        return _server(self.compute("GET", f"/servers/{server}").expect(200)["server"])

    def wait_active(self, servers: Iterable[str], timeout_s: float = ACTIVE_TIMEOUT_S) -> dict[str, str]:
        """Wait until all are ACTIVE; returns server -> host. A server in ERROR ends the wait."""
        ended = self.wait_built(servers, timeout_s)
        failed = {server: row for server, row in ended.items() if row["status"] != "ACTIVE"}
        if failed:
            raise LabError("; ".join(f"{s} is {row['status']}: {row['fault']}" for s, row in failed.items()))
        return {server: row["host"] for server, row in ended.items()}

    def wait_built(self, servers: Iterable[str], timeout_s: float = ACTIVE_TIMEOUT_S) -> dict[str, dict[str, Any]]:
        """Wait until all are ACTIVE or ERROR; returns server -> its row (see `servers`).

        Nova writes the fault after the state, so one in ERROR is read again until it has a fault, for `FAULT_WAIT_S`.
        """
        wanted = list(servers)
        rows: dict[str, dict[str, Any]] = {}

        def ended() -> bool:
            states = self._vm_states()
            return all(states.get(server) in ("active", "error") for server in wanted)

        def built() -> bool:
            rows.update({row["id"]: row for row in self.servers() if row["id"] in wanted})
            return all(rows.get(server, {}).get("status") in ("ACTIVE", "ERROR") for server in wanted)

        def explained() -> bool:
            return all(row["fault"] or row["status"] != "ERROR" for row in rows.values())

        self.wait(lambda: ended() and built(), f"{len(wanted)} servers to be built", timeout_s)
        with contextlib.suppress(LabError):
            self.wait(lambda: explained() or (built() and explained()), "their faults", FAULT_WAIT_S)
        return {server: rows[server] for server in wanted}

    def delete(self, servers: Iterable[str], wait: bool = True) -> None:
        """Delete servers, and wait until Nova has deleted them."""
        wanted = set(servers)
        for server in wanted:
            self.compute("DELETE", f"/servers/{server}").expect(204, 404)
        if wait:
            self.wait(lambda: not wanted & self._vm_states().keys()
                      and not wanted & {row["id"] for row in self.servers()}, "servers to be deleted")  # fmt: skip

    def action(self, server: str, name: str, body: Any = None) -> Any:
        """POST /servers/{id}/action, such as `action(s, "migrate")`."""
        return self.compute("POST", f"/servers/{server}/action", {name: body}).expect(200, 202, 204)

    def reset(self, timeout_s: float = ACTIVE_TIMEOUT_S) -> None:
        """Start everything, enable every host, delete all servers and allocations: the state in which each test
        begins."""
        down = [name for name in self.names() if not self.alive(name)]
        for name in self.names("conductor"):
            if self.alive(name):
                self.thaw(name)
        if down:
            self.start(*down)
        for service in self.services("nova-compute"):
            if service["status"] != "enabled" or service["forced_down"]:
                self._set_service(service["id"], {"status": "enabled", "forced_down": False})
        self.wait_services_up(timeout_s)
        self.delete([row["id"] for row in self.servers()])
        self.wait(lambda: not self.usages(), "Placement to be empty", timeout_s)

    # Hosts

    def hosts(self) -> list[str]:
        """Names of the computes in the settings."""
        return [f"c{number}" for number in range(1, self.settings.computes + 1)]

    def services(self, binary: str = "") -> list[dict[str, Any]]:
        """Nova's services table: id, binary, host, status, state, forced_down."""
        query = f"?binary={binary}" if binary else ""
        rows: list[dict[str, Any]] = self.compute("GET", f"/os-services{query}").expect(200)["services"]
        return rows

    def wait_services_up(self, timeout_s: float = ACTIVE_TIMEOUT_S) -> None:
        """Wait until Nova's services table shows every compute as up."""
        wanted = set(self.hosts())
        self.wait(lambda: wanted <= {row["host"] for row in self.services("nova-compute") if row["state"] == "up"},
                  "all computes to be up", timeout_s)  # fmt: skip

    def wait_listening(self, timeout_s: float = ACTIVE_TIMEOUT_S) -> None:
        """Wait until all services that take part in a boot consume their queues. A message to a queue that a restarted
        broker has lost would be lost, and its server would stay in BUILD."""
        queues = [("conductor", 1), ("scheduler", 1)]
        queues += [("conductor", cell) for cell in range(2, self.settings.cells + 1)]
        queues += [(f"compute.{host}", self.settings.cell_of(n)) for n, host in enumerate(self.hosts(), 1)]
        self.wait(lambda: all(self.consumers(queue, cell) for queue, cell in queues),
                  "all services to have their queues", timeout_s)  # fmt: skip

    def enable(self, host: str) -> None:
        self._set_service(self._service_id(host), {"status": "enabled"})

    def disable(self, host: str, reason: str = "by a test") -> None:
        self._set_service(self._service_id(host), {"status": "disabled", "disabled_reason": reason})

    def force_down(self, host: str, down: bool = True) -> None:
        self._set_service(self._service_id(host), {"forced_down": down})

    def _service_id(self, host: str) -> str:
        rows = self.compute("GET", f"/os-services?binary=nova-compute&host={host}").expect(200)["services"]
        if not rows:
            raise LabError(f"there is no nova-compute on {host}")
        return str(rows[0]["id"])

    def _set_service(self, service: str, body: dict[str, Any]) -> None:
        self.compute("PUT", f"/os-services/{service}", body).expect(200)

    # Placement

    def allocations(self, consumer: str) -> dict[str, dict[str, int]]:
        """The allocations of a consumer: provider's name -> resource class -> amount."""
        rows = self.placement("GET", f"/allocations/{consumer}").expect(200)["allocations"]
        names = {uuid: name for name, uuid in self.providers().items()}
        return {names.get(uuid, uuid): row["resources"] for uuid, row in rows.items()}

    def providers(self) -> dict[str, str]:
        """Resource providers: name -> uuid."""
        rows = self.placement("GET", "/resource_providers").expect(200)["resource_providers"]
        return {row["name"]: row["uuid"] for row in rows}

    def usages(self) -> dict[str, dict[str, int]]:
        """The allocated amounts: provider's name -> resource class -> amount, without zeros."""
        return self._sums(
            "SELECT p.name, c.name, CAST(sum(a.used) AS SIGNED) FROM allocations a JOIN resource_providers p"
            " ON p.id = a.resource_provider_id JOIN resource_classes c ON c.id = a.resource_class_id GROUP BY 1, 2"
        )

    def capacities(self) -> dict[str, dict[str, int]]:
        """The capacities, (total - reserved) * ratio: provider's name -> resource class -> amount."""
        return self._sums(
            "SELECT p.name, c.name, CAST(floor((i.total - i.reserved) * i.allocation_ratio) AS SIGNED)"
            " FROM inventories i JOIN resource_providers p ON p.id = i.resource_provider_id"
            " JOIN resource_classes c ON c.id = i.resource_class_id"
        )

    def _sums(self, query: str) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for provider, resource_class, amount in self.sql("placement", query):
            found.setdefault(provider, {})[resource_class] = int(amount)
        return found

    def overcommit(self) -> dict[str, dict[str, int]]:
        """Allocated amounts above the capacity; empty if there is no over-commit."""
        capacities = self.capacities()
        found: dict[str, dict[str, int]] = {}
        for provider, classes in self.usages().items():
            for resource_class, used in classes.items():
                excess = used - capacities.get(provider, {}).get(resource_class, 0)
                if excess > 0:
                    found.setdefault(provider, {})[resource_class] = excess
        return found

    # Lower level

    def compute(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """A call of Nova's API; the answer has `.expect(status, ...)`."""
        return self._lifecycle.api.compute(method, path, body, headers)

    def placement(self, method: str, path: str, body: Any = None) -> Any:
        return self._lifecycle.api.placement(method, path, body)

    def sql(self, name: str, query: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query in a database: nova_api, nova_cell0, nova_cell1 ..., placement, keystone, glance, neutron.

        :raises pymysql.MySQLError: when the database is away, or does not accept the query
        """
        with probes.database(self.layout, name) as connection, connection.cursor() as cursor:
            cursor.execute(query, arguments)
            return list(cursor.fetchall())

    def add_flavor(self, flavor: Flavor) -> None:
        """Create a flavor that `boot` then accepts by name; an existing one is not changed."""
        if flavor.name not in self._all_flavors():
            self._flavors[flavor.name] = add_flavor(self._lifecycle.api, flavor)

    def flavor_id(self, name: str) -> str:
        if name not in self._flavors:
            self._flavors = self._all_flavors()
        if name not in self._flavors:
            raise LabError(f"no flavor {name}; there are {', '.join(sorted(self._flavors))}")
        return self._flavors[name]

    def _all_flavors(self) -> dict[str, str]:
        return {f["name"]: f["id"] for f in self.compute("GET", "/flavors").expect(200)["flavors"]}

    def image_id(self) -> str:
        if not self._images:
            images = self._lifecycle.api.glance("GET", f"/v2/images?name={IMAGE}").expect(200)["images"]
            self._images = {image["name"]: image["id"] for image in images}
        return self._images[IMAGE]

    def ensure_image(self, name: str, properties: Mapping[str, str] | None = None) -> str:
        """An image of this name, which is created with these properties; returns its id."""
        return ensure_image(self._lifecycle.api, name, properties)

    def ensure_zone(self, zone: str, hosts: Iterable[str]) -> None:
        """An availability zone (and aggregate) of this name with exactly these hosts."""
        ensure_zone(self._lifecycle.api, zone, hosts)

    def remove_zone(self, zone: str) -> None:
        """Remove an availability zone, if there is one of this name."""
        remove_zone(self._lifecycle.api, zone)

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = ACTIVE_TIMEOUT_S) -> None:
        """Wait until `condition` holds.

        :raises LabError: when it does not hold within the time; the text contains `what`
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise LabError(f"waited {timeout_s:.0f} s without success for {what}")
            time.sleep(POLL_S)


def add_cloud(parser: argparse.ArgumentParser) -> None:
    """Add the options of a subcommand that starts its own cloud."""
    parser.add_argument("--data", type=Path, default=None, metavar="DIR",
                        help="data directory of the cloud, as for tools/lab cloud")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="leave the cloud running")


@contextlib.contextmanager
def passing_cloud(asked: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Cloud]:
    """A cloud that is stopped at the end, unless it is to be kept."""
    cloud = Cloud(asked.data, say)
    try:
        yield cloud
    finally:
        if not asked.keep:
            cloud.down()


def _server(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"], "name": row["name"], "status": row["status"], "host": row.get("OS-EXT-SRV-ATTR:host"),
        "fault": re.sub(r"\s+", " ", row.get("fault", {}).get("message", "")),
    }  # fmt: skip

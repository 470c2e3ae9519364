# SPDX-License-Identifier: Apache-2.0
"""A real Placement inside the test's process, reached through a real keystoneauth session.

Placement keeps its database in globals, so there is one in each process.  Calls run one after the other (sqlite);
concurrency is tested in tests/functional with MariaDB.
"""

from __future__ import annotations

import io
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import requests
import webob
from keystoneauth1 import session as ks_session
from oslo_config import cfg
from oslo_db.sqlalchemy import engines
from placement import conf as placement_conf
from placement import db_api, deploy
from placement.db.sqlalchemy import migration
from placement.objects import resource_class, trait
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import MaxRetryError, NewConnectionError

from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import KeystoneTransport
from tests.support.keystone_transport import transport_to

ENDPOINT = "http://placement.test"

#: Gets the request (method, path) and a function that carries it out; answers, or raises.
Fault = Callable[[str, str, Callable[[], "requests.Response"]], "requests.Response"]


def load_app(directory: Path) -> tuple[Any, Callable[[], None]]:
    """Placement's own WSGI application on a fresh sqlite file, and what puts its globals back."""
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    database = f"sqlite:///{directory / 'placement.db'}"
    conf.set_override("connection", database, group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    conf([], project="placement", default_config_files=[])
    engine = engines.create_engine(database, sqlite_synchronous=False)  # no test survives the end of the machine
    if not db_api.placement_context_manager.is_started:
        db_api.configure(conf)
    patched = db_api.placement_context_manager.patch_engine(engine)
    migration.create_schema(engine)

    def put_back() -> None:
        _forget_what_was_synced()
        patched()

    _forget_what_was_synced()
    deploy.update_database(conf)
    return deploy.loadapp(conf), put_back


def _forget_what_was_synced() -> None:
    """Placement remembers in globals that the standard traits and classes are in the database."""
    trait._TRAITS_SYNCED = False
    resource_class._RESOURCE_CLASSES_SYNCED = False


class WsgiAdapter(requests.adapters.BaseAdapter):
    """Carries requests into the application; faults come first in, first out.

    ``every_write`` and ``every_read``: what happens to all of allocations that meet no other fault.
    """

    def __init__(self, app: Any) -> None:
        super().__init__()
        self._app = app
        self._lock = threading.Lock()
        self.faults: list[Fault] = []
        self.every_write: Fault | None = None
        self.every_read: Fault | None = None
        self.calls: list[tuple[str, str]] = []
        self.urls: list[str] = []  # the same, with what was asked of them
        self.headers: list[Mapping[str, str]] = []

    def send(self, request: Any, **_: Any) -> requests.Response:
        path = request.path_url.partition("?")[0]
        with self._lock:
            self.calls.append((request.method, path))
            self.urls.append(request.path_url)
            self.headers.append(request.headers.copy())
            usual = self.every_read if request.method == "GET" else self.every_write
            of_allocations = path.startswith("/allocations")
            fault = self.faults.pop(0) if self.faults else usual if of_allocations else None
        if fault is None:
            return self._carry_out(request)
        return fault(request.method, path, lambda: self._carry_out(request))

    def _carry_out(self, request: Any) -> requests.Response:
        asked = webob.Request.blank(request.path_url, method=request.method)
        asked.headers.update(request.headers)
        body = request.body or b""
        asked.body = body.encode() if isinstance(body, str) else body
        with self._lock:
            answer = asked.get_response(self._app)
        response = requests.Response()
        response.status_code = answer.status_code
        response.headers.update(answer.headers)
        response.raw = io.BytesIO(answer.body)
        response.request, response.url = request, request.url
        return response

    def close(self) -> None:
        pass


def lost_reply(_: str, __: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
    """The request is carried out, its answer never arrives."""
    carry_out()
    raise requests.exceptions.ReadTimeout("read timed out")


def never_sent(_: str, __: str, ___: Callable[[], requests.Response]) -> requests.Response:
    """Nobody listens."""
    raise requests.exceptions.ConnectionError("connection refused")


def refused(_: str, __: str, ___: Callable[[], requests.Response]) -> requests.Response:
    """No connection can be made, so nothing was sent."""
    why = NewConnectionError(cast(HTTPConnection, None), "connection refused")
    raise requests.exceptions.ConnectionError(MaxRetryError(cast(HTTPConnectionPool, None), "/", why))


def answered(status: int, content: bytes) -> Fault:
    """Nothing is carried out, and this is the answer."""

    def answer(_: str, __: str, ___: Callable[[], requests.Response]) -> requests.Response:
        response = requests.Response()
        response.status_code, response.raw = status, io.BytesIO(content)
        return response

    return answer


#: A proxy without a server behind it.
in_trouble = answered(503, b"<html>no server</html>")
#: Placement has used up its retries for a provider.
raced = answered(409, b'{"errors": [{"status": 409, "code": "placement.concurrent_update", "detail": "x"}]}')
#: Another service has the address of Placement.
not_found = answered(404, b"<html>no such page</html>")
another_service = answered(200, b'{"status": "maintenance"}')
#: The credentials of the caller are not accepted.
denied = answered(403, b"Forbidden")


def carried_out(_: str, __: str, go: Callable[[], requests.Response]) -> requests.Response:
    """No fault at all: for the calls before the one that is meant."""
    return go()


class Setting:
    """A Placement, with functions to set it up and to read it."""

    def __init__(self, transport: KeystoneTransport) -> None:
        self.transport = transport
        self.client = PlacementClient(transport)

    def provider(
        self,
        vcpus: int = 8,
        parent: str | None = None,
        inventories: Mapping[str, Any] | None = None,
        traits: tuple[str, ...] = (),
        aggregates: tuple[str, ...] = (),
    ) -> str:
        """A provider with so many VCPUs (or these inventories)."""
        name = str(uuid.uuid4())
        above = {"parent_provider_uuid": parent} if parent else {}
        self.ok("POST", "/resource_providers", {"name": f"node-{name}", "uuid": name, **above})
        held = inventories if inventories is not None else {"VCPU": {"total": vcpus}}
        self.set(name, "inventories", dict(held))
        if traits:
            self.set(name, "traits", list(traits))
        if aggregates:
            self.set(name, "aggregates", list(aggregates))
        return name

    def set(self, provider: str, what: str, value: Any) -> None:
        """Replace ``inventories``, ``traits`` or ``aggregates`` of a provider."""
        generation = self.generation(provider)
        body = {"resource_provider_generation": generation, what: value}
        self.ok("PUT", f"/resource_providers/{provider}/{what}", body)

    def set_without_generation(self, provider: str, aggregates: Sequence[str]) -> None:
        """Replace its aggregates as a client below microversion 1.19, for which Placement keeps the generation."""
        path = f"/resource_providers/{provider}/aggregates"
        self.transport._adapter.request(path, "PUT", json=list(aggregates), microversion="1.2")

    def put_below(self, provider: str, parent: str) -> None:
        """Make a root provider part of a tree."""
        name = self.ok("GET", f"/resource_providers/{provider}")["name"]
        self.ok("PUT", f"/resource_providers/{provider}", {"name": name, "parent_provider_uuid": parent})

    def generation(self, provider: str) -> int:
        return int(self.ok("GET", f"/resource_providers/{provider}")["generation"])

    def ok(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call it; anything but success fails the test."""
        reply = self.transport.call(method, path, body)
        assert 200 <= reply.status < 300, reply.describe()
        return reply.body

    def take(
        self,
        consumer: str,
        allocations: Mapping[str, Mapping[str, int]],
        generation: int | None = None,
    ) -> None:
        """Somebody else writes this."""
        self.ok("PUT", f"/allocations/{consumer}", {
            "allocations": {rp: {"resources": dict(part)} for rp, part in allocations.items()},
            "consumer_generation": generation, "project_id": "other", "user_id": "other"})  # fmt: skip

    def used(self, provider: str, name: str = "VCPU") -> int:
        return self.client.usages(provider).get(name, 0)


class Clock:
    """A clock that advances when code sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> bool:
        self.now += seconds
        return False


class World(Setting):
    """The one inside the process, with everything that was called, and faults."""

    def __init__(self, app: Any) -> None:
        self.http = WsgiAdapter(app)
        session = requests.Session()
        session.mount(ENDPOINT, self.http)
        super().__init__(transport_to(ENDPOINT, session=ks_session.Session(session=session)))

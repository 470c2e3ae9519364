# SPDX-License-Identifier: Apache-2.0
"""Real Placement on a real MariaDB or PostgreSQL, alone: no Keystone (``noauth2``), no Nova, up in seconds.

It uses the machinery of ``tools/laboratory/cloud`` (migrated databases from the cache, private ports, processes
known by id and start time), in a data directory of its own.  PostgreSQL is not in a cloud: it has a server of its own,
and Placement's tables are migrated each time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keystoneauth1 import adapter, session, token_endpoint

from shared_scheduler.placement.connection import SERVICE_TYPE
from tests.support.keystone_transport import transport_to
from tests.support.private_postgresql import PrivatePostgresql
from tests.unit.placement.real_placement import Setting
from tools.laboratory.cloud import configs, databases, template
from tools.laboratory.cloud.cloud_settings import CloudSettings
from tools.laboratory.cloud.layout import Layout
from tools.laboratory.cloud.ports import is_free
from tools.laboratory.cloud.services import plan
from tools.laboratory.errors import LabError
from tools.laboratory.processes.guard import Guard
from tools.laboratory.processes.startup import Service, wait_for
from tools.laboratory.processes.table import ProcessTable

START_TIMEOUT_S = 300.0
LOG_TAIL = 2000
SETTINGS = CloudSettings(computes=0, schedulers=0)


class PrivatePlacement(Setting):
    """On MariaDB.  Start it with ``start``; ``stop`` stops it and removes its directory."""

    def __init__(self, settings: CloudSettings = SETTINGS) -> None:
        self._settings = settings
        self.layout = Layout(Path(tempfile.mkdtemp(prefix="pl-")))
        self.layout.prepare()
        super().__init__(transport_to(self.layout.url("placement")))
        self._processes = ProcessTable(self.layout.run, self.layout.mark)
        self._guard = Guard(self._processes, self.layout.data)

    @classmethod
    @contextmanager
    def running(cls, settings: CloudSettings = SETTINGS) -> Iterator[PrivatePlacement]:
        """A running one for the duration of a ``with`` statement."""
        one = cls(settings)
        try:
            one.start()
            yield one
        finally:
            one.stop()

    def adapter(self) -> Any:
        """The adapter for Nova's own client."""
        auth = token_endpoint.Token(self.layout.url("placement"), "admin")
        return adapter.Adapter(session.Session(), auth=auth, service_type=SERVICE_TYPE, raise_exc=False)

    @property
    def database_url(self) -> str:
        """Of Placement's tables."""
        return self.layout.database_url("placement")

    def start(self) -> None:
        """The database, then Placement."""
        configs.write_all(self.layout, self._settings)
        self._change_configuration("auth_strategy = keystone", "auth_strategy = noauth2")
        self._prepare_database()
        self.start_one("placement")

    def _prepare_database(self) -> None:
        """Start it with Placement's tables in it."""
        template.prepare(self.layout, print)
        self.start_database()

    def start_database(self) -> None:
        """Start it again."""
        self.start_one("mariadb")

    def kill_database(self) -> None:
        """``kill -9``; returns when it can be started again."""
        self.kill("mariadb")

    def _stop_database(self) -> None:
        self._processes.stop(["mariadb"])

    def start_one(self, name: str) -> None:
        """Start ``mariadb`` or ``placement`` and wait until it answers."""
        service = self._service(name)
        self._processes.spawn(name, service.argv, service.env, service.log, service.kind, service.fingerprint())
        alive = self._processes.alive
        try:
            wait_for(name, service.ready, START_TIMEOUT_S, lambda: alive(name) is None)
        except LabError as error:
            tail = service.log.read_text(errors="replace")[-LOG_TAIL:]
            raise LabError(f"{error}; its log ends with:\n{tail}") from error

    def kill(self, name: str) -> None:
        """``kill -9``; returns when its port is free again (its workers outlive it by a moment)."""
        self._processes.kill(name)
        port = self.layout.ports[name]
        wait_for(f"port {port}", lambda: is_free(port), START_TIMEOUT_S)

    def stop(self) -> None:
        """Stop both and remove all files."""
        self._processes.stop(["placement"])
        self._stop_database()
        self._guard.release()
        shutil.rmtree(self.layout.data, ignore_errors=True)

    def _service(self, name: str) -> Service:
        return plan(self.layout, self._settings)[name]

    def _change_configuration(self, old: str, new: str) -> None:
        """Of Placement."""
        path = self.layout.etc / "placement" / "placement.conf"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


class PlacementOnPostgresql(PrivatePlacement):
    """The same on PostgreSQL."""

    def __init__(self, settings: CloudSettings = SETTINGS) -> None:
        super().__init__(settings)
        self._postgresql = PrivatePostgresql()

    @property
    def database_url(self) -> str:
        return self._postgresql.url("placement")

    def _prepare_database(self) -> None:
        self.start_database()
        self._postgresql.create("placement")
        self._change_configuration(super().database_url, self.database_url)
        manage, conf = self.layout.nova / "bin" / "placement-manage", self.layout.etc / "placement" / "placement.conf"
        databases.run([str(manage), "--config-file", str(conf), "db", "sync"], self.layout, "migrate-placement")

    def start_database(self) -> None:
        self._postgresql.start()

    def kill_database(self) -> None:
        self._postgresql.kill()

    def _stop_database(self) -> None:
        self._postgresql.stop()


#: By the name of the database.
PLACEMENTS = {"mariadb": PrivatePlacement, "postgresql": PlacementOnPostgresql}

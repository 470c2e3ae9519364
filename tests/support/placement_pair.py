# SPDX-License-Identifier: Apache-2.0
"""Two Placements in one process, with a database each: Placement as it is, and Placement with the write path.

Both get the same requests, one after the other.  Their answers and their tables have to be equal.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
import webob
from oslo_config import cfg
from oslo_db.sqlalchemy import engines
from placement import conf as placement_conf
from placement import db_api, deploy
from placement.db.sqlalchemy import migration
from placement.objects import resource_class, trait

from shared_scheduler.placement_app.assembly import HEADER, assemble

#: Tables by names instead of ids, because a write that is undone may use an id up.
TABLES = {
    "providers": "SELECT uuid, generation, updated_at IS NULL FROM resource_providers",
    "classes": "SELECT name FROM resource_classes",
    "inventories": """
        SELECT p.uuid, c.name, total, reserved, min_unit, max_unit, step_size, allocation_ratio FROM inventories i
        JOIN resource_providers p ON p.id = resource_provider_id JOIN resource_classes c ON c.id = resource_class_id""",
    "allocations": """
        SELECT consumer_id, p.uuid, c.name, used, a.created_at IS NULL, a.updated_at IS NULL FROM allocations a
        JOIN resource_providers p ON p.id = resource_provider_id JOIN resource_classes c ON c.id = resource_class_id""",
    "consumers": """
        SELECT c.uuid, p.external_id, u.external_id, t.name, generation, c.created_at IS NULL, c.updated_at IS NULL
        FROM consumers c LEFT JOIN projects p ON p.id = project_id LEFT JOIN users u ON u.id = user_id
        LEFT JOIN consumer_types t ON t.id = consumer_type_id""",
    "projects": "SELECT external_id FROM projects",
    "users": "SELECT external_id FROM users",
    "types": "SELECT name FROM consumer_types",
    # what no join shows
    "rows": "SELECT (SELECT count(*) FROM allocations), (SELECT count(*) FROM inventories)",
}


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    body: Any = None
    version: str = "1.36"
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self) -> webob.Request:
        request = webob.Request.blank(self.path, method=self.method)
        request.headers.update({
            "x-auth-token": "admin", "openstack-api-version": f"placement {self.version}",
            "accept": "application/json", "x-roles": "admin,service", "x-openstack-request-id": "req-1",
        })  # fmt: skip
        if self.body is not None:
            request.body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
            request.content_type = "application/json"
        request.headers.update(self.headers)
        return request


class OnePlacement:
    """Placement's application on an SQLite database in memory."""

    def __init__(self, with_write_path: bool) -> None:
        self.engine = engines.create_engine("sqlite://")
        conf = cfg.ConfigOpts()
        placement_conf.register_opts(conf)
        conf.set_override("connection", "sqlite://", group="placement_database")
        conf.set_override("auth_strategy", "noauth2", group="api")
        conf([], project="placement", default_config_files=[])
        if not db_api.placement_context_manager.is_started:
            db_api.configure(conf)
        with self:
            migration.create_schema(self.engine)
            trait._TRAITS_SYNCED = resource_class._RESOURCE_CLASSES_SYNCED = False
            self._app = assemble(lambda: deploy.loadapp(conf)) if with_write_path else deploy.loadapp(conf)

    def __enter__(self) -> None:
        """Placement's global database is the one of this application."""
        self._put_back = db_api.placement_context_manager.patch_engine(self.engine)

    def __exit__(self, *_: object) -> None:
        self._put_back()

    def answer(self, asked: Asked) -> webob.Response:
        with self:
            return asked.request().get_response(self._app)

    def number(self, sql: str, uuid: str) -> int | None:
        """One number of one row."""
        with self.engine.connect() as connection:
            found: int | None = connection.execute(sa.text(sql), {"uuid": uuid}).scalar()
        return found

    def tables(self) -> dict[str, list[Any]]:
        with self.engine.connect() as connection:
            return {name: sorted(map(str, connection.execute(sa.text(sql)))) for name, sql in TABLES.items()}


class OwnHandlerCounter(logging.Handler):
    """Counts requests that the write path leaves to Placement's own handler, until it is closed."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.count = 0
        self._logger = logging.getLogger("shared_scheduler.placement_app.handler")
        self._logger.setLevel(logging.DEBUG)
        self._logger.addHandler(self)

    def close(self) -> None:
        self._logger.removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        assert record.levelno <= logging.WARNING, record.getMessage()
        self.count += record.getMessage().startswith("Placement's own handler")


class PlacementPair:
    """Asks both, and compares."""

    def __init__(self) -> None:
        self._stock, self._ours = OnePlacement(False), OnePlacement(True)
        self._left = OwnHandlerCounter()

    @property
    def left_to_placement(self) -> int:
        """Requests that the write path did not take."""
        return self._left.count

    def ask(self, asked: Asked) -> webob.Response:
        """The answer, which both gave."""
        stock, ours = self._stock.answer(asked), self._ours.answer(asked)
        assert _shown(ours) == _shown(stock), asked
        assert ours.headers[HEADER[0]] == HEADER[1] and HEADER[0] not in stock.headers
        return ours

    def ok(self, *asked: Any, **more: Any) -> Any:
        """The body of an answer, which has to be a success."""
        answer = self.ask(Asked(*asked, **more))
        assert answer.status_code < 300, answer.text
        return answer.json if answer.body else None

    def generation_of(self, provider: str) -> int:
        """The generation of a provider; 0 if there is none."""
        return self._stock.number("SELECT generation FROM resource_providers WHERE uuid = :uuid", provider) or 0

    def consumer_generation_of(self, consumer: str) -> int | None:
        """The generation of a consumer; nothing if there is none."""
        return self._stock.number("SELECT generation FROM consumers WHERE uuid = :uuid", consumer)

    def close(self) -> None:
        """Forget the databases, and count no longer."""
        self._left.close()
        self._stock.engine.dispose()
        self._ours.engine.dispose()

    def compare_tables(self) -> None:
        """Fail unless both databases hold the same."""
        stock, ours = self._stock.tables(), self._ours.tables()
        for name in TABLES:
            assert ours[name] == stock[name], name


#: They differ for each request.
VARYING = {"x-openstack-request-id", "openstack-request-id", "date", "last-modified", HEADER[0].lower()}


def _shown(answer: webob.Response) -> tuple[Any, ...]:
    headers = sorted((name.lower(), value) for name, value in answer.headers.items() if name.lower() not in VARYING)
    text = answer.text if answer.body else ""
    for request_id in answer.headers.getall("x-openstack-request-id"):
        text = text.replace(request_id, "")
    return answer.status, headers, text

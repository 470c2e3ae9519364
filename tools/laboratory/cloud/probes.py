# SPDX-License-Identifier: Apache-2.0
"""Probes that return whether a service is ready."""

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import amqp
import pymysql

from tools.laboratory.cloud.layout import DATABASE_USER, PASSWORD, Layout, cell_database, vhost
from tools.laboratory.cloud.ports import LOOPBACK
from tools.laboratory.cloud.web import call
from tools.laboratory.errors import LabError

CONNECT_TIMEOUT_S = 15


def database(layout: Layout, name: str | None = None) -> Any:
    """A connection to our MariaDB, autocommit, rows as tuples."""
    return pymysql.connect(
        host=LOOPBACK, port=layout.ports["mariadb"], user=DATABASE_USER, password=PASSWORD,
        database=name, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, charset="utf8mb4",
        ssl_disabled=True,  # on loopback; loading the certificates alone takes 30 ms
    )  # fmt: skip


def database_answers(layout: Layout) -> bool:
    try:
        with database(layout):
            return True
    except pymysql.MySQLError:
        return False


def broker(layout: Layout, cell: int = 1) -> Any:
    """A connection to our RabbitMQ, in the virtual host of a cell."""
    connection = amqp.Connection(
        host=f"{LOOPBACK}:{layout.ports['rabbitmq']}", virtual_host=vhost(cell), userid="guest",
        password="guest", connect_timeout=CONNECT_TIMEOUT_S, read_timeout=CONNECT_TIMEOUT_S,
    )  # fmt: skip
    connection.connect()
    return connection


def broker_answers(layout: Layout) -> bool:
    try:
        with broker(layout):
            return True
    except (OSError, amqp.AMQPError):
        return False


def consumers(layout: Layout, queue: str, cell: int = 1) -> int:
    """The number of consumers of an existing queue; 0 if there is no such queue."""
    try:
        with broker(layout, cell) as connection:
            return int(connection.channel().queue_declare(queue, passive=True).consumer_count)
    except (OSError, amqp.AMQPError):
        return 0


def held(layout: Layout, queue: str, cell: int = 1) -> bool:
    """Whether a process owns this exclusive queue: then the broker reports that it is locked, not that it is
    missing."""
    try:
        with broker(layout, cell) as connection:
            connection.channel().queue_declare(queue, passive=True)
            return True
    except amqp.ResourceLocked:
        return True
    except (OSError, amqp.AMQPError):
        return False


def uwsgi_answers(layout: Layout, name: str) -> bool:
    """Whether all processes of an API have loaded it, and it answers.

    uwsgi ends all of them if one cannot load it, for example because the database is killed meanwhile.
    """
    return _all_loaded(layout.uwsgi_stats(name)) and _http_answers(layout.url(name))


def _all_loaded(stats: Path) -> bool:
    """Whether each process that uwsgi's statistics show has its application."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONNECT_TIMEOUT_S)
            connection.connect(str(stats))
            workers = json.load(connection.makefile("rb"))["workers"]
    except (OSError, ValueError):
        return False
    return all(worker["apps"] for worker in workers)


def _http_answers(url: str) -> bool:
    """Whether an application answers; uwsgi answers 500 as long as its application is not loaded."""
    with contextlib.suppress(LabError):
        return call("GET", url, timeout_s=30).status < 500
    return False


def inventoried(layout: Layout, host: str) -> bool:
    """Whether Placement has the inventory of a compute, so that it can be selected."""
    sql = (
        "SELECT count(*) FROM resource_providers p JOIN inventories i ON i.resource_provider_id = p.id"
        " WHERE p.name = %s"
    )
    return _count(layout, "placement", sql, (host,))


def seen_up(layout: Layout, host: str, cell: int, within_s: int) -> bool:
    """Whether a compute has reported to Nova recently; schedulers use only that."""
    sql = (
        "SELECT count(*) FROM services WHERE host = %s AND topic = 'compute' AND deleted = 0"
        " AND coalesce(last_seen_up, created_at) > utc_timestamp() - INTERVAL %s SECOND"
    )
    return _count(layout, cell_database(cell), sql, (host, within_s))


def _count(layout: Layout, name: str, sql: str, arguments: tuple[object, ...]) -> bool:
    try:
        with database(layout, name) as connection, connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return bool(cursor.fetchone()[0])
    except pymysql.MySQLError:
        return False

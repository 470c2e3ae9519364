# SPDX-License-Identifier: Apache-2.0
"""Checks before the service starts that each server it needs answers.

Without this check, a database that is down causes 100 seconds of silent retries in libraries, and a broker that is
down causes endless ones.  Here each causes one log line that names the option, and an exit after a bounded wait.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa

#: Pause between two checks.
PAUSE_S = 1.0
#: How long one TCP connection may take.
CONNECT_TIMEOUT_S = 5.0

#: The default ports of servers; SQLite has none and needs no check.
DEFAULT_PORTS = {"mysql": 3306, "postgresql": 5432}


@dataclass(frozen=True, slots=True)
class Dependency:
    """A server behind a URL that must answer: ``addresses`` are tried in turn, one is sufficient."""

    name: str  # "the API database"
    option: str  # "[api_database] connection"
    addresses: tuple[tuple[str, int], ...]
    unix_socket: str = ""


class ServerUnreachableError(Exception):
    """One line: the server that does not answer at present, the option that names it, and the remedy."""


class ServerOptionError(Exception):
    """One line: the option that names no server that this program could use, and the remedy."""


def database(name: str, option: str, url: str | None) -> Dependency | None:
    """From an SQLAlchemy URL; None if there is no server (SQLite).

    :raises ServerOptionError: when the URL is missing or wrong, or its driver is not installed
    """
    if not url:
        raise ServerOptionError(f"{option} is not set; {name} is needed. Set it in nova.conf.")
    parts = _parsed(option, url)
    _check_driver(option, parts)
    port = DEFAULT_PORTS.get(parts.get_backend_name())
    if port is None:
        return None
    unix_socket = str(parts.query.get("unix_socket", ""))
    return Dependency(name, option, ((parts.host or "localhost", parts.port or port),), unix_socket)


def _parsed(option: str, url: str) -> sa.URL:
    """Parsed by SQLAlchemy, which also accepts passwords with characters that other parsers reject."""
    try:
        return sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # their text may contain a part of the password
        raise ServerOptionError(
            f"{option} is not a valid database URL, which looks like mysql+pymysql://user:password@host/nova. "
            "Correct it in nova.conf."
        ) from None


def _check_driver(option: str, parts: sa.URL) -> None:
    """Check the driver, because without it the first query would end the service with a traceback."""
    try:
        parts.get_dialect().import_dbapi()
    except (sa.exc.NoSuchModuleError, ImportError) as error:
        raise ServerOptionError(
            f"{option} begins with {parts.drivername}, a driver that is not installed ({error}); Nova's default is "
            "mysql+pymysql. Correct it in nova.conf, or install the driver."
        ) from None


def wait_for(dependencies: Sequence[Dependency], timeout_s: float, say: Callable[[str], None]) -> None:
    """Return when each dependency answers.  ``say`` is called once for each that does not answer at once.

    :raises ServerUnreachableError: when one does not answer for ``timeout_s``
    """
    for one in dependencies:
        wait_for_answer(one.name, one.option, partial(_try, one), timeout_s, say)


def wait_for_answer(
    name: str,
    option: str,
    problem_of: Callable[[], str],
    timeout_s: float,
    say: Callable[[str], None],
) -> None:
    """The same for any dependency: ``problem_of`` returns its problem, or nothing."""
    until_s = time.monotonic() + timeout_s
    problem = problem_of()
    if problem:
        say(f"Waiting for {name}: {problem} ({option})")
    while problem:
        if time.monotonic() >= until_s:
            raise ServerUnreachableError(
                f"{name} does not answer: {problem}. Start it, or correct {option} in nova.conf, "
                "and start this service again if systemd does not."
            )
        time.sleep(PAUSE_S)
        problem = problem_of()


def _try(dependency: Dependency) -> str:
    """Empty if it answers, otherwise the error of the last address."""
    if dependency.unix_socket:
        return _try_unix(dependency.unix_socket)
    problem = "no address is given"
    for host, port in dependency.addresses:
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
            return ""
        except OSError as error:
            problem = f"{host}:{port}: {error.strerror or error}"
    return problem


def _try_unix(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(CONNECT_TIMEOUT_S)
        try:
            client.connect(path)
        except OSError as error:
            return f"{path}: {error.strerror or error}"
    return ""

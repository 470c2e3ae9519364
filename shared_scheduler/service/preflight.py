# SPDX-License-Identifier: Apache-2.0
"""Before the service starts: is what it cannot start without there?

Without this check, a database that is down means 100 seconds of silent retries and a broker that is
down means retries for ever, deep inside libraries.  Here it is one line that names the option, said
once, and an end after a bounded wait.
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

#: Where a server of the kind listens; SQLite is none and needs no check.
DEFAULT_PORTS = {"mysql": 3306, "postgresql": 5432}


@dataclass(frozen=True, slots=True)
class Dependency:
    """Something behind a URL that must answer: ``addresses`` are tried in turn, one is enough."""

    name: str  # "the API database"
    option: str  # "[api_database] connection"
    addresses: tuple[tuple[str, int], ...]
    unix_socket: str = ""


class UnreachableError(Exception):
    """One clear line: what does not answer, which option names it, what to do."""


def database(name: str, option: str, url: str | None) -> Dependency | None:
    """From an SQLAlchemy URL; None where there is nothing to connect to (SQLite)."""
    if not url:
        raise UnreachableError(f"{option} is not set; {name} is needed. Set it in nova.conf.")
    parts = _parsed(option, url)
    _look_for_driver(option, parts)
    port = DEFAULT_PORTS.get(parts.get_backend_name())
    if port is None:
        return None
    unix_socket = str(parts.query.get("unix_socket", ""))
    return Dependency(
        name, option, ((parts.host or "localhost", parts.port or port),), unix_socket
    )


def _parsed(option: str, url: str) -> sa.URL:
    """As SQLAlchemy understands it, which takes passwords that are no part of a URL elsewhere."""
    try:
        return sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # their text may hold half of the password
        raise UnreachableError(
            f"{option} is no database URL; it should look like mysql+pymysql://user:password@host/nova. "
            "Correct it in nova.conf."
        ) from None


def _look_for_driver(option: str, parts: sa.URL) -> None:
    """Where it is missing the first query would end the service with a traceback."""
    try:
        parts.get_dialect().import_dbapi()
    except (sa.exc.NoSuchModuleError, ImportError) as error:
        raise UnreachableError(
            f"{option} begins with {parts.drivername}, a driver that is not installed ({error}); Nova's usual one is "
            "mysql+pymysql. Correct it in nova.conf, or install the driver."
        ) from None


def wait_for(
    dependencies: Sequence[Dependency], timeout_s: float, say: Callable[[str], None]
) -> None:
    """Return when each of them answers; UnreachableError when one does not for ``timeout_s``.

    ``say`` hears once of each one that has to be waited for.
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
    """The same for anything: ``problem_of`` tells what is wrong with it, or nothing."""
    until_s = time.monotonic() + timeout_s
    problem = problem_of()
    if problem:
        say(f"Waiting for {name}: {problem} ({option})")
    while problem:
        if time.monotonic() >= until_s:
            raise UnreachableError(
                f"{name} does not answer: {problem}. Start it, or correct {option} in nova.conf, "
                "then start this service again."
            )
        time.sleep(PAUSE_S)
        problem = problem_of()


def _try(dependency: Dependency) -> str:
    """Empty when it answers, else what went wrong at the last address."""
    if dependency.unix_socket:
        return _try_unix(dependency.unix_socket)
    problem = "no address given"
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

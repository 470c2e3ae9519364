# SPDX-License-Identifier: Apache-2.0
"""Ports on loopback, each given to one owner at a time.

Minutes may pass between the choice of a port and the listen on it: a new cloud migrates its databases first, and a test
stops its broker for a while. So it is not sufficient that no process listens on a port at present. Leased ports are in
one record for each user of the machine; an owner is a directory, and its lease ends when the directory is removed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.laboratory.errors import LabError

LOOPBACK = "127.0.0.1"
FIRST, BLOCKS, BLOCK = 20000, 600, 20
"""Below the range that the kernel uses for outgoing connections: a client that repeatedly connects to a server that is
down could get that very port as its own, and then the server could not listen on it."""
RECORD = Path(tempfile.gettempdir()) / f"shared-scheduler-ports-{os.getuid()}.json"
Leases = dict[str, tuple[int, int]]
"""Owner -> the first of its ports, and their number."""


class NoPorts(LabError):
    """No ports are free."""


def lease(owner: Path, count: int) -> list[int]:
    """`count` ports in a row (at most `BLOCK`) on which no process listens and that are not leased.

    They belong to `owner`, an existing directory, until it is removed or leases others. The first port depends on its
    name, so that a cloud that is created again in the same place gets the same ports.

    :raises NoPorts: when no ports are free
    """
    with _record() as leases:
        given = {first for name, (first, _) in leases.items() if name != str(owner)}
        for first in _from(owner):
            if first not in given and all(is_free(port) for port in range(first, first + count)):
                leases[str(owner)] = (first, count)
                return list(range(first, first + count))
    raise NoPorts(f"no {count} free ports in a row between {FIRST} and {FIRST + BLOCKS * BLOCK} on {LOOPBACK};"
                  f" stop what holds them, or remove directories that {RECORD} names")  # fmt: skip


def is_free(port: int) -> bool:
    """Whether no process listens on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def firsts() -> list[int]:
    """The first ports of possible leases."""
    return [FIRST + block * BLOCK for block in range(BLOCKS)]


def _from(owner: Path) -> list[int]:
    """The same, beginning at the place of the owner."""
    start = int.from_bytes(hashlib.sha256(os.fsencode(owner)).digest()[:4], "big") % BLOCKS
    return firsts()[start:] + firsts()[:start]


@contextlib.contextmanager
def _record() -> Iterator[Leases]:
    """The leases of owners that exist; written back at the end. One process at a time."""
    with RECORD.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        leases = _read(RECORD)
        yield leases
        file.seek(0)
        file.truncate()
        json.dump(leases, file)


def _read(record: Path) -> Leases:
    try:
        found = json.loads(record.read_text())
    except ValueError:  # empty, or its writer was killed
        return {}
    return {owner: (first, count) for owner, (first, count) in found.items() if Path(owner).is_dir()}

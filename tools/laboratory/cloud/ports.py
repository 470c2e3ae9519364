# SPDX-License-Identifier: Apache-2.0
"""Ports on loopback, each given to one owner at a time.

Between choosing a port and listening on it may lie minutes: a new cloud migrates its databases first, and a test keeps
its broker down for a while. So it is not enough that nobody listens on a port now. What was given away stands in one
record for this user of this machine; an owner is a directory, and its lease ends when the directory is gone.
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
"""Below the range that the kernel takes for outgoing connections: a client that tries again and again to reach a
server that is down would sooner or later be given that very port as its own, and keep the server off it."""
RECORD = Path(tempfile.gettempdir()) / f"shared-scheduler-ports-{os.getuid()}.json"
Leases = dict[str, tuple[int, int]]
"""Owner to the first of its ports and their number."""


class NoPorts(LabError):
    """All are taken."""


def lease(owner: Path, count: int) -> list[int]:
    """`count` ports in a row (at most `BLOCK`) on which nobody listens and which nobody else was given.

    They are `owner`'s, an existing directory, until it is removed or takes others. Where they begin depends on its
    name, so that a cloud made again in one place has the ports that it had.

    :raises NoPorts: when there are none
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
    """Whether nobody listens on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def firsts() -> list[int]:
    """Where a lease may begin."""
    return [FIRST + block * BLOCK for block in range(BLOCKS)]


def _from(owner: Path) -> list[int]:
    """The same, from the owner's own place on."""
    start = int.from_bytes(hashlib.sha256(os.fsencode(owner)).digest()[:4], "big") % BLOCKS
    return firsts()[start:] + firsts()[:start]


@contextlib.contextmanager
def _record() -> Iterator[Leases]:
    """The leases of owners that are there; written back at the end. One process at a time."""
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

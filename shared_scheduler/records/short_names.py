# SPDX-License-Identifier: Apache-2.0
"""The short names by which lines tell the servers of one request apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from shared_scheduler.records.plain_text import listed
from shared_scheduler.records.store import Record

#: the first part of a uuid
SHORT_CHARS = 8
#: servers that a list names
LISTED_MAX = 3


def short_names(record: Record) -> dict[str, str]:
    """Of a request for several servers, ``shortened``; of other records, nothing."""
    servers = servers_of(record)
    return shortened(servers) if len(servers) > 1 else {}


def shortened(servers: Collection[str]) -> dict[str, str]:
    """Server -> the beginning of its uuid, or all of it if others begin alike."""
    alike = Counter(server[:SHORT_CHARS] for server in servers)
    return {server: server[:SHORT_CHARS] if alike[server[:SHORT_CHARS]] == 1 else server for server in servers}


def servers_of(record: Record) -> Sequence[str]:
    """The servers of a request in its order, by which decisions and answers count them."""
    found: Sequence[str] = record.get("asked", {}).get("instances") or record.get("instances", ())
    return found


def server_of(record: Record, index: int) -> str:
    """The server at this place of a request; empty if there is none."""
    servers = servers_of(record)
    return servers[index] if 0 <= index < len(servers) else ""


def first_names(servers: Sequence[str]) -> str:
    """The first servers of a list, and how many more there are."""
    more = len(servers) - LISTED_MAX
    return listed([*servers[:LISTED_MAX], *([f"{more} more"] if more > 0 else [])])

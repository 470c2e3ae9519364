# SPDX-License-Identifier: Apache-2.0
"""The later requests for a server that is on a host: a resize, a migration, an evacuation, a rebuild.

One that fails leaves the server where it is, so it is no end of the server.  A resize is told from a cold migration by
its flavor.  Where a record does not name the move, as those of earlier releases, it is told by the host of the server,
which Nova excludes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared_scheduler.model.moves import LEAVES_A_HOST, Move
from shared_scheduler.records.store import ACTIVE, BUILD, DECISION, PLACED, Record

#: Results that say that no host fits; the other failures say nothing of the hosts.
NO_HOST = frozenset({"no_valid_host", "no_candidates"})


@dataclass(frozen=True, slots=True)
class Later:
    """The decision of a later request for a server on ``host``; ``flavor``: that of the decision before it."""

    server: str
    host: str
    flavor: str
    decision: Record

    @property
    def failed(self) -> bool:
        """Whether it has placed the server nowhere."""
        return bool(self.decision["result"] != PLACED)

    @property
    def moves(self) -> bool:
        """Whether the server is on the host while another one is looked for."""
        asked = self.decision.get("asked", {})
        return self.host in asked.get("ignore_hosts", ()) or asked.get("move") in LEAVES_A_HOST or self._resizes

    @property
    def _resizes(self) -> bool:
        asked = self.decision.get("asked", {})
        may_resize = asked.get("move") in (None, Move.RESIZE)
        return may_resize and bool(self.flavor) and asked.get("flavor") not in ("", None, self.flavor)

    def text(self, where: str) -> str:
        """What it was, and what became of it; ``where``: the words for the host of the server."""
        what = f"a later {self._kind()} ({self.decision.get('request_id') or 'without an id'})"
        if not self.failed:
            return f"{what} placed it on {host_of(self.decision, self.server)}"
        result = self.decision["result"]
        ended = f"found no host ({result})" if result in NO_HOST else f"failed ({result})"
        return f"{what} {ended}" + (f" and left it {where}" if self.moves else "")

    def _kind(self) -> str:
        asked = self.decision.get("asked", {})
        if asked.get("is_rebuild"):
            return "rebuild"
        if self._resizes:
            return f"resize to {asked['flavor']}"
        if asked.get("move") == Move.RESIZE and self.flavor and self.flavor == asked.get("flavor"):
            return "cold migration"
        if asked.get("move"):
            return move_text(asked)
        return "request to move it" if self.moves else "request for it"


def move_text(asked: Mapping[str, Any]) -> str:
    """What a request is that does not ask for a new server; empty if it is not known."""
    return str(asked.get("move") or "").replace("_", " ")


@dataclass(slots=True)
class Followed:
    """``ends``: the newest record of each server, without the requests that left it where it is; a request without
    servers is one.  ``later``: the requests for servers that were on a host, oldest first.  ``since``: those that have
    failed since the end of a server."""

    ends: dict[str, Record] = field(default_factory=dict)
    later: list[Later] = field(default_factory=list)
    since: dict[str, list[Later]] = field(default_factory=dict)


def followed(records: Sequence[Record]) -> Followed:
    """What became of the servers of these records, oldest first."""
    found, flavors = Followed(), dict[str, str]()
    for record in records:
        if record.get("kind") not in (DECISION, BUILD):
            continue
        for server in record.get("instances") or [""]:
            later = list(_later(record, server, found.ends.get(server), flavors.get(server, "")))
            found.later += later
            if any(one.failed for one in later):
                found.since.setdefault(server, []).extend(later)
                continue
            found.ends[server] = record
            found.since.pop(server, None)
            flavors[server] = record.get("asked", {}).get("flavor") or flavors.get(server, "")
    return found


def _later(record: Record, server: str, end: Record | None, flavor: str) -> Iterator[Later]:
    """The record, if it is a request for a server that is on a host."""
    if end is None or record["kind"] != DECISION:
        return
    host, asked = host_of(end, server), record.get("asked", {})
    excluded = asked.get("ignore_hosts", ())
    is_there = host in excluded or (not excluded and asked.get("move") in LEAVES_A_HOST)
    if end["result"] == ACTIVE or (end["result"] == PLACED and is_there):
        yield Later(server, host, flavor, record)


def host_of(record: Record, server: str) -> str:
    """The host of the server after a decision or a build; empty if there is none."""
    if record.get("kind") == BUILD:
        return str(next(iter(record.get("hosts", ())), ""))
    asked: Mapping[str, Any] = record.get("asked", {})
    servers = asked.get("instances") or record.get("instances", ())
    hosts = dict(zip(servers, record.get("answer", ()), strict=False)).get(server, ())
    return str(next(iter(hosts), ""))


def own_records(records: Sequence[Record], name: str) -> list[Record]:
    """The records of a server, or those of a request without the later requests for its servers.

    The end of a build without an id may be of the request."""
    if any(name in record.get("instances", ()) for record in records):
        return list(records)
    named = (one for one in records if name in (one.get("request_id"), one.get("global_request_id")))
    ids = {one.get("request_id") for one in named}
    return [one for one in records if not one.get("request_id") or one["request_id"] in ids]

# SPDX-License-Identifier: Apache-2.0
"""Who held the room that a host lacked for a server, in words, with the projects that the records know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from shared_scheduler.records.plain_text import listed
from shared_scheduler.records.store import DECISION, FOUND_MAX, Record, RecordConditions, Store

#: The fields of a record whose hosts may have ``held``: those that were tried, and those that were rejected.
HELD_FIELDS = ("attempts", "near")
#: Holders of one answer whose projects are looked up.
PROJECTS_MAX = 100


def with_projects(store: Store, records: Sequence[Record]) -> list[Record]:
    """The records; a holder of room gets ``project_id`` if its newest decision is recorded.

    :raises RecordsError: when the records cannot be read
    """
    names = dict.fromkeys(one["server"] for record in records for host in _hosts(record)
                          for one in _largest(host["held"]))  # fmt: skip
    if not names:
        return list(records)
    wanted = frozenset(islice(names, PROJECTS_MAX))
    decisions = store.last(FOUND_MAX, RecordConditions(DECISION, names=wanted))
    projects = {server: one.get("project_id", "") for one in decisions for server in one.get("instances", ())}
    return [_with_projects(record, projects) for record in records]


def _hosts(record: Record) -> Iterator[Mapping[str, Any]]:
    """The hosts whose holders it names."""
    return (host for field in HELD_FIELDS for host in record.get(field, ()) if host.get("held"))


def _largest(held: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in held.get("largest", ()) if one.get("server")]


def _with_projects(record: Record, projects: Mapping[str, str]) -> Record:
    if not any(_hosts(record)):
        return record
    told = {field: [_host_with(projects, host) for host in record[field]] for field in HELD_FIELDS if field in record}
    return {**record, **told}


def _host_with(projects: Mapping[str, str], host: Mapping[str, Any]) -> Mapping[str, Any]:
    held = host.get("held")
    if not held:
        return host
    named = [{**one, **_project(projects.get(one["server"], ""))} for one in _largest(held)]
    return {**host, "held": {**held, "largest": named}}


def _project(project: str) -> dict[str, str]:
    return {"project_id": project} if project else {}


def held_text(host: Mapping[str, Any]) -> str:
    """Who held the room that a host lacked, when it refused or was rejected; empty if the record does not tell.

    For example ``by 3 servers (VCPU 8): vm-1 (VCPU 4, project demo), vm-2 (VCPU 3, claim pending) and 1 more; 2 claims
    pending``.
    """
    held = host.get("held")
    if not held:
        return ""
    count, pending, largest = held.get("servers", 0), held.get("pending", 0), _largest(held)
    if not count:
        return "by no server that the scheduler knew of"
    servers = f"by {count} server{'s' * (count != 1)}{_sum(held)}"
    named = [f"{one['server']} ({_of(one)})" for one in largest]
    more = [f"{count - len(named)} more"] if count > len(named) else []
    waiting = f"{pending} claim{'s' * (pending != 1)} pending" if pending else ""
    return "; ".join(filter(None, [f"{servers}: {listed([*named, *more])}", waiting, _unknown(host)]))


def _sum(held: Mapping[str, Any]) -> str:
    amounts = _amounts(held)
    return f" ({amounts})" if amounts else ""


def _of(holder: Mapping[str, Any]) -> str:
    project = f"project {holder['project_id']}" if holder.get("project_id") else ""
    return ", ".join(filter(None, [_amounts(holder), project, "claim pending" if holder.get("pending") else ""]))


def _amounts(held: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in held.get("amounts", {}).items())


def _unknown(host: Mapping[str, Any]) -> str:
    """What the host counted, and the scheduler could not name."""
    name, used = host.get("detail", {}).get("resource_class"), host.get("detail", {}).get("used")
    if not isinstance(name, str) or not isinstance(used, int):
        return ""
    rest = used - host["held"].get("amounts", {}).get(name, 0)
    return f"{name} {rest} more by servers that the scheduler did not know of" if rest > 0 else ""

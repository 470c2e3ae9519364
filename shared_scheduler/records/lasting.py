# SPDX-License-Identifier: Apache-2.0
"""What keeps a server from all hosts whatever else is on them, so that waiting does not help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared_scheduler.records.amounts import NO_ROOM, too_much
from shared_scheduler.records.plain_text import listed
from shared_scheduler.records.store import Record
from shared_scheduler.records.told_reasons import told_reasons

#: Reasons that stay while the hosts have the same traits.
TRAITS = frozenset({"root_traits", "traits", "group_traits"})
#: Values of a rejection that limit one server on an empty host.
LIMITS = ("max_unit", "capacity")
EVEN_EMPTY = "even if they are empty"


def too_much_for_empty_hosts(decision: Record, code: str) -> str:
    """A sentence, if a reason for lack of room holds on all its hosts even if they are empty; otherwise empty.

    It is empty as well if the record has not all hosts of the reason.
    """
    found = of_reason(decision, code)
    if len(found) < decision.get("reasons", {}).get(code, 0):
        return ""
    where = "this host, even if it is empty" if len(found) == 1 else f"these {len(found)} hosts, {EVEN_EMPTY}"
    return _too_much(code, found, where)


def too_much_for_named_hosts(decision: Record, code: str) -> str:
    """The same of those hosts of a reason that are named."""
    found = of_reason(decision, code)
    return too_much_for(code, found) if found[1:] else ""


def too_much_for(code: str, found: Sequence[Record]) -> str:
    """The same of these hosts."""
    even = EVEN_EMPTY if found[1:] else "even if it is empty"
    return _too_much(code, found, f"{listed(str(one['host']) for one in found)}, {even}")


def of_reason(decision: Record, code: str) -> list[Record]:
    """The hosts of a reason that the record names."""
    return [one for one in decision.get("near", ()) if one.get("code") == code]


def is_too_small(one: Record) -> bool:
    """Whether a host has too little room for one server even if it is empty."""
    limit, asked = _limit(one["detail"]), one["detail"].get("asked")
    return limit is not None and asked is not None and bool(asked > limit)


def _limit(detail: Mapping[str, Any]) -> float | None:
    return min((detail[name] for name in LIMITS if name in detail), default=None)


def _too_much(code: str, found: Sequence[Record], where: str) -> str:
    if not code.startswith(NO_ROOM) or not found:
        return ""
    if not all(map(is_too_small, found)):
        return ""
    most = max(limit for one in found if (limit := _limit(one["detail"])) is not None)
    return too_much(code, found[0]["detail"]["asked"], most, where)


def may_pass_later(decision: Record) -> bool:
    """Whether a host may pass when others have left it."""
    reasons = told_reasons(decision)
    return not reasons or not all(code in TRAITS or too_much_for_empty_hosts(decision, code) for code in reasons)

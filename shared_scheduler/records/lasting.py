# SPDX-License-Identifier: Apache-2.0
"""What keeps a server from all hosts whatever else is on them, so that waiting does not help."""

from __future__ import annotations

from collections.abc import Sequence

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
    found = _of_reason(decision, code)
    if len(found) < decision.get("reasons", {}).get(code, 0):
        return ""
    where = "this host, even if it is empty" if len(found) == 1 else f"these {len(found)} hosts, {EVEN_EMPTY}"
    return _too_much(code, found, where)


def too_much_for_named_hosts(decision: Record, code: str) -> str:
    """The same of those hosts of a reason that are named."""
    found = _of_reason(decision, code)
    return _too_much(code, found, f"{listed(str(one['host']) for one in found)}, {EVEN_EMPTY}") if found[1:] else ""


def _of_reason(decision: Record, code: str) -> list[Record]:
    return [one for one in decision.get("near", ()) if one.get("code") == code]


def _too_much(code: str, found: Sequence[Record], where: str) -> str:
    if not code.startswith(NO_ROOM) or not found:
        return ""
    details = [one["detail"] for one in found]
    limits = [min((one[name] for name in LIMITS if name in one), default=None) for one in details]
    asked = [one.get("asked") for one in details]
    known = [limit for limit, wanted in zip(limits, asked, strict=True)
             if limit is not None and wanted is not None and wanted > limit]  # fmt: skip
    return too_much(code, asked[0], max(known), where) if len(known) == len(found) else ""


def may_pass_later(decision: Record) -> bool:
    """Whether a host may pass when others have left it."""
    reasons = told_reasons(decision)
    return not reasons or not all(code in TRAITS or too_much_for_empty_hosts(decision, code) for code in reasons)

# SPDX-License-Identifier: Apache-2.0
"""What keeps a server from all hosts whatever else is on them, so that waiting does not help."""

from __future__ import annotations

from shared_scheduler.records.amounts import NO_ROOM, too_much
from shared_scheduler.records.store import Record

#: Reasons that stay while the hosts have the same traits.
TRAITS = frozenset({"root_traits", "traits", "group_traits"})
#: Values of a rejection that limit one server on an empty host.
LIMITS = ("max_unit", "capacity")


def too_much_for_empty_hosts(decision: Record, code: str) -> str:
    """A sentence, if a reason for lack of room holds on all its hosts even if they are empty; otherwise empty.

    It is empty as well if the record has not all hosts of the reason.
    """
    found = [one["detail"] for one in decision.get("near", ()) if one.get("code") == code]
    if not code.startswith(NO_ROOM) or not found or len(found) < decision.get("reasons", {}).get(code, 0):
        return ""
    limits = [min((one[name] for name in LIMITS if name in one), default=None) for one in found]
    asked = [one.get("asked") for one in found]
    known = [limit for limit, wanted in zip(limits, asked, strict=True)
             if limit is not None and wanted is not None and wanted > limit]  # fmt: skip
    return too_much(code, asked[0], max(known), len(found)) if len(known) == len(found) else ""


def may_pass_later(decision: Record) -> bool:
    """Whether a host may pass when others have left it."""
    reasons = decision.get("reasons", {})
    return not reasons or not all(code in TRAITS or too_much_for_empty_hosts(decision, code) for code in reasons)

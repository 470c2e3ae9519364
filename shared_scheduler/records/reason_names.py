# SPDX-License-Identifier: Apache-2.0
"""How the reason why one host did not get a server is named for a reader; the records keep the codes of the stages.

A filter of Nova that ended a try has the code ``filter``, and its name beside it.  A disabled service is seen in its
record, by ``ComputeFilter``, or in Placement as a trait, by ``root_traits``, whichever is read first.  Both are told as
``disabled``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shared_scheduler.model.services import DISABLED_TRAIT

#: the outcome of a try that a filter of Nova ended before the agent was asked
FILTERED = "filter"
#: how a disabled service is told
DISABLED = "disabled"


class Told(NamedTuple):
    """``detail``: the values that were compared, without those that the other two tell.  ``service``: that the service
    is disabled, and why; only why, if that is the name."""

    name: str
    detail: Mapping[str, Any]
    service: str = ""


def told(code: str, detail: Mapping[str, Any]) -> Told:
    """The reason with this code and these values."""
    if code == FILTERED:
        return Told(str(detail.get("filter") or code), _without(detail, "filter"))
    why = str(detail.get("disabled_reason", ""))
    if _is_only_disabled(code, detail):
        return Told(DISABLED, {}, why)
    forbidden = detail.get("forbidden")
    if not isinstance(forbidden, list) or DISABLED_TRAIT not in forbidden:
        return Told(code, detail)
    others = {**_without(detail, "disabled_reason"), "forbidden": [one for one in forbidden if one != DISABLED_TRAIT]}
    return Told(code, others, ": ".join(filter(None, ["its service is disabled", why])))


def told_code(one: Mapping[str, Any]) -> str:
    """The name of the reason for one host that was rejected."""
    return told(str(one["code"]), one["detail"]).name


def told_outcome(attempt: Mapping[str, Any]) -> str:
    """The name of the outcome of a try."""
    return told(str(attempt["outcome"]), attempt.get("detail", {})).name


def is_disabled(one: Mapping[str, Any]) -> bool:
    """Whether a host was rejected only because its service is disabled."""
    return told_code(one) == DISABLED


def _is_only_disabled(code: str, detail: Mapping[str, Any]) -> bool:
    if code == "ComputeFilter":
        return bool(detail.get("disabled") and detail.get("up") and not detail.get("forced_down"))
    only = detail.get("forbidden") == [DISABLED_TRAIT] and not (detail.get("missing") or detail.get("none_of"))
    return bool(code == "root_traits" and only)


def _without(detail: Mapping[str, Any], left_out: str) -> dict[str, Any]:
    return {name: value for name, value in detail.items() if name != left_out}

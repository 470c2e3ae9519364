# SPDX-License-Identifier: Apache-2.0
"""A request in mode ``shadow``: passed on to nova-scheduler, and its answer returned as it came."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shared_scheduler.decision.request import Request
from shared_scheduler.nova.stock import REMOTE, StockScheduler, as_sent
from shared_scheduler.records.agreement import Chosen
from shared_scheduler.service.comparisons import Comparisons, Pending

LOG = logging.getLogger(__name__)

#: instead of the name of an exception, if the answer is none that nova-conductor understands
UNREADABLE = "unreadable_answer"


def pass_on(
    stock: StockScheduler,
    comparisons: Comparisons | None,
    context: Any,
    arguments: Mapping[str, Any],
    request: Callable[[], Request],
) -> Any:
    """The serialised answer of nova-scheduler.  ``request`` makes the request that ours decides, in another thread.

    :raises Exception: when nova-scheduler raised it, or did not answer
    """
    pending = _begun(comparisons, context, arguments, request)
    begun_s = time.monotonic()

    def answered(chosen: Callable[[float], Chosen]) -> None:
        took_ms = round(1000 * (time.monotonic() - begun_s), 3)
        if comparisons is not None and pending is not None:
            comparisons.end(pending, lambda: chosen(took_ms))

    try:
        answer = stock.select_destinations(context, arguments)
    except Exception as error:
        sent = as_sent(error)
        answered(partial(_raised, type(sent).__name__.removesuffix(REMOTE)))
        raise sent from None
    answered(partial(_chosen, answer))
    return answer


def _begun(
    comparisons: Comparisons | None, context: Any, arguments: Mapping[str, Any], request: Callable[[], Request]
) -> Pending | None:
    """The comparison of a request; None if there is none.  What ours does not understand in it, stock answers."""
    if comparisons is None:
        return None
    try:
        return comparisons.begin(_asked(context, arguments), request)
    except Exception:
        LOG.exception("A request is passed on, but not compared")
        return None


def _asked(context: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What names the request in its record (see ``records.entries``)."""
    local = context.request_id or ""
    return {
        "request_id": local or context.global_id or "",
        "global_request_id": context.global_id if local and context.global_id != local else "",
        "project_id": getattr(arguments.get("spec_obj"), "project_id", None) or context.project_id or "",
        "user_id": context.user_id or "",
        "instances": list(arguments.get("instance_uuids") or ()),
    }


def _raised(name: str, took_ms: float) -> Chosen:
    return Chosen(error=name, took_ms=took_ms)


def _chosen(answer: Any, took_ms: float) -> Chosen:
    """The first Selection of each instance."""
    try:
        first = [inner[0]["nova_object.data"] for inner in answer]
        return Chosen(tuple((str(one["compute_node_uuid"]), str(one["service_host"])) for one in first), "", took_ms)
    except (TypeError, KeyError, IndexError):
        return Chosen(error=UNREADABLE, took_ms=took_ms)

# SPDX-License-Identifier: Apache-2.0
"""What the running schedulers of this machine answer, over their admin sockets.

The command ``top``, the page of ``serve`` and its JSON call these functions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from shared_scheduler.answers.host_facts import origin, rejection, weight_text
from shared_scheduler.answers.shapes import Fleet, HostAnswer, HostAnswers, Load, WhyNot
from shared_scheduler.daemon import admin
from shared_scheduler.decision.what_if import WhatIfError
from shared_scheduler.records.asked_again import asked_again
from shared_scheduler.records.errors import CannotReplayError
from shared_scheduler.records.store import Record

#: counts of a load that ``Rates`` divides by the time
COUNTED = ("decisions", "failures", "refusals", "conflicts")


def fleet(directory: Path) -> Fleet:
    """The nodes of the scheduler whose socket comes first and that answers; each scheduler knows all nodes.

    :raises AdminError: when no scheduler answers
    """
    error: admin.AdminError | None = None
    for path in admin.sockets(directory):
        try:
            return cast(Fleet, admin.ask(path, "fleet"))
        except admin.AdminError as raised:
            error = raised
    raise error or admin.AdminError(f"no scheduler of this machine has a socket in {directory}; is one running?")


def why_not_now(directory: Path, decision: Record, host: str) -> list[WhyNot]:
    """Why a running scheduler would not choose a host for the recorded request now.

    :raises AdminError: when no scheduler answers
    """
    try:
        request = {name: value for name, value in asdict(asked_again(decision)).items() if value}
    except (CannotReplayError, WhatIfError, KeyError, TypeError, AttributeError) as error:
        return [_now(time.time(), decision, f"is not known, because the request cannot be made again: {error}")]
    servers = decision["asked"]["instances"]
    found = cast(HostAnswers, admin.ask_first(directory, "hosts", request=request, servers=servers, hosts=[host]))
    head = f"scheduler {found['scheduler']}: "
    texts = [f"rejected: {rejection(one)}" if one["code"] else _passes(one) for one in found["hosts"]]
    unknown = f"{host} is not in its table; is the name that of a nova-compute service?"
    return [_now(found["at"], decision, head + text) for text in texts or [unknown]]


def _passes(one: HostAnswer) -> str:
    weight = weight_text({"weight": one["weight"], "shares": one["weights"]})
    return f"passes, weight {weight} ({origin(one)})"


def _now(at_s: float, decision: Record, text: str) -> WhyNot:
    return WhyNot(at=at_s, request_id=decision.get("request_id", ""), text=text, source="table")


class Rates:
    """Adds to each load of a scheduler what it did per second since the load before."""

    def __init__(self) -> None:
        self._before: Mapping[tuple[str, int], Load] = {}

    def add(self, loads: Sequence[Load]) -> list[Load]:
        """The loads with ``per_s``; it is None for a scheduler that was not there before."""
        found = [self._with_rates(each) for each in loads]
        self._before = {(each["scheduler"], each["pid"]): each for each in loads}
        return found

    def _with_rates(self, now: Load) -> Load:
        before = self._before.get((now["scheduler"], now["pid"]))
        over_s = 0.0 if before is None else now["clock_s"] - before["clock_s"]
        if before is None or over_s <= 0:
            return {**now, "per_s": None}
        pairs = {name: (_count(now, name), _count(before, name)) for name in COUNTED}
        return {**now, "per_s": {name: round((new - old) / over_s, 2) for name, (new, old) in pairs.items()}}


def _count(load: Load, name: str) -> int:
    found = load[name]  # type: ignore[literal-required]
    return int(found)


def loads(directory: Path, scheduler: str = "") -> tuple[list[Load], list[admin.AdminError]]:
    """What each scheduler does, or only the one with this name or process id, and the errors of silent ones.

    :raises AdminError: when no scheduler runs there
    """
    answers, silent = admin.ask_each(directory, "top")
    chosen = [each for each in answers if scheduler in ("", each["scheduler"], str(each["pid"]))]
    if scheduler and not chosen:
        known = ", ".join(each["scheduler"] for each in answers) or "none"
        raise admin.AdminError(f"no scheduler is called {scheduler}; those that answer: {known}")
    return chosen, silent

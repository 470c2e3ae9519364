# SPDX-License-Identifier: Apache-2.0
"""Answers why a request ended as it did: the stored decision, and the present verdict on each host.

The record has the state at the time of the decision: how many hosts fell to which reason, which were tried, and which
authority refused them.  The hosts are judged at the time of the question; a host that has changed since then may get
another verdict.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.explain import explain
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.records import entries
from shared_scheduler.service.engine import Engine
from shared_scheduler.service.recent import Past, Recent

#: The default and the maximum number of hosts for each reason; decisions wait while they are judged, about 10 us for
#: each host.
EACH_MAX_DEFAULT, EACH_MAX_MOST = 10, 1000
#: The maximum number of hosts in a question.
HOSTS_MAX = 50


class WhyAnswerer:
    """Answers ``{"request": request id or server uuid, "hosts": [...], "each_max": 10}``."""

    def __init__(self, engine: Engine, decider: Decider, recent: Recent, name: str) -> None:
        self._engine = engine
        self._decider = decider
        self._recent = recent
        self._name = name

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Plain values; ``found`` is whether this scheduler has stored the request.

        :raises ValueError: when the question is malformed
        """
        name, hosts, each_max = _fields(question)
        past = self._recent.find(name)
        head = {"scheduler": self._name, "pid": os.getpid(), "found": past is not None}
        if past is None:
            return head
        listed = {**head, **entries.entry(past.record, self._name, past.at_s)}
        explain_hosts = partial(self._hosts, past, _index(past, name), hosts, each_max)
        return {**listed, **self._engine.inspect(explain_hosts)}

    def _hosts(self, past: Past, index: int, hosts: frozenset[str], each_max: int, _: SchedulerCore) -> dict[str, Any]:
        try:
            found = explain(self._decider, past.request, index, only=hosts, each_max=each_max)
        except DecisionError as error:
            return {"now": [], "counts_now": {}, "unexplained": str(error)}
        return {"now": [asdict(one) for one in found.listed], "counts_now": dict(found.counts)}


def _index(past: Past, name: str) -> int:
    """The index of the server among the request's servers; the first one for the request id."""
    servers = past.request.instance_uuids
    return servers.index(name) if name in servers else 0


def _fields(question: Mapping[str, Any]) -> tuple[str, frozenset[str], int]:
    name, hosts = question.get("request"), question.get("hosts", [])
    each_max = question.get("each_max", EACH_MAX_DEFAULT)
    if not isinstance(name, str) or not name:
        raise ValueError("request: a request id or the uuid of a server is required")
    if not isinstance(hosts, list) or len(hosts) > HOSTS_MAX or not all(isinstance(h, str) for h in hosts):
        raise ValueError(f"hosts: a list of at most {HOSTS_MAX} names is required")
    if not isinstance(each_max, int) or not 1 <= each_max <= EACH_MAX_MOST:
        raise ValueError(f"each_max: a number from 1 to {EACH_MAX_MOST} is required")
    return name, frozenset(hosts), each_max

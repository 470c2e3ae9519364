# SPDX-License-Identifier: Apache-2.0
"""The present reason for each host, with the numbers compared, where they came from, and how old they were.

``HostAnswerer`` answers a question for the reasons of some hosts for a request that is not under way, such as one of a
record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.decision.explain import explain
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.what_if import WhatIf, WhatIfError, what_if_of
from shared_scheduler.records.store import AGENT, DATABASES
from shared_scheduler.service.engine import Engine

#: Hosts and servers of one question.
HOSTS_MAX, SERVERS_MAX = 50, 1_000


def origin(core: SchedulerCore, node: str, now_s: float) -> dict[str, Any]:
    """``source`` of the row of a node (``agent`` or ``databases``), and ``age_s``, the time since that was heard or
    read; None if it is not known.

    A row of an agent changes with each of its messages, so it is as old as the last one if no message is missing.
    """
    known, by_agent = core.nodes.get(node), core.nodes.agent_speaks_for(node)
    at_s = float("-inf") if known is None else known.window.heard_at_s if by_agent else known.read_at_s
    age_s = round(now_s - at_s, 1) if isfinite(at_s) else None
    return {"source": AGENT if by_agent else DATABASES, "age_s": age_s}


class HostAnswerer:
    """Answers ``{"request": {fields of WhatIf}, "servers": [uuids], "hosts": [names]}``."""

    def __init__(
        self, engine: Engine, decider: Decider, name: str, make_request: Callable[[WhatIf, int, list[str]], Request]
    ) -> None:
        self._engine = engine
        self._decider = decider
        self._name = name
        self._make_request = make_request

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Plain values of the shape ``answers.shapes.HostAnswers``.

        :raises WhatIfError: when the question is malformed, or names something that does not exist
        :raises DecisionError: when the request is malformed
        """
        given, servers, hosts = question.get("request"), question.get("servers", []), question.get("hosts")
        if not isinstance(given, Mapping):
            raise WhatIfError("request: an object with the fields of the request is needed")
        request = self._make_request(what_if_of(given), 1, _names("servers", servers, SERVERS_MAX))
        wanted = frozenset(_names("hosts", hosts, HOSTS_MAX))
        found = self._engine.inspect(lambda core: self._explained(core, request, wanted))
        return {"scheduler": self._name, "pid": os.getpid(), "at": round(time.time(), 3), "hosts": found}

    def _explained(self, core: SchedulerCore, request: Request, hosts: frozenset[str]) -> list[dict[str, Any]]:
        now_s, found = self._engine.clock(), explain(self._decider, request, only=hosts)
        return [{**asdict(one), **origin(core, one.node, now_s)} for one in found.listed]


def _names(field: str, value: Any, most: int) -> list[str]:
    if not isinstance(value, list) or len(value) > most or not all(isinstance(one, str) for one in value):
        raise WhatIfError(f"{field}: a list of at most {most} names is needed")
    return value

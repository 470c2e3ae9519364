# SPDX-License-Identifier: Apache-2.0
"""The one action of the admin socket: an operator has the nodes of a host read anew.

It changes nothing but this scheduler's own row of the node, which is replaced by what the agent, or the databases and
Placement, say.  ``core/ordered_resyncs.py`` limits how often.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from shared_scheduler.core.events import ResyncOrdered
from shared_scheduler.core.ordered_resyncs import ResyncState
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.records.store import AGENT, DATABASES
from shared_scheduler.service.engine import Engine

LOG = logging.getLogger(__name__)

#: An order is named by its client, so that it can ask all schedulers for its result.
ORDER = re.compile(r"[0-9a-f]{16}")
#: The length of the name of a host in Nova's databases.
HOST_CHARACTERS_MAX = 255


class OrderError(Exception):
    """The order is malformed; the text says how it has to be."""


class ResyncOrders:
    """Answers ``{"host": name, "order": 16 hexadecimal digits}``: first ``order``, and then ``result``."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name

    def order(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to read the nodes of a host, and return the first result.  Does not wait.

        :raises OrderError: when the order is malformed
        """
        host, order = _order_in(question)
        if self._engine.inspect(lambda core: bool(core.nodes.of_host(host))):
            LOG.info("an operator has ordered that the nodes of host %s are read anew (order %s)", host, order)
            self._engine.handle(ResyncOrdered(host, cause=f"order {order}"))
        return self.result(question)

    def result(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """How far the order has come, for each node of the host.

        :raises OrderError: when the order is malformed
        """
        host, order = _order_in(question)
        found = self._engine.inspect(
            lambda core: [_result(core, node, f"order {order}") for node in core.nodes.of_host(host)]
        )
        return {"scheduler": self._name, "pid": os.getpid(), "host": host, "nodes": found}


def _order_in(question: Mapping[str, Any]) -> tuple[str, str]:
    host, order = question.get("host"), question.get("order")
    if not isinstance(host, str) or not 0 < len(host) <= HOST_CHARACTERS_MAX:
        raise OrderError(f"host: a name of at most {HOST_CHARACTERS_MAX} characters is needed")
    if not isinstance(order, str) or not ORDER.fullmatch(order):
        raise OrderError("order: 16 hexadecimal digits are needed")
    return host, order


def _result(core: SchedulerCore, node: str, order: str) -> dict[str, Any]:
    ordered = core.ordered_resyncs.get(node, order)
    epoch, sequence = core.ordered_resyncs.position_of(node)
    return {
        "node": node,
        "cell": "" if (known := core.nodes.get(node)) is None else known.cell,
        "source": AGENT if core.nodes.agent_speaks_for(node) else DATABASES,
        "result": (ResyncState.TOO_SOON if ordered is None else ordered.state).value,
        "epoch_before": epoch if ordered is None else ordered.epoch,
        "sequence_before": sequence if ordered is None else ordered.sequence,
        "epoch": epoch,
        "sequence": sequence,
        "ended_quarantine": ordered is not None and ordered.ended_quarantine,
        "quarantined": node in core.quarantine.nodes,
    }

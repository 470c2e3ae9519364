# SPDX-License-Identifier: Apache-2.0
"""The seat of Nova's own filter objects: the winner is verified before it is claimed.

The core is pure; what verifies a host (``shared_scheduler.nova.judge`` with Nova's filter classes,
``AcceptAll`` in the demo and the simulator) is handed to it.  A judge must be quick and do no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shared_scheduler.core.events import Candidate
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Reason
from shared_scheduler.state.topology import TopologyTake


@dataclass(frozen=True, slots=True)
class Approval:
    """The host passes with ``candidate``.  ``topology`` goes to the agent with the claim; ``take`` is
    what the claim takes of NUMA cells and PCI pools, for the overlay of our own row."""

    candidate: Candidate | None
    topology: str = ""
    limits: Any = None
    take: TopologyTake | None = None


class HostJudge(Protocol):
    """Verifies one host for one instance."""

    def verify(
        self,
        request: Request,
        index: int,
        view: Any,  # state.view.HostView of the row, own outstanding claims included
        candidates: Sequence[Candidate],
    ) -> Approval | Reason:
        """Approve with the first candidate that passes all filters, or say which filter refused."""


class AcceptAll:
    """Approves every host with its first candidate: for worlds without Nova."""

    def verify(
        self, request: Request, index: int, view: Any, candidates: Sequence[Candidate]
    ) -> Approval | Reason:
        return Approval(candidates[0] if candidates else None, request.topology)

# SPDX-License-Identifier: Apache-2.0
"""What verifies the selected host before it is claimed.

The core is pure: it is given a judge.  In the service this is ``shared_scheduler.nova.judge`` with Nova's own
filter classes, in the simulator and the demo ``sim.topology.SimJudge``, and ``AcceptAll`` where nothing has
to be verified.  A judge must be quick and do no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shared_scheduler.core.events import Candidate
from shared_scheduler.decision.request import Request
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.protocol.messages import Reason


@dataclass(frozen=True, slots=True)
class Approval:
    """The host passes with ``candidate``.  ``topology`` goes to the agent with the claim; ``take`` is
    what the claim takes of NUMA cells and PCI pools, for the overlay of our own row."""

    candidate: Candidate | None
    topology: str = ""
    limits: Any = None
    take: TopologyUsage | None = None


class HostJudge(Protocol):
    """Verifies one host for one instance."""

    def verify(
        self,
        request: Request,
        index: int,
        view: Any,  # table.host_view.HostView of the row, own outstanding claims included
        candidates: Sequence[Candidate],
    ) -> Approval | Reason:
        """Approve with the first candidate that passes all filters, or say which filter refused."""


class AcceptAll:
    """Approves every host with its first candidate."""

    def verify(
        self, request: Request, index: int, view: Any, candidates: Sequence[Candidate]
    ) -> Approval | Reason:
        return Approval(candidates[0] if candidates else None, request.topology)

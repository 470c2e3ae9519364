# SPDX-License-Identifier: Apache-2.0
"""What the end of a claim says of its node, and of its request."""

from __future__ import annotations

from shared_scheduler.core.claims import ClaimState, OpenClaim
from shared_scheduler.core.effects import FailureCode
from shared_scheduler.core.events import WriteCode
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.quarantine import Quarantine
from shared_scheduler.core.request_state import NO_VERDICT, InstancePlacement
from shared_scheduler.core.step import Step
from shared_scheduler.protocol.messages import Reason

#: writes that no other host would mend
HARD_ERRORS = {
    WriteCode.CONSUMER_CONFLICT: FailureCode.CONSUMER_CONFLICT,
    WriteCode.REJECTED: FailureCode.BAD_REQUEST,
}


class ClaimLessons:
    """Takes what claims teach to the parts that keep it."""

    def __init__(self, nodes: Nodes, quarantine: Quarantine) -> None:
        self._nodes = nodes
        self._quarantine = quarantine

    def claim_went_well(self, node: str) -> None:
        """A claim on this node stands in Placement."""
        self._quarantine.claim_went_well(node)

    def learn(self, step: Step, instance: InstancePlacement, claim: OpenClaim, ending: ClaimState) -> None:
        """Take from a bad ending what it says of the node."""
        node = claim.intent.node
        if ending == ClaimState.REFUSED:
            instance.out[node] = claim.reason or Reason("refused")
            self._quarantine.claim_refused(step, node, instance.out[node])
            if claim.judged_epoch < claim.seen.epoch:
                self._nodes.judged_in_the_past(step, node, claim.seen.epoch)
        elif ending == ClaimState.TIMED_OUT:
            instance.out[node] = Reason(NO_VERDICT)
            self._nodes.verdict_missed(step, node)
        elif ending == ClaimState.NOT_WRITTEN:
            code = claim.write_code or WriteCode.UNREACHABLE
            instance.out[node] = Reason(code.value, {"text": claim.write_detail})
            self._quarantine.claim_not_written(step, node, code)


def hard_error(claim: OpenClaim, ending: ClaimState) -> tuple[FailureCode, str] | None:
    """Why the whole request fails with this claim; None where another host may do."""
    if ending == ClaimState.LEFT_ALONE:
        return FailureCode.CONSUMER_CONFLICT, claim.write_detail
    if ending == ClaimState.ABANDONED:
        return FailureCode.PLACEMENT_UNREACHABLE, claim.write_detail
    if ending == ClaimState.NOT_WRITTEN and claim.write_code in HARD_ERRORS:
        return HARD_ERRORS[claim.write_code], claim.write_detail
    return None

# SPDX-License-Identifier: Apache-2.0
"""The verdicts that agents do not send, because increments stand for them (``Claim.increment_suffices``)."""

from __future__ import annotations

from collections.abc import Iterator

from compute_agent.claim_ledger import ClaimLedger
from shared_scheduler.protocol.messages import Increment, Message, Verdict


def acceptances(message: Message, ledger: ClaimLedger, now: float) -> Iterator[Verdict]:
    """A verdict for each claim that was accepted at this moment, that the message has, and to which this suffices."""
    if not isinstance(message, Increment):
        return
    for claim_id in message.claims:
        held = ledger.pending.get(claim_id)
        if held is not None and held.claim.increment_suffices and held.accepted_at_s == now:
            yield Verdict(claim_id, message.node, message.epoch, True, None, message.sequence)

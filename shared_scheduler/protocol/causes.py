# SPDX-License-Identifier: Apache-2.0
"""Cause ids: one text that joins the log lines, records, effects and messages of one thing that happened.

Every event and effect of both cores has a ``cause``.  A core takes it from what it handles and copies it
into everything that this brings about; it makes up nothing, and reads no clock.

====================================  ==========================================  =====================
what began it                         cause id                                    example
====================================  ==========================================  =====================
a call of select_destinations         the request id, which Nova logs, too        ``req-5d7b...``
a Claim, a Release or a Verdict       the claim id                                ``0f3a...-17``
what a node's agent broadcasts        node, epoch and sequence                    ``9c1e...@1764/2041``
a Hello                               who says it, and its epoch                  ``scheduler-1@3``
a Resync                              what its scheduler has: node, epoch, seq.   ``9c1e...@1764/2040``
a timer of a core                     its kind, and what it is for                ``timer window 9c1e...``
anything else                         the event in a few words                    ``services read``
====================================  ==========================================  =====================

A claim joins the two programs: the scheduler writes down which request a claim is of (its decision record
and ``WriteAllocation`` have both ids), and everything that is said to the node or by it has the claim id.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.protocol.messages import Claim, Hello, Message, Release, Resync, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Caused:
    """An event or effect that is told its cause."""

    cause: str


def cause_of(message: Message) -> str:
    """The cause id of what a message brings about at its receiver."""
    match message:
        case Claim() | Release() | Verdict():
            return message.claim_id
        case Hello():
            return f"{message.sender}@{message.epoch}"
        case Resync():
            return f"{message.node}@{message.epoch}/{message.after_sequence}"
        case _:
            return f"{message.node}@{message.epoch}/{message.sequence}"

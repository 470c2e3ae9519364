# SPDX-License-Identifier: Apache-2.0
"""Cause ids: one text that identifies all log lines, records, effects and messages with the same cause.

Every event and effect of both cores has a ``cause``.  A core copies the cause of the event into every effect of it.
Cause ids contain no random part and no time.

====================================  ==========================================  =====================
cause                                 cause id                                    example
====================================  ==========================================  =====================
a call of select_destinations         the request id, which Nova logs as well     ``req-5d7b...``
a Claim, a Release or a Verdict       the claim id                                ``0f3a...-17``
what a node's agent broadcasts        node, epoch and sequence                    ``9c1e...@1764/2041``
a Hello                               its sender, and the epoch of the sender     ``scheduler-1@3``
a Resync                              state of its sender: node, epoch, sequence  ``9c1e...@1764/2040``
a timer of a core                     its kind, and the id of its owner           ``timer window 9c1e...``
a BuildResult                         the server                                  ``build of 7f1c...``
anything else                         the event in a few words                    ``services read``
====================================  ==========================================  =====================

The claim id connects the two programs: the decision record of the scheduler and ``WriteAllocation`` have the request id
and the claim id, and every message about the claim has the claim id.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.protocol.messages import BuildResult, Claim, Hello, Message, Release, Resync, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Caused:
    """An event or effect that gets its cause as an argument."""

    cause: str


def cause_of(message: Message) -> str:
    """The cause id of the effects of a message at its receiver."""
    match message:
        case Claim() | Release() | Verdict():
            return message.claim_id
        case Hello():
            return f"{message.sender}@{message.epoch}"
        case Resync():
            return f"{message.node}@{message.epoch}/{message.after_sequence}"
        case BuildResult():
            return f"build of {message.consumer}"
        case _:
            return f"{message.node}@{message.epoch}/{message.sequence}"

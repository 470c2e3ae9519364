# SPDX-License-Identifier: Apache-2.0
"""The states of a MessageWindow and its transitions, as data.

The window runs on this table, and the documentation is drawn from it.  A pair that is not in the table cannot happen.

States
======
NEW         no message of the node was received yet
IN_ORDER    every message that is known to exist has been applied
UNVERIFIED  the copy may have missed a message: the channel was reconnected, or the node was silent
GAP         a message is missing; later ones are held
DIFFERS     the digest of the copy differs from the agent's, or an operator distrusts the copy: a snapshot is needed,
            the copy may be used
LOST        no usable copy (a new epoch, or a gap that was not filled): a snapshot is needed
SILENT      the agent left, or sent nothing for too long
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class WindowPhase(StrEnum):
    """The states, described in the docstring of this module."""

    NEW = "new"
    IN_ORDER = "in_order"
    UNVERIFIED = "unverified"
    GAP = "gap"
    DIFFERS = "differs"
    LOST = "lost"
    SILENT = "silent"


class WindowFreshness(StrEnum):
    """What the phases mean for the choice of hosts."""

    NEW = "new"
    FRESH = "fresh"
    SUSPECT = "suspect"  # may be chosen, and always needs a verdict
    STALE = "stale"  # may not be chosen
    SILENT = "silent"  # the agent does not report at present


class Cause(StrEnum):
    """The causes of transitions between phases."""

    APPLIED_ALL = "next sequence, nothing missing after it"
    APPLIED_SOME = "next sequence, a gap after it"
    AHEAD = "a later sequence"
    SNAPSHOT_ALL = "snapshot, nothing missing after it"
    SNAPSHOT_SOME = "snapshot, a gap after it"
    NO_STATE = "a new epoch without its snapshot"
    VERIFIED = "equal digest"
    MISMATCH = "different digest"
    HEARD = "an old message"
    EXPIRED = "the gap was not filled in time"
    SILENCE = "no message for too long"
    LEAVE = "leave"
    RECONNECTED = "the channel was reconnected"
    FORGOTTEN = "the copy was dropped"
    DISTRUSTED = "an operator distrusts the copy"


def _transitions() -> dict[tuple[WindowPhase, Cause], WindowPhase]:
    p, c = WindowPhase, Cause
    table = {
        (p.NEW, c.RECONNECTED): p.NEW,
        (p.NEW, c.FORGOTTEN): p.NEW,
        (p.IN_ORDER, c.APPLIED_ALL): p.IN_ORDER,
        (p.IN_ORDER, c.AHEAD): p.GAP,
        (p.IN_ORDER, c.VERIFIED): p.IN_ORDER,
        (p.IN_ORDER, c.MISMATCH): p.DIFFERS,
        (p.IN_ORDER, c.HEARD): p.IN_ORDER,
        (p.IN_ORDER, c.RECONNECTED): p.UNVERIFIED,
        (p.UNVERIFIED, c.APPLIED_ALL): p.IN_ORDER,
        (p.UNVERIFIED, c.APPLIED_SOME): p.GAP,
        (p.UNVERIFIED, c.AHEAD): p.GAP,
        (p.UNVERIFIED, c.VERIFIED): p.IN_ORDER,
        (p.UNVERIFIED, c.MISMATCH): p.DIFFERS,
        (p.UNVERIFIED, c.HEARD): p.UNVERIFIED,
        (p.UNVERIFIED, c.RECONNECTED): p.UNVERIFIED,
        (p.GAP, c.APPLIED_ALL): p.IN_ORDER,
        (p.GAP, c.APPLIED_SOME): p.GAP,
        (p.GAP, c.AHEAD): p.GAP,
        (p.GAP, c.HEARD): p.GAP,
        (p.GAP, c.EXPIRED): p.LOST,
        (p.GAP, c.RECONNECTED): p.GAP,
        (p.DIFFERS, c.APPLIED_ALL): p.DIFFERS,
        (p.DIFFERS, c.AHEAD): p.GAP,
        (p.DIFFERS, c.VERIFIED): p.IN_ORDER,
        (p.DIFFERS, c.MISMATCH): p.DIFFERS,
        (p.DIFFERS, c.HEARD): p.DIFFERS,
        (p.DIFFERS, c.RECONNECTED): p.DIFFERS,
        (p.LOST, c.APPLIED_ALL): p.IN_ORDER,
        (p.LOST, c.APPLIED_SOME): p.LOST,
        (p.LOST, c.AHEAD): p.LOST,
        (p.LOST, c.HEARD): p.LOST,
        (p.LOST, c.RECONNECTED): p.LOST,
        (p.SILENT, c.APPLIED_ALL): p.IN_ORDER,
        (p.SILENT, c.APPLIED_SOME): p.GAP,
        (p.SILENT, c.AHEAD): p.GAP,
        (p.SILENT, c.VERIFIED): p.IN_ORDER,
        (p.SILENT, c.MISMATCH): p.DIFFERS,
        (p.SILENT, c.HEARD): p.UNVERIFIED,
        (p.SILENT, c.RECONNECTED): p.SILENT,
        (p.SILENT, c.FORGOTTEN): p.SILENT,
    }
    for phase in WindowPhase:  # these transitions do not depend on the current phase
        table[phase, c.SNAPSHOT_ALL] = p.IN_ORDER
        table[phase, c.NO_STATE] = p.LOST
        table[phase, c.LEAVE] = p.SILENT
        if phase not in (p.NEW, p.SILENT):
            table[phase, c.SILENCE] = p.SILENT
        if phase not in (p.NEW, p.IN_ORDER, p.DIFFERS):  # in these phases no message is known to be missing
            table[phase, c.SNAPSHOT_SOME] = p.GAP
        table.setdefault((phase, c.FORGOTTEN), p.LOST)
        table[phase, c.DISTRUSTED] = p.DIFFERS if phase in (p.IN_ORDER, p.UNVERIFIED) else phase
    return table


#: (phase, cause) -> phase.  A pair that is not here cannot happen.
TRANSITIONS: Final[Mapping[tuple[WindowPhase, Cause], WindowPhase]] = _transitions()

FRESHNESS: Final[Mapping[WindowPhase, WindowFreshness]] = {
    WindowPhase.NEW: WindowFreshness.NEW,
    WindowPhase.IN_ORDER: WindowFreshness.FRESH,
    WindowPhase.UNVERIFIED: WindowFreshness.SUSPECT,
    WindowPhase.GAP: WindowFreshness.SUSPECT,
    WindowPhase.DIFFERS: WindowFreshness.SUSPECT,
    WindowPhase.LOST: WindowFreshness.STALE,
    WindowPhase.SILENT: WindowFreshness.SILENT,
}

#: A snapshot restarts a phase even if the phase stays the same, because it answers every open request.
ANSWERS: Final = frozenset({Cause.SNAPSHOT_ALL, Cause.SNAPSHOT_SOME})

#: Phases in which the window needs messages from the agent.
ASKING: Final = frozenset({WindowPhase.GAP, WindowPhase.DIFFERS, WindowPhase.LOST})

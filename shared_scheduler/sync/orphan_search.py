# SPDX-License-Identifier: Apache-2.0
"""The servers whose allocations may be orphaned, and the order in which they are checked.  Pure.

``orphan_sweeper.py`` says why, and checks them in the databases and in Placement; ``sim/orphan_sweeps.py`` does so in
virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from operator import itemgetter
from typing import Generic, TypeVar
from zlib import crc32

from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations, is_same
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S

#: The database of a cell.
Cell = TypeVar("Cell")

#: Older servers were checked before, or wait for their users as with nova-scheduler.
SWEEP_BACK = timedelta(hours=1)
#: The number of servers that are listed from cell 0, and from each cell.
LISTED_MAX = 2_000
#: Time between the two checks of a server; a write takes less than this (the time limit of its request).
AGAIN_S = 120.0
#: The turn of one scheduler with a shelved server, and the wait with which it begins: Placement has then carried out
#: what others have sent, or never will.  Clocks of schedulers and of Nova may differ, and a check takes its time.
TURN_S, TURN_WAIT_S = 180.0, CARRIED_OUT_WITHIN_S + 30.0
CHECKS = 2
#: Time for which an allocation of a shelved server must have stood: a database shows the task of its unshelve by then.
LAG_S = 30.0
CHECKS_A_SWEEP = 120
#: Time after which a sweep begins no more checks: the next one does, with a new list.
SWEEP_MAX_S = 10.0


@dataclass(frozen=True, slots=True)
class Share:
    """The servers that a scheduler checks first.  When another one stops, it keeps these, and gets some more."""

    own: str
    names: frozenset[str]

    def rank(self, server: str) -> int:
        """How many others would have to go before a server belongs to this share; 0 if it does."""
        own = _weight(self.own, server)
        return sum(_weight(name, server) > own for name in self.names)


def _weight(scheduler: str, server: str) -> bytes:
    """The server is in the share of the scheduler with the greatest one."""
    return blake2b(f"{scheduler} {server}".encode(), digest_size=8).digest()


def share_of(own: str, names: Iterable[str]) -> Share:
    """The share of a scheduler among these."""
    return Share(own, frozenset((own, *names)))


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a scheduler with shelved servers: it has position ``rank`` among ``count`` of them."""

    rank: int
    count: int

    def has_turn(self, server: str, age_s: float) -> bool:
        """Whether this scheduler may delete the allocations of a server that changed so long ago."""
        turn, waited_s = divmod(age_s, TURN_S)
        return age_s >= 0 and turn % self.count == self._first_turn(server) and waited_s >= TURN_WAIT_S

    def _first_turn(self, server: str) -> int:
        """How many schedulers come before this one."""
        return (self.rank - crc32(server.encode())) % self.count


def turns_of(own: str, names: Sequence[str]) -> Turns:
    """The turns of a scheduler among these."""
    return Turns(sorted(names).index(own), len(names))


@dataclass(frozen=True, slots=True)
class Suspect(Generic[Cell]):
    """A server whose request failed; each unshelve of a server counts separately."""

    server: str
    changed_at: datetime | None = None
    cell: Cell | None = field(default=None, compare=False)  # None: the server is in cell 0


@dataclass(slots=True)
class Checked:
    """``tries``: all checks.  ``times``: those that count.  ``seen``: what stood at ``seen_s``, and may be deleted.
    ``untold``: the nodes of deletes that were sent, whose agents do not know of them."""

    tries: int = 0
    times: int = 0
    last_s: float = float("-inf")
    again_s: float = AGAIN_S  # after the last one
    seen: ConsumerAllocations | None = None
    seen_s: float = 0.0
    untold: Sequence[str] = ()

    def begin(self) -> None:
        """A check begins."""
        self.tries += 1
        self.again_s = AGAIN_S

    def stood(self, standing: ConsumerAllocations, now: float) -> bool:
        """Whether the allocations have stood for ``LAG_S``."""
        if self.seen is None or not is_same(self.seen, standing):
            self.seen, self.seen_s = standing, now
        self.again_s = LAG_S - (now - self.seen_s)
        return self.again_s <= 0

    def is_due(self, now: float) -> bool:
        """Whether the next check is due."""
        return self.times < CHECKS and now - self.last_s >= self.again_s


class OrphanSearch(Generic[Cell]):
    """What one scheduler knows of its checks."""

    def __init__(self) -> None:
        self._checked: dict[Suspect[Cell], Checked] = {}
        self._places: Mapping[Suspect[Cell], int] = {}

    def list(self, places: Mapping[Suspect[Cell], int], is_away: Callable[[Suspect[Cell]], bool]) -> None:
        """These are the suspects now, each with its position in its source, the oldest first.  Others are forgotten,
        unless their source is away."""
        known, self._places = self._checked, places
        self._checked = {suspect: checked for suspect, checked in known.items() if is_away(suspect)}
        self._checked |= {suspect: known.get(suspect, Checked()) for suspect in places}

    def buried(self) -> Sequence[Suspect[Cell]]:
        """The suspects in cell 0 that were listed last."""
        return [suspect for suspect in self._checked if suspect.cell is None]

    def of(self, suspect: Suspect[Cell]) -> Checked:
        """The checks of a suspect."""
        return self._checked[suspect]

    def due(self, now: float, share: Share, has_turn: Callable[[Suspect[Cell]], bool]) -> Sequence[Suspect[Cell]]:
        """The suspects that this sweep checks, in their order."""
        due = [suspect for suspect in self._places if self._checked[suspect].is_due(now) and has_turn(suspect)]
        due.sort(key=self._order)
        ranks: dict[int, list[Suspect[Cell]]] = {}
        for suspect in due:
            ranks.setdefault(_rank(suspect, share), []).append(suspect)
        return [suspect for rank in sorted(ranks) for suspect in self._mixed(ranks[rank])][:CHECKS_A_SWEEP]

    def _mixed(self, due: Sequence[Suspect[Cell]]) -> Sequence[Suspect[Cell]]:
        """First and repeated checks alternate."""
        first = [suspect for suspect in due if not self._checked[suspect].tries]
        again = [suspect for suspect in due if self._checked[suspect].tries]
        return _alternately(first, again)

    def _order(self, suspect: Suspect[Cell]) -> tuple[int, int]:
        return self._checked[suspect].tries, self._places[suspect]


def _rank(suspect: Suspect[Cell], share: Share) -> int:
    """How many others are to check a suspect before this scheduler; none a shelved server in its turn."""
    return 0 if suspect.cell is not None else share.rank(suspect.server)


def _alternately(first: Sequence[Suspect[Cell]], again: Sequence[Suspect[Cell]]) -> Sequence[Suspect[Cell]]:
    """One of each, so that however few are checked in a sweep, half of them are first checks."""
    return [suspect for _, suspect in sorted([*enumerate(first), *enumerate(again)], key=itemgetter(0))]

# SPDX-License-Identifier: Apache-2.0
"""When to read Placement: at most one read of a kind in flight, now, later, or again after a failure.

===========  =========================  ==============================================
state        event                      next
===========  =========================  ==============================================
resting      ask(at)                    resting, due at the earlier of both
resting      due                        reading
reading      ask(at)                    reading, due again at ``at`` once it is finished
reading      finished                   resting, due when asked meanwhile, else at the poll
reading      failed                     resting, due after a full-jitter wait
resting      new times                  resting, due no later than the poll they say
===========  =========================  ==============================================
"""

from __future__ import annotations

import random
from collections.abc import Container
from dataclasses import dataclass

from compute_agent.settings import MAX_WATCHED_CONSUMERS, Settings

#: The poll is spread by this part of the interval to both sides.
POLL_SPREAD = 0.2


class Lookout:
    """The plan for one kind of read."""

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self.settings = settings
        self._rng = rng
        self._due_s: float | None = None
        self._not_before_s = float("-inf")
        self._reading = False
        self._failures = 0

    def reconfigure(self, settings: Settings, now: float) -> None:
        """New times; the next read is due no later than they say."""
        self.settings = settings
        if not self._reading:  # else it is planned once that is finished
            self._plan(now)

    def ask(self, at_s: float) -> None:
        """Have it read no later than ``at_s``; a read that is in flight does not count."""
        at_s = max(at_s, self._not_before_s)
        self._due_s = at_s if self._due_s is None else min(self._due_s, at_s)

    @property
    def reading(self) -> bool:
        return self._reading

    def due_s(self) -> float | None:
        return None if self._reading else self._due_s

    def is_due(self, now: float) -> bool:
        """Whether a read is to begin by now."""
        due_s = self.due_s()
        return due_s is not None and due_s <= now

    def begin(self, now: float) -> bool:
        """True if a read is to begin now."""
        if not self.is_due(now):
            return False
        self._reading, self._due_s = True, None
        return True

    def finished(self, now: float) -> None:
        self._reading, self._failures = False, 0
        self._plan(now)

    def _plan(self, now: float) -> None:
        spread = self._rng.uniform(1 - POLL_SPREAD, 1 + POLL_SPREAD)
        self.ask(now + self.settings.placement_poll_s * spread)

    def failed(self, now: float) -> None:
        """Whatever was asked meanwhile waits as well: nothing is gained by asking a dead service."""
        self._reading, self._failures = False, self._failures + 1
        most = min(
            self.settings.retry_most_s, self.settings.retry_first_s * 2 ** min(self._failures, 16)
        )
        self._due_s = self._not_before_s = now + self._rng.uniform(0, most)


@dataclass(frozen=True, slots=True)
class _Look:
    """When a consumer is looked at next, and how long that is after the last time."""

    due_s: float
    wait_s: float


class Watch:
    """Consumers whose allocation should go from Placement soon.

    Those that left the tracker: nova-compute frees its own numbers first and deletes the allocation some
    100 ms later.  And those that nothing on the node explains: a live migration holds its source in its
    own name until it has ended elsewhere.  Both stay counted until a read shows them gone.  Looks
    are 50, 100, 200 ... ms apart for some minutes, and then left to the poll.  A read that comes earlier,
    for somebody else, is no look: it may only show that a consumer is gone.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._looks: dict[str, _Look] = {}

    def add(self, consumer: str, now: float) -> float | None:
        """Watch a consumer; returns when to look, None where there is no room to watch more."""
        if consumer not in self._looks and len(self._looks) >= MAX_WATCHED_CONSUMERS:
            return None
        first_s = self.settings.first_look_s
        self._looks[consumer] = _Look(now + first_s, first_s)
        return now + first_s

    def read(self, held: Container[str], now: float) -> float | None:
        """A read is in: ``held`` still have allocations.  Returns when to look again, if at all."""
        held_still = {key: look for key, look in self._looks.items() if key in held}
        after = {key: _after(look, now) for key, look in held_still.items()}
        most_s = self.settings.last_look_s
        self._looks = {key: look for key, look in after.items() if look.wait_s <= most_s}
        return min((look.due_s for look in self._looks.values()), default=None)


def _after(look: _Look, now: float) -> _Look:
    """What follows a read at ``now``: twice the wait, if it was this one's time."""
    return look if now < look.due_s else _Look(now + look.wait_s * 2, look.wait_s * 2)

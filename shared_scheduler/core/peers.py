# SPDX-License-Identifier: Apache-2.0
"""The live schedulers of each cell, so that each scheduler prefers its own slice of the hosts.

Every scheduler broadcasts a Hello on the channel of each cell every ``hello_interval_s``.  A scheduler without a
Hello for three intervals counts as gone.  A Hello with a *want* comes from a new scheduler: it is answered with our
own Hello at once (at most once per second and cell), so that the new scheduler knows the others before its first
decision.

Names are the addresses of the schedulers in the cell, because slices are per cell.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.core.effects import Broadcast
from shared_scheduler.core.scheduler_settings import Identity, SchedulerSettings
from shared_scheduler.core.step import Fact, Step, Timers
from shared_scheduler.protocol.messages import Hello, Role, Want

#: a Hello keeps its sender alive for this many intervals
INTERVALS_ALIVE = 3
#: schedulers remembered per cell; more than any cloud runs, and a bound on what forged Hellos can fill
SCHEDULERS_MAX = 256
#: pause between two Hellos that answer new schedulers
ANSWER_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class SchedulersChanged(Fact):
    """The set of live schedulers of a cell has changed; ``names`` are sorted."""

    cell: str
    names: tuple[str, ...]


class Peers:
    """The live schedulers of each cell, this one included.

    Whenever a cell's set changes, the fact ``SchedulersChanged`` is reported.
    """

    def __init__(
        self,
        identity: Identity,
        settings: SchedulerSettings,
        timers: Timers,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._timers = timers
        self._heard_s: dict[str, dict[str, float]] = {}
        self._releases: dict[str, dict[str, str]] = {}
        self._reported: dict[str, tuple[str, ...]] = {}
        self._sent_s: dict[str, float] = {}

    def live(self, cell: str) -> tuple[str, ...]:
        """Sorted names of the live schedulers of ``cell``, our own among them."""
        own = self._identity.address(cell)
        return tuple(sorted({own, *self._heard_s.get(cell, ())}))

    def releases(self) -> dict[str, str]:
        """Address -> release of the other live schedulers, of all cells; empty for one that does not report it."""
        return {name: told for heard in self._releases.values() for name, told in heard.items()}

    def connected(self, step: Step, cell: str, want: Want, nodes: int) -> int:
        """Send our Hello when the channel of ``cell`` is connected; ``want`` is what its agents shall send.

        Returns the time over which the agents spread their answers, in milliseconds.
        """
        spread_ms = self._settings.spread_ms_per_1000_nodes * nodes // 1000
        self._send_hello(step, cell, want, spread_ms)
        return spread_ms

    def disconnected(self, cell: str) -> None:
        """Stop sending Hellos when the channel of ``cell`` is lost."""
        self._timers.cancel(("hello", cell))

    def heard(self, step: Step, cell: str, hello: Hello) -> None:
        """Handle the Hello of another scheduler."""
        if hello.sender == self._identity.address(cell):
            return
        peers = self._heard_s.setdefault(cell, {})
        if hello.sender in peers or len(peers) < SCHEDULERS_MAX:
            peers[hello.sender] = step.now
            self._releases.setdefault(cell, {})[hello.sender] = hello.release
        self._report_if_changed(step, cell)
        quiet_s = step.now - self._sent_s.get(cell, float("-inf"))
        if hello.want != Want.NOTHING and quiet_s >= ANSWER_PAUSE_S:
            self._send_hello(step, cell, Want.NOTHING, 0)

    def on_timer(self, step: Step, cell: str) -> None:
        """Send the next Hello, and remove schedulers that have gone."""
        alive_s = INTERVALS_ALIVE * self._settings.hello_interval_s
        peers = self._heard_s.get(cell, {})
        for name in [name for name, at_s in peers.items() if step.now - at_s > alive_s]:
            del peers[name], self._releases[cell][name]
        self._report_if_changed(step, cell)
        self._send_hello(step, cell, Want.NOTHING, 0)

    def _send_hello(self, step: Step, cell: str, want: Want, spread_ms: int) -> None:
        sender = self._identity.address(cell)
        epoch = self._identity.epoch
        hello = Hello(Role.SCHEDULER, sender, epoch, "", "", want, spread_ms, self._identity.release)
        step.emit(Broadcast(cell, hello, cause=step.cause))
        self._sent_s[cell] = step.now
        self._timers.set(("hello", cell), step.now + self._settings.hello_interval_s)
        self._report_if_changed(step, cell)

    def _report_if_changed(self, step: Step, cell: str) -> None:
        names = self.live(cell)
        if self._reported.get(cell) != names:
            self._reported[cell] = names
            step.report(SchedulersChanged(cell, names))

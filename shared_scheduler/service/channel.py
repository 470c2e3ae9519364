# SPDX-License-Identifier: Apache-2.0
"""One message queue's state channel as the core sees it: messages instead of bytes.

Agents do not know their cell.  Where a queue is one cell's alone, what comes from it is that cell's;
where several cells share it, a node's cell is that of its row, and who has none yet is not heard until
the databases told of it.

A body that is malformed, oversized or not signed as configured is dropped before anything of it is
used, counted by kind, and logged once per kind and interval.  What is taken although it is not well
signed is counted too, and logged once per sender and interval.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from shared_scheduler.core.events import ChannelChanged, Event, MessagesArrived
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.errors import RemoteProtocolError, UnsendableMessage
from shared_scheduler.protocol.messages import (
    Beat,
    Claim,
    Goodbye,
    Hello,
    Increment,
    Message,
    Release,
    Resync,
    Role,
    Snapshot,
    Verdict,
    is_for_agents,
)
from shared_scheduler.protocol.signing import Signer
from shared_scheduler.transport.bus import Endpoint
from shared_scheduler.transport.complaints import Complaints, sender_of

LOG = logging.getLogger(__name__)

#: Messages given to the core at once: bounds how long it is busy with one event, and so how long a
#: decision waits in a burst (``tools/benchmark-decision`` measures a slice: some 25 us a message).
MESSAGES_PER_EVENT_MAX = 32

#: names of the counters of what arrives
RECEIVED: Mapping[type[Message], str] = {
    kind: f"received_{kind.__name__.lower()}"
    for kind in (Beat, Claim, Goodbye, Hello, Increment, Release, Resync, Snapshot, Verdict)
}


class Channel:
    """Owns the endpoint.  ``handle`` takes the events."""

    def __init__(
        self,
        cell: str,
        endpoint: Endpoint,
        handle: Callable[[Event], None],
        signer: Signer | None = None,
        clock: Callable[[], float] = time.monotonic,
        cell_of: Callable[[str], str | None] | None = None,
    ) -> None:
        """``cell_of``: the cell of a node by its row; without it, all is said to be ``cell``'s."""
        self.cell = cell
        self.cells: tuple[str, ...] = (cell,)
        self.exclusive = True
        self._cell_of = cell_of
        self.counters: Counter[str] = Counter()
        self.connected = False
        self._endpoint = endpoint
        self._handle = handle
        self._signer = signer or Signer()
        self._complaints = Complaints(LOG, f"Cell {cell}: ", clock)

    @property
    def address(self) -> str:
        """Where agents send what is for this scheduler."""
        return self._endpoint.address

    def start(self) -> None:
        """Connect in the background."""
        self._endpoint.start(self._receive, self._changed)

    def share(self, cell: str) -> None:
        """One more cell uses this queue."""
        self.exclusive = False
        self.cells = (*self.cells, cell)

    def leave(self, cell: str) -> bool:
        """A cell is no more; whether nobody uses this queue now."""
        self.cells = tuple(each for each in self.cells if each != cell)
        if self.connected:  # the core must not go on saying Hello there
            self._handle(ChannelChanged(cell, False))
        return not self.cells

    def announce(self, cell: str) -> None:
        """Tell the core of a cell that joined after the connection was made."""
        if self.connected:
            self._handle(ChannelChanged(cell, True))

    def cast(self, address: str, message: Message) -> None:
        """Send to one endpoint.  Never blocks; what does not fit is dropped and counted."""
        body = self._encoded(message)
        if body is not None and not self._endpoint.cast(address, body):
            self.counters["outbox_full"] += 1

    def broadcast(self, message: Message) -> None:
        """Send to all other schedulers of the cell, and to all agents where they have to do something."""
        for_agents = is_for_agents(message)
        send = self._endpoint.broadcast if for_agents else self._endpoint.tell_schedulers
        body = self._encoded(message)
        if body is not None and not send(body):
            self.counters["outbox_full"] += 1

    def close(self) -> None:
        """Flush and stop."""
        self._endpoint.close()

    def _encoded(self, message: Message) -> bytes | None:
        try:
            return self._signer.seal(codec.encode(message))
        except UnsendableMessage as error:
            self._note("unsendable", f"not sent: {error}")
            return None

    def _receive(self, bodies: Sequence[bytes]) -> None:
        messages = [message for body in bodies if (message := self._decoded(body)) is not None]
        for message in messages:
            self.counters[RECEIVED[type(message)]] += 1
        for cell, own in self._by_cell(messages).items():
            for start in range(0, len(own), MESSAGES_PER_EVENT_MAX):
                part = own[start : start + MESSAGES_PER_EVENT_MAX]
                self._handle(MessagesArrived(cell, tuple(part)))

    def _by_cell(self, messages: list[Message]) -> dict[str, list[Message]]:
        """Which cell is told what; the order of one node's messages stays."""
        if self.exclusive or self._cell_of is None:
            return {self.cell: messages}
        found: dict[str, list[Message]] = {}
        for message in messages:
            for cell in self._cells_of(message):
                found.setdefault(cell, []).append(message)
        return found

    def _cells_of(self, message: Message) -> tuple[str, ...]:
        if isinstance(message, Hello) and message.role is Role.SCHEDULER:
            return self.cells  # slices are per cell
        assert self._cell_of is not None
        cell = self._cell_of(message.node)
        if cell is None:
            self.counters["cell_of_node_unknown"] += 1
            return ()
        return (cell,)

    def _decoded(self, body: bytes) -> Message | None:
        tolerated = self._signer.tolerated
        try:
            message = codec.decode(self._signer.open(body))
        except RemoteProtocolError as error:
            self.counters["messages_rejected"] += 1
            self._note(type(error).__name__, f"dropped: {error}")
            return None
        if self._signer.tolerated > tolerated:
            self._note("tolerated", "not well signed, taken because of signing = warn", sender_of(message))
        return message

    def _changed(self, connected: bool) -> None:
        self.connected = connected
        LOG.info("State channel of cell %s is %s", self.cell, "up" if connected else "down")
        for cell in self.cells:
            self._handle(ChannelChanged(cell, connected))

    def _note(self, kind: str, what: str, sender: str = "") -> None:
        self.counters[kind] += 1
        self._complaints.say(kind, sender, self.counters[kind], what)

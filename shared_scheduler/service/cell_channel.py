# SPDX-License-Identifier: Apache-2.0
"""The state channel of one message queue as the scheduler's core sees it: events of cells.

Agents do not know their cell.  Where a message queue belongs to one cell, all that comes from it is of that
cell.  Where several cells share it, the row of a node tells its cell, and messages of a node without a row are
dropped until the databases have shown the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shared_scheduler.core.events import ChannelChanged, Event, MessagesArrived
from shared_scheduler.protocol.messages import Hello, Message, Role
from shared_scheduler.transport.channel import Channel

#: Messages given to the core at once: bounds how long it is busy with one event, and so how long a
#: decision waits in a burst (``tools/lab decide`` measures a slice: some 25 us a message).
MESSAGES_PER_EVENT_MAX = 32


class CellChannel:
    """Turns what ``channel`` receives into events, and gives them to ``handle``."""

    def __init__(
        self,
        cell: str,
        channel: Channel,
        handle: Callable[[Event], None],
        cell_of: Callable[[str], str | None] | None = None,
    ) -> None:
        """``cell_of``: the cell of a node by its row; without it, everything is of ``cell``."""
        self.cell = cell
        self.cells: tuple[str, ...] = (cell,)
        self.exclusive = True
        self.channel = channel
        self._handle = handle
        self._cell_of = cell_of

    def start(self) -> None:
        """Connect in the background."""
        self.channel.start(self._received, self._connection_changed)

    def add_cell(self, cell: str) -> None:
        """One more cell uses this queue."""
        self.exclusive = False
        self.cells = (*self.cells, cell)

    def remove_cell(self, cell: str) -> bool:
        """A cell does not use this queue any more; True if no cell does."""
        self.cells = tuple(each for each in self.cells if each != cell)
        if self.channel.connected:  # the core must not go on saying Hello there
            self._handle(ChannelChanged(cell, False))
        return not self.cells

    def announce_cell(self, cell: str) -> None:
        """Tell the core that a cell which was added after the connection was made is connected."""
        if self.channel.connected:
            self._handle(ChannelChanged(cell, True))

    def _received(self, messages: Sequence[Message]) -> None:
        for cell, own in self._by_cell(messages).items():
            for start in range(0, len(own), MESSAGES_PER_EVENT_MAX):
                part = own[start : start + MESSAGES_PER_EVENT_MAX]
                self._handle(MessagesArrived(cell, tuple(part)))

    def _by_cell(self, messages: Sequence[Message]) -> dict[str, Sequence[Message]]:
        """The messages of each cell; those of one node stay in order."""
        if self.exclusive or self._cell_of is None:
            return {self.cell: messages}
        found: dict[str, list[Message]] = {}
        for message in messages:
            for cell in self._cells_of(message):
                found.setdefault(cell, []).append(message)
        return dict(found)

    def _cells_of(self, message: Message) -> tuple[str, ...]:
        if isinstance(message, Hello) and message.role is Role.SCHEDULER:
            return self.cells  # slices are per cell
        assert self._cell_of is not None
        cell = self._cell_of(message.node)
        if cell is None:
            self.channel.counters["cell_of_node_unknown"] += 1
            return ()
        return (cell,)

    def _connection_changed(self, connected: bool) -> None:
        for cell in self.cells:
            self._handle(ChannelChanged(cell, connected))

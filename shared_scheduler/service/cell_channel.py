# SPDX-License-Identifier: Apache-2.0
"""The state channel of one message queue: converts its messages to events of cells.

Agents do not know their cell.  If a message queue belongs to one cell, all its messages are of that cell.  If several
cells share it, the row of a node determines its cell, and messages of a node without a row are dropped until the
databases have shown the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shared_scheduler.core.events import CastReturned, ChannelChanged, Event, MessagesArrived
from shared_scheduler.protocol.messages import Hello, Message, Role
from shared_scheduler.transport.channel import Channel

#: The maximum number of messages in one event: bounds how long the core is busy with one event, and so how long a
#: decision waits during a burst (``tools/lab decide`` measures such a slice: about 25 us for each message).
MESSAGES_PER_EVENT_MAX = 32


class CellChannel:
    """Converts what ``channel`` receives to events, and passes them to ``handle``."""

    def __init__(
        self,
        cell: str,
        channel: Channel,
        handle: Callable[[Event], None],
        cell_of: Callable[[str], str | None] | None = None,
        name: str = "",
    ) -> None:
        """``cell_of``: returns the cell of a node by its row; without it, all messages are of ``cell``.  ``name``: what
        operators call ``cell``.
        """
        self.cell = cell
        self.name = name
        self.cells: tuple[str, ...] = (cell,)
        self.exclusive = True
        self.channel = channel
        self._handle = handle
        self._cell_of = cell_of

    def start(self) -> None:
        """Connect in the background."""
        self.channel.start(self._received, self._connection_changed, self._returned)

    def add_cell(self, cell: str) -> None:
        """Add a cell that uses this queue."""
        self.exclusive = False
        self.cells = (*self.cells, cell)

    def remove_cell(self, cell: str) -> bool:
        """Remove a cell that does not use this queue any more; True if no cell is left."""
        self.cells = tuple(each for each in self.cells if each != cell)
        if self.channel.connected:  # otherwise the core would continue to send Hello to it
            self._handle(ChannelChanged(cell, False))
        return not self.cells

    def announce_cell(self, cell: str) -> None:
        """Report to the core that a cell which was added after the connection was made is connected."""
        if self.channel.connected:
            self._handle(ChannelChanged(cell, True))

    def _received(self, messages: Sequence[Message]) -> None:
        has_more = self.channel.has_more
        none: dict[str, Sequence[Message]] = dict.fromkeys(self.cells, ()) if has_more else {}
        for cell, own in (none | self._by_cell(messages)).items():  # messages of each cell may be among those that wait
            for start in range(0, max(1, len(own)), MESSAGES_PER_EVENT_MAX):
                end = start + MESSAGES_PER_EVENT_MAX
                self._handle(MessagesArrived(cell, tuple(own[start:end]), has_more or end < len(own)))

    def _returned(self, message: Message) -> None:
        for cell in self._by_cell([message]):
            self._handle(CastReturned(cell, message))

    def _by_cell(self, messages: Sequence[Message]) -> dict[str, Sequence[Message]]:
        """The messages of each cell; those of one node keep their order."""
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

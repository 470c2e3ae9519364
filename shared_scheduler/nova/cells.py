# SPDX-License-Identifier: Apache-2.0
"""State channels: one for each message queue that the cells use.

An agent knows its nova.conf but no cell uuids, so all channels have one name, and broker and virtual host separate
them; Nova needs one virtual host for each cell in any case.  The core knows cells by uuid.  A cell without RabbitMQ
(``fake:/`` in tests, ``none:/`` of cell 0) has no channel: its nodes are read from the databases and Placement.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import nova.conf

from shared_scheduler.protocol.host_keys import AgentKeys, HostKeysMode, MasterKeys
from shared_scheduler.protocol.signing import Keyring, Signer, Signing
from shared_scheduler.service.cell_channel import CellChannel
from shared_scheduler.sync.databases import CELL0, Cell
from shared_scheduler.transport.bus import CHANNEL_NAME, Bus, Endpoint
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.key_options import configured_host_keys, configured_keys, new_host_keys
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import TransportUrlError, names_rabbit, parse_transport_url, rabbit_options

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)


class SigningKeys(NamedTuple):
    """What ``Signer.replace`` and ``HostKeys.replace`` take."""

    signing: tuple[Signing, Keyring | None]
    host_keys: tuple[HostKeysMode, AgentKeys | MasterKeys | None]


class Channels:
    """Opens and closes the channels of cells; cells with the same queue share one."""

    def __init__(
        self,
        name: str,
        handle: Callable[[Any], None],
        cell_of: Callable[[str], str | None] | None = None,
        host_of: Callable[[str], str] | None = None,
    ) -> None:
        """``name``: the name of this scheduler for operators; ``cell_of``: see ``CellChannel``; ``host_of``: see
        ``Channel``."""
        self._name = name
        self._handle = handle
        self._cell_of = cell_of
        self._host_of = host_of
        self._by_queue: dict[str, CellChannel] = {}
        self._urls: dict[str, str] = {}  # of cells that have a channel
        self.by_cell: dict[str, CellChannel] = {}
        #: address of this scheduler in each cell, read by the core
        self.addresses: dict[str, str] = {}
        self.signer = Signer()
        self.host_keys = new_host_keys()

    def open(self, cells: Iterable[Cell]) -> list[CellChannel]:
        """The new channels (not started); ``by_cell`` has those of all cells.

        Cells that moved to another message queue leave their previous channel.
        """
        opened = []
        wanted = [cell for cell in cells if cell.uuid != CELL0]
        self._leave_moved(wanted)
        new = [cell for cell in wanted if cell.uuid not in self.by_cell]
        for cell in sorted(new, key=lambda one: one.disabled):
            shared = self._by_queue.get(queue_of(cell.transport_url))
            if cell.disabled:
                if shared is not None:  # its agents are received too, and are not the other cell's
                    shared.exclusive = False
                continue
            channel = self._shared(cell, shared) if shared is not None else self._new(cell)
            if channel is not None:
                self.by_cell[cell.uuid] = channel
                self._urls[cell.uuid] = cell.transport_url
                self.addresses[cell.uuid] = channel.channel.address
                if shared is None:
                    opened.append(channel)
        return opened

    def _leave_moved(self, cells: Iterable[Cell]) -> None:
        for cell in cells:
            if self._urls.get(cell.uuid, cell.transport_url) != cell.transport_url:
                LOG.info("Cell %s has moved to another message queue", cell.name or cell.uuid)
                self.close(cell.uuid)

    def close(self, cell: str) -> None:
        """A cell was removed; its channel ends with the last cell that uses it."""
        channel = self.by_cell.pop(cell, None)
        self.addresses.pop(cell, None)
        self._urls.pop(cell, None)
        if channel is not None and channel.remove_cell(cell):
            self._by_queue = {queue: one for queue, one in self._by_queue.items() if one is not channel}
            channel.channel.close()

    def _shared(self, cell: Cell, channel: CellChannel) -> CellChannel:
        LOG.info("Cell %s shares the message queue of cell %s", cell.name or cell.uuid, channel.cell)
        channel.add_cell(cell.uuid)
        return channel

    def _new(self, cell: Cell) -> CellChannel | None:
        endpoint = self._endpoint(cell)
        if endpoint is None:
            return None
        name = f"State channel of cell {cell.name or cell.uuid}"
        own = Channel(endpoint, self.signer, name, host_keys=self.host_keys)
        if self._host_of is not None:
            own.host_of = self._host_of
        channel = CellChannel(cell.uuid, own, self._handle, self._cell_of, cell.name or "")
        self._by_queue[queue_of(cell.transport_url)] = channel
        return channel

    def load_keys(self) -> None:
        """Apply the options of signing and of host keys.

        :raises KeyringError: when the keys cannot be used
        """
        self.use_keys(self.read_keys())

    def use_keys(self, found: SigningKeys) -> None:
        """Sign and verify with these from now on."""
        self.signer.replace(*found.signing)
        self.host_keys.replace(*found.host_keys)

    @staticmethod
    def read_keys() -> SigningKeys:
        """The modes and keys of the options.

        :raises KeyringError: when the keys cannot be used
        """
        options, group = CONF.shared_scheduler, "shared_scheduler"
        return SigningKeys(configured_keys(options, group), configured_host_keys(options, group))

    def _endpoint(self, cell: Cell) -> Endpoint | None:
        try:
            bus = open_bus(cell.transport_url or "")
        except TransportUrlError as error:
            LOG.error("Cell %s has no state channel: %s", cell.name or cell.uuid, error)
            return None
        if bus is None:
            LOG.info("Cell %s has no RabbitMQ, so no state channel", cell.name or cell.uuid)
            return None
        return bus.scheduler_endpoint(self._name)


def queue_of(url: str | None) -> str:
    """The identity of a message queue, independent of user and spelling: brokers and virtual host."""
    try:
        known = parse_transport_url(url or "")
    except TransportUrlError:
        return url or ""
    return f"{sorted(map(str, known.hosts))}{known.virtual_host}"


def open_bus(url: str) -> Bus | None:
    """The state channel of a message queue; None if its URL does not name RabbitMQ.

    :raises TransportUrlError: when the URL names RabbitMQ and cannot be used
    """
    if not names_rabbit(url):
        return None
    return KombuBus(parse_transport_url(url, rabbit_options(CONF)), CHANNEL_NAME)

# SPDX-License-Identifier: Apache-2.0
"""A message names a host or scheduler whose address has more than 255 bytes, or is a queue of another service.

An answer to the former stopped everything that the process sends (``tests/functional/test_long_addresses.py`` has the
real broker); an answer to the latter arrives at, for example, nova-conductor."""

from __future__ import annotations

import pytest

from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.errors import RemoteProtocolError, UnsendableMessage
from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, MasterKeys
from shared_scheduler.protocol.messages import Heartbeat, Message, Resync, Verdict, agent_address
from shared_scheduler.protocol.signing import parse_keyring
from shared_scheduler.transport.channel import Channel
from tests.unit.service.test_cell_channel import Wire

LONG = ("h" * 255, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 122)
#: as long as AMQP allows
LONGEST = "h" * (255 - len(agent_address("")))


@pytest.mark.parametrize("host", LONG, ids=["ascii", "unicode"])
def test_it_is_not_a_message(host: str) -> None:
    with pytest.raises((UnsendableMessage, RemoteProtocolError)):
        decode(encode(Heartbeat("node-1", 1, 1, host, 0)))


def test_the_longest_address_is_one() -> None:
    message = Heartbeat("node-1", 1, 1, LONGEST, 0)

    assert decode(encode(message)) == message


@pytest.mark.parametrize("address", [agent_address(host) for host in LONG] + ["conductor", "", "amq.gen-1"])
@pytest.mark.parametrize("mode", [HostKeysMode.OFF, HostKeysMode.REQUIRE])
def test_nothing_is_sent_there(address: str, mode: HostKeysMode) -> None:
    """Hosts in a database may have such names too."""
    wire, messages = Wire(), list[Message]([Verdict("claim-1", "node-1", 1, True), Resync("node-1", "ssched.s", 1, 1)])
    channel = Channel(wire, host_keys=HostKeys(mode, MasterKeys(parse_keyring(f"one:{bytes(32).hex()}"))))

    for message in messages:
        channel.cast(address, message)

    assert wire.sent == []
    assert channel.counters["unsendable"] == len(messages)

# SPDX-License-Identifier: Apache-2.0
"""While keys are distributed (``host_keys = accept``), a sender without a key invents names, each of which is worth a
line of the log, so that the line about a compromised host is beyond the bound of lines."""

from __future__ import annotations

import logging

import pytest

from shared_scheduler.protocol.codec import encode
from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, Kind, MasterKeys
from shared_scheduler.protocol.messages import Heartbeat
from shared_scheduler.protocol.signing import parse_keyring
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.rate_limited_log import LINES_PER_INTERVAL_MAX
from tests.unit.attacks.test_one_host_speaks_for_another import EVIL, MASTER, VICTIM, keys_of
from tests.unit.service.test_cell_channel import Wire


def test_the_compromised_host_is_named(caplog: pytest.LogCaptureFixture) -> None:
    wire, keys = Wire(), MasterKeys(parse_keyring(f"one:{MASTER.hex()}"))
    channel = Channel(wire, clock=lambda: 1.0, host_keys=HostKeys(HostKeysMode.ACCEPT, keys))
    channel.start(lambda messages: None, lambda connected: None)

    with caplog.at_level(logging.WARNING):
        for number in range(10 * LINES_PER_INTERVAL_MAX):
            wire.receive([encode(Heartbeat(f"node-{number}", 1, 1, f"host-{number}", 0))])
        wire.receive([keys_of(EVIL).seal(Kind.AGENT, encode(Heartbeat("node-victim", 1, 1, VICTIM, 0)))])

    assert f"host {EVIL} has sent a Heartbeat" in caplog.text
    assert len(caplog.records) <= LINES_PER_INTERVAL_MAX + 1

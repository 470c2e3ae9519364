# SPDX-License-Identifier: Apache-2.0
"""A captured Hello of 93 bytes is repeated ten times a second: each agent must not send ten snapshots a second."""

from __future__ import annotations

import pytest

from compute_agent.effects import Cast
from shared_scheduler.protocol.messages import Hello, Role, Snapshot, Want
from tests.unit.compute_agent.core_node import SCHEDULER, Node, said

FOR_S = 20


@pytest.mark.parametrize("senders", [1, 3])
def test_the_snapshots_are_few(senders: int) -> None:
    node = Node()
    node.start()
    sent = 0

    for tick in range(FOR_S * 10):
        sender = f"{SCHEDULER}{tick % senders}"
        effects = node.send(Hello(Role.SCHEDULER, sender, 1, want=Want.SNAPSHOT)) + node.pass_s(0.1)
        sent += len(said(effects, Snapshot))

    assert 2 <= sent <= FOR_S / 5 * senders + 2


def test_a_new_scheduler_is_answered_soon() -> None:
    node = Node()
    node.start()
    node.pass_s(10.0)

    effects = node.send(Hello(Role.SCHEDULER, SCHEDULER, 1, want=Want.SNAPSHOT)) + node.pass_s(0.1)

    casts = [one for one in effects if isinstance(one, Cast)]
    assert [one.address for one in casts if isinstance(one.message, Snapshot)] == [SCHEDULER]

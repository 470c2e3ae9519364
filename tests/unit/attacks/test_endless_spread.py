# SPDX-License-Identifier: Apache-2.0
"""Hellos that want their answers in a million years fill the places of those that wait for one."""

from __future__ import annotations

from compute_agent.agent_settings import MAX_WAITING_SCHEDULERS
from compute_agent.publisher import SPREAD_MAX_S
from shared_scheduler.protocol.messages import Heartbeat, Hello, Role, Want
from tests.unit.compute_agent.core_node import Node, said


def test_their_places_are_free_again_soon() -> None:
    # given as many of them as an agent has places
    node = Node()
    node.start()
    for number in range(MAX_WAITING_SCHEDULERS):
        node.send(Hello(Role.SCHEDULER, f"evil-{number}", 1, want=Want.HEARTBEAT, spread_ms=2**63 - 1))

    # when the longest spread is over, and a scheduler says Hello
    node.pass_s(SPREAD_MAX_S)
    node.done.clear()
    node.send(Hello(Role.SCHEDULER, "ssched.scheduler.b", 1, want=Want.HEARTBEAT, spread_ms=0))
    node.pass_s(0.1)

    # then it is answered
    cast_to = [each.address for each in node.done if isinstance(getattr(each, "message", None), Heartbeat)
               and hasattr(each, "address")]  # fmt: skip
    assert "ssched.scheduler.b" in cast_to
    assert said(node.done, Heartbeat)

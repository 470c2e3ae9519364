# SPDX-License-Identifier: Apache-2.0
"""An agent without a tap reports that it is degraded, and works."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from shared_scheduler.model.leaves import PROVIDER
from shared_scheduler.protocol.messages import RefusalCode, Usage
from tests.functional import cloud_state
from tests.functional.listening_scheduler import ListeningScheduler
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.cloud_settings import SLOT_MB

HOST = "c1"
SLOTS = 2
#: for an hour nothing may happen, but a test does not want to wait 15 s for each thing that does
POLL_S = "3"
USAGE = Usage(1, SLOT_MB, 1, 1, 1)


@pytest.fixture(scope="module", autouse=True)
def without_tap(cloud: Cloud) -> None:
    agent = {"tap_enabled": "false", "fallback_after_s": "1", "conductor_poll_idle_s": POLL_S}
    cloud.up(
        scheduler="nova", schedulers=1, computes=1, agents="all", compute_slots=(SLOTS,), numa_cells=0, vfs=0,
        nova_options={**cloud_state.PATIENT, "compute_agent": agent},
    )  # fmt: skip
    cloud.reset()


@pytest.fixture
def listener(cloud: Cloud) -> Iterator[ListeningScheduler]:
    listening = ListeningScheduler(cloud.layout.transport_url(1)).start()
    listening.wait_ready(HOST)
    yield listening
    listening.close()
    cloud.reset()


def _memory_mb(listener: ListeningScheduler, node: str) -> Any:
    """The value in Placement, as the agent publishes it."""
    provider: Any = listener.rows[node].leaves.get(PROVIDER + node) or {"inventories": {}}
    return provider["inventories"].get("MEMORY_MB", [0])[0]


def test_a_boot_and_a_delete_are_seen_through_nova_conductor(cloud: Cloud, listener: ListeningScheduler) -> None:
    row, node = listener.rows[listener.node(HOST)], listener.node(HOST)
    assert row.leaves["agent.mode"] == "fallback"

    [server] = cloud.boot(1)
    cloud.wait_active([server])

    def seen() -> bool:
        here = row.consumers.get(server)
        counted = row.leaves["cn.memory_mb_used"] == row.used(node, "MEMORY_MB") == 400
        return counted and here is not None and here.member

    listener.wait(seen, "the server")

    cloud.delete([server])
    listener.wait(lambda: row.leaves["cn.memory_mb_used"] == 0 and server not in row.consumers, "the end of it")


def test_claims_are_judged_in_fallback_too(cloud: Cloud, listener: ListeningScheduler) -> None:
    node = listener.node(HOST)
    # A host that had another size a moment ago: its nova-compute writes the new one when it starts, which
    # the fallback sees at its next poll, long before the agent's own poll of Placement (60 s).
    listener.wait(lambda: _memory_mb(listener, node) == SLOTS * SLOT_MB, "the node to have its slots")
    asked = {node: {"VCPU": 1, "MEMORY_MB": 400, "DISK_GB": 1}}
    claims = [str(uuid.uuid4()) for _ in range(SLOTS + 1)]
    listener.wait(lambda: not listener.rows[node].consumers, "the node to be empty")

    verdicts = [listener.claim(HOST, key, asked, USAGE, claim_id=key) for key in claims]

    assert [one.accepted for one in verdicts] == [True] * SLOTS + [False]
    for key in claims:
        listener.release(HOST, key, key)
    listener.wait(lambda: not listener.rows[node].claims, "the releases")


def test_a_dead_nova_compute_is_noticed_by_its_service_record(cloud: Cloud, listener: ListeningScheduler) -> None:
    node = listener.node(HOST)
    row = listener.rows[node]

    cloud.kill(HOST)
    listener.wait(lambda: row.leaves["agent.ready"] is False, "the node not to be ready")
    verdict = listener.claim(HOST, str(uuid.uuid4()), {node: {"VCPU": 1}}, USAGE)
    assert verdict.reason is not None and verdict.reason.code == RefusalCode.NOT_AUTHORITATIVE

    cloud.start(HOST)
    listener.wait(lambda: row.leaves["agent.ready"] is True, "the node to be ready again")

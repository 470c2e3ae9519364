# SPDX-License-Identifier: Apache-2.0
"""A real, unpatched nova-compute and its agent: the messages that schedulers receive on the real bus."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from nova import objects

from shared_scheduler.model.topology import cpus_of
from shared_scheduler.novalib.topology import topology_text
from shared_scheduler.protocol.messages import Allocations, Heartbeat, Increment, Leave, RefusalCode, Snapshot, Usage
from tests.functional import cloud_state
from tests.functional.listening_scheduler import ListeningScheduler
from tools.laboratory.cloud.cloud import Cloud

HOST = "c1"
SLOTS = 3
#: Several audits between two heartbeats of a node that does not change, which are three times this apart.
AUDIT_S = 5
HEARTBEAT_S = 6
#: What the machine delays says nothing about the product: the best of so many deletes has to be in time.
DELETES_MAX = 4
USAGE = Usage(1, 400, 1, 1, 1)


@pytest.fixture(scope="module", autouse=True)
def two_computes(cloud: Cloud) -> None:
    options = {**cloud_state.PATIENT, "compute_agent": {"heartbeat_interval_s": str(HEARTBEAT_S)}}
    cloud.up(
        scheduler="nova", schedulers=1, computes=2, agents="all", compute_slots=(SLOTS,), numa_cells=2, vfs=4,
        update_resources_interval_s=AUDIT_S, nova_options=options,
    )  # fmt: skip
    cloud.reset()


@pytest.fixture
def listener(cloud: Cloud) -> Iterator[ListeningScheduler]:
    listening = ListeningScheduler(cloud.layout.transport_url(1)).start()
    listening.wait_ready(HOST)
    yield listening
    listening.close()
    cloud.reset()


def slot(node: str) -> Allocations:
    return {node: {"VCPU": 1, "MEMORY_MB": 400, "DISK_GB": 1}}


def boot_while_the_scheduler_waits(cloud: Cloud, host: str) -> str:
    """Boot a server whose uuid is known before it is placed; it goes to ``host`` when sched1 is thawed."""
    cloud.freeze("sched1")
    [server] = cloud.boot(1, availability_zone=f"nova:{host}")
    return server


def test_a_claim_is_taken_over_by_nova_compute_and_nothing_is_counted_twice(
    cloud: Cloud, listener: ListeningScheduler
) -> None:
    # given a claim that was accepted before nova-compute heard of the server
    server = boot_while_the_scheduler_waits(cloud, HOST)
    try:
        verdict = listener.claim(HOST, server, slot(listener.node(HOST)), USAGE)
        row = listener.rows[listener.node(HOST)]
        listener.wait(lambda: server in row.consumers, "the claim's increment")
        promised = dict(row.leaves)
    finally:
        cloud.thaw("sched1")

    # when the server is built there
    assert cloud.wait_active([server]) == {server: HOST}

    # then the claim has ended, and the numbers are what was promised
    listener.wait(lambda: not row.claims, "the end of the claim")
    assert verdict.accepted and promised["cn.memory_mb_used"] == 400
    for name in ("cn.vcpus_used", "cn.memory_mb_used", "cn.free_ram_mb", "cn.local_gb_used", "stats.num_instances"):
        assert row.leaves[name] == promised[name], name
    assert row.consumers[server].member
    assert row.consumers[server].allocations == slot(listener.node(HOST))
    listener.wait_verified(HOST)


def test_a_delete_is_published_within_a_second_of_placement(cloud: Cloud, listener: ListeningScheduler) -> None:
    took_s = [delete_and_wait_s(cloud, listener)]
    while min(took_s) > 1.0 and len(took_s) < DELETES_MAX:
        took_s.append(delete_and_wait_s(cloud, listener))

    assert min(took_s) <= 1.0, took_s


def delete_and_wait_s(cloud: Cloud, listener: ListeningScheduler) -> float:
    """Boot and delete a server.  Returns the time from Placement's record of that to the agent's message about it."""
    [server] = cloud.boot(1, availability_zone=f"nova:{HOST}")
    cloud.wait_active([server])
    row, node = listener.rows[listener.node(HOST)], listener.node(HOST)
    listener.wait(lambda: row.used(node, "MEMORY_MB") == 400, "the server's allocation")

    cloud.delete([server], wait=False)
    cloud.wait(lambda: not cloud.allocations(server), "Placement to have freed it")
    freed_s = time.monotonic()
    listener.wait(lambda: row.used(node, "MEMORY_MB") == 0, "the allocation to be gone")
    took_s = time.monotonic() - freed_s

    listener.wait(lambda: row.leaves["cn.memory_mb_used"] == 0 and server not in row.consumers, "the node to be free")
    return took_s


def test_the_node_takes_as_many_claims_as_it_has_room_and_frees_them(
    cloud: Cloud, listener: ListeningScheduler
) -> None:
    node = listener.node(HOST)
    claims = {f"claim-{index}-{uuid.uuid4().hex[:8]}": str(uuid.uuid4()) for index in range(SLOTS + 2)}

    verdicts = [listener.claim(HOST, consumer, slot(node), USAGE, claim_id=key) for key, consumer in claims.items()]

    assert [one.accepted for one in verdicts] == [True] * SLOTS + [False] * 2
    reason = verdicts[-1].reason
    assert reason is not None and reason.code == RefusalCode.NO_CAPACITY
    assert reason.detail["resource_class"] == "MEMORY_MB"
    for key, consumer in claims.items():
        listener.release(HOST, key, consumer)
    listener.wait(lambda: not listener.rows[node].consumers, "all claims to be released")
    assert listener.rows[node].leaves["cn.memory_mb_used"] == 0
    listener.wait_verified(HOST)


def test_pinned_cpus_are_judged_by_novas_own_fit_with_what_is_pending(
    cloud: Cloud, listener: ListeningScheduler
) -> None:
    # given cells of four dedicated CPUs
    objects.register_all()
    cell = objects.InstanceNUMACell(
        id=0, cpuset=set(), pcpuset={0, 1, 2}, memory=16, pagesize=None, cpu_policy="dedicated", cpu_pinning_raw=None
    )
    text = topology_text(objects.InstanceNUMATopology(cells=[cell]), None, [], None)
    node = listener.node(HOST)
    asked = {node: {"PCPU": 3, "MEMORY_MB": 16}}

    # when three guests of three pinned CPUs come: eight PCPUs are there, but no cell has three left
    claims = [f"pinned-{index}-{uuid.uuid4().hex[:8]}" for index in range(3)]
    verdicts = [listener.claim(HOST, key, asked, Usage(3, 16, 1, 1, 1), text, claim_id=key) for key in claims]

    # then two fit, and the table says which CPUs are taken
    assert [one.accepted for one in verdicts] == [True, True, False]
    row = listener.rows[node]
    listener.wait(lambda: len(row.claims) == 2, "both claims in the table")
    pinned = [len(cpus_of(str(row.leaves[f"numa.{index}"][2]))) for index in (0, 1)]  # type: ignore[index]
    assert pinned == [3, 3]
    for key in claims:
        listener.release(HOST, key, key)
    listener.wait(lambda: not row.claims, "the releases")
    assert row.leaves["numa.0"][2] == row.leaves["numa.1"][2] == "0"  # type: ignore[index]


def test_a_killed_agent_restarts_with_its_accepted_claims(cloud: Cloud, listener: ListeningScheduler) -> None:
    node = listener.node(HOST)
    before = listener.rows[node].epoch
    consumer = str(uuid.uuid4())
    verdict = listener.claim(HOST, consumer, slot(node), USAGE)
    assert verdict.accepted

    cloud.kill(f"agent-{HOST}")
    cloud.start(f"agent-{HOST}")

    listener.wait(
        lambda: listener.rows[node].epoch > before and listener.rows[node].leaves["agent.ready"], "the next life"
    )
    assert listener.rows[node].claims == {verdict.claim_id: consumer}
    assert listener.rows[node].leaves["cn.memory_mb_used"] == 400
    listener.release(HOST, verdict.claim_id, consumer)
    listener.wait(lambda: not listener.rows[node].claims, "the release")


def test_a_stopped_agent_leaves(cloud: Cloud, listener: ListeningScheduler) -> None:
    node = listener.node(HOST)
    since_s = time.monotonic()

    cloud.stop(f"agent-{HOST}")

    listener.wait(lambda: any(one.node == node for one in listener.said(Leave, since_s)), "a leave")
    cloud.start(f"agent-{HOST}")
    listener.wait(lambda: any(one.node == node for one in listener.said(Snapshot, since_s)), "the next life's snapshot")


def test_a_dead_nova_compute_makes_the_node_refuse_until_it_is_back(cloud: Cloud, listener: ListeningScheduler) -> None:
    node = listener.node(HOST)
    row = listener.rows[node]

    cloud.kill(HOST)
    listener.wait(lambda: row.leaves["agent.ready"] is False, "the node not to be ready")
    verdict = listener.claim(HOST, str(uuid.uuid4()), slot(node), USAGE)
    assert verdict.reason is not None and verdict.reason.code == RefusalCode.NOT_AUTHORITATIVE

    cloud.start(HOST)
    listener.wait(lambda: row.leaves["agent.ready"] is True, "the node to be ready again")
    listener.wait_verified(HOST)


def test_a_disabled_service_shows_in_the_tree_at_once(cloud: Cloud, listener: ListeningScheduler) -> None:
    node = listener.node(HOST)

    def disabled() -> bool:
        provider = listener.rows[node].leaves[f"rp.{node}"]
        return "COMPUTE_STATUS_DISABLED" in provider["traits"]  # type: ignore[index,call-overload,operator]

    cloud.disable(HOST)
    cloud.wait(disabled, "the trait in the agent's mirror")
    cloud.enable(HOST)
    cloud.wait(lambda: not disabled(), "the trait to go")


def test_audits_that_find_nothing_new_say_nothing(cloud: Cloud, listener: ListeningScheduler) -> None:
    listener.wait_verified(HOST)
    since_s = time.monotonic()

    # from heartbeat to heartbeat, 17 to 19 seconds, there are some audits
    listener.wait(lambda: any(one.host == HOST for one in listener.said(Heartbeat, since_s)), "the next heartbeat")

    assert listener.said(Increment, since_s) == []

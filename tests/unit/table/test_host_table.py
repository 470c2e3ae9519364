# SPDX-License-Identifier: Apache-2.0
"""A node in the table: messages of agents, our claims, and the values of columns and views."""

from __future__ import annotations

from typing import Any

import pytest

from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.model.resources import Inventory
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.table import row_writer
from shared_scheduler.table.assumed_claims import DuplicateClaimError
from shared_scheduler.table.host_table import HostTable, UnknownNodeError
from shared_scheduler.table.row import CODE_OF_CLOSED, Exclusion, Freshness, Version

NODE = "11111111-0000-0000-0000-000000000001"
SMALL = Usage(vcpus=1, memory_mb=512, disk_gb=1, instances=1, io_ops=1)


def node_leaves(node: str = NODE, **changes: Any) -> dict[str, Any]:
    """A compute node with 8 CPUs, 16 GiB and 100 GB, nothing used."""
    leaves = {
        "cn.uuid": node,
        "cn.host": "compute1",
        "cn.vcpus": 8,
        "cn.vcpus_used": 0,
        "cn.memory_mb": 16384,
        "cn.memory_mb_used": 512,
        "cn.free_ram_mb": 15872,
        "cn.local_gb": 100,
        "cn.local_gb_used": 0,
        "cn.free_disk_gb": 100,
        "cn.cpu_allocation_ratio": 2.0,
        "cn.ram_allocation_ratio": 1.0,
        "cn.disk_allocation_ratio": 1.0,
        "cn.hypervisor_version": 8002000,
        "stats.num_instances": 0,
        f"rp.{node}": {
            "name": "compute1",
            "parent": None,
            "generation": 1,
            "inventories": {
                "VCPU": Inventory(8, 0, 1, 8, 1, 2.0).to_leaf(),
                "MEMORY_MB": Inventory(16384, 512, 1, 16384, 1, 1.0).to_leaf(),
                "DISK_GB": Inventory(100, 0, 1, 100, 1, 1.0).to_leaf(),
            },
            "traits": ["COMPUTE_NODE", "HW_CPU_X86_AVX"],
            "aggregates": ["agg-a"],
        },
    }
    return leaves | changes


def small(node: str = NODE) -> dict[str, dict[str, int]]:
    return {node: {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}}


def table_with_one(**changes: Any) -> HostTable:
    table = HostTable()
    table.upsert(NODE, "cell1", "compute1", "compute1.example")
    table.set_service(ServiceFacts("compute1"))
    table.load(NODE, node_leaves(**changes), {}, epoch=5, sequence=1)
    table.set_freshness(NODE, Freshness.FRESH)
    return table


def room(table: HostTable, resource_class: str, node: str = NODE) -> int:
    slot = table.slot_of(node)
    assert slot is not None
    return int(table.columns.rooms[resource_class].room.array[slot])


def column(table: HostTable, name: str, node: str = NODE) -> float:
    return float(getattr(table.columns, name).array[table.slot_of(node)])


def closed(table: HostTable, node: str = NODE) -> int:
    return int(column(table, "closed", node))


# -- bases


def test_a_snapshot_fills_row_and_columns():
    table = table_with_one()
    assert column(table, "free_vcpus") == 16.0
    assert column(table, "free_ram_mb") == 15872
    assert column(table, "free_disk_mb") == 102400
    assert room(table, "VCPU") == 8  # max_unit, though 16 are free
    assert room(table, "MEMORY_MB") == 15872
    assert closed(table) == 0
    assert table.version(NODE) == Version(5, 1)


def test_an_increment_changes_only_its_leaves():
    table = table_with_one()
    leaves = {"cn.vcpus_used": 3, "cn.free_ram_mb": 14336, "stats.num_instances": 3}
    consumers = {"server-1": Consumer({NODE: {"VCPU": 12, "MEMORY_MB": 1536}}, True)}

    table.apply(NODE, leaves, consumers, {}, epoch=5, sequence=2)

    assert column(table, "free_vcpus") == 13.0
    assert column(table, "num_instances") == 3
    assert room(table, "VCPU") == 4
    assert room(table, "DISK_GB") == 100
    assert table.members.slots("server-1") == (table.slot_of(NODE),)
    assert table.view(NODE).instances == {"server-1"}


def test_the_same_increment_twice_changes_nothing_more():
    table = table_with_one()
    consumers = {"server-1": Consumer(small(), True)}
    for _ in range(2):
        table.apply(NODE, {"cn.vcpus_used": 1}, consumers, {}, epoch=5, sequence=2)
    assert table.view(NODE).used == small()


def test_a_removed_consumer_frees_all_its_amounts():
    table = table_with_one()
    table.apply(NODE, {}, {"server-1": Consumer(small(), True)}, {}, epoch=5, sequence=2)
    table.apply(NODE, {}, {"server-1": None}, {}, epoch=5, sequence=3)
    assert room(table, "DISK_GB") == 100
    assert table.members.slots("server-1") == ()


def test_a_snapshot_replaces_all_that_was_there():
    table = table_with_one()
    table.apply(NODE, {"cn.metrics": "x"}, {"a": Consumer(small(), True)}, {}, epoch=5, sequence=2)
    table.load(NODE, node_leaves(), {"b": Consumer(small(), True)}, epoch=6, sequence=1)
    assert table.view(NODE).instances == {"b"}
    assert "cn.metrics" not in table.view(NODE).leaves
    assert table.view(NODE).used == small()


def test_the_digest_is_that_of_the_published_state():
    table = table_with_one()
    consumers = {"server-1": Consumer(small(), True)}
    table.apply(NODE, {"cn.vcpus_used": 1}, consumers, {"c1": "server-1"}, epoch=5, sequence=2)
    table.assume(NODE, "own", "server-2", small(), SMALL)
    said = digest_of(node_leaves() | {"cn.vcpus_used": 1}, consumers, {"c1": "server-1"})
    assert table.digest(NODE) == said


def test_more_names_of_leaves_than_are_remembered_change_nothing(monkeypatch):
    # given a fleet with more names of leaves than are remembered
    monkeypatch.setattr(row_writer, "LEAF_NAMES_MAX", 3)
    table = table_with_one()
    news = [
        {"cn.vcpus_used": number, f"image.os={number}": number, f"image.distro={number}": 1} for number in range(1, 6)
    ]
    # when increments bring ever more of them
    for sequence, leaves in enumerate(news, 2):
        table.apply(NODE, leaves, {}, {}, epoch=5, sequence=sequence)
    # then the row shows them all
    shown = {name: value for leaves in news for name, value in leaves.items()}
    assert table.digest(NODE) == digest_of(node_leaves() | shown, {}, {})
    assert column(table, "free_vcpus") == 11


def test_an_unknown_node_is_named():
    with pytest.raises(UnknownNodeError, match="nobody is not in the table: upsert it first"):
        HostTable().apply("nobody", {}, {}, {}, epoch=1, sequence=1)


# -- slots


def test_slots_are_stable_and_used_again():
    table = HostTable()
    slots = [table.upsert(f"node-{i}", "cell1", f"host-{i}", f"host-{i}") for i in range(200)]
    assert slots == list(range(200))
    table.remove("node-7")
    assert "node-7" not in table
    assert table.slot_of("node-199") == 199
    assert table.upsert("node-new", "cell1", "host-new", "host-new") == 7
    assert len(table) == 200


def test_a_node_that_has_not_reported_has_nothing_of_the_one_before_in_its_slot():
    table = table_with_one()
    table.remove(NODE)

    table.upsert("other", "cell1", "compute2", "compute2.example")
    table.set_service(ServiceFacts("compute2"))

    assert closed(table, "other") == CODE_OF_CLOSED[Exclusion.NEVER_REPORTED]
    assert room(table, "VCPU", "other") == -1
    assert column(table, "free_ram_mb", "other") == 0
    assert not table.columns.traits.having_any(frozenset({"HW_CPU_X86_AVX"}), table.columns.high).any()


def test_a_removed_node_leaves_nothing_behind():
    table = table_with_one()
    table.apply(NODE, {}, {"server-1": Consumer(small(), True)}, {}, epoch=5, sequence=2)
    table.assume(NODE, "c1", "server-2", small(), SMALL)
    table.remove(NODE)
    assert not table.is_outstanding("c1")
    assert len(table.members) == 0
    table.upsert("other", "cell1", "compute2", "compute2")
    assert room(table, "VCPU", "other") == -1
    assert column(table, "free_vcpus", "other") == 0


def test_a_node_that_returns_under_another_host_starts_empty():
    table = table_with_one()
    table.upsert(NODE, "cell1", "renamed", "compute1.example")
    assert table.view(NODE).host == "renamed"
    assert table.view(NODE).leaves == {}
    assert table.slots_of_host("compute1") == ()


def test_a_node_with_another_name_keeps_its_row_and_its_claims():
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    before = table.static_generation
    table.upsert(NODE, "cell1", "compute1", "renamed.example")
    assert table.view(NODE).nodename == "renamed.example"
    assert table.is_outstanding("c1")
    assert table.static_generation > before


def test_the_name_of_a_node_is_what_its_leaf_says():
    table = table_with_one()
    for leaf, name in (("a.example", "a.example"), (None, "a.example"), ("b.example", "b.example")):
        table.apply(NODE, {"cn.hypervisor_hostname": leaf}, {}, {}, epoch=5, sequence=2)
        assert table.view(NODE).nodename == name
    table.load(NODE, node_leaves(), {}, epoch=6, sequence=1)
    assert table.view(NODE).nodename == "b.example"


# -- who is considered


def test_a_node_without_a_name_is_not_considered():
    table = HostTable()
    table.upsert(NODE, "cell1", "compute1", "")
    table.set_service(ServiceFacts("compute1"))
    table.load(NODE, node_leaves(), {}, epoch=5, sequence=1)
    assert closed(table) == CODE_OF_CLOSED[Exclusion.NEVER_REPORTED]
    table.apply(NODE, {"cn.hypervisor_hostname": "compute1.example"}, {}, {}, epoch=5, sequence=2)
    assert closed(table) == 0


def test_a_host_is_considered_when_its_service_is_known_and_it_has_reported():
    table = HostTable()
    table.upsert(NODE, "cell1", "compute1", "compute1")
    assert closed(table) == CODE_OF_CLOSED[Exclusion.NEVER_REPORTED]
    table.load(NODE, node_leaves(), {})
    assert closed(table) == CODE_OF_CLOSED[Exclusion.NO_SERVICE]
    table.set_service(ServiceFacts("compute1"))
    assert closed(table) == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: t.set_freshness(NODE, Freshness.STALE), Exclusion.STALE),
        (
            lambda t: t.apply(NODE, {"agent.ready": False}, {}, {}, epoch=5, sequence=2),
            Exclusion.NOT_READY,
        ),
        (lambda t: t.forget_service("compute1"), Exclusion.NO_SERVICE),
        (lambda t: t.set_disabled_cells(frozenset({"cell1"})), Exclusion.CELL_DISABLED),
    ],
)
def test_a_host_is_left_alone_with_a_reason(change, why):
    table = table_with_one()
    change(table)
    assert closed(table) == CODE_OF_CLOSED[why]
    assert table.columns.closed_counts[CODE_OF_CLOSED[why]] == 1


@pytest.mark.parametrize("facts", [{"disabled": True}, {"forced_down": True}, {"up": False}])
def test_a_service_that_takes_no_servers_is_down(facts):
    table = table_with_one()
    table.set_service(ServiceFacts("compute1", **facts))
    assert column(table, "up") == 0
    assert table.columns.down_count == 1
    table.set_service(ServiceFacts("compute1"))
    assert table.columns.down_count == 0


def test_a_heartbeat_is_no_change_of_a_row():
    # given services that were all read again, as they are each minute
    table = table_with_one()
    record = {"id": 1, "report_count": 7, "last_seen_up": "12:00:00", "disabled_reason": None}
    table.set_service(ServiceFacts("compute1", record=record))
    known = table.generation
    # when the heartbeat has moved, whoever looks at the record sees it, and nothing is derived again
    beaten = record | {"report_count": 13, "last_seen_up": "12:01:00"}
    table.set_service(ServiceFacts("compute1", record=beaten))
    assert table.generation == known
    assert table.view(NODE).service.record == beaten
    # and what is more than that is a change
    table.set_service(ServiceFacts("compute1", record=beaten | {"disabled_reason": "broken"}))
    assert table.generation > known


def test_suspect_rows_may_be_chosen():
    table = table_with_one()
    table.set_freshness(NODE, Freshness.SUSPECT)
    assert closed(table) == 0


def test_aggregates_reach_the_view_of_their_hosts():
    table = table_with_one()
    fast = AggregateFacts(1, "u1", "fast", frozenset({"compute1"}), {"ssd": "true"})
    table.set_aggregates([fast])
    assert table.view(NODE).aggregates == (fast,)
    before = table.static_generation
    table.set_aggregates([fast])
    assert table.static_generation == before, "the same again is no change"
    table.delete_aggregates([1])
    assert table.view(NODE).aggregates == ()


# -- own claims


def test_an_assumed_claim_is_seen_by_the_next_decision():
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    assert room(table, "DISK_GB") == 99
    assert column(table, "free_vcpus") == 15
    assert column(table, "num_io_ops") == 1
    view = table.view(NODE)
    assert view.instances == {"server-1"}
    assert view.leaves["cn.free_ram_mb"] == 15360
    assert view.numbers is not None
    assert view.numbers.free_disk_mb == 99 * 1024


def test_a_forgotten_claim_frees_all_its_amounts():
    table = table_with_one()
    before = table.describe(NODE)
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    table.forget("c1")
    assert table.describe(NODE) == before
    assert room(table, "DISK_GB") == 100
    assert column(table, "free_vcpus") == 16
    assert table.members.slots("server-1") == ()


def test_a_claim_ends_when_the_sequence_that_shows_it_is_applied():
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    table.accepted("c1", epoch=5, reflected_sequence=2)
    table.confirm("c1")
    assert table.is_outstanding("c1")

    shown = {"cn.vcpus_used": 1, "cn.free_ram_mb": 15360, "stats.num_instances": 1}
    consumers = {"server-1": Consumer(small(), False)}
    table.apply(NODE, shown, consumers, {"c1": "server-1"}, epoch=5, sequence=2)

    assert not table.is_outstanding("c1")
    assert room(table, "DISK_GB") == 99
    assert column(table, "free_vcpus") == 15


def test_the_base_may_show_a_claim_before_we_confirm_it():
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    consumers = {"server-1": Consumer(small(), False)}
    table.apply(NODE, {"cn.vcpus_used": 1}, consumers, {"c1": "server-1"}, epoch=5, sequence=2)
    assert room(table, "DISK_GB") == 99, "counted once"
    assert column(table, "free_vcpus") == 15
    assert table.is_outstanding("c1")
    table.accepted("c1", epoch=5, reflected_sequence=2)
    table.confirm("c1")
    assert not table.is_outstanding("c1")
    assert room(table, "DISK_GB") == 99


def test_seed_000_a_snapshot_that_does_not_know_a_claim_yet_does_not_undo_it():
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    table.load(NODE, node_leaves(), {}, epoch=5, sequence=7)
    assert room(table, "DISK_GB") == 99
    assert column(table, "free_vcpus") == 15


def test_a_new_epoch_ends_no_claim_without_evidence():
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    table.accepted("c1", epoch=5, reflected_sequence=2)
    table.confirm("c1")
    table.load(NODE, node_leaves(), {}, epoch=6, sequence=9)
    assert table.is_outstanding("c1")
    assert room(table, "DISK_GB") == 99
    member = {"server-1": Consumer(small(), True)}
    table.apply(NODE, {"cn.vcpus_used": 1}, member, {}, epoch=6, sequence=10)
    assert not table.is_outstanding("c1")
    assert column(table, "free_vcpus") == 15


def test_an_earlier_claim_of_the_server_is_no_evidence_of_a_later_one():
    # given an agent that has shown a claim of a server, and is not heard any more
    table = table_with_one()
    earlier = {"server-1": Consumer(small(), True)}
    table.apply(NODE, {"cn.vcpus_used": 1}, earlier, {"c0": "server-1"}, epoch=5, sequence=2)
    # when that has ended, and the server is placed here again without the agent
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    table.confirm("c1")
    assert room(table, "DISK_GB") == 99, "counted once"
    # then it counts also when the agent is heard that has seen the end only
    table.load(NODE, node_leaves(), {}, epoch=5, sequence=3)
    assert room(table, "DISK_GB") == 99
    # until the agent shows it
    table.load(NODE, node_leaves(), {"server-1": Consumer(small(), True)}, epoch=5, sequence=4)
    assert not table.is_outstanding("c1")


def test_an_earlier_claim_that_the_agent_reports_late_is_no_evidence_of_a_later_one():
    # given a server whose earlier claim the agent has accepted and ended, which no message has told yet
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    # when a later one was accepted as well, and is written
    table.accepted("c1", epoch=5, reflected_sequence=4)
    table.confirm("c1")
    # then it counts while the messages of the earlier one arrive
    table.apply(
        NODE, {"cn.vcpus_used": 1}, {"server-1": Consumer(small(), True)}, {"c0": "server-1"}, epoch=5, sequence=2
    )
    table.apply(NODE, {"cn.vcpus_used": 0}, {"server-1": None}, {"c0": None}, epoch=5, sequence=3)
    assert room(table, "DISK_GB") == 99
    # until the agent has reported what it accepted
    table.load(NODE, node_leaves(), {"server-1": Consumer(small(), True)}, {"c1": "server-1"}, epoch=5, sequence=4)
    assert room(table, "DISK_GB") == 99
    assert not table.is_outstanding("c1")


def test_an_earlier_claim_that_is_reported_late_is_no_evidence_of_a_later_one_without_a_verdict():
    # given a server whose claim is written without the agent, which has an earlier one that no message has told yet
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    table.confirm("c1")
    # when the messages of the earlier one arrive, then the later one counts, and once
    shown = {"server-1": Consumer(small(), True)}
    table.apply(NODE, {"cn.vcpus_used": 1}, shown, {"c0": "server-1"}, epoch=5, sequence=2)
    assert room(table, "DISK_GB") == 99
    table.apply(NODE, {"cn.vcpus_used": 0}, {"server-1": None}, {"c0": None}, epoch=5, sequence=3)
    assert room(table, "DISK_GB") == 99
    # until the agent shows the server without a claim
    table.apply(NODE, {"cn.vcpus_used": 1}, shown, {}, epoch=5, sequence=4)
    assert room(table, "DISK_GB") == 99
    assert not table.is_outstanding("c1")


def test_a_claim_that_the_agent_has_ended_is_over():
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    table.confirm("c1")
    table.apply(NODE, {}, {}, {"c1": None}, epoch=5, sequence=2)
    assert not table.is_outstanding("c1")
    assert room(table, "DISK_GB") == 100


def test_without_an_agent_placement_shows_a_claim_before_nova_compute_does():
    table = table_with_one()
    table.load(NODE, node_leaves(), {})
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    table.confirm("c1")
    table.load(NODE, node_leaves(), {"server-1": Consumer(small(), False)})
    assert room(table, "DISK_GB") == 99, "the allocation is counted once"
    assert column(table, "free_vcpus") == 15, "nova-compute does not count it yet, so we do"
    assert table.view(NODE).instances == {"server-1"}
    taken = {"cn.vcpus_used": 1, "stats.num_instances": 1}
    table.load(NODE, node_leaves(**taken), {"server-1": Consumer(small(), True)})
    assert table.is_shown("c1")
    assert column(table, "free_vcpus") == 15


def test_claims_of_one_host_take_their_cpus_and_devices_together():
    numa = {
        "numa.0": [0, 0, "0", {"4": 0}],
        "pci.static.p": {"vendor_id": "8086"},
        "pci.p": 4,
    }
    table = table_with_one(**numa)
    first = {"numa.0": [2, 512, "3", {"4": 131072}], "pci.p": 3}
    take = TopologyUsage.between(table.view(NODE).leaves, first)
    table.assume(NODE, "c1", "s1", small(), SMALL, take)
    second = {"numa.0": [4, 1024, "f", {"4": 262144}], "pci.p": 2}
    take = TopologyUsage.between(table.view(NODE).leaves, second)
    table.assume(NODE, "c2", "s2", small(), SMALL, take)
    assert table.view(NODE).leaves["numa.0"] == [4, 1024, "f", {"4": 262144}]
    assert table.view(NODE).pools == (({"vendor_id": "8086"}, 2),)
    assert column(table, "pci_weight") == 98
    table.forget("c1")
    assert table.view(NODE).leaves["numa.0"] == [2, 512, "c", {"4": 131072}]
    assert table.view(NODE).leaves["pci.p"] == 3


def test_a_claim_is_assumed_once():
    table = table_with_one()
    table.assume(NODE, "c1", "server-1", small(), SMALL)
    with pytest.raises(DuplicateClaimError, match="c1"):
        table.assume(NODE, "c1", "server-1", small(), SMALL)


def test_a_child_provider_makes_its_class_a_matter_of_placement():
    child = {
        "name": "gpu",
        "parent": NODE,
        "generation": 1,
        "inventories": {"VGPU": Inventory(4).to_leaf()},
        "traits": [],
        "aggregates": [],
    }
    table = table_with_one(**{"rp.gpu-1": child})
    vgpu = table.columns.rooms["VGPU"]
    assert vgpu.other_provider_rows == 1
    assert int(vgpu.other_provider_room.array[0]) == 4
    table.apply(NODE, {}, {"s": Consumer({"gpu-1": {"VGPU": 3}}, True)}, {}, epoch=5, sequence=2)
    assert int(vgpu.other_provider_room.array[0]) == 1
    table.apply(NODE, {"rp.gpu-1": None}, {"s": None}, {}, epoch=5, sequence=3)
    assert vgpu.other_provider_rows == 0


def test_a_changed_generation_is_no_rare_change():
    table = table_with_one()
    before = table.static_generation
    moved = {**node_leaves()[f"rp.{NODE}"], "generation": 7}
    table.apply(NODE, {f"rp.{NODE}": moved}, {}, {}, epoch=5, sequence=2)
    assert table.static_generation == before
    assert table.view(NODE).root.generation == 7
    assert table.digest(NODE) == digest_of(node_leaves() | {f"rp.{NODE}": moved}, {}, {})
    grown = {**moved, "traits": ["COMPUTE_NODE"], "generation": 8}
    table.apply(NODE, {f"rp.{NODE}": grown}, {}, {}, epoch=5, sequence=3)
    assert table.static_generation > before
    assert table.view(NODE).root.traits == {"COMPUTE_NODE"}

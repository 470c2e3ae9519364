# SPDX-License-Identifier: Apache-2.0
"""The host table as a machine that hypothesis drives, against the model of ``table_model.py``.

Three nodes, two of them of one service host, are added, moved and removed; agents and databases report anything about
them; our claims are assumed and go through every step of their lives in any order.  After each step the table, its
views and its columns equal the sums of the model; from time to time, and at the end, a table that is created from the
same facts has the same columns.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from shared_scheduler.model.resources import Inventory
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.model.topology import CellUsage, TopologyUsage
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import Consumer, Usage
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import CODE_OF_CLOSED, Exclusion, Freshness
from tests.unit.table.table_model import ModelClaim, ModelNode

HOSTS = {"n1": "h1", "n2": "h1", "n3": "h3"}  # h1 has two nodes
CAPACITY = 8
#: columns that follow from rows alone
COLUMNS = (
    "closed", "up", "free_vcpus", "free_ram_mb", "free_disk_mb", "num_io_ops", "num_instances",
    "failed_builds", "hypervisor_version", "pci_weight",
)  # fmt: skip

nodes = st.sampled_from(sorted(HOSTS))
uuids = st.sampled_from(["u1", "u2", "u3", "u4"])
amounts = st.integers(1, 3)
#: of the epoch that a node is in, or of the next one
epochs = st.sampled_from([0, 0, 0, 1])


def allocations(node: str, vcpus: int, child: bool) -> dict[str, dict[str, int]]:
    found = {node: {"VCPU": vcpus, "MEMORY_MB": 512 * vcpus}}
    return found | ({f"{node}-gpu": {"VGPU": 1}} if child else {})


def provider(name: str, parent: str | None, inventories: dict[str, Inventory]) -> dict[str, Any]:
    return {
        "name": name,
        "parent": parent,
        "generation": 1,
        "inventories": {rc: one.to_leaf() for rc, one in inventories.items()},
        "traits": ["COMPUTE_NODE"],
        "aggregates": [],
    }


def whole(node: str) -> dict[str, Any]:
    """Every leaf of an empty node."""
    root = {"VCPU": Inventory(CAPACITY), "MEMORY_MB": Inventory(8192, reserved=512)}
    return {
        "cn.vcpus": CAPACITY,
        "cn.vcpus_used": 0,
        "cn.free_ram_mb": 8192,
        "cn.free_disk_gb": 100,
        "cn.cpu_allocation_ratio": 1.0,
        "cn.hypervisor_version": 1,
        "stats.num_instances": 0,
        "numa.0": [0, 0, "0", {}],
        "pci.nic": 4,
        f"rp.{node}": provider(node, None, root),
        f"rp.{node}-gpu": provider(f"{node}-gpu", node, {"VGPU": Inventory(2)}),
    }


@st.composite
def changed_leaves(draw: st.DrawFn) -> dict[str, Any]:
    """Some numbers of a node, as nova-compute would tell them."""
    mask = draw(st.integers(0, 15))
    news = {
        "cn.vcpus_used": draw(st.integers(0, 5)),
        "cn.free_ram_mb": draw(st.integers(-512, 8192)),
        "stats.num_instances": draw(st.sampled_from([0, 1, "2"])),
        "numa.0": [mask.bit_count(), 0, format(mask, "x"), {}],
        "pci.nic": draw(st.integers(0, 4)),
    }
    return {name: news[name] for name in draw(st.sets(st.sampled_from(sorted(news))))}


def consumer_of(draw: Any, node: str) -> Consumer:
    """With allocations, as a member, as both, or with nothing at all."""
    held = draw(st.none() | st.tuples(amounts, st.booleans()))
    return Consumer(allocations(node, *held) if held else {}, draw(st.booleans()))


@st.composite
def said(draw: st.DrawFn, node: str, gone: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Consumers, and pending claims; ``gone``: some are told to be no more."""
    nobody = st.just(False) if not gone else st.booleans()
    consumers = {uuid: None if draw(nobody) else consumer_of(draw, node) for uuid in draw(st.sets(uuids))}
    ids = draw(st.sets(st.sampled_from(["c1", "c2", "c3", "c4", "x1"])))
    return consumers, {claim: None if draw(nobody) else draw(uuids) for claim in sorted(ids)}


class TableMachine(RuleBasedStateMachine):
    """See the top of this module."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.table = HostTable()
        self.model: dict[str, ModelNode] = {}
        self.freshness: dict[str, Freshness] = {}
        self.services: dict[str, ServiceFacts] = {}
        self.made = 0

    # --- nodes -----------------------------------------------------------------------------------

    @rule(node=nodes)
    def a_node_comes(self, node: str) -> None:
        self.put(node, HOSTS[node])

    @rule(node=nodes)
    def a_node_moves(self, node: str) -> None:
        self.put(node, f"{HOSTS[node]}-elsewhere")

    def put(self, node: str, host: str) -> None:
        self.table.upsert(node, "cell", host, node)
        if node not in self.model or self.model[node].host != host:
            self.model[node] = ModelNode(node, host)
            self.freshness[node] = Freshness.PROVISIONAL
            self.load(node, whole(node), {}, {}, (0, 0))

    @rule(node=nodes)
    def a_node_goes(self, node: str) -> None:
        self.table.remove(node)
        self.model.pop(node, None)

    @rule(host=st.sampled_from(["h1", "h3"]), disabled=st.booleans())
    def a_service_is_told(self, host: str, disabled: bool) -> None:
        self.services[host] = ServiceFacts(host, disabled=disabled)
        self.table.set_service(self.services[host])

    @rule(node=nodes, freshness=st.sampled_from(list(Freshness)))
    def freshness_changes(self, node: str, freshness: Freshness) -> None:
        if node in self.model:
            self.table.set_freshness(node, freshness)
            self.freshness[node] = freshness

    # --- what agents and databases say -----------------------------------------------------------

    def load(self, node: str, leaves: Any, consumers: Any, pending: Any, version: Any) -> None:
        epoch, sequence = version
        self.table.load(node, leaves, consumers, pending, epoch=epoch, sequence=sequence)
        self.model[node].load(leaves, consumers, pending, version)

    @rule(node=nodes, newer=epochs, leaves=changed_leaves(), data=st.data())
    def a_snapshot(self, node: str, newer: int, leaves: dict[str, Any], data: st.DataObject) -> None:
        if node in self.model:
            consumers, pending = data.draw(said(node, gone=False))
            epoch, sequence = self.model[node].version
            version = (max(1, epoch + newer), sequence + 1)  # a life may say much before we hear it
            self.load(node, whole(node) | leaves, consumers, pending, version)

    @rule(node=nodes)
    def an_agent_begins_anew(self, node: str) -> None:
        """A new life that has forgotten everything, and has said much before we hear of it."""
        if node in self.model:
            epoch, sequence = self.model[node].version
            self.load(node, whole(node), {}, {}, (epoch + 1, sequence + 2))

    @rule(node=nodes, leaves=changed_leaves(), data=st.data())
    def a_database_read(self, node: str, leaves: dict[str, Any], data: st.DataObject) -> None:
        if node in self.model:
            consumers, _ = data.draw(said(node, gone=False))
            self.load(node, whole(node) | leaves, consumers, {}, (0, 0))

    @rule(node=nodes, leaves=changed_leaves(), data=st.data())
    def an_increment(self, node: str, leaves: dict[str, Any], data: st.DataObject) -> None:
        if node in self.model:
            consumers, pending = data.draw(said(node, gone=True))
            epoch, sequence = self.model[node].version
            version = (max(1, epoch), sequence + 1)
            self.table.apply(node, leaves, consumers, pending, epoch=version[0], sequence=version[1])
            self.model[node].apply(leaves, consumers, pending, version)

    # --- our claims ------------------------------------------------------------------------------

    @rule(target=claims, node=nodes, uuid=uuids, vcpus=amounts, gpu=st.booleans(), pin=st.booleans())
    def we_assume(self, node: str, uuid: str, vcpus: int, gpu: bool, pin: bool) -> str:
        self.made += 1
        claim_id = f"c{self.made}"
        if node in self.model:
            usage = Usage(vcpus, 512 * vcpus, 1, 1, 1)
            cells = {"numa.0": CellUsage(1, 0, 1 << (self.made % 4), {})}
            take = TopologyUsage(cells, {"pci.nic": 1}) if pin else None
            held = allocations(node, vcpus, gpu)
            self.table.assume(node, claim_id, uuid, held, usage, take)
            found = self.model[node]
            found.claims.append(ModelClaim(claim_id, uuid, held, usage, take))
        return claim_id

    @rule(target=claims, node=nodes, uuid=uuids)
    def a_claim_outlives_the_agent_that_accepted_it(self, node: str, uuid: str) -> str:
        claim_id = self.we_assume(node, uuid, 1, False, False)
        self.its_node_accepts(claim_id, 0)
        self.an_agent_begins_anew(node)
        return claim_id

    def find(self, claim_id: str) -> tuple[ModelNode, ModelClaim] | None:
        for node in self.model.values():
            for claim in node.claims:
                if claim.claim_id == claim_id:
                    return node, claim
        return None

    @rule(claim_id=claims, ahead=st.integers(-1, 2))
    def its_node_accepts(self, claim_id: str, ahead: int) -> None:
        found = self.find(claim_id)
        shown_from = (1, 1)
        if found is not None:
            epoch, sequence = found[0].version
            found[1].shown_from = shown_from = (max(1, epoch), max(1, sequence + ahead))
            found[0].settle()
        self.table.accepted(claim_id, *shown_from)

    @rule(claim_id=claims)
    def placement_holds_it(self, claim_id: str) -> None:
        self.table.confirm(claim_id)
        found = self.find(claim_id)
        if found is not None:
            found[1].confirmed = True
            found[0].settle()

    @rule(claim_id=consumes(claims))
    def we_forget(self, claim_id: str) -> None:
        self.table.forget(claim_id)
        found = self.find(claim_id)
        if found is not None:
            found[0].claims.remove(found[1])

    # --- what must hold --------------------------------------------------------------------------

    @invariant()
    def the_nodes_are_the_nodes(self) -> None:
        assert set(self.table.nodes()) == set(self.model)
        for node, facts in self.model.items():
            assert self.table.version(node) == facts.version
            assert self.table.freshness(node) is self.freshness[node]
            base = digest_of(facts.leaves, facts.consumers, facts.pending)
            assert self.table.digest(node) == base

    @invariant()
    def every_claim_is_where_it_should_be(self) -> None:
        for node, facts in self.model.items():
            ids = [own.claim_id for own in self.table.outstanding(node)]
            assert ids == [claim.claim_id for claim in facts.claims]
        for number in range(1, self.made + 1):
            claim_id = f"c{number}"
            assert self.table.is_outstanding(claim_id) == (self.find(claim_id) is not None)

    @invariant()
    def everything_is_counted_once(self) -> None:
        for node, facts in self.model.items():
            view = self.table.view(node)
            used = {rp: {rc: n for rc, n in view.used[rp].items() if n} for rp in view.used}
            assert {rp: held for rp, held in used.items() if held} == facts.used()
            assert view.numbers is not None
            assert view.numbers.free_ram_mb == facts.free_ram_mb()
            assert view.numbers.num_instances == facts.instances()
            assert view.leaves["pci.nic"] == facts.free_devices()
            leaf: Any = view.leaves["numa.0"]
            assert int(leaf[2], 16) == facts.pinned()

    @invariant()
    def who_is_where(self) -> None:
        members = {node: facts.members() for node, facts in self.model.items()}
        for node in members:
            assert self.table.view(node).members == members[node]
        for uuid in ("u1", "u2", "u3", "u4"):
            hosts = {self.model[node].host for node in members if uuid in members[node]}
            found = {self.table.node_at(slot) for slot in self.table.slots_with(uuid)}
            assert found == {node for node, facts in self.model.items() if facts.host in hosts}

    @invariant()
    def columns_show_the_rows(self) -> None:
        for node, facts in self.model.items():
            slot = self.table.slot_of(node)
            columns = self.table.columns
            assert columns.free_ram_mb.array[slot] == max(0, facts.free_ram_mb())
            room = columns.rooms_of("VCPU").room.array[slot]
            used = facts.used().get(node, {}).get("VCPU", 0)
            assert room == min(CAPACITY - used, Inventory(CAPACITY).max_unit)

    @invariant()
    def nobody_considers_a_slot_that_is_free(self) -> None:
        taken = {self.table.slot_of(node) for node in self.model}
        for slot in set(range(self.table.columns.high)) - taken:
            assert self.table.columns.closed.array[slot] == CODE_OF_CLOSED[Exclusion.NO_SLOT]

    def teardown(self) -> None:
        self.a_table_built_anew_is_the_same()

    @rule()
    def a_table_built_anew_is_the_same(self) -> None:
        anew = self.anew()
        for node in self.model:
            here, there = self.table.slot_of(node), anew.slot_of(node)
            for name in COLUMNS:
                mine, new = getattr(self.table.columns, name), getattr(anew.columns, name)
                assert mine.array[here] == new.array[there], name
            for rc in ("VCPU", "MEMORY_MB", "VGPU"):
                mine, new = self.table.columns.rooms_of(rc), anew.columns.rooms_of(rc)
                assert mine.room.array[here] == new.room.array[there], rc
                assert mine.other_provider_room.array[here] == new.other_provider_room.array[there], rc

    def anew(self) -> HostTable:
        table = HostTable()
        for service in self.services.values():
            table.set_service(service)
        for node, facts in self.model.items():
            table.upsert(node, "cell", facts.host, node)
            table.set_freshness(node, self.freshness[node])
            epoch, sequence = facts.version
            table.load(node, facts.leaves, facts.consumers, facts.pending, epoch=epoch, sequence=sequence)
            for claim in facts.claims:
                if not (facts.shows_allocations(claim) and facts.shows_numbers(claim)):
                    self.claim_anew(table, facts, claim)
        return table

    @staticmethod
    def claim_anew(table: HostTable, facts: ModelNode, claim: ModelClaim) -> None:
        table.assume(facts.node, claim.claim_id, claim.consumer, claim.allocations, claim.usage, claim.take)

# SPDX-License-Identifier: Apache-2.0
"""Requests that the root of a tree cannot answer alone: from Nova's RequestSpec to the claim.

A whole core decides on a table that was read from a real Placement, and writes to it.  Its claim must be one of the
candidates that nova-scheduler would have got for the same spec.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from nova import objects
from nova.scheduler import utils

from shared_scheduler.core import events as ev
from shared_scheduler.core.effects import Answer
from shared_scheduler.nova.request_spec import make_request
from shared_scheduler.placement.mirror import PlacementMirror
from tests.functional.placement_driver import PlacementDriver
from tests.unit.core.scheduler_driver import CELL, host_of, node_leaves
from tests.unit.nova.conftest import NoNodes, flavor, nova_ready, request_spec, user_context
from tests.unit.placement.real_placement import World

__all__ = ["nova_ready"]

PORT, OTHER_PORT = str(uuid.UUID(int=7)), str(uuid.UUID(int=8))
PMEM = "CUSTOM_PMEM_NAMESPACE_4GB"
OWN_CLASSES = (PMEM, "CUSTOM_PCI_8086_1528")
OWN_TRAITS = ("CUSTOM_PHYSNET_2", "CUSTOM_FAST", "CUSTOM_VNIC_TYPE_NORMAL")
ROOT = {"VCPU": {"total": 16}, "PCPU": {"total": 4}, "MEMORY_MB": {"total": 8192}}
DISK = {"DISK_GB": {"total": 100}}


class Zoo:
    """Hosts of every kind, with their uuids by name."""

    def __init__(self, world: World) -> None:
        self.world = world
        for name in OWN_CLASSES:
            world.transport.call("PUT", f"/resource_classes/{name}")
        for name in OWN_TRAITS:
            world.transport.call("PUT", f"/traits/{name}")
        self.pool_aggregate, self.segment = str(uuid.uuid4()), str(uuid.uuid4())
        self.hosts = {
            "plain": self._host(),
            "gpu": self._with_gpus(),
            "pci": self._with_devices(),
            "port": self._with_agent(),
            "pmem": self._host(**{PMEM: {"total": 2}}),
            "segment": self._host(aggregates=(self.segment,)),
            "diskless": world.provider(inventories=ROOT, aggregates=(self.pool_aggregate,)),
        }
        self.pool = world.provider(
            inventories={"DISK_GB": {"total": 1000}},
            traits=("MISC_SHARES_VIA_AGGREGATE", "STORAGE_DISK_SSD"),
            aggregates=(self.pool_aggregate,),
        )  # fmt: skip

    def _host(self, aggregates: tuple[str, ...] = (), **more: Any) -> str:
        return self.world.provider(inventories={**ROOT, **DISK, **more}, aggregates=aggregates)

    def _with_gpus(self) -> str:
        node = self._host()
        for traits in ((), ("CUSTOM_FAST",)):
            self.world.provider(parent=node, inventories={"VGPU": {"total": 2}}, traits=traits)
        return node

    def _with_devices(self) -> str:
        node = self._host()
        for _ in range(2):
            self.world.provider(parent=node, inventories={"CUSTOM_PCI_8086_1528": {"total": 1}})
        return node

    def _with_agent(self) -> str:
        """An agent's tree as Neutron makes it: bandwidth on a bridge, packets on the agent."""
        node = self._host()
        agent = self.world.provider(
            parent=node, inventories={"NET_PACKET_RATE_KILOPACKET_PER_SEC": {"total": 100}},
            traits=("CUSTOM_VNIC_TYPE_NORMAL",),
        )  # fmt: skip
        self.world.provider(
            parent=agent, inventories={"NET_BW_EGR_KILOBIT_PER_SEC": {"total": 10_000}},
            traits=("CUSTOM_PHYSNET_2", "CUSTOM_VNIC_TYPE_NORMAL"),
        )  # fmt: skip
        return node


def extra_specs(**named: str) -> Any:
    specs = {name.replace("__", ":"): value for name, value in named.items()}
    return request_spec(flavor=flavor(root_gb=20, extra_specs=specs))


def port_group(requester: str, traits: set[str], **resources: int) -> Any:
    group = objects.RequestGroup(
        requester_id=requester, use_same_provider=True, resources=resources, required_traits=traits
    )
    group.obj_set_defaults()
    return group


def bandwidth_and_packets(_: Zoo) -> Any:
    """A port of Neutron's: two groups, one below the other."""
    level = objects.RequestLevelParams(same_subtree=[[PORT, OTHER_PORT]])
    groups = [
        port_group(PORT, {"CUSTOM_PHYSNET_2"}, NET_BW_EGR_KILOBIT_PER_SEC=1000),
        port_group(OTHER_PORT, {"CUSTOM_VNIC_TYPE_NORMAL"}, NET_PACKET_RATE_KILOPACKET_PER_SEC=1),
    ]
    return request_spec(requested_resources=groups, request_level_params=level)


def devices(_: Zoo) -> Any:
    """PCI in Placement: one group for each device."""
    groups = [port_group(f"{PORT}-{number}", set(), CUSTOM_PCI_8086_1528=1) for number in range(2)]
    return request_spec(requested_resources=groups)


def pinned(_: Zoo) -> Any:
    cell = objects.InstanceNUMACell(id=0, cpuset=set(), pcpuset={0, 1}, memory=2048)
    return request_spec(
        flavor=flavor(extra_specs={"hw:cpu_policy": "dedicated"}),
        numa_topology=objects.InstanceNUMATopology(cells=[cell]),
    )


def on_segment(zoo: Zoo) -> Any:
    """A routed network: the prefilter asks for its segment's aggregate."""
    spec = request_spec()
    spec.requested_destination = objects.Destination(aggregates=[zoo.segment])
    return spec


SPECS = {
    "a virtual GPU": (lambda _: extra_specs(resources__VGPU="1"), "gpu"),
    "two of them on devices of their own": (
        lambda _: extra_specs(resources1__VGPU="1", resources2__VGPU="1", group_policy="isolate"),
        "gpu",
    ),
    "a fast one": (lambda _: extra_specs(resources1__VGPU="2", trait1__CUSTOM_FAST="required"), "gpu"),
    "PCI devices": (devices, "pci"),
    "a port with bandwidth and packets": (bandwidth_and_packets, "port"),
    "persistent memory": (lambda _: extra_specs(**{f"resources__{PMEM}": "1"}), "pmem"),
    "a segment": (on_segment, "segment"),
    "a solid disk": (lambda _: extra_specs(trait__STORAGE_DISK_SSD="required"), "diskless"),
    "pinned CPUs": (pinned, None),
    "nothing special": (lambda _: request_spec(), None),
}  # fmt: skip


@pytest.fixture(scope="module")
def empty_zoo(placement_app: Any) -> Zoo:
    return Zoo(World(placement_app))


@pytest.fixture
def zoo(empty_zoo: Zoo) -> Iterator[Zoo]:
    """One for all tests: each leaves its hosts without consumers, because all of these hold something of a root."""
    hosts = dict(empty_zoo.hosts)
    yield empty_zoo
    for node in empty_zoo.hosts.values():
        held = empty_zoo.world.ok("GET", f"/resource_providers/{node}/allocations")["allocations"]
        for consumer in held:
            empty_zoo.world.ok("DELETE", f"/allocations/{consumer}")
    empty_zoo.hosts = hosts


@pytest.fixture
def driver(zoo: Zoo) -> Iterator[PlacementDriver]:
    one = PlacementDriver(zoo.world.transport)
    one.give(ev.SharingRead(PlacementMirror(zoo.world.client).sharing()))
    one._services(tuple(zoo.hosts.values()), CELL)
    read_again(zoo, one)
    yield one
    one.stop()


def read_again(zoo: Zoo, driver: PlacementDriver, free_mb: int = 4096) -> None:
    """The table learns what Placement has; hosts without a name have all their memory free."""
    mirror = PlacementMirror(zoo.world.client)
    for name, node in zoo.hosts.items():
        tree, host = mirror.read(node), host_of(node)
        leaves = node_leaves(node, 16, 8192 if name == node else free_mb)
        own = {k: v for k, v in leaves.items() if not k.startswith("agent.")}
        del own[f"rp.{node}"]
        driver.give(ev.NodeRead(CELL, node, host, host, own | tree.leaves, tree.consumers,
                              frozenset(), time.monotonic()))  # fmt: skip


def offered(zoo: Zoo, spec: Any) -> list[dict[str, Any]]:
    """What stock Nova would be offered: all queries that it makes of the spec, whole cloud."""
    found = []
    for pinning in (True, False):
        asked = utils.resources_from_request_spec(user_context(), spec, NoNodes(), enable_pinning_translate=pinning)
        answer = zoo.world.ok("GET", f"/allocation_candidates?{asked.to_querystring()}")
        found += answer["allocation_requests"]
    return found


def plain(allocations: Any) -> dict[str, dict[str, int]]:
    return {provider: dict(amounts) for provider, amounts in allocations.items()}


@pytest.mark.parametrize("kind", SPECS)
def test_our_claims_are_among_the_candidates_of_nova(zoo: Zoo, driver: PlacementDriver, kind: str) -> None:
    make, host = SPECS[kind]
    spec, server = make(zoo), str(uuid.uuid4())
    request = make_request(user_context(), spec, [server], 1, NoNodes())
    stock = offered(zoo, spec)
    outcome = driver.select(request)
    assert isinstance(outcome, Answer), outcome
    for choice in outcome.choices[0]:  # the claimed host and its alternate
        assert choice.candidate is not None
        ours = plain(choice.candidate.allocations)
        alike = [one for one in stock if ours == {
            rp: part["resources"] for rp, part in one["allocations"].items()}]  # fmt: skip
        mappings = {name: set(rps) for name, rps in choice.candidate.mappings.items()}
        assert mappings in [{n: set(r) for n, r in one["mappings"].items()} for one in alike]
    claimed = outcome.choices[0][0]
    assert host is None or claimed.node == zoo.hosts[host]
    assert claimed.candidate is not None
    assert plain(zoo.world.client.consumer(server).allocations) == plain(claimed.candidate.allocations)


def test_every_group_of_a_port_is_mapped_to_its_provider(zoo: Zoo, driver: PlacementDriver) -> None:
    """The conductor looks each requester up there (``fill_provider_mapping``)."""
    spec = bandwidth_and_packets(zoo)
    outcome = driver.select(make_request(user_context(), spec, [str(uuid.uuid4())], 0, NoNodes()))
    assert isinstance(outcome, Answer)
    candidate = outcome.choices[0][0].candidate
    assert candidate is not None
    for group in spec.requested_resources:
        (provider,) = candidate.mappings[group.requester_id]
        assert candidate.allocations[provider] == group.resources


def test_pinned_servers_that_find_no_dedicated_cpus_fall_back(zoo: Zoo, driver: PlacementDriver) -> None:
    """Nova's second question: VCPU in place of PCPU, for hosts that are not told apart yet."""
    for node in zoo.hosts.values():
        zoo.world.take(str(uuid.uuid4()), {node: {"PCPU": 4}})
    read_again(zoo, driver)
    request = make_request(user_context(), pinned(zoo), [str(uuid.uuid4())], 0, NoNodes())
    outcome = driver.select(request)
    assert isinstance(outcome, Answer)
    candidate = outcome.choices[0][0].candidate
    assert candidate is not None
    classes = {rc for amounts in candidate.allocations.values() for rc in amounts}
    assert "VCPU" in classes and "PCPU" not in classes


UNNUMBERED = "a fast one, of the unnumbered group"


@pytest.mark.parametrize("kind", ["a fast one", UNNUMBERED])
def test_the_one_host_with_a_trait_is_found_among_more_than_are_tried(zoo: Zoo, kind: str) -> None:
    """Its devices have it; those of five better hosts have not, and no more than three are tried."""
    for _ in range(5):
        node = zoo._host()
        zoo.world.provider(parent=node, inventories={"VGPU": {"total": 2}})
        zoo.hosts[node] = node
    unnumbered = extra_specs(resources__VGPU="1", trait__CUSTOM_FAST="required")
    spec = unnumbered if kind is UNNUMBERED else SPECS[kind][0](zoo)

    outcome = chosen_by(zoo, spec, attempts_max=3)

    assert isinstance(outcome, Answer), outcome
    assert outcome.choices[0][0].node == zoo.hosts["gpu"]


def chosen_by(zoo: Zoo, spec: Any, **settings: Any) -> Any:
    """What comes of it at a scheduler with these settings, to which all hosts are known."""
    one = PlacementDriver(zoo.world.transport, **settings)
    one._services(tuple(zoo.hosts.values()), CELL)
    read_again(zoo, one)
    try:
        return one.select(make_request(user_context(), spec, [str(uuid.uuid4())], 0, NoNodes()))
    finally:
        one.stop()

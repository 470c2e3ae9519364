# SPDX-License-Identifier: Apache-2.0
"""What is asked of a decision, as plain data.

``shared_scheduler.nova.request_spec`` makes a ``Request`` from Nova's RequestSpec; the demo and the
simulator make them directly.  Everything a native filter or weigher reads is a plain field here; the
RequestSpec itself travels along as ``spec``, opaque, for Nova's own filter objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared_scheduler.protocol.messages import Usage


@dataclass(frozen=True, slots=True)
class Group:
    """A server group as the conductor resolved it (nova InstanceGroup)."""

    uuid: str
    policy: str  # affinity, anti-affinity, soft-affinity, soft-anti-affinity
    members: frozenset[str] = frozenset()  # instance uuids
    hosts: frozenset[str] = frozenset()  # service hosts of the members
    max_server_per_host: int = 1


@dataclass(frozen=True, slots=True)
class Flavor:
    """The parts of a flavor that filters and weighers read.  Sizes as Nova keeps them."""

    name: str = ""
    vcpus: int = 0
    memory_mb: int = 0
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Destination:
    """Nova's requested_destination."""

    host: str | None = None
    node: str | None = None
    cell: str | None = None  # cell uuid
    allow_cross_cell_move: bool = False


@dataclass(frozen=True, slots=True)
class NumberedGroup:
    """What a numbered group asks of one provider: amounts by class, and traits."""

    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PlacementForm:
    """What Placement would judge of a request: its unnumbered group, and of the others what screens hosts.

    ``required``/``forbidden`` apply to the providers that give the resources, ``root_*`` to the root
    provider; ``member_of`` is an AND of ORs of aggregate uuids.
    """

    resources: Mapping[str, int] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    #: an AND of ORs of traits (Nova asks for none; Placement knows them as ``required=in:A,B``)
    required_any: tuple[frozenset[str], ...] = ()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None
    #: what each numbered group asks of one provider of the tree; hosts without such are left out,
    #: and Placement is asked which provider it is
    numbered: tuple[NumberedGroup, ...] = ()

    def most_numbered(self) -> dict[str, int]:
        """The largest amount of each class that a numbered group asks for."""
        found: dict[str, int] = {}
        for group in self.numbered:
            for resource_class, amount in group.resources.items():
                found[resource_class] = max(amount, found.get(resource_class, 0))
        return found


@dataclass(frozen=True, slots=True)
class Request:
    """One select_destinations call.

    ``forms`` are alternatives in order of preference for one host: the second one is Nova's VCPU
    fallback of a pinned request.  ``root_only``: a candidate is the root provider with all
    resources, so that no candidate has to be asked of Placement; otherwise ``queries`` are the
    query strings (one a form, without ``in_tree``) to ask with.  An empty ``forms`` (rebuild, legacy
    callers) means that Placement is not concerned at all and nothing is claimed.
    """

    request_id: str
    project_id: str
    user_id: str
    flavor: Flavor
    forms: tuple[PlacementForm, ...]
    usage: Usage
    #: one uuid an instance, in the order of the answer; empty strings where the caller gave none
    instance_uuids: tuple[str, ...]
    root_only: bool = True
    queries: tuple[str, ...] = ()
    num_alternates: int = 0
    is_rebuild: bool = False
    #: False: the caller named no consumer; choose and consume only (legacy callers)
    claim: bool = True
    #: an evacuation's consumer holds allocations on these hosts already, merge with them
    merge_with_existing: bool = False
    destination: Destination | None = None
    ignore_hosts: frozenset[str] = frozenset()
    force_hosts: tuple[str, ...] = ()
    force_nodes: tuple[str, ...] = ()
    availability_zone: str | None = None
    check_type: str = ""  # scheduler hint _nova_check_type
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    image_id: str = ""
    image_properties: Mapping[str, Any] = field(default_factory=dict)
    group: Group | None = None
    preferred_cell: str | None = None  # cell uuid, for the cross-cell weigher
    has_numa: bool = False
    has_pci: bool = False
    #: JSON text for the topology fit (NUMA, PCI); empty where nothing of the kind is asked
    topology: str = ""
    #: Nova's RequestSpec, opaque here; read by Nova's own filter objects only
    spec: Any = None

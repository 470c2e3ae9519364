# SPDX-License-Identifier: Apache-2.0
"""A request as plain data.

``shared_scheduler.nova.request_spec`` creates a ``Request`` from Nova's RequestSpec; the demo and the simulator create
requests directly.  Everything that a native filter or weigher reads is a plain field.  The RequestSpec itself is the
opaque field ``spec``, for Nova's own filter objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared_scheduler.model.moves import Move
from shared_scheduler.protocol.messages import Usage

#: The policy of the group of all servers of a project with one label.  It restricts no host, and agents judge only the
#: policies that they know, so an agent of any release that knows groups stores and reports it.
LABEL_POLICY = "label"


@dataclass(frozen=True, slots=True)
class Group:
    """A server group as the conductor has read it (Nova's InstanceGroup)."""

    uuid: str
    policy: str  # one of GroupPolicy, or LABEL_POLICY
    members: frozenset[str] = frozenset()  # instance uuids
    hosts: frozenset[str] = frozenset()  # service hosts of the members
    max_server_per_host: int = 1


class SpreadMode(StrEnum):
    """Whether a spreading constraint rejects hosts or only weighs them."""

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """Spread the servers of a group over the values of a key in the metadata of aggregates (``spreading.py``)."""

    key: str
    max_skew: int = 1
    mode: SpreadMode = SpreadMode.HARD
    #: where the request has it, for example ``image``; it does not distinguish two constraints
    source: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Flavor:
    """The parts of a flavor that filters and weighers read.  Sizes have Nova's units."""

    name: str = ""
    vcpus: int = 0
    memory_mb: int = 0
    root_gb: int = 0
    ephemeral_gb: int = 0
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
    """The requirements of a numbered group on one provider: amounts by class, and traits."""

    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PlacementForm:
    """The part of a request that Placement judges: its unnumbered group, and the parts of numbered groups that
    screen hosts.

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
    #: the requirements of each numbered group on one provider of the tree; hosts without such a provider are
    #: rejected, and Placement is asked which provider it is
    numbered: tuple[NumberedGroup, ...] = ()

    def most_numbered(self) -> dict[str, int]:
        """The largest amount of each class in a numbered group."""
        found: dict[str, int] = {}
        for group in self.numbered:
            for resource_class, amount in group.resources.items():
                found[resource_class] = max(amount, found.get(resource_class, 0))
        return found


@dataclass(frozen=True, slots=True)
class Request:
    """One select_destinations call.

    ``forms`` are alternatives in order of preference for one host: the second one is Nova's VCPU fallback of a pinned
    request.  ``root_only``: the root provider gives all resources, so Placement need not be asked for candidates.
    Otherwise ``queries`` are the query strings (one for each form, without ``in_tree``).  If ``forms`` is empty
    (rebuild, legacy callers), Placement is not involved and nothing is claimed.
    """

    request_id: str  # the global one, if the caller sent one
    project_id: str
    user_id: str
    flavor: Flavor
    forms: tuple[PlacementForm, ...]
    usage: Usage
    #: one uuid for each instance, in the order of the answer; empty strings if the caller gave none
    instance_uuids: tuple[str, ...]
    root_only: bool = True
    queries: tuple[str, ...] = ()
    #: see ``alternate_count.py``
    num_alternates: int = 0
    flavor_sets_alternates: bool = False
    is_rebuild: bool = False
    #: False: the caller named no consumer; hosts are chosen and consumed, but not claimed (legacy callers)
    claim: bool = True
    #: True: hosts are selected as if they were claimed, and nothing is claimed or written (mode shadow)
    dry_run: bool = False
    #: hosts on which the consumer of an evacuation holds allocations already; the write merges with them
    merge_with_existing: bool = False
    destination: Destination | None = None
    ignore_hosts: frozenset[str] = frozenset()
    force_hosts: tuple[str, ...] = ()
    force_nodes: tuple[str, ...] = ()
    availability_zone: str | None = None
    check_type: str = ""  # scheduler hint _nova_check_type
    #: what Nova does with the server; None of a new server, and if it is not known
    move: Move | None = None
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    image_id: str = ""
    image_properties: Mapping[str, Any] = field(default_factory=dict)
    #: the properties of the image that ask for spreading (``spread_request.IMAGE_PROPERTIES``); Nova's RequestSpec has
    #: only the properties that Nova knows, so the edge reads them
    image_spread: Mapping[str, str] = field(default_factory=dict)
    #: why these could not be read; empty: they were read, or are not wanted
    image_unread: str = ""
    group: Group | None = None
    #: over which domains the servers of the group are spread; set by ``spread_request.with_spreading``
    spread: tuple[SpreadConstraint, ...] = ()
    #: the label that is the group; empty if the group is a server group
    label: str = ""
    #: servers of the group -> providers that hold their allocations, for those that were looked up in Placement; none
    #: of those that Nova has deleted
    placed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: (server, node) of those that the table had on nodes where Placement did not have them
    vacated: frozenset[tuple[str, str]] = frozenset()
    #: those whose requests had no answer: the smallest count of a hard constraint does not include them
    unsettled: frozenset[str] = frozenset()
    #: servers of ``placed`` -> the nodes where they hold something besides, as an evacuated one on its source: they
    #: count there as well, but for the smallest count of a hard constraint only if they can be in no other domain
    beside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: the id in Nova's logs and instance actions; empty: it is ``request_id``
    local_request_id: str = ""
    preferred_cell: str | None = None  # cell uuid, for the cross-cell weigher
    has_numa: bool = False
    has_pci: bool = False
    #: JSON text for the topology fit (NUMA, PCI); empty if the request has neither
    topology: str = ""
    #: Nova's RequestSpec, opaque here; read by Nova's own filter objects only
    spec: Any = None

# SPDX-License-Identifier: Apache-2.0
"""Converts Nova's RequestSpec to a plain ``Request`` (decision/request.py).

Nova's own ``resources_from_request_spec`` computes the query to Placement: once with pinned CPUs as PCPU
and, if pinning is requested, once more with VCPU.  These are the two *forms* of the request.  A request is
*root-only* if the root provider alone can satisfy it (only the unnumbered group, only classes of root
providers, no subtree constraint), and if Placement checks all of it again when the allocation is written.
Placement then checks amounts, but neither traits nor aggregates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

import nova.conf
import os_resource_classes as orc
import os_traits
from nova.scheduler import utils

from shared_scheduler.decision.request import Destination, Flavor, Group, NumberedGroup, PlacementForm, Request
from shared_scheduler.model.moves import Move
from shared_scheduler.nova.evacuation import is_evacuation
from shared_scheduler.protocol.messages import Usage

CONF = nova.conf.CONF

#: Classes that nova-compute reports on the root provider only (DISK_GB may come from a sharing provider; then
#: the row does not have it, and the table knows).
ROOT_CLASSES = frozenset({orc.VCPU, orc.PCPU, orc.MEMORY_MB, orc.DISK_GB})

#: Traits of every request.  The services table has the first one, and the second one never changes.
OF_EVERY_ROOT = frozenset({os_traits.COMPUTE_STATUS_DISABLED, os_traits.OWNER_NOVA})

#: The parts of a query that the caller adds: one tree, or a limit of the result.
CALLER_CHOOSES = frozenset({"in_tree", "limit"})

CHECK_TYPE_HINT = "_nova_check_type"

#: Query strings that are remembered: most requests of a flavor have the same.
QUERIES_MAX = 4096
#: oslo.versionedobjects keeps a field's value in an attribute of this prefix (``_get_attrname``)
ATTRIBUTE_PREFIX = "_obj_"


def make_request(
    context: Any,
    spec: Any,
    instance_uuids: Sequence[str] | None,
    num_alternates: int,
    host_manager: Any,
) -> Request:
    """The Request for one call.

    ``spec`` has been through the request filters.  ``host_manager`` finds compute nodes by name
    (``get_compute_nodes_by_host_or_node``, as Nova's).

    :raises NoValidHost: when a target host or node that does not exist is asked for
    """
    is_rebuild = utils.request_is_rebuild(spec)
    requests = [] if is_rebuild else resource_requests(context, spec, host_manager)
    evacuated = is_evacuation(context, spec, instance_uuids)
    hints = _hints(spec)
    return Request(
        request_id=context.global_id or context.request_id,
        local_request_id=context.request_id or "",
        project_id=spec.project_id or context.project_id or "",
        user_id=_user_id(context, spec),
        flavor=_flavor(spec.flavor),
        forms=tuple(_form(each) for each in requests),
        usage=_usage(spec.flavor),
        instance_uuids=_uuids(spec, instance_uuids),
        root_only=all(is_root_only(each) for each in requests),
        queries=tuple(query(each) for each in requests),
        num_alternates=num_alternates,
        is_rebuild=is_rebuild,
        claim=bool(instance_uuids) and not is_rebuild,
        merge_with_existing=evacuated is not False,  # if it is not known too: Nova never checks and always merges
        move=Move.EVACUATION if evacuated else None,
        destination=_destination(spec),
        ignore_hosts=frozenset(_list(spec, "ignore_hosts")),
        force_hosts=tuple(_list(spec, "force_hosts")),
        force_nodes=tuple(_list(spec, "force_nodes")),
        availability_zone=spec.availability_zone,
        check_type=",".join(hints.get(CHECK_TYPE_HINT, ())),
        hints=hints,
        image_id=_image_id(spec),
        image_properties=_image_properties(spec),
        group=group_of(spec),
        preferred_cell=_preferred_cell(spec),
        has_numa=bool(spec.numa_topology),
        has_pci=bool(spec.pci_requests and spec.pci_requests.requests),
        topology=topology_text(spec),
        spec=spec,
    )


def resource_requests(context: Any, spec: Any, host_manager: Any) -> list[Any]:
    """Nova's ResourceRequests for a spec: one, or two where pinned CPUs may fall back to VCPU."""
    first = utils.resources_from_request_spec(context, spec, host_manager, enable_pinning_translate=True)
    if not first.cpu_pinning_requested or CONF.workarounds.disable_fallback_pcpu_query:
        return [first]
    return [
        first,
        utils.resources_from_request_spec(context, spec, host_manager, enable_pinning_translate=False),
    ]


def query(resource_request: Any) -> str:
    """The query string of ``GET /allocation_candidates``, without the parts that the caller adds."""
    return _without_callers_parts(resource_request.to_querystring())


@lru_cache(QUERIES_MAX)
def _without_callers_parts(text: str) -> str:
    parts = parse_qsl(text, keep_blank_values=True)
    return urlencode([(key, value) for key, value in parts if key not in CALLER_CHOOSES])


def is_root_only(resource_request: Any) -> bool:
    """Whether the root provider alone can satisfy it, and Placement checks all of it at the write."""
    return is_of_root(resource_request) and not _has_unchecked_parts(resource_request)


def is_of_root(resource_request: Any) -> bool:
    """Whether the root provider alone can satisfy it."""
    if resource_request.get_num_of_suffixed_groups() or resource_request._same_subtree:
        return False
    return ROOT_CLASSES.issuperset(resource_request.merged_resources())


def _has_unchecked_parts(resource_request: Any) -> bool:
    """Whether it names traits or aggregates, which may change at any time and which no write checks."""
    of_root = resource_request._root_required | resource_request._root_forbidden
    asked = [of_root - OF_EVERY_ROOT]
    unnumbered = resource_request._rg_by_id.get(None)
    if unnumbered is not None:
        asked += [unnumbered.required_traits, unnumbered.forbidden_traits]
        asked += [unnumbered.aggregates, unnumbered.forbidden_aggregates]
    return any(asked)


def topology_text(spec: Any, mappings: dict[str, Any] | None = None, limits: Any = None) -> str:
    """The NUMA and PCI part of a Claim as JSON text; empty if the request has none.

    ``{"numa": InstanceNUMATopology primitive or null, "pci": [InstancePCIRequest primitives],
    "limits": NUMATopologyLimits primitive or null, "mappings": {suffix: [provider uuid]}}``
    """
    pci = spec.pci_requests.requests if spec.pci_requests else []
    if not spec.numa_topology and not pci:
        return ""
    return json.dumps(
        {
            "numa": spec.numa_topology.obj_to_primitive() if spec.numa_topology else None,
            "pci": [each.obj_to_primitive() for each in pci],
            "limits": limits.obj_to_primitive() if limits is not None else None,
            "mappings": mappings or {},
        },
        sort_keys=True,
    )


def group_of(spec: Any) -> Group | None:
    """The server group as the conductor resolved it, None where there is none."""
    found = spec.instance_group if "instance_group" in spec else None
    if found is None:
        return None
    return Group(
        uuid=found.uuid if "uuid" in found else "",
        policy=_policy(found),
        members=frozenset((found.members if "members" in found else None) or ()),
        hosts=frozenset((found.hosts if "hosts" in found else None) or ()),
        max_server_per_host=found.rules.get("max_server_per_host", 1),
    )


def _policy(group: Any) -> str:
    """The policy; old specs have a list with one policy."""
    if "policy" in group and group.policy:
        return str(group.policy)
    policies = (group.policies if "policies" in group else None) or [""]
    return str(policies[0])


def _form(resource_request: Any) -> PlacementForm:
    unnumbered = resource_request._rg_by_id.get(None)
    root_required = frozenset(resource_request._root_required)
    root_forbidden = frozenset(resource_request._root_forbidden)
    numbered = tuple(
        NumberedGroup(
            dict(group.resources), frozenset(group.required_traits), frozenset(group.forbidden_traits)
        )
        for name, group in resource_request._rg_by_id.items() if name is not None
    )  # fmt: skip
    if unnumbered is None:
        return PlacementForm(root_required=root_required, root_forbidden=root_forbidden, numbered=numbered)
    return PlacementForm(
        resources=dict(unnumbered.resources),
        required=frozenset(unnumbered.required_traits),
        forbidden=frozenset(unnumbered.forbidden_traits),
        root_required=root_required,
        root_forbidden=root_forbidden,
        member_of=tuple(frozenset(ored) for ored in unnumbered.aggregates),
        forbidden_aggregates=frozenset(unnumbered.forbidden_aggregates),
        in_tree=unnumbered.in_tree,
        numbered=numbered,
    )


def _usage(flavor: Any) -> Usage:
    """What HostState.consume_from_request consumes.  It counts neither swap nor boot-from-volume."""
    return Usage(
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.root_gb + flavor.ephemeral_gb,
        instances=1,
        io_ops=1,
    )


def _flavor(flavor: Any) -> Flavor:
    return Flavor(
        name=flavor.name if "name" in flavor else "",
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        root_gb=flavor.root_gb,
        ephemeral_gb=flavor.ephemeral_gb,
        extra_specs=dict(flavor.extra_specs) if "extra_specs" in flavor else {},
    )


def _uuids(spec: Any, instance_uuids: Sequence[str] | None) -> tuple[str, ...]:
    if instance_uuids:
        return tuple(instance_uuids)
    return ("",) * (spec.num_instances or 1)


def _user_id(context: Any, spec: Any) -> str:
    named = spec.user_id if "user_id" in spec else None
    return named or context.user_id or ""


def _destination(spec: Any) -> Destination | None:
    wanted = spec.requested_destination
    if wanted is None:
        return None
    cell = wanted.cell if "cell" in wanted else None
    return Destination(
        host=wanted.host if "host" in wanted else None,
        node=wanted.node if "node" in wanted else None,
        cell=cell.uuid if cell is not None else None,
        allow_cross_cell_move=wanted.allow_cross_cell_move,
    )


def _preferred_cell(spec: Any) -> str | None:
    """The cell that CrossCellWeigher prefers, if the move may leave it."""
    wanted = _destination(spec)
    return wanted.cell if wanted is not None and wanted.allow_cross_cell_move else None


def _hints(spec: Any) -> dict[str, tuple[str, ...]]:
    hints = (spec.scheduler_hints if "scheduler_hints" in spec else None) or {}
    return {key: (value,) if isinstance(value, str) else tuple(value) for key, value in hints.items()}


def _list(spec: Any, name: str) -> list[str]:
    return list((getattr(spec, name) if name in spec else None) or ())


def _image_id(spec: Any) -> str:
    image = spec.image if "image" in spec else None
    return image.id if image is not None and "id" in image and image.id else ""


def _image_properties(spec: Any) -> dict[str, Any]:
    """Known image properties that are set, as Nova's own names and values."""
    image = spec.image if "image" in spec else None
    if image is None or "properties" not in image:
        return {}
    return set_fields(image.properties)


def set_fields(thing: Any) -> dict[str, Any]:
    """The fields of a Nova object that are set.

    It reads the attributes of oslo.versionedobjects directly, because a check of each of a hundred fields
    would cost more than the rest of the conversion.
    """
    start = len(ATTRIBUTE_PREFIX)
    return {
        name[start:]: value
        for name, value in vars(thing).items()
        if name.startswith(ATTRIBUTE_PREFIX) and name[start:] in thing.fields
    }

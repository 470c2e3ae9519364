# SPDX-License-Identifier: Apache-2.0
"""The fallback's reads: the state of nova-compute's resource tracker from the database, through nova-conductor.

The same nova.conf and broker account as nova-compute, no database password.  It is slower
than the tap and does not see refusals.  The record and the list of instances are two reads, and nova-compute writes
the instance first.  Therefore an instance counts as a member only if the previous read has shown it too: its pending
claim is counted one poll too long rather than one poll too short.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import nova.conf
from nova import context as nova_context
from nova import exception, objects, rpc
from nova.compute import vm_states
from nova.conductor import rpcapi as conductor_rpcapi
from nova.objects import base as objects_base
from oslo_messaging import MessagingException
from oslo_utils import timeutils

from compute_agent.events import Member
from compute_agent.sources.compute_node_leaves import numa_text, pools_of, scalar_leaves
from shared_scheduler.novalib.image_properties import InstanceImages
from shared_scheduler.novalib.topology import topology_leaves
from shared_scheduler.protocol.messages import Leaf

#: A migration in any other status may count in the trackers of its source and its destination.
_NOT_COUNTED = frozenset({"error", "failed", "cancelled", "queued", "preparing", "accepted"})


class ConductorError(Exception):
    """nova-conductor did not answer.  The message names the error."""


def is_counted(migration: Any, host: str, nodename: str, is_here: bool) -> bool:
    """Whether nova-compute counts a migration beside its instances (``_update_usage_from_migration``).

    ``is_here``: it counts the instance itself.  nova-conductor makes the record of a resize before it asks a scheduler,
    and nova-compute adds the destination when it claims.
    """
    comes = (migration.dest_compute, migration.dest_node) == (host, nodename)
    leaves = (migration.source_compute, migration.source_node) == (host, nodename)
    return migration.status not in _NOT_COUNTED and (comes or leaves) and (not is_here or (comes and leaves))


@dataclass(slots=True)
class NodeRecord:
    """One node as the database has it."""

    node: str
    leaves: dict[str, Leaf]
    members: dict[str, Member] = field(default_factory=dict)


class ConductorReader:
    """Reads the nodes of one nova-compute service."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._context: Any = nova_context.get_admin_context()
        self._connected = False
        self._images = InstanceImages()
        self._seen_before: dict[str, set[str]] = {}

    def connect(self) -> None:
        """Initialise Nova's RPC for this process, once.  nova.conf must have been read."""
        if not self._connected:
            conf = nova.conf.CONF
            if rpc.TRANSPORT is None:
                rpc.init(conf)
            objects.register_all()
            objects_base.NovaObject.indirection_api = conductor_rpcapi.ConductorAPI()
            self._connected = True

    def seen_up(self) -> datetime | None:
        """When nova-compute reported last; None if that is longer ago than ``service_down_time``.

        By the clock of nova-conductor.

        :raises ConductorError: when nova-conductor does not answer
        """
        self.connect()
        try:
            service = objects.Service.get_by_compute_host(self._context, self._host)
        except exception.ComputeHostNotFound:
            return None
        except MessagingException as error:
            raise ConductorError(f"nova-conductor: {type(error).__name__}: {error}") from error
        at: datetime | None = service.last_seen_up or service.created_at
        if at is None or service.forced_down:
            return None
        seen = timeutils.normalize_time(at)
        age_s = timeutils.delta_seconds(seen, timeutils.utcnow())
        return seen if abs(age_s) <= nova.conf.CONF.service_down_time else None

    def nodes(self) -> list[NodeRecord]:
        """All nodes of the host.

        :raises ConductorError: when nova-conductor does not answer
        """
        self.connect()
        try:
            found = objects.ComputeNodeList.get_all_by_host(self._context, self._host)
            return [self._record(compute_node) for compute_node in found]
        except exception.ComputeHostNotFound:
            return []
        except MessagingException as error:
            raise ConductorError(f"nova-conductor: {type(error).__name__}: {error}") from error

    def _record(self, compute_node: Any) -> NodeRecord:
        node, nodename = str(compute_node.uuid), compute_node.hypervisor_hostname
        leaves = scalar_leaves(compute_node)
        leaves |= topology_leaves(numa_text(compute_node), pools_of(compute_node))
        members = self._instances(nodename)
        leaves |= self._images.leaves(members)
        here = frozenset(members)
        for migration in objects.MigrationList.get_in_progress_and_error(self._context, self._host, nodename):
            uuid = migration.instance_uuid
            if is_counted(migration, self._host, nodename, uuid in here):
                members[uuid] = Member(uuid in here, str(migration.uuid))
        before = self._seen_before.get(node, members.keys())
        self._seen_before[node] = set(members)
        return NodeRecord(node, leaves, {key: one for key, one in members.items() if key in before})

    def _instances(self, nodename: str) -> dict[str, Member]:
        found = objects.InstanceList.get_by_host_and_node(
            self._context, self._host, nodename, expected_attrs=["system_metadata"]
        )
        for instance in found:
            self._images.see(instance)
        self._images.keep({instance.uuid for instance in found})
        return {
            instance.uuid: Member()
            for instance in found
            if not vm_states.allow_resource_removal(vm_state=instance.vm_state, task_state=instance.task_state)
        }

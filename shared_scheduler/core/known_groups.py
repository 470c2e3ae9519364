# SPDX-License-Identifier: Apache-2.0
"""The members of a request's server group that the host table knows, and the group in a claim.

The conductor reads the group from the database before it calls the scheduler.  The table is newer: it has the claims
of all schedulers as soon as the agents accept them, and moves and deletes as soon as nova-compute notices them.
"""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.decision.request import LABEL_POLICY, Group, Request
from shared_scheduler.protocol.limits import GROUP_MEMBERS_MAX
from shared_scheduler.protocol.messages import ClaimGroup, GroupPolicy
from shared_scheduler.table.host_table import HostTable


def with_known_members(table: HostTable, request: Request, own: frozenset[str], add_hosts: bool = True) -> Request:
    """The request with the additional members of its group from rows and own claims.

    ``add_hosts``: with the policy affinity, the hosts on which the table has members are added to those of the group;
    ``own``: the server of the request, and others of it that are nowhere any more: what the table has of them ends.
    The servers of a label are only counted, and the table counts them without a set of all of them.
    """
    group = request.group
    if group is None or not group.uuid or group.policy == LABEL_POLICY:
        return request
    members = group.members | table.groups.of(group.uuid)
    hosts = group.hosts
    if add_hosts and group.policy == GroupPolicy.AFFINITY:
        hosts |= hosts_of(table, members - own)
    if members == group.members and hosts == group.hosts:
        return request
    return replace(request, group=replace(group, members=members, hosts=hosts))


def hosts_of(table: HostTable, members: frozenset[str]) -> frozenset[str]:
    """The service hosts on which the table has any of these instances."""
    return frozenset(table.host_at(slot) for slot in table.members_at(members))


def claim_group(table: HostTable, group: Group, consumer: str, node: str, insists: bool) -> ClaimGroup | None:
    """The group in a claim of ``consumer`` on ``node``.

    ``insists``: the agent ignores a soft policy, because it, or several others, have refused the instance before.
    """
    if not group.uuid or not group.policy:
        return None
    others = group.members - {consumer}
    here = [uuid for uuid in others if table.is_member(node, uuid)]
    seen = None if insists else len(here)
    return ClaimGroup(group.uuid, group.policy, group.max_server_per_host, _named(table, others, here), seen)


def _named(table: HostTable, others: frozenset[str], here: list[str]) -> tuple[str, ...]:
    """The members that may be on the node come first; the bound removes those that are known to be elsewhere."""
    nowhere = sorted(uuid for uuid in others if not table.members.slots(uuid))
    elsewhere = sorted(others.difference(here, nowhere))
    return tuple([*sorted(here), *nowhere, *elsewhere][:GROUP_MEMBERS_MAX])

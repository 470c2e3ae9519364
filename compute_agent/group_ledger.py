# SPDX-License-Identifier: Apache-2.0
"""The server groups of one node's consumers, and how a claim's group is judged.

Claims are the only source: a claim names its own group, and the members that its request knew.  A member that is on
the node, or has an accepted claim for it, is stored with its group as long as it is there; the agent keeps this over
restarts.  So no database is read, and nova-compute needs no access to Nova's API database.

A claim is refused in two cases:

==================  ==========================================================  ==============
policy              on the node, besides the claim's consumer                   reason
==================  ==========================================================  ==============
anti-affinity       ``max_server_per_host`` members, or more                    group_full
soft-anti-affinity  more members than its decision saw (``ClaimGroup.seen``)    group_changed
==================  ==========================================================  ==============

As in Nova, a claim for an instance that is on the node already passes (a resize to the same host).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from shared_scheduler.protocol.messages import Claim, ClaimGroup, GroupPolicy, Leaf, Reason, RefusalCode


class GroupLedger:
    """The groups of the node's consumers.  ``known``: the groups that an earlier run of the agent kept."""

    def __init__(self, known: Mapping[str, str]) -> None:
        #: consumer -> group uuid
        self.known: dict[str, str] = dict(known)

    def judge(self, claim: Claim, present: Set[str], settled: Set[str]) -> Reason | None:
        """The reason why the group of a claim refuses it; None if it does not.

        ``present`` are the instances here and the consumers of pending claims; ``settled`` those that nova-compute
        counts as instances.
        """
        group = claim.group
        if group is None or claim.consumer in settled:
            return None
        there = sorted(uuid for uuid in self._members(group, present) if uuid != claim.consumer)
        if group.policy == GroupPolicy.ANTI_AFFINITY and len(there) >= group.max_server_per_host:
            return _reason(RefusalCode.GROUP_FULL, group, there, {"max_server_per_host": group.max_server_per_host})
        is_soft = group.policy == GroupPolicy.SOFT_ANTI_AFFINITY
        if is_soft and group.seen is not None and len(there) > group.seen:
            return _reason(RefusalCode.GROUP_CHANGED, group, there, {"seen": group.seen})
        return None

    def learn(self, claim: Claim, present: Set[str]) -> None:
        """Store the group of the claim's consumer, and of the members that are here."""
        if claim.group is not None:
            for uuid in self._members(claim.group, present) | {claim.consumer}:
                self.known[uuid] = claim.group.uuid

    def forget(self, gone: Set[str]) -> None:
        """Remove consumers that are not here any more."""
        for uuid in gone:
            self.known.pop(uuid, None)

    def _members(self, group: ClaimGroup, present: Set[str]) -> set[str]:
        named = set(group.members)
        return {uuid for uuid in present if uuid in named or self.known.get(uuid) == group.uuid}


def _reason(code: RefusalCode, group: ClaimGroup, there: list[str], limit: Mapping[str, Leaf]) -> Reason:
    detail: dict[str, Leaf] = {"group": group.uuid, "policy": group.policy, "members_on_node": [*there]}
    return Reason(code, {**detail, **limit})

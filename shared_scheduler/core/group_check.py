# SPDX-License-Identifier: Apache-2.0
"""Checks the server group of a request after its allocations are written and before it is answered.

Several schedulers may place members of one group at the same moment.  The agent of a node judges what concerns that
node alone (anti-affinity).  Affinity concerns two nodes, each of which would accept; and a node without an agent has
no judge.  Therefore Placement decides: after all allocations of a request are written, and before it is answered, the
scheduler reads the members of the group from Nova's database, and then their allocations from Placement.  If another
member is in the wrong place, the request is not answered.  It deletes what it wrote (it *yields*) and decides again.

While a server leaves a host, its allocations there are in the name of its migration, which Placement does not tie to
the server.  For anti-affinity such a member is still there, so after the allocations the databases of the cells are
read for the hosts of the members.  In this order no member is missed: Nova has the host of a server before it can begin
to move, and shows it until the server has left.

For affinity, a member that moves is where its own allocations are, as soon as its move was answered: then Nova's record
of the move names the target.  Until then it is also on the host where Nova has it, and where it stays if its move
fails.  So the hosts of such members, and of those that hold nothing, are read after the allocations as well.  If the
move goes on, its own check finds the other member.  A soft group asks for no such hosts: a member that leaves one
cannot return to it, and its own decision prefers the others, so who follows it there is alone unless the move fails.

*No two requests whose members break the policy are both answered.*  Proof: assume that both are answered.  Request 1
wrote at W1, read the members at M1 and their allocations at L1, with W1 < M1 < L1, and its allocations exist until its
answer; request 2 likewise.  Assume M1 < M2.  An instance joins its group before it is scheduled, so the member of
request 1 joined before W1 < M1 < M2, and request 2 knows it.  Its allocations exist since W1 < M1 < M2 < L2, so request
2 saw them and was not answered, a contradiction.  The proof does not depend on what schedulers know of each other.  It
holds across cells, and beside schedulers without this check, as long as those write before they answer.  Servers in
cell 0 are no members: their request has failed or its caller has gone, and what they still hold will be deleted.

The alternative is an owner of the group among the live schedulers.  It would need all schedulers to agree on which of
them are alive, which is impossible while messages are lost.  A boot needs both databases anyway.  If one of them does
not answer, the request fails with that reason.

If two requests see each other, only one has to yield: the one with the smallest instance uuid is *senior*.  It reads
again a few times, and yields only if the other one stays.  A request that has yielded waits for a random time.  If
both have yielded, they have changed sides; a senior that has yielded is therefore more patient the next time.  Yields
of an affinity group to members whose requests have no answer are bounded by the deadline only: these may still change
sides themselves.

A soft group fails no request: its member is answered where it is if the others cannot be read, or if little time or one
attempt is left.  It is not checked if its decision knew other members, because the weights have counted them, unless
all of these were claims on its own host.  Those may be given up, for example because the agent is late, and the check
of their requests may come before this member is written.

================  ===========================================================  ========================================
policy            checked when                                                 in the wrong place
================  ===========================================================  ========================================
affinity          always                                                       a member on another host, or that may
                                                                               stay on one, unless the conductor has
                                                                               named our host, and a built member is on
                                                                               it and stays there
soft-affinity     the decision knew no other member, except on a host that     a member on another host, except
                  the server leaves, or as a claim on its own; after a yield,  one that the server leaves; after a
                  until the request has yielded three times, or found no room  yield only if none is built on our host
                  there                                                        and stays there
anti-affinity     an instance was placed without an agent that counts groups   more than max_server_per_host here
================  ===========================================================  ========================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from shared_scheduler.core.effects import AskGroup, Choice
from shared_scheduler.core.events import GroupAnswered
from shared_scheduler.core.known_groups import hosts_of
from shared_scheduler.core.request_state import InstancePlacement, RequestState
from shared_scheduler.core.step import Step
from shared_scheduler.decision.host_restrictions import skips_filters
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import GroupPolicy, Leaf, Reason
from shared_scheduler.table.host_table import HostTable

#: checks of a senior request before it yields, and the longest pause between two
CHECKS_MAX = 4
CHECK_PAUSE_S = 0.1
#: how often one request yields before it fails, except to undecided ones, and the longest pause after one time
YIELDS_MAX = 8
YIELD_PAUSE_S = 0.2
#: how often a request of a soft group yields; after that it is answered wherever it is
SOFT_YIELDS_MAX = 3
#: the time before its deadline in which a request of a soft group does not yield: it could not be written elsewhere
SOFT_YIELD_LEFT_S = 12.0
#: the reason of a claim that was taken back because of another member of its group
GROUP_APART = "group_apart"

Standing = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Agreed:
    """The request may be answered."""


@dataclass(frozen=True, slots=True)
class CheckAgain:
    """The request is senior: check again, because the others may yield."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class Yield:
    """Delete everything and decide again.

    ``hosts``: the hosts of other members (affinity); ``full``: nodes with too many members.
    """

    reason: Reason
    pause_s: float
    hosts: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()
    #: to others that are undecided, or were placed meanwhile: bounded only by the deadline of the request
    others_came: bool = False


Outcome = Agreed | CheckAgain | Yield


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Members in the wrong place, and the part of the request's own placement that conflicts with them."""

    members: frozenset[str]
    hosts: frozenset[str] = frozenset()
    full: frozenset[str] = frozenset()


class GroupCheck:
    """Checks groups.  It only counts its questions; the state of a check is ``RequestState.check``."""

    def __init__(self, table: HostTable, rng: Random) -> None:
        self._table = table
        self._rng = rng
        self._count = 0

    def is_needed(self, state: RequestState) -> bool:
        """Whether the request, which is written, must be checked before it is answered."""
        group = state.request.group
        if group is None or not group.uuid or state.check.passed or skips_filters(state.request):
            return False
        if group.policy == GroupPolicy.ANTI_AFFINITY:
            return any(not claim.intent.counts_groups for claim in state.claims())
        if group.policy == GroupPolicy.SOFT_AFFINITY:
            yields = state.check.group_yields
            beside_claims = any(instance.beside_claims for instance in state.instances)
            return (state.check.first or beside_claims or yields > 0) and yields < SOFT_YIELDS_MAX
        return group.policy == GroupPolicy.AFFINITY

    def chosen(self, state: RequestState, instance: InstancePlacement) -> None:
        """Note, when a host was chosen for an instance, whether other members were known anywhere else than on a host
        that it leaves, or only as claims on the chosen one."""
        group = state.request.group
        if group is None or group.policy != GroupPolicy.SOFT_AFFINITY or instance.choice is None:
            return
        others, here = self._others(state, group), frozenset({instance.choice.host})
        known = hosts_of(self._table, others) - state.request.ignore_hosts
        state.check.first |= not known
        instance.beside_claims = known == here and not any(self._is_built(uuid, here) for uuid in others)

    def ask(self, step: Step, state: RequestState) -> None:
        """Emit the question where the members are, after everything is written."""
        group, request = state.request.group, state.request
        assert group is not None
        self._count += 1
        state.check.ask_id = f"group.{state.key}.{self._count}"
        known = frozenset(request.instance_uuids)
        if group.policy != GroupPolicy.ANTI_AFFINITY and not state.check.all_asked:
            known |= self._here(state, group)
        cells = frozenset[str]()
        if group.policy == GroupPolicy.ANTI_AFFINITY:
            cells = frozenset(claim.intent.cell for claim in state.claims() if not claim.intent.counts_groups)
        leaving = group.policy == GroupPolicy.AFFINITY
        step.emit(AskGroup(state.check.ask_id, group.uuid, known, request.request_id, cells=cells, leaving=leaving))

    def judge(self, state: RequestState, event: GroupAnswered) -> Outcome:
        """The outcome of the check for an answer."""
        group, check = state.request.group, state.check
        assert group is not None
        own = frozenset(state.request.instance_uuids)
        others = {uuid: providers for uuid, providers in event.standing.items() if uuid not in own}
        apart = group.policy != GroupPolicy.ANTI_AFFINITY
        misplaced = (self._apart if apart else self._too_many)(state, group, others, event.hosts)
        if misplaced is None:
            check.passed = True
            return Agreed()
        if self._may_have_joined(state, group):
            check.all_asked = True
            return CheckAgain(0.0)
        check.checks_made += 1
        if min(own) < min(misplaced.members) and check.checks_made < CHECKS_MAX * (1 + check.group_yields):
            return CheckAgain(self._rng.uniform(0, CHECK_PAUSE_S))
        return self._yield(state, group, misplaced, event.unanswered)

    def _yield(self, state: RequestState, group: Group, misplaced: Misplaced, undecided: frozenset[str]) -> Yield:
        check, pause_s = state.check, self._rng.uniform(0, YIELD_PAUSE_S)
        others_came = group.policy == GroupPolicy.AFFINITY and bool(misplaced.members & undecided)
        check.checks_made = 0
        check.group_yields += 1
        check.yields += not others_came
        check.deferrals += others_came
        return Yield(_reason(group, misplaced), pause_s, misplaced.hosts, misplaced.full, others_came)

    def _apart(self, state: RequestState, group: Group, others: Standing, hosts: Mapping[str, str]) -> Misplaced | None:
        ours = frozenset(choice.host for choice in state.choices())
        here, left = self._providers(ours), frozenset[str]()
        if group.policy == GroupPolicy.SOFT_AFFINITY:  # members that stay where this one leaves do not call it back
            left = self._providers(state.request.ignore_hosts)
        apart = frozenset(uuid for uuid, providers in others.items() if not (providers & here or providers <= left))
        leaving = {uuid: host for uuid, host in hosts.items() if host not in ours}
        settled = others.keys() - apart - leaving.keys()
        joined = ours <= group.hosts and any(self._is_built(uuid, ours) for uuid in settled)
        joined |= state.check.group_yields > 0 and self._is_beside(state, group, ours, apart)
        if joined or not (apart or leaving):
            return None
        there = self._hosts(others[uuid] for uuid in apart)
        return Misplaced(apart | leaving.keys(), there | frozenset(leaving.values()))

    def _is_beside(self, state: RequestState, group: Group, ours: frozenset[str], apart: frozenset[str]) -> bool:
        """Whether a member of a soft group, which has yielded, is beside another one that cannot yield any more, and
        does not move away: it cannot be beside all."""
        others = self._others(state, group) - apart
        return is_soft_affinity(group) and any(self._is_built(uuid, ours) for uuid in others)

    def _may_have_joined(self, state: RequestState, group: Group) -> bool:
        """Whether built members that were not looked up decide, because those in the table may have left."""
        ours = frozenset(choice.host for choice in state.choices())
        built = bool(self._here(state, group))
        return group.policy == GroupPolicy.AFFINITY and ours <= group.hosts and built and not state.check.all_asked

    def _is_built(self, instance: str, hosts: frozenset[str]) -> bool:
        """Whether the table has the instance on one of these hosts, from a request that cannot yield any more."""
        rows = (self._table.row(slot) for host in hosts for slot in self._table.slots_of_host(host))
        return any(row is not None and row.is_built(instance) for row in rows)

    def _too_many(
        self, state: RequestState, group: Group, others: Standing, hosts: Mapping[str, str]
    ) -> Misplaced | None:
        members, full = set[str](), set[str]()
        for choice in state.choices():
            there = self._members_beside(choice, others, hosts) - frozenset(state.request.instance_uuids)
            own = sum(other.host == choice.host for other in state.choices())
            if there and len(there) + own > group.max_server_per_host:
                members |= there
                full.add(choice.node)
        return Misplaced(frozenset(members), full=frozenset(full)) if members else None

    def _members_beside(self, choice: Choice, others: Standing, hosts: Mapping[str, str]) -> set[str]:
        """The members that have allocations on a host, and those that Nova has there, which may be leaving it."""
        here = self._providers(frozenset({choice.host}))
        there = {uuid for uuid, providers in others.items() if providers & here}
        return there | {uuid for uuid, host in hosts.items() if host == choice.host}

    def _here(self, state: RequestState, group: Group) -> frozenset[str]:
        """Other members that are built on the hosts of this request, where they break no policy, and nowhere else.

        Claims there may have been released, and not be reported yet.  A member that moves, or whose resize is not
        confirmed, is on two hosts.  One that is alone may have moved, and the table not show it yet; affinity keeps
        several together."""
        ours = frozenset(choice.host for choice in state.choices())
        settled = (uuid for uuid in self._others(state, group) if len(self._table.members.slots(uuid)) == 1)
        here = frozenset(uuid for uuid in settled if self._is_built(uuid, ours))
        return here if len(here) > 1 else frozenset()

    def _others(self, state: RequestState, group: Group) -> frozenset[str]:
        """The members that are no servers of the request."""
        return (group.members | self._table.groups.of(group.uuid)) - frozenset(state.request.instance_uuids)

    def _providers(self, hosts: frozenset[str]) -> frozenset[str]:
        rows = (self._table.row(slot) for host in hosts for slot in self._table.slots_of_host(host))
        return frozenset(uuid for row in rows if row is not None for uuid in (row.node, *row.providers))

    def _hosts(self, standing: Iterable[frozenset[str]]) -> frozenset[str]:
        """The service hosts of the providers that are compute nodes."""
        slots = (self._table.slot_of(uuid) for providers in standing for uuid in providers)
        return frozenset(self._table.host_at(slot) for slot in slots if slot is not None)


def is_soft_affinity(group: Group | None) -> bool:
    """Whether the group prefers one host for its members, but is no reason to fail one."""
    return group is not None and group.policy == GroupPolicy.SOFT_AFFINITY


def _reason(group: Group, misplaced: Misplaced) -> Reason:
    detail: dict[str, Leaf] = {"group": group.uuid, "policy": group.policy, "members": [*sorted(misplaced.members)]}
    return Reason(GROUP_APART, detail)

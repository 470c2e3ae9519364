# SPDX-License-Identifier: Apache-2.0
"""Bugs that people make in systems like this one, each as a small patch of the real code.

The simulator must catch every one of them (``test_planted_bugs.py``): one that survives is a check
that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import pytest

from compute_agent import claim_ledger
from compute_agent.claim_ledger import ClaimLedger
from compute_agent.core import AgentCore
from compute_agent.events import TreeChanged
from compute_agent.group_ledger import GroupLedger
from compute_agent.pending_deallocations import PendingDeallocations
from shared_scheduler.core import claims, planner, requests
from shared_scheduler.core.agent_casts import AgentCasts
from shared_scheduler.core.allocation_merge import Merged
from shared_scheduler.core.alternates import Alternates
from shared_scheduler.core.claim_state import DATABASES, ClaimState, Intent, OpenClaim
from shared_scheduler.core.claims import Claims, ClaimWritten
from shared_scheduler.core.confirmed_claims import ConfirmedClaims
from shared_scheduler.core.effects import AskGroup
from shared_scheduler.core.events import AllocationWritten, ConsumerAnswered, Event, GroupAnswered, RequestArrived
from shared_scheduler.core.group_check import GroupCheck
from shared_scheduler.core.nodes import Nodes
from shared_scheduler.core.own_writes import OwnWrites
from shared_scheduler.core.planner import Planner
from shared_scheduler.core.recheck import Recheck
from shared_scheduler.core.request_state import InstancePlacement, RequestState
from shared_scheduler.core.requests import Requests
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.core.spread_check import SpreadCheck
from shared_scheduler.core.step import Step
from shared_scheduler.core.write_pace import WritePace
from shared_scheduler.decision import filtering, pick
from shared_scheduler.decision.outcome import Decision
from shared_scheduler.decision.request import Request
from shared_scheduler.model.resources import plain_allocations
from shared_scheduler.placement import consumer_conflicts, overcommit_rules, write_course
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.placement.in_doubt_writes import InDoubtWrites, WriteAttempt
from shared_scheduler.placement.own_records import OwnRecord, OwnRecords
from shared_scheduler.placement.write_course import WriteCourse
from shared_scheduler.protocol import codec, limits
from shared_scheduler.protocol.messages import Allocations, Claim, GroupPolicy, Increment, Reason, RefusalCode, Verdict
from shared_scheduler.protocol.pipe import MessagePipe
from shared_scheduler.protocol.window import Cause, MessageWindow
from shared_scheduler.sim.clock import LocalClock
from shared_scheduler.sim.nodes import SimNode
from shared_scheduler.table.assumed_claims import Overlay
from shared_scheduler.table.columns import BoolArray, FloatArray
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Row
from shared_scheduler.table.row_writer import RowWriter
from tests.unit.planted import in_ledger, in_protocol, in_table

#: of a claim, before 12b4062b
OLD_TOPOLOGY_MAX_CHARS = limits.LEAF_TEXT_MAX_CHARS

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Planted:
    """A bug: a description, the patch, and invariants of which at least one must break."""

    name: str
    patch: Patch
    breaks: frozenset[str]


def bug(*breaks: str) -> Callable[[Patch], Planted]:
    """Make a planted bug of a patch; its docstring says what is wrong."""

    def plant(patch: Patch) -> Planted:
        return Planted(patch.__name__, patch, frozenset(breaks))

    return plant


# -- bugs that the parts' own machines notice as well (tests/unit/planted)

skip_a_gap = bug("no_gap")(in_protocol.skip_a_gap.patch)
apply_twice = bug("sequence_grows", "row_equals_agent", "no_gap")(in_protocol.apply_twice.patch)
ignore_the_epoch = bug("older_epoch", "sequence_grows", "row_equals_agent")(in_protocol.ignore_the_epoch.patch)
miss_a_lost_last_message = bug("converged")(in_protocol.miss_a_lost_last_message.patch)
digest_what_is_gone = bug("row_equals_agent", "converged")(in_protocol.digest_what_is_gone.patch)
judge_without_pending_claims = bug("no_overcommit")(in_ledger.judge_without_pending_claims.patch)
never_take_over = bug("no_orphans")(in_ledger.never_take_over.patch)
forget_a_forget = bug("overlay", "converged")(in_table.forget_a_forget.patch)
lose_claims_at_a_snapshot = bug("overlay")(in_table.lose_claims_at_a_snapshot.patch)


# -- the window


@bug("converged", "caught_up")
def never_ask(patch: pytest.MonkeyPatch) -> None:
    """A gap is noticed, and nobody asks for what is missing."""
    patch.setattr(Nodes, "_ask", lambda self, step, known, wish: None)


@bug("its_turn")
def wait_in_one_line(patch: pytest.MonkeyPatch) -> None:
    """All nodes wait for a resync in one line, and one host may use all places."""
    patch.setattr(limits, "HOST_RESYNCS_IN_FLIGHT_MAX", limits.RESYNCS_IN_FLIGHT_MAX)
    patch.setattr(Nodes, "_source_of", lambda self, node: "any host")


@bug("anti_affinity")
def take_candidates_whatever_others_have_found(patch: pytest.MonkeyPatch) -> None:
    """A server keeps the host of its decision, although another one of its request has found it meanwhile."""
    patch.setattr(RequestState, "beside", lambda self, instance: ())


@bug("few_snapshots")
def ask_for_each_missing_verdict(patch: pytest.MonkeyPatch) -> None:
    """An agent is asked for its state for each verdict that is missing, although it has just answered."""
    real = Nodes.verdict_missed
    patch.setattr(Nodes, "verdict_missed", lambda self, step, node, _began_s: real(self, step, node, float("inf")))


# -- the pipe


@bug("sequence_grows", "row_equals_agent")
def reuse_a_sequence(patch: pytest.MonkeyPatch) -> None:
    """Two increments carry the same number, as when a number is only taken after a good send."""

    def flush(self: MessagePipe, now: float) -> tuple[Increment, ...]:
        found = real(self, now)
        if self.sequence == 5 and found:
            return tuple(replace(one, sequence=one.sequence - 1) for one in found)
        return found

    real = MessagePipe.flush
    patch.setattr(MessagePipe, "flush", flush)


# -- the agent


@bug("no_overcommit")
def let_a_claim_vanish_at_once(patch: pytest.MonkeyPatch) -> None:
    """A claim that Placement does not hold yet ends at the first check, however young it is."""
    patch.setattr(ClaimLedger, "_is_disproved", lambda self, held, started_s, after_s: not self._is_in_placement(held))
    patch.setattr(AgentCore, "_check_at_s", lambda self, oldest_s: oldest_s)


@bug("converged")
def never_read_consumers_that_left(patch: pytest.MonkeyPatch) -> None:
    """A consumer that has left the tracker is not read from Placement, and stays in the row for minutes."""
    patch.setattr(PendingDeallocations, "add", lambda self, consumer, now: None)


@bug("no_orphans")
def lose_the_delete_of_an_allocation(patch: pytest.MonkeyPatch) -> None:
    """nova-compute deletes a server, and every other time its allocation stays."""

    def free(self: SimNode, consumer: str) -> None:
        if crc32(consumer.encode()) % 2:
            real(self, consumer)

    real = SimNode._free
    patch.setattr(SimNode, "_free", free)


@bug("no_overpinning")
def pin_on_what_the_tracker_says(patch: pytest.MonkeyPatch) -> None:
    """NUMA cells and devices of claims that are not built yet are forgotten at each new count."""

    def count(self: ClaimLedger) -> None:
        real(self)
        for name, value in self._tracker_leaves.items():
            if name.startswith(("numa.", "pci.")):
                self.leaves[name] = value

    real = ClaimLedger._count_again
    patch.setattr(ClaimLedger, "_count_again", count)


@bug("row_equals_agent", "sequence_grows", "converged")
def keep_the_epoch_over_a_restart(patch: pytest.MonkeyPatch) -> None:
    """A new life of an agent counts its messages from the beginning, in the old epoch."""

    def start(self: SimNode) -> None:
        self.kept_epoch = 0
        real(self)

    real = SimNode.start_agent
    patch.setattr(SimNode, "start_agent", start)
    patch.setattr(LocalClock, "wall_ms", 1)


# -- the table


@bug("row_equals_agent", "converged")
def keep_consumers_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    """A consumer that is gone stays in the row."""

    def apply(self: HostTable, node: str, leaves: Any, consumers: Any, *rest: Any, **at: Any) -> None:
        left = {uuid: one for uuid, one in consumers.items() if one is not None}
        real(self, node, leaves, left, *rest, **at)

    real = HostTable.apply
    patch.setattr(HostTable, "apply", apply)


# -- claims and requests


@bug("written_first")
def answer_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """The conductor gets its answer while Placement is still being asked."""

    def write(self: Claims, step: Any, claim: Any) -> None:
        real(self, step, claim)
        if claim.intent.by_agent:
            claim.state = ClaimState.WRITTEN
            step.report(ClaimWritten(claim))

    real = Claims._write
    patch.setattr(Claims, "_write", write)


@bug("seen_epoch")
def forget_what_it_was_decided_on(patch: pytest.MonkeyPatch) -> None:
    """A claim tells its agent no epoch, so that a copy of it may begin again in the agent's next life."""

    def cast(self: AgentCasts, step: Any, claim: Any) -> None:
        claim.seen = DATABASES
        real(self, step, claim)

    real = AgentCasts._cast
    patch.setattr(AgentCasts, "_cast", cast)


@bug("no_orphans", "nothing_left_behind")
def leave_behind_what_was_written(patch: pytest.MonkeyPatch) -> None:
    """What a failed request wrote is not deleted."""

    def delete(self: Claims, step: Any, claim: Any) -> None:
        self._agent_casts.release(step, claim)
        self._forget(step, claim, ClaimState.DELETED)

    patch.setattr(Claims, "_delete", delete)


@bug("allocation_kept")
def delete_what_the_second_try_wrote(patch: pytest.MonkeyPatch) -> None:
    """The delete of a failed try compares amounts and asks Nova nothing (D1)."""
    patch.setattr(Claims, "_sole_until_s", staticmethod(lambda claim: float("inf")))


@bug("one_ending")
def end_a_claim_twice(patch: pytest.MonkeyPatch) -> None:
    """A refusal that is delivered twice ends its claim twice."""

    def forget(self: Claims, step: Any, claim: Any, ending: ClaimState) -> None:
        real(self, step, claim, ending)
        if ending is ClaimState.REFUSED:
            self.endings[ending.value] += 1

    real = Claims._forget
    patch.setattr(Claims, "_forget", forget)


@bug("answered_once", "no_request_left")
def ignore_deadlines(patch: pytest.MonkeyPatch) -> None:
    """A request whose verdicts and writes do not come waits for ever."""
    patch.setattr(Requests, "on_timer", lambda self, step, key: None)
    patch.setattr(Claims, "on_verdict_timer", lambda self, step, claim_id: None)


@bug("answered_once")
def answer_twice(patch: pytest.MonkeyPatch) -> None:
    """A request is answered once more."""

    def answer(self: Requests, step: Any, state: RequestState) -> None:
        real(self, step, state)
        if state.key % 7 == 0:
            real(self, step, state)

    real = Requests._answer
    patch.setattr(Requests, "_answer", answer)


@bug("few_snapshots", "quiet")
def never_verify(patch: pytest.MonkeyPatch) -> None:
    """Each heartbeat seems to differ, so that snapshots are asked for again and again."""
    patch.setattr(MessageWindow, "_compare", lambda self, heartbeat, now, own: Cause.MISMATCH)


@bug("visible_once")
def count_on_what_the_base_shows(patch: pytest.MonkeyPatch) -> None:
    """The overlay goes on counting the allocations of a claim that the base shows."""

    def count(self: Overlay, row: Any, claim: Any, sign: int) -> None:
        if sign > 0:
            real(self, row, claim, sign)
        claim.counts_allocations = sign > 0

    real = Overlay._count_allocations
    patch.setattr(Overlay, "_count_allocations", count)


@bug("alternates")
def offer_the_chosen_host_as_alternate(patch: pytest.MonkeyPatch) -> None:
    """Alternates are selected among all hosts."""
    patch.setattr(RequestState, "chosen", lambda self: frozenset())
    patch.setattr(Alternates, "_is_current", staticmethod(lambda state: state.alternates is not None))


@bug("alternates")
def offer_alternates_of_any_cell(patch: pytest.MonkeyPatch) -> None:
    """Alternates are selected in all cells, and the conductor of the cell cannot build there."""

    def others(self: Planner, state: RequestState, _request: Request, decision: Any, _cell: str) -> Any:
        return (node for node in decision.nodes() if node not in state.chosen())

    patch.setattr(Planner, "_others", others)


@bug("selected")
def trust_the_traits_of_the_row(patch: pytest.MonkeyPatch) -> None:
    """Placement is not asked for the selected host of a request that names a trait or an aggregate."""

    def step(self: SchedulerCore, event: Event, now: float) -> Any:
        if isinstance(event, RequestArrived):
            event = replace(event, request=replace(event.request, root_only=True))
        return real(self, event, now)

    real = SchedulerCore.step
    patch.setattr(SchedulerCore, "step", step)


@bug("bounds")
def go_on_asking(patch: pytest.MonkeyPatch) -> None:
    """A window that has all it wants still plans to ask for a resync."""

    def enter(self: MessageWindow, phase: Any, now: float) -> None:
        real(self, phase, now)
        self._ask_at_s = now + 1.0

    real = MessageWindow._enter
    patch.setattr(MessageWindow, "_enter", enter)


@bug("reasons_add_up")
def count_a_host_for_two_reasons(patch: pytest.MonkeyPatch) -> None:
    """One host of those that fall to a stage is counted once more."""

    def narrow(mask: Any, passes: Any, left: int, reasons: dict[str, int], code: str) -> int:
        found = real(mask, passes, left, reasons, code)
        if found != left:
            reasons[code] += 1
        return found

    real = filtering._narrow
    patch.setattr(filtering, "_narrow", narrow)


@bug("never_refused")
def refuse_what_fits(patch: pytest.MonkeyPatch) -> None:
    """A node refuses every third claim, although it has room."""

    def shortage(self: ClaimLedger, claim: Claim) -> Any:
        if crc32(claim.claim_id.encode()) % 3 == 0:
            return Reason(RefusalCode.NO_CAPACITY)
        return real(self, claim)

    real = ClaimLedger._shortage
    patch.setattr(ClaimLedger, "_shortage", shortage)


@bug("gone")
def keep_nodes_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    """What the database does not have any more stays in the table."""
    patch.setattr(Nodes, "gone", lambda self, event: event.nodes)


# -- a stolen node


@bug("own_word")
def believe_the_verdict_of_any_node(patch: pytest.MonkeyPatch) -> None:
    """A verdict counts for the claim that it names, whichever node says it."""

    def on_verdict(self: Claims, step: Any, verdict: Verdict) -> None:
        claim = self._open.get(verdict.claim_id)
        real(self, step, verdict if claim is None else replace(verdict, node=claim.intent.node))

    real = Claims.on_verdict
    patch.setattr(Claims, "on_verdict", on_verdict)


@bug("own_word")
def believe_the_increment_of_any_node(patch: pytest.MonkeyPatch) -> None:
    """An increment accepts the claims that it names, whichever node says it."""

    def on_increment(self: Claims, step: Any, increment: Increment) -> None:
        for claim_id in increment.claims:
            claim = self._open.get(claim_id)
            node = increment.node if claim is None else claim.intent.node
            real(self, step, replace(increment, node=node, claims={claim_id: increment.claims[claim_id]}))

    real = Claims.on_increment
    patch.setattr(Claims, "on_increment", on_increment)


@bug("no_overcommit")
def release_for_anybody(patch: pytest.MonkeyPatch) -> None:
    """A release ends the claim that it names, whoever sends it."""

    def release(self: ClaimLedger, claim_id: str, consumer: str, scheduler: str) -> Any:
        held = self.pending.get(claim_id)
        return real(self, claim_id, consumer, scheduler if held is None else held.claim.scheduler)

    real = ClaimLedger.release
    patch.setattr(ClaimLedger, "release", release)


# -- server groups


@bug("anti_affinity", "soft_anti_affinity")
def judge_without_groups(patch: pytest.MonkeyPatch) -> None:
    """An agent ignores the group of a claim."""
    patch.setattr(GroupLedger, "judge", lambda self, claim, present, settled: None)


@bug("anti_affinity")
def count_groups_of_what_is_built_only(patch: pytest.MonkeyPatch) -> None:
    """An agent counts the members that nova-compute has built, and not those that it has accepted since."""

    def judge(self: GroupLedger, claim: Claim, present: Any, settled: Any) -> Any:
        return real(self, claim, settled, settled)

    real = GroupLedger.judge
    patch.setattr(GroupLedger, "judge", judge)


@bug("soft_anti_affinity")
def insist_at_once(patch: pytest.MonkeyPatch) -> None:
    """No claim tells how many members its decision saw, so that no agent can say that there are more."""

    def group(self: Planner, state: Any, instance: Any, node: str) -> Any:
        found = real(self, state, instance, node)
        return found and replace(found, seen=None)

    real = Planner.claim_group
    patch.setattr(Planner, "claim_group", group)


@bug("affinity", "soft_affinity")
def answer_without_checking_the_members(patch: pytest.MonkeyPatch) -> None:
    """Nobody reads where other members were written at the same moment."""
    patch.setattr(GroupCheck, "is_needed", lambda self, state: False)


@bug("affinity")
def trust_the_members_of_the_request(patch: pytest.MonkeyPatch) -> None:
    """Only those members are looked up that the conductor knew, long before the own allocation was written."""

    def ask(self: GroupCheck, step: Any, state: RequestState) -> None:
        real(self, step, state)
        others = {uuid for effect in step.effects if isinstance(effect, AskGroup) for uuid in effect.known}
        everybody = frozenset(f"server-{n}-{i}" for n in range(2_000) for i in range(4))
        members = state.request.group.members if state.request.group else frozenset[str]()
        step.effects[-1] = replace(step.effects[-1], known=(everybody - members) | others)

    real = GroupCheck.ask
    patch.setattr(GroupCheck, "ask", ask)


@bug("anti_affinity", "affinity", "soft_anti_affinity", "soft_affinity")
def know_nothing_of_groups(patch: pytest.MonkeyPatch) -> None:
    """As before groups were part of a claim: a request's group is what the conductor has read, and nobody checks it."""
    patch.setattr(planner, "with_known_members", lambda table, request, own, add_hosts=True: request)
    patch.setattr(Planner, "claim_group", lambda self, state, instance, node: None)
    patch.setattr(GroupCheck, "is_needed", lambda self, state: False)


@bug("soft_affinity")
def know_members_where_a_server_leaves(patch: pytest.MonkeyPatch) -> None:
    """Members that move at the same moment are not looked up, because both are known where they leave."""

    def chosen(self: GroupCheck, state: RequestState, instance: InstancePlacement) -> None:
        group = state.request.group
        if group is not None and group.policy == GroupPolicy.SOFT_AFFINITY:
            others = (group.members | self._table.groups.of(group.uuid)) - {instance.consumer}
            state.check.first |= not self._table.members_at(others)

    patch.setattr(GroupCheck, "chosen", chosen)


@bug("soft_affinity")
def check_soft_groups_once(patch: pytest.MonkeyPatch) -> None:
    """A member that has yielded is answered wherever the others are then (before 6800be1)."""

    def is_needed(self: GroupCheck, state: RequestState) -> bool:
        group = state.request.group
        soft = group is not None and group.policy == GroupPolicy.SOFT_AFFINITY
        return real(self, state) and not (soft and state.check.yields)

    real = GroupCheck.is_needed
    patch.setattr(GroupCheck, "is_needed", is_needed)


@bug("soft_affinity")
def pass_over_late_agents_after_a_yield(patch: pytest.MonkeyPatch) -> None:
    """A member does not yield to a host that it has left because the agent was late (before 6800be1)."""

    def decide_again(self: Requests, step: Any, state: RequestState) -> None:
        left = [(instance, [*instance.late], dict(instance.out)) for instance in state.instances]
        real(self, step, state)
        for instance, late, out in left:
            instance.late[:] = late
            instance.out.update(out)

    real = Requests._decide_again_if_clean
    patch.setattr(Requests, "_decide_again_if_clean", decide_again)


@bug("soft_choice")
def move_members_among_near_ties(patch: pytest.MonkeyPatch) -> None:
    """Slices, and the order in which members meet, ignore the members of a soft group (before e3eedee)."""

    def near_ties(weights: FloatArray, near_tie: float, members: FloatArray | None) -> BoolArray:
        near: BoolArray = weights >= weights.max() - near_tie
        return near

    patch.setattr(pick, "_near_ties", near_ties)


@bug("soft_choice")
def prefer_near_ties_of_a_host_that_is_not_tried(patch: pytest.MonkeyPatch) -> None:
    """Near ties are those of the best host, although it is in quarantine or has no room for a claim."""

    def nodes(self: Decision, without: AbstractSet[str] = frozenset()) -> Iterator[str]:
        return (node for node in real(self) if node not in without)

    real = Decision.nodes
    patch.setattr(Decision, "nodes", nodes)


@bug("anti_affinity")
def count_only_what_members_hold(patch: pytest.MonkeyPatch) -> None:
    """A member that leaves a host without an agent, with its allocations in the name of its migration, is forgotten."""
    real = GroupCheck._members_beside
    patch.setattr(GroupCheck, "_members_beside", lambda self, choice, others, hosts: real(self, choice, others, {}))


@bug("soft_choice")
def leave_late_agents_at_once(patch: pytest.MonkeyPatch) -> None:
    """A late agent moves a member of a soft group to a host with more or fewer members."""
    patch.setattr(Planner, "_soft_members", lambda self, request, instance, node: 0)


@bug("enabled")
def keep_the_tree_that_is_being_read(patch: pytest.MonkeyPatch) -> None:
    """An agent that is told of a new provider tree while it reads one does not read again."""
    real = AgentCore._handle_placement_event

    def handle(self: AgentCore, event: Any, now: float) -> None:
        if not (isinstance(event, TreeChanged) and self.tree.reading):
            real(self, event, now)

    patch.setattr(AgentCore, "_handle_placement_event", handle)


# -- the queue of writes


@bug("well_again")
def remember_the_worst_pace(patch: pytest.MonkeyPatch) -> None:
    """One call without an answer counts for ever: no write has enough time after it."""

    def measured(self: WritePace, consumers: int, began_s: float, took_s: float, answered: bool = True) -> None:
        self._consumer_s = max(self.consumer_s, took_s / consumers)

    patch.setattr(WritePace, "measured", measured)
    patch.setattr(WritePace, "is_too_late", lambda self, deadline_s, now: now + self.consumer_s >= deadline_s)


@bug("no_overcommit")
def forget_a_write_that_may_arrive(patch: pytest.MonkeyPatch) -> None:
    """The room of a write without an answer is given out again as soon as nothing of it is found."""
    patch.setattr(claims, "CARRIED_OUT_WITHIN_S", 0.0)
    patch.setattr(claim_ledger, "CARRIED_OUT_WITHIN_S", 0.0)


@bug("allocation_kept")
def delete_what_another_scheduler_has_written_too(patch: pytest.MonkeyPatch) -> None:
    """Two schedulers get one request and write the same, and one deletes it, although the other has answered."""
    patch.setattr(OpenClaim, "is_twin", False)


@bug("no_orphans")
def delete_only_what_the_own_write_has_made(patch: pytest.MonkeyPatch) -> None:
    """Of two answers for one server that nobody hears, the first one does not know what the second has written (before
    61a2c366)."""
    patch.setattr(OpenClaim, "take_over", lambda self, claim: None)


@bug("allocation_kept", "heard_stands")
def delete_before_nova_knows_of_an_answer(patch: pytest.MonkeyPatch) -> None:
    """A claim that began after another one of its server was answered, and whose write is lost, is deleted at once
    (before 77f7d691)."""
    real = OpenClaim.may_delete_from_s

    def may_delete_from_s(claim: OpenClaim) -> float:
        return real(claim) if claim.is_twin else float("-inf")

    patch.setattr(OpenClaim, "may_delete_from_s", may_delete_from_s)


@bug("written_first", "allocation_kept", "heard_stands")
def doubt_what_was_answered(patch: pytest.MonkeyPatch) -> None:
    """A write without an answer is in doubt also if another one has left the same, and was answered (before
    ed62ff8b)."""
    patch.setattr(InDoubtWrites, "settled", lambda self, consumer, *_: self._cases.pop(consumer, None))


@bug("no_orphans", "converged")
def expect_late_writes_for_half_the_time(patch: pytest.MonkeyPatch) -> None:
    """A write without an answer is taken to be over before a proxy and Placement have given it up."""
    patch.setattr(claims, "CARRIED_OUT_WITHIN_S", claims.CARRIED_OUT_WITHIN_S / 2)


@bug("no_lost_records")
def take_over_what_a_write_may_create(patch: pytest.MonkeyPatch) -> None:
    """A record without allocations is taken for an orphan, although a write that is under way may have made it."""
    patch.setattr(OwnRecords, "state", lambda self, consumer, now: OwnRecord.LEFT)


@bug("sendable")
def let_a_claim_hold_few_devices(patch: pytest.MonkeyPatch) -> None:
    """The topology of a claim may be as long as a leaf, and a longer one is dropped by its sender (D10)."""
    number = next(number for number, layout in codec.LAYOUTS.items() if layout.message is Claim)
    check = codec.text(OLD_TOPOLOGY_MAX_CHARS, chars_min=0)
    layout = codec.LAYOUTS[number]
    fields = [codec.Field(one.name, one.read, check) if one.name == "topology" else one for one in layout.fields]
    patch.setattr(codec, "LAYOUTS", {**codec.LAYOUTS, number: replace(layout, fields=tuple(fields))})


@bug("well_asked")
def refuse_servers_with_many_devices(patch: pytest.MonkeyPatch) -> None:
    """The same limit, and requests for more fail at once."""
    patch.setattr(requests, "TOPOLOGY_MAX_CHARS", OLD_TOPOLOGY_MAX_CHARS)


@bug("few_comparisons")
def compare_with_all_claims(patch: pytest.MonkeyPatch) -> None:
    """What Placement says of one consumer is compared with all confirmed claims (D9)."""

    def on_consumer(self: ConfirmedClaims, event: ConsumerAnswered) -> None:
        for claim_id, watched in list(self._watched.items()):
            is_gone = not event.error and not event.allocations.keys() & watched.allocations.keys()
            if watched.consumer == event.consumer and is_gone:
                self._timers.cancel(("unreported", claim_id))
                self._end(claim_id)

    patch.setattr(ConfirmedClaims, "on_consumer", on_consumer)


@bug("none_left_out")
def exclude_nodes_that_refuse(patch: pytest.MonkeyPatch) -> None:
    """Nodes in quarantine are excluded for a while, instead of selected last (D6)."""

    def decide(
        self: Any, state: RequestState, request: Request, instance: InstancePlacement, natives: bool = True
    ) -> Decision:
        excluded = self._quarantine.refusing.union(instance.out)
        found: Decision = self._decider.decide(request, instance.index, excluded, state.narrowing, natives)
        return found

    patch.setattr(Planner, "_decide", decide)


@bug("others_kept")
def write_without_what_others_have_added(patch: pytest.MonkeyPatch) -> None:
    """A move that conflicts is written again over what others have added meanwhile."""
    patch.setattr(write_course, "merge", lambda base, part, theirs: Merged(plain_allocations(part), {}))


# -- over-commit in Placement


@bug("taken_back")
def never_look_after_a_write(patch: pytest.MonkeyPatch) -> None:
    """The check after a write that no agent has judged finds room whatever the usage is."""
    patch.setattr(overcommit_rules, "overfull", lambda provider, asked, used, capacities: None)


@bug("taken_back")
def serialise_nothing(patch: pytest.MonkeyPatch) -> None:
    """Every node seems to have so much room that no write needs a check."""
    patch.setattr(Claims, "_has_headroom", lambda self, intent: True)


@bug("judged_fits")
def write_without_a_verdict(patch: pytest.MonkeyPatch) -> None:
    """A scheduler writes what fits by its table, and asks no agent."""

    def begin(self: Claims, step: Any, owner: Any, intent: Intent, *rest: Any) -> OpenClaim:
        return real(self, step, owner, replace(intent, by_agent=False), *rest)

    real = Claims.begin
    patch.setattr(Claims, "begin", begin)


# -- spreading


@bug("spread")
def answer_without_checking_the_racks(patch: pytest.MonkeyPatch) -> None:
    """Nobody reads where other servers with the label were written at the same moment."""
    patch.setattr(SpreadCheck, "is_needed", lambda self, state: False)


@bug("spread")
def count_what_may_yield(patch: pytest.MonkeyPatch) -> None:
    """Servers whose requests have no answer raise the smallest count of all racks, and yield afterwards."""

    def judge(self: SpreadCheck, state: RequestState, event: GroupAnswered) -> Any:
        return real(self, state, replace(event, unanswered=frozenset()))

    real = SpreadCheck.judge
    patch.setattr(SpreadCheck, "judge", judge)


@bug("spread")
def trust_the_table(patch: pytest.MonkeyPatch) -> None:
    """Every server of the label that the table shows anywhere counts as built there."""
    patch.setattr(SpreadCheck, "_is_built", lambda self, uuid, slot: True)


@bug("goes_on")
def forget_what_was_looked_up(patch: pytest.MonkeyPatch) -> None:
    """A request that has yielded to other servers with its label counts them again as the agents report them."""
    patch.setattr(SpreadCheck, "_remember", lambda self, state, others, homes, built: None)


@bug("affinity")
def miss_members_that_begin_to_leave(patch: pytest.MonkeyPatch) -> None:
    """A member of an affinity group whose allocations are in the name of its migration is nowhere."""

    def judge(self: GroupCheck, state: RequestState, event: GroupAnswered) -> Any:
        group = state.request.group
        hard = group is not None and group.policy == GroupPolicy.AFFINITY
        return real(self, state, replace(event, hosts={}) if hard else event)

    real = GroupCheck.judge
    patch.setattr(GroupCheck, "judge", judge)


@bug("affinity")
def believe_in_moves_without_an_answer(patch: pytest.MonkeyPatch) -> None:
    """A member of an affinity group that holds allocations for its target has left its host, although its move may fail
    (before cd0dac0)."""

    def judge(self: GroupCheck, state: RequestState, event: GroupAnswered) -> Any:
        group = state.request.group
        hard = group is not None and group.policy == GroupPolicy.AFFINITY
        without = {uuid: host for uuid, host in event.hosts.items() if uuid not in event.standing}
        return real(self, state, replace(event, hosts=without) if hard else event)

    real = GroupCheck.judge
    patch.setattr(GroupCheck, "judge", judge)


# -- names of nodes


@bug("named")
def take_the_host_for_the_name(patch: pytest.MonkeyPatch) -> None:
    """A node whose snapshot lacks its name gets that of its host, and no increment corrects it."""

    def upsert(self: HostTable, node: str, cell: str, host: str, nodename: str) -> int:
        return real_upsert(self, node, cell, host, nodename or host)

    def apply(self: RowWriter, row: Row, *changes: Any) -> int:
        before = row.nodename
        dirty = real_apply(self, row, *changes)
        row.nodename = before
        return dirty

    real_upsert, real_apply = HostTable.upsert, RowWriter.apply
    patch.setattr(HostTable, "upsert", upsert)
    patch.setattr(RowWriter, "apply", apply)


# -- providers without a node


@bug("no_wait_for_no_node")
def wait_for_what_is_no_node(patch: pytest.MonkeyPatch) -> None:
    """A request waits for the row of a provider that a compute has left (before f9b2c1f)."""
    patch.setattr(Recheck, "not_found", lambda self, step, node, read_at_s: None)


# -- evacuations


@bug("others_kept", "written_first")
def write_an_evacuation_without_its_source(patch: pytest.MonkeyPatch) -> None:
    """The write of an evacuation replaces what the server has: its source, and the ports of others."""
    patch.setattr(consumer_conflicts, "union", lambda standing, wanted: plain_allocations(wanted))


@bug("others_kept")
def trust_the_table_after_a_conflict(patch: pytest.MonkeyPatch) -> None:
    """An evacuation that conflicts is sent again with the new generation, and with what the table knows."""

    def merge_with(self: WriteCourse, standing: ConsumerAllocations, attempts: Sequence[WriteAttempt] = ()) -> None:
        real(self, replace(standing, allocations=self.base) if self.known else standing, attempts)

    real = WriteCourse.merge_with
    patch.setattr(WriteCourse, "merge_with", merge_with)


@bug("others_kept", "written_first", "allocation_kept")
def take_back_more_than_was_added(patch: pytest.MonkeyPatch) -> None:
    """An evacuation that fails after its write deletes all that the server has."""

    def note_what_stands(claim: OpenClaim, event: AllocationWritten) -> None:
        real(claim, replace(event, before={}))

    real = Claims._note_what_stands
    patch.setattr(Claims, "_note_what_stands", staticmethod(note_what_stands))


# -- changes by others


@bug("only_of_others")
def take_our_own_write_for_that_of_others(patch: pytest.MonkeyPatch) -> None:
    """The first report of what a scheduler has written counts as a change (before d551679)."""

    def compare_with(self: OwnWrites, step: Step, consumer: str, left: Any, held: Allocations, generation: int) -> None:
        if not left.shown:
            self._examine(step, consumer, left, held, generation)
        real(self, step, consumer, left, held, generation)

    real = OwnWrites._compare_with
    patch.setattr(OwnWrites, "_compare_with", compare_with)


@bug("change_told")
def read_no_generations_in_increments(patch: pytest.MonkeyPatch) -> None:
    """Only snapshots are compared with what a scheduler has written."""
    patch.setattr(OwnWrites, "reported", lambda *_: None)


@bug("change_told")
def forget_what_runs(patch: pytest.MonkeyPatch) -> None:
    """A removal is told only while the server is being built."""

    def compare_with_nothing(self: OwnWrites, step: Step, consumer: str, left: Any, is_there: bool) -> None:
        real(self, step, consumer, left, False)

    real = OwnWrites._compare_with_nothing
    patch.setattr(OwnWrites, "_compare_with_nothing", compare_with_nothing)


PLANTED = tuple(found for found in list(globals().values()) if isinstance(found, Planted))

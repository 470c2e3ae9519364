# SPDX-License-Identifier: Apache-2.0
"""The simulator catches every planted bug by an invariant that describes it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

import pytest

from shared_scheduler.protocol.messages import GroupPolicy
from shared_scheduler.sim.computes import Size
from shared_scheduler.sim.invariants import INVARIANTS
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.rest import heal
from shared_scheduler.sim.run import STEPS, RunPlan, begin, drawn
from shared_scheduler.sim.scheduled_moves import EVACUATION, MOVES
from shared_scheduler.sim.schedulers import DECISIONS
from shared_scheduler.sim.topology import Board
from shared_scheduler.sim.workload import FLAVORS, Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim import test_simulator
from tests.unit.sim.planted import PLANTED, Planted
from tests.unit.sim.planted_reads import READS, SEARCHES

pytestmark = pytest.mark.long

#: the last one is a world in which the last message to somebody is lost, and no later one shows it
SEEDS = (*range(20), 27)
#: more worlds, with room for everybody, in which Placement is away again and again, and one in which it is slow for a
#: time: seed, fault, seconds between two faults, seconds in all
PLACEMENT_FAULTS = [*((seed, "placement_down", 8.0, 40.0) for seed in range(16, 20)), (0, "placement_slow", 30.0, 80.0)]
#: crowded clouds in which writes are carried out late
LATE_SEEDS = (3, 1)
#: worlds in which several schedulers place servers with one label at the same moment
SPREAD_SEEDS = range(4)
#: the turn of the world that is tried first: one that showed the bug in about a second when it was planted
SHOWN_BY = {
    "leave_behind_what_was_written": 1,
    "exclude_nodes_that_refuse": 4,
    "leave_late_agents_at_once": 5,
    "lose_claims_at_a_snapshot": 5,
    "count_groups_of_what_is_built_only": 8,
    "end_a_claim_twice": 9,
    "judge_without_groups": 9,
    "know_nothing_of_groups": 9,
    "never_read_consumers_that_left": 48,
    "insist_at_once": 13,
    "answer_twice": 17,
    "ignore_deadlines": 17,
    "ignore_the_epoch": 17,
    "keep_the_epoch_over_a_restart": 17,
    "refuse_what_fits": 17,
    "miss_a_lost_last_message": 20,
    "pin_on_what_the_tracker_says": 20,
    "forget_a_write_that_may_arrive": 22,
    "judge_without_pending_claims": 32,
    "let_a_claim_vanish_at_once": 32,
    "release_for_anybody": 32,
    "believe_the_increment_of_any_node": 33,
    "believe_the_verdict_of_any_node": 33,
    "keep_nodes_that_are_gone": 34,
    "remember_the_worst_pace": 35,
    "take_over_what_a_write_may_create": 35,
    "write_without_what_others_have_added": 36,
    "answer_without_checking_the_members": 37,
    "move_members_among_near_ties": 37,
    "know_members_where_a_server_leaves": 38,
    "answer_without_checking_the_racks": 29,
    "check_soft_groups_once": 39,
    "offer_alternates_of_any_cell": 33,
    "trust_the_traits_of_the_row": 33,
    "count_what_may_yield": 44,
    "pass_over_late_agents_after_a_yield": 40,
    "trust_the_members_of_the_request": 34,
    "trust_the_table": 29,
    "delete_what_the_second_try_wrote": 41,
    "count_only_what_members_hold": 42,
    "prefer_near_ties_of_a_host_that_is_not_tried": 55,
    "ask_for_each_missing_verdict": 54,
    "take_candidates_whatever_others_have_found": 58,
    "delete_what_another_scheduler_has_written_too": 45,
    "expect_late_writes_for_half_the_time": 46,
    "wait_in_one_line": 47,
    "miss_members_that_begin_to_leave": 50,
    "believe_in_moves_without_an_answer": 50,
    "take_the_host_for_the_name": 56,
    "keep_the_tree_that_is_being_read": 57,
    "wait_for_what_is_no_node": 51,
    "write_an_evacuation_without_its_source": 52,
    "trust_the_table_after_a_conflict": 52,
    "take_back_more_than_was_added": 52,
    "forget_what_was_looked_up": 53,
    "never_look_after_a_write": 59,
    "serialise_nothing": 59,
    "write_without_a_verdict": 59,
    "let_a_claim_hold_few_devices": 60,
    "refuse_servers_with_many_devices": 60,
    "compare_with_all_claims": 61,
    "delete_only_what_the_own_write_has_made": 63,
    "delete_before_nova_knows_of_an_answer": 62,
    "doubt_what_was_answered": 62,
}
#: the quickest world of all, which shows most of the others
QUICKEST = 19
#: worlds that differ from the first one in their seed only, and are tried if it does not show the bug any more: each
#: change to the order of messages makes another story of a seed
VARIATIONS = 40
#: the turns of the worlds that are tried first
FIRST = {QUICKEST, *SHOWN_BY.values()}
#: the drawn worlds that ``test_simulator.py`` runs without a bug
ELSEWHERE = {*test_simulator.SEEDS, *test_simulator.ONCE_BROKEN}
#: crowded clouds in which a node lies for some seconds, the second with two cells, traits and aggregates
LYING_SEEDS = range(2)


def plans() -> Iterator[RunPlan]:
    """Small worlds with everything that can go wrong; ``SHOWN_BY`` names them by their turn."""
    yield from lossy_plans()
    yield from placement_plans()
    yield from spreading_plans()
    yield from lying_plans()
    yield from rare_plans()
    yield from moving_plans()
    yield from near_tie_plans()
    yield from moving_members_plans()
    yield from yielding_plans()
    yield asked_again(3)
    yield from broken_seeds_plans()
    yield twice_plan()
    yield crawling_plan()
    yield flooded_plan()
    yield drawn(38)  # a server is deleted, and its allocation some time after it
    yield drawn(80279)  # the only member of an affinity group begins to move while another one is placed
    yield slow_moves_plan()
    yield left_provider_plan()
    yield evacuations_plan()
    yield replace(many_labels(40), duration_s=12.0)  # claims outlive their requests
    yield deaf_plan()
    yield late_near_ties_plan()
    yield booting_plan()
    yield disabling_plan()
    yield several_at_once_plan()
    yield crowded_plan()
    yield ports_plan()
    yield waiting_builds_plan()
    yield again_plan()
    yield two_answers_plan()


def lossy_plans() -> Iterator[RunPlan]:
    """Worlds that lose messages, by turns busy and quiet.

    In every fourth only messages are lost: where faults end, everybody begins anew, and what a lost
    last message has left behind is gone.
    """
    for seed in SEEDS:
        busy = seed % 2 == 0
        yield RunPlan(
            seed=seed,
            duration_s=20.0,
            sizes=Sizes(nodes=3, schedulers=2, size=Size(board=Board()), heartbeat_interval_s=2.0),
            workload=Workload(
                rate_per_s=10.0 if busy else 0.5, lifetime_s=8.0, several=0.2, topologies=0.4, grouped=0.4
            ),
            network_faults=NetworkFaults(loss=0.05 if busy else 0.3, duplicates=0.1, late=0.3, late_max_s=3.0),
            fault_every_s=0.0 if seed % 4 == 3 else 1.0,
            rows_every=1,
            decode_each=True,
        )
    for seed in LATE_SEEDS:
        yield RunPlan(
            seed=seed,
            duration_s=40.0,
            sizes=Sizes(nodes=3, schedulers=2, size=Size(board=Board()), heartbeat_interval_s=2.0),
            workload=Workload(rate_per_s=0.5, lifetime_s=8.0, several=0.2, topologies=0.4, grouped=0.4),
            network_faults=NetworkFaults(loss=0.3, duplicates=0.1, late=0.3, late_max_s=3.0),
            fault_every_s=5.0,
            fault_kinds=("placement_slow",),
            rows_every=1,
            decode_each=True,
        )


def placement_plans() -> Iterator[RunPlan]:
    """Placement is away or slow."""
    for seed, fault, every_s, duration_s in PLACEMENT_FAULTS:
        yield RunPlan(
            seed=seed,
            duration_s=duration_s,
            sizes=Sizes(nodes=2, schedulers=2),
            workload=Workload(rate_per_s=4.0, lifetime_s=3.0, asks_again=1.0, flavors=FLAVORS[:1]),
            fault_every_s=every_s,
            fault_kinds=(fault,),
            rows_every=1,
        )


def spreading_plans() -> Iterator[RunPlan]:
    """Servers with one label spread over racks."""
    for seed in SPREAD_SEEDS:
        yield RunPlan(
            seed=seed,
            duration_s=20.0,
            sizes=Sizes(nodes=6, schedulers=4, heartbeat_interval_s=2.0),
            workload=Workload(rate_per_s=6.0, lifetime_s=8.0, several=0.2, spread=0.7, flavors=FLAVORS[:1]),
            network_faults=NetworkFaults(loss=0.05 * (seed % 2), late=0.2, late_max_s=1.0),
            fault_every_s=2.0 * (seed // 2),
        )


def many_labels(seed: int) -> RunPlan:
    """A drawn world in which most requests are for servers with a label."""
    plan = drawn(seed)
    return replace(plan, workload=replace(plan.workload, spread=0.6))


def lying_plans() -> Iterator[RunPlan]:
    """A node lies for some seconds."""
    for seed in LYING_SEEDS:
        yield RunPlan(
            seed=seed,
            duration_s=20.0,
            sizes=Sizes(nodes=2 + 2 * seed, cells=1 + seed, schedulers=3, placement_s=0.05, heartbeat_interval_s=2.0),
            workload=Workload(rate_per_s=15.0, lifetime_s=10.0, flavors=FLAVORS[2:], selections=0.3 * seed),
            network_faults=NetworkFaults(loss=0.1 * seed),
            fault_every_s=2.0,
            fault_kinds=("node_lies",),
            rows_every=1,
        )


def rare_plans() -> Iterator[RunPlan]:
    """Faults that other worlds draw rarely: a node goes for good, and Placement loses races."""
    yield RunPlan(
        seed=1,
        duration_s=30.0,
        sizes=Sizes(nodes=5, cells=2, schedulers=2, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=6.0, lifetime_s=8.0, grouped=0.4, flavors=FLAVORS[:1]),
        network_faults=NetworkFaults(loss=0.05, late=0.3, late_max_s=3.0),
        fault_every_s=8.0,
        fault_kinds=("node_goes",),
        rows_every=1,
    )
    yield asked_again(1)


def asked_again(schedulers: int) -> RunPlan:
    """Servers that are asked for again while their first write is repeated, and that live until it is over."""
    return RunPlan(
        seed=1,
        duration_s=60.0,
        sizes=Sizes(nodes=2, schedulers=schedulers),
        workload=Workload(rate_per_s=0.5, lifetime_s=100.0, asks_again=1.0, flavors=FLAVORS[:1]),
        fault_every_s=20.0,
        fault_kinds=("placement_loses",),
        rows_every=1,
    )


def moving_plans() -> Iterator[RunPlan]:
    """Somebody else attaches ports to servers while they move."""
    yield RunPlan(
        seed=1,
        duration_s=15.0,
        sizes=Sizes(nodes=3, schedulers=2, merged_moves=MOVES, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=2.0, lifetime_s=20.0, flavors=FLAVORS[:1]),
        fault_every_s=1.0,
        fault_kinds=("ports_in_moves",),
        rows_every=1,
    )


def near_tie_plans() -> Iterator[RunPlan]:
    """Soft policies add less to a weight than what makes a near tie."""
    weak = replace(DECISIONS, soft_affinity_weight_multiplier=0.05, soft_anti_affinity_weight_multiplier=0.05)
    yield RunPlan(
        seed=1,
        duration_s=8.0,
        sizes=Sizes(nodes=4, schedulers=3, decisions=weak, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=6.0, lifetime_s=5.0, grouped=0.8, flavors=FLAVORS[:1]),
    )


def late_near_ties_plan() -> RunPlan:
    """The same with agents that freeze, so that the best host is often not tried."""
    (plan,) = near_tie_plans()
    policies = (GroupPolicy.SOFT_AFFINITY, GroupPolicy.SOFT_ANTI_AFFINITY)
    load = replace(plan.workload, rate_per_s=8.0, grouped=0.9, policies=policies, several=0.2, build_fails=0.2)
    lossy = NetworkFaults(loss=0.1, late=0.2, late_max_s=1.0)
    frozen = replace(plan, network_faults=lossy, fault_every_s=1.0, fault_kinds=("agent_freezes",))
    return replace(frozen, seed=7, sizes=replace(plan.sizes, nodes=5, schedulers=2), workload=load)


def moving_members_plans() -> Iterator[RunPlan]:
    """Members of groups move, half of them two at once."""
    yield RunPlan(
        seed=47,
        duration_s=8.0,
        sizes=Sizes(nodes=5, schedulers=3, merged_moves=MOVES, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=6.0, lifetime_s=30.0, grouped=0.7, flavors=FLAVORS[:1]),
        network_faults=NetworkFaults(loss=0.05, late=0.3, late_max_s=1.0),
        fault_every_s=1.0,
        fault_kinds=("ports_in_moves",),
    )


def yielding_plans() -> Iterator[RunPlan]:
    """First members of a soft group yield to each other, and to one on the host of an agent that was late."""
    policies = (GroupPolicy.SOFT_AFFINITY, GroupPolicy.SOFT_ANTI_AFFINITY)
    plan = drawn(84)
    load = replace(plan.workload, grouped=0.9, policies=policies, migrations_per_s=0.0, topologies=0.0)
    yield replace(plan, seed=4, swarm=False, workload=load)
    yield replace(drawn(13), seed=85)


def broken_seeds_plans() -> Iterator[RunPlan]:
    """A member leaves a node without an agent while another one goes there; the best host of a member is in quarantine
    while its near ties have fewer members than others; a scheduler misses many verdicts."""
    yield leaving_members_plan()
    yield replace(drawn(60457), swarm=False)  # without rare faults
    yield drawn(60049)


def leaving_members_plan() -> RunPlan:
    """Members of anti-affinity groups leave nodes without an agent."""
    return RunPlan(
        seed=1,
        duration_s=15.0,
        sizes=Sizes(
            nodes=3, schedulers=2, agentless=0.7, merged_moves=MOVES, placement_s=0.05, heartbeat_interval_s=2.0
        ),
        workload=Workload(
            rate_per_s=5.0, lifetime_s=30.0, grouped=1.0, policies=(GroupPolicy.ANTI_AFFINITY,), build_fails=0.0,
            flavors=FLAVORS[:1],
        ),
        fault_every_s=1.0,
        fault_kinds=("ports_in_moves",),
    )  # fmt: skip


def twice_plan() -> RunPlan:
    """A message queue that fails over delivers requests to two schedulers."""
    return RunPlan(
        seed=1,
        duration_s=8.0,
        sizes=Sizes(nodes=2, schedulers=2, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=6.0, lifetime_s=8.0, several=0.4, flavors=FLAVORS[:1]),
        fault_every_s=1.0,
        fault_kinds=("requests_twice",),
    )


def again_plan() -> RunPlan:
    """A message queue that fails over delivers requests to the same scheduler again, and Placement is often not heard.
    There is one node, so that both requests for a server go there."""
    return RunPlan(
        seed=0,
        duration_s=25.0,
        sizes=Sizes(nodes=1, schedulers=1, agentless=1.0, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=2.0, lifetime_s=5.0, several=0.5, patience_s=2.5, flavors=FLAVORS[:1]),
        fault_every_s=1.5,
        fault_kinds=("requests_again",),
        rows_every=1,
    )


def two_answers_plan() -> RunPlan:
    """The same with two nodes and more time, so that both requests are answered more often."""
    plan = again_plan()
    load, sizes = replace(plan.workload, rate_per_s=3.0, patience_s=4.0), replace(plan.sizes, nodes=2)
    return replace(plan, seed=5, duration_s=20.0, sizes=sizes, workload=load)


def crawling_plan() -> RunPlan:
    """Placement carries writes out nearly a minute after they were sent."""
    return RunPlan(
        seed=1,
        duration_s=40.0,
        sizes=Sizes(nodes=2, schedulers=2),
        workload=Workload(rate_per_s=1.0, lifetime_s=60.0, several=0.0, asks_again=1.0, flavors=FLAVORS[:1]),
        fault_every_s=15.0,
        fault_kinds=("placement_crawls",),
    )


def flooded_plan() -> RunPlan:
    """Messages are lost while a host with hundreds of nodes answers nothing."""
    return RunPlan(
        seed=2,
        duration_s=25.0,
        sizes=Sizes(nodes=3, schedulers=1),
        workload=Workload(rate_per_s=2.0, lifetime_s=8.0, flavors=FLAVORS[:1]),
        network_faults=NetworkFaults(loss=0.1),
        fault_every_s=8.0,
        fault_kinds=("host_floods",),
    )


def slow_moves_plan() -> RunPlan:
    """Members of affinity groups move, and Placement takes a second for each call."""
    return RunPlan(
        seed=4,
        duration_s=16.0,
        sizes=Sizes(nodes=3, schedulers=2, merged_moves=MOVES, placement_s=1.0, heartbeat_interval_s=2.0),
        workload=Workload(
            rate_per_s=2.0, lifetime_s=30.0, grouped=1.0, policies=(GroupPolicy.AFFINITY,), flavors=FLAVORS[:1]
        ),
        fault_every_s=1.0,
        fault_kinds=("ports_in_moves",),
    )


def left_provider_plan() -> RunPlan:
    """Computes that were deleted have left providers, and there is too little room."""
    return RunPlan(
        seed=1,
        duration_s=10.0,
        sizes=Sizes(nodes=2, schedulers=2, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=4.0, lifetime_s=5.0, flavors=FLAVORS[3:]),
        fault_every_s=2.0,
        fault_kinds=("provider_stays",),
    )


def evacuations_plan() -> RunPlan:
    """Members of soft groups are evacuated at the same moment, so that some of them yield."""
    return RunPlan(
        seed=3,
        duration_s=10.0,
        sizes=Sizes(nodes=4, schedulers=3, merged_moves=(EVACUATION,), placement_s=0.05, heartbeat_interval_s=2.0),
        workload=Workload(
            rate_per_s=3.0, lifetime_s=30.0, grouped=1.0, policies=(GroupPolicy.SOFT_AFFINITY,), flavors=FLAVORS[:1]
        ),
        fault_every_s=1.0,
        fault_kinds=("host_evacuated",),
    )


def deaf_plan() -> RunPlan:
    """A scheduler misses many verdicts, because a node hears nothing."""
    return RunPlan(
        seed=4,
        duration_s=12.0,
        sizes=Sizes(nodes=2, schedulers=1, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=15.0, lifetime_s=5.0, flavors=FLAVORS[:1]),
        fault_every_s=1.0,
        fault_kinds=("deaf_node",),
    )


def booting_plan() -> RunPlan:
    """Hosts boot, and their agents publish their nodes before nova-compute has named them."""
    return RunPlan(
        seed=1,
        duration_s=20.0,
        sizes=Sizes(nodes=2, schedulers=2, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=6.0, lifetime_s=5.0, flavors=FLAVORS[:1]),
        fault_every_s=2.0,
        fault_kinds=("host_reboots",),
    )


def disabling_plan() -> RunPlan:
    """Operators disable hosts, and enable them again soon."""
    return RunPlan(
        seed=1,
        duration_s=20.0,
        sizes=Sizes(nodes=3, schedulers=2, heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=2.0, lifetime_s=8.0, disables=True, flavors=FLAVORS[:1]),
        rows_every=1,
    )


def several_at_once_plan() -> RunPlan:
    """A server is refused while Placement is asked about another one of its request, which may not be on its node."""
    return RunPlan(
        seed=1,
        duration_s=10.0,
        sizes=Sizes(nodes=4, schedulers=2, agentless=0.5, placement_s=0.05, heartbeat_interval_s=2.0),
        workload=Workload(
            rate_per_s=6.0, lifetime_s=5.0, several=1.0, not_root_only=0.5, grouped=1.0, selections=0.5,
            policies=(GroupPolicy.ANTI_AFFINITY,), flavors=FLAVORS[:1],
        ),
        fault_every_s=1.0,
        fault_kinds=("agent_freezes",),
    )  # fmt: skip


def crowded_plan() -> RunPlan:
    """Several schedulers race for the last room of nodes, half of which have no agent."""
    return RunPlan(
        seed=3,
        duration_s=10.0,
        sizes=Sizes(nodes=2, schedulers=4, agentless=0.5, placement_s=0.3, heartbeat_interval_s=2.0, poll_s=1.0),
        workload=Workload(rate_per_s=15.0, lifetime_s=5.0, build_fails=0.0, flavors=FLAVORS[2:]),
    )


def ports_plan() -> RunPlan:
    """Users ask for NUMA cells with dozens of SR-IOV ports."""
    return RunPlan(
        seed=1,
        duration_s=8.0,
        sizes=Sizes(nodes=3, schedulers=2, size=Size(board=Board(devices_per_cell=32)), heartbeat_interval_s=2.0),
        workload=Workload(rate_per_s=3.0, lifetime_s=3.0, many_ports=0.6, flavors=FLAVORS[1:3]),
        rows_every=1,
    )


def waiting_builds_plan() -> RunPlan:
    """Nodes have no agents, and builds wait longer than a scheduler waits for a report of them."""
    return RunPlan(
        seed=1,
        duration_s=25.0,
        sizes=Sizes(nodes=4, schedulers=2, agentless=1.0, build_queue_s=20.0),
        workload=Workload(rate_per_s=3.0, lifetime_s=60.0, flavors=FLAVORS[:1]),
        rows_every=1,
    )


def broken_by(plan: RunPlan, wanted: Set[str] = frozenset()) -> set[str]:
    """The invariants that break, up to the first of those ``wanted``; an exception of the code itself counts too."""
    try:
        world = begin(plan)
        for _ in range(STEPS):
            world.run(plan.duration_s / STEPS)
            if not wanted.isdisjoint(broken := _broken(world)):
                return broken
        heal(world)
        return _broken(world)
    except Exception as error:
        return {f"raised {type(error).__name__}"}


def variations(plan: RunPlan) -> Iterator[RunPlan]:
    """Worlds like this one."""
    for seed in range(plan.seed + 1, plan.seed + 1 + VARIATIONS):
        yield drawn(seed) if plan.swarm else replace(plan, seed=seed)


def _broken(world: World) -> set[str]:
    return {violation.name for violation in world.checkers.violations}


def assert_sound(turns: Set[int]) -> None:
    """Assert that nothing breaks in these worlds without a bug."""
    for plan in (plan for turn, plan in enumerate(plans()) if turn in turns):
        if not (plan.swarm and plan.seed in ELSEWHERE):
            assert broken_by(plan) == set(), plan.command()


def test_the_world_that_shows_most_bugs_is_sound_without_one() -> None:
    """The others: ``tests/longer/test_planted_bugs.py``."""
    assert_sound({QUICKEST})


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_bug_is_caught(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    first, seen = list(plans())[SHOWN_BY.get(planted.name, QUICKEST)], set[str]()
    for plan in (first, *variations(first)):
        with monkeypatch.context() as patch:
            planted.patch(patch)
            seen |= broken_by(plan, planted.breaks)
        if seen & planted.breaks:
            assert plan is first or broken_by(plan) == set(), plan.command()
            return
    pytest.fail(f"{planted.name} was not caught by {sorted(planted.breaks)}, only by {sorted(seen)}")


def test_there_are_enough_of_them() -> None:
    assert len(PLANTED) >= 20


def test_each_invariant_has_a_planted_bug() -> None:
    assert set().union(*(planted.breaks for planted in (*PLANTED, *SEARCHES, *READS))) == INVARIANTS.keys()

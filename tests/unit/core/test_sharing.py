# SPDX-License-Identifier: Apache-2.0
"""Hosts that take from shared storage: chosen, asked of Placement, and written under its judgement."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.model.providers import SHARING_TRAIT, Provider
from shared_scheduler.model.resources import Inventory
from tests.unit.core.scheduler_driver import QUERY, SchedulerDriver, of_kind, only, only_claim, request

POOL = Provider(
    "pool", inventories={"DISK_GB": Inventory(1000)}, traits=frozenset({SHARING_TRAIT}),
    aggregates=frozenset({"storage"}),
)  # fmt: skip
TAKEN = {"node-1": {"VCPU": 1, "MEMORY_MB": 1024}, "pool": {"DISK_GB": 10}}
CANDIDATE = ev.Candidate(TAKEN, {"": ("node-1", "pool")})


def driver_with_pool(*nodes: str) -> SchedulerDriver:
    """Hosts whose disk is a pool's."""
    driver = SchedulerDriver()
    for node in nodes or ("node-1",):
        root = {
            "name": node, "parent": None, "generation": 1, "traits": [], "aggregates": ["storage"],
            "inventories": {"VCPU": [4, 0, 1, 4, 1, 1.0], "MEMORY_MB": [8192, 0, 1, 8192, 1, 1.0]},
        }  # fmt: skip
        driver.with_agents(node, **{f"rp.{node}": root})
    driver.give(ev.SharingRead({"pool": POOL}))
    return driver


def test_placement_is_asked_for_candidates_of_a_host_with_shared_storage() -> None:
    ask = only(ef.AskCandidates, driver_with_pool().ask())
    assert (ask.node, ask.queries, ask.sharing) == ("node-1", (QUERY,), (POOL,))


def test_an_allocation_that_the_agent_cannot_judge_is_checked_by_placement() -> None:
    driver = driver_with_pool()
    ask = only(ef.AskCandidates, driver.ask())
    claim = only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (CANDIDATE,), cause=ask.cause)))
    write = only(ef.WriteAllocation, driver.accept(claim))
    assert write.allocations == TAKEN
    assert write.serialise
    answer = only(ef.Answer, driver.written(write))
    assert answer.choices[0][0].candidate == CANDIDATE


def test_an_allocation_that_the_agent_has_judged_is_not_checked_again() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(request()))))
    assert not write.serialise


def test_hosts_with_shared_storage_have_alternates() -> None:
    driver = driver_with_pool("node-1", "node-2")
    ask = only(ef.AskCandidates, driver.ask(request(num_alternates=1)))
    effects = driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate(ask.node),), cause=ask.cause))
    effects = driver.accept(only_claim(effects))
    (write,) = of_kind(ef.WriteAllocation, effects)
    (for_other,) = of_kind(ef.AskCandidates, effects)
    assert driver.written(write) == [], "the answer waits for its alternates"
    assert (for_other.sharing, for_other.node != ask.node) == ((POOL,), True)
    found = candidate(for_other.node)
    answer = only(ef.Answer, driver.give(ev.CandidatesAnswered(for_other.ask_id, (found,), cause=for_other.cause)))
    assert [choice.node for choice in answer.choices[0]] == [ask.node, for_other.node]
    assert answer.choices[0][1].candidate == found


def test_an_evacuation_without_a_receiver_keeps_the_disk_in_the_shared_pool() -> None:
    # given a server that holds its source and some of the pool, evacuated to a host of the same pool
    driver = driver_with_pool()
    found = {"source": {"VCPU": 1}, "pool": TAKEN["pool"]}
    ask = only(ef.AskCandidates, driver.ask(request(merge_with_existing=True)))
    claim = only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (CANDIDATE,), cause=ask.cause)))
    write = only(ef.WriteAllocation, driver.accept(claim))
    both = {**TAKEN, **found}
    written = ev.AllocationWritten(write.claim_id, ev.WriteCode.WRITTEN, "", both, found, cause=write.cause)
    answer = only(ef.Answer, driver.give(written))

    delete = only(ef.DeleteAllocation, driver.give(ev.AnswerUnheard(answer.claim_ids, cause="req-1")))

    assert delete.before == found


def candidate(node: str) -> ev.Candidate:
    taken = {node: TAKEN["node-1"], "pool": TAKEN["pool"]}
    return ev.Candidate(taken, {"": (node, "pool")})

# SPDX-License-Identifier: Apache-2.0
"""Errors of one node, or one bug, do not affect other nodes and requests."""

from __future__ import annotations

from typing import Any

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.scheduler import StepFailedError
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from shared_scheduler.protocol.messages import Heartbeat, Increment, Leaf, Verdict
from shared_scheduler.table.row import Freshness, Version
from tests.unit.core.scheduler_driver import (
    CELL,
    SchedulerDriver,
    claims_in,
    node_leaves,
    of_kind,
    only_claim,
    releases_in,
    request,
    resyncs_in,
    snapshot,
    taken,
)

MALFORMED: list[tuple[str, Leaf]] = [
    ("cn.free_ram_mb", "junk"),
    ("cn.vcpus", [4]),
    ("cn.free_disk_gb", float("inf")),
    ("cn.free_ram_mb", 10**30),
    ("cn.hypervisor_version", 10**400),
    ("stats.num_instances", float("nan")),
    ("stats.num_vm_active", True),
    ("cn.memory_mb_used", False),
    ("stats.failed_builds", "9" * 40),
    ("pci.pool", 10**30),
    ("numa.0", "junk"),
    ("numa.static", [{"id": 0}]),
    ("rp.node-2", "junk"),
    ("rp.node-2", {"generation": "junk", "inventories": {}}),
    ("rp.node-2", {"generation": 2, "inventories": {"VCPU": ["junk"]}}),
    ("rp.node-2", {"generation": 2, "inventories": {"VCPU": [4, 0, 1, 4, 1, float("inf")]}}),
]


@pytest.mark.parametrize(("name", "value"), MALFORMED)
def test_a_malformed_leaf_of_one_node_costs_no_other_node_anything(name: str, value: Leaf) -> None:
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-2", vcpus=1, free_mb=512)
    claim = only_claim(driver.ask())
    assert claim.node == "node-1"

    effects = driver.hear(
        Verdict(claim.claim_id, "node-1", 1, True, None, 2),
        Increment("node-2", 1, 2, {name: value}),
    )

    assert len(of_kind(ef.WriteAllocation, effects)) == 1
    assert driver.core.nodes.counters["messages_unusable"] == 1
    assert driver.table.freshness("node-1") is Freshness.FRESH
    # the node itself is suspect, is asked, and is right again with a usable snapshot
    assert driver.table.freshness("node-2") is Freshness.SUSPECT
    assert driver.table.version("node-2") == Version(1, 1)
    driver.hear(Heartbeat("node-2", 1, 2, "host-2", 0))
    assert "node-2" in resyncs_in(driver.wait(1.0))
    driver.hear(snapshot("node-2", sequence=3))
    assert driver.table.freshness("node-2") is Freshness.FRESH


def test_a_node_with_unusable_messages_is_closed_and_asked_at_increasing_intervals() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    asked = []
    for second in range(120):
        driver.hear(
            snapshot("node-1", sequence=2, cn__free_ram_mb="junk"),
            Heartbeat("node-1", 1, 2, "host-1", 0),
        )
        asked += [second for _ in resyncs_in(driver.wait(1.0))]
    assert driver.table.freshness("node-1") is Freshness.STALE
    assert 2 < len(asked) < 40
    driver.hear(snapshot("node-1", sequence=2))
    assert driver.table.freshness("node-1") is Freshness.FRESH


def test_a_first_snapshot_that_is_unusable_makes_no_row() -> None:
    driver = SchedulerDriver()
    driver.hear(snapshot("node-1", cn__vcpus="junk"))
    assert "node-1" not in driver.table
    driver.hear(snapshot("node-1"))
    assert driver.table.freshness("node-1") is Freshness.FRESH


def test_an_unusable_read_of_the_databases_leaves_the_row_as_it_was() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    leaves = node_leaves("node-1", 4, 8192) | {"cn.vcpus": "junk"}
    driver.give(ev.NodeRead(CELL, "node-1", "host-1", "host-1", leaves, {}, frozenset(), 0.0))
    assert driver.core.nodes.counters["reads_unusable"] == 1
    assert driver.table.view("node-1").leaves["cn.vcpus"] == 4


def test_an_exception_does_not_lose_effects_that_were_emitted_before(monkeypatch: Any) -> None:
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-2", vcpus=1, free_mb=512)
    claim = only_claim(driver.ask())

    def broken(*_args: Any, **_more: Any) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(driver.table, "apply", broken)
    with pytest.raises(StepFailedError, match="a bug of ours") as caught:
        driver.hear(
            Increment("node-2", 1, 2, {"cn.vcpus_used": 1}),
            Verdict(claim.claim_id, "node-1", 1, True, None, 2),
        )

    assert len(of_kind(ef.WriteAllocation, caught.value.effects)) == 1
    # what was half applied is not chosen until a snapshot comes
    assert driver.table.freshness("node-2") is Freshness.STALE
    driver.hear(snapshot("node-2", sequence=2))
    assert driver.table.freshness("node-2") is Freshness.FRESH


def held(driver: SchedulerDriver, effects: list[ef.Effect]) -> list[str]:
    """Let the time of a write that may be carried out late pass; nothing of it is found.  The ids that are released."""
    found = releases_in(effects)
    until_s = driver.now + CARRIED_OUT_WITHIN_S
    while driver.now < until_s:
        assert found == [], "the write may still be carried out"
        effects = driver.wait(1.0)
        for delete in of_kind(ef.DeleteAllocation, effects):
            effects += driver.deleted(delete)
        found += releases_in(effects)
    return found


def test_the_agent_keeps_a_claim_whose_write_may_still_be_carried_out() -> None:
    # given a claim whose write got no answer
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    claim = only_claim(driver.ask())
    (write,) = of_kind(ef.WriteAllocation, driver.accept(claim))
    (delete,) = of_kind(ef.DeleteAllocation, driver.unanswered(write))
    # when Placement has nothing to delete yet
    effects = driver.deleted(delete)
    # then another host is tried at once, and the room is released when the write cannot arrive any more
    (other,) = claims_in(effects)
    assert other.node != claim.node
    driver.written(*of_kind(ef.WriteAllocation, driver.accept(other)))
    assert held(driver, effects) == [claim.claim_id]
    driver.idle()


def test_a_write_that_was_refused_after_one_without_an_answer_keeps_its_room_as_well() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    (write,) = of_kind(ef.WriteAllocation, driver.accept(claim))
    effects = driver.unanswered(write, ev.WriteCode.CONSUMER_CONFLICT)
    (fail,) = of_kind(ef.Fail, effects)
    assert fail.code == ef.FailureCode.CONSUMER_CONFLICT
    assert held(driver, effects) == [claim.claim_id]
    driver.idle()


def test_a_write_that_was_never_sent_keeps_nothing() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    (write,) = of_kind(ef.WriteAllocation, driver.accept(claim))
    assert releases_in(driver.written(write, ev.WriteCode.NEVER_SENT)) == [claim.claim_id]


def test_a_write_without_an_answer_is_deleted_in_the_end() -> None:
    driver = SchedulerDriver(write_timeout_s=10.0).without_agents("node-1")
    driver.ask(request(), within_s=60.0)
    assert of_kind(ef.DeleteAllocation, driver.wait(39.0)) == []

    (delete,) = of_kind(ef.DeleteAllocation, driver.wait(2.0))

    assert delete.written == taken("node-1")
    held(driver, driver.deleted(delete))
    driver.idle()


def test_a_write_ends_while_the_agent_still_keeps_its_claim() -> None:
    # given an operator who lets agents take their time
    driver = SchedulerDriver(verdict_timeout_s=60.0).with_agents("node-1")
    claim = only_claim(driver.ask())
    # when one takes twelve of the fifteen seconds for which agents keep what they have accepted
    driver.wait(12.0)
    (write,) = of_kind(ef.WriteAllocation, driver.accept(claim))
    # then the write has no more than the rest
    assert write.deadline_s == 113.0


def test_a_verdict_that_leaves_no_time_to_write_is_too_late() -> None:
    driver = SchedulerDriver(verdict_timeout_s=60.0).with_agents("node-1")
    claim = only_claim(driver.ask())
    driver.wait(13.0)
    driver.with_agents("node-2")
    effects = driver.accept(claim)
    assert of_kind(ef.WriteAllocation, effects) == []
    assert releases_in(effects) == [claim.claim_id]
    assert [each.node for each in claims_in(effects)] == ["node-2"]

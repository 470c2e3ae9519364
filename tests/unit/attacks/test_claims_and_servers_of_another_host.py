# SPDX-License-Identifier: Apache-2.0
"""A compromised host says of its own node what belongs to another host: its claims, its servers, its providers.  Each
message is valid, and of the node whose keys the host has."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.protocol.messages import BuildResult, Claim, Consumer, Increment, Leave, Message, Verdict
from tests.unit.core.scheduler_driver import SchedulerDriver, node_leaves, of_kind, only_claim, snapshot, taken

NODES = ("node-1", "node-2")


def increment(node: str, claim: Claim, whose: str | None) -> Increment:
    return Increment(node, 1, 2, {}, {}, {claim.claim_id: whose})


def with_its_providers(node: str, claim: Claim) -> Message:
    """Its tree contains the root provider of the other host, which it says is empty and huge."""
    other = node_leaves(claim.node, 4, 8192)[f"rp.{claim.node}"]
    assert isinstance(other, dict)
    inventories = {"VCPU": [1000, 0, 1, 1000, 1, 1.0]}
    return snapshot(node, 2, **{f"rp__{claim.node}": other | {"parent": node, "inventories": inventories}})


def with_its_servers(node: str, claim: Claim) -> Message:
    held = {claim.consumer: Consumer(taken(claim.node), True, generation=9, whole=True)}
    return snapshot(node, 2, consumers=held, claims={claim.claim_id: claim.consumer})


#: what the attacker says of its node about a claim that another host is asked for
ATTACKS: dict[str, Callable[[str, Claim], Message]] = {
    "the claim is pending here": lambda node, claim: increment(node, claim, claim.consumer),
    "the claim has ended": lambda node, claim: increment(node, claim, None),
    "its server has left": lambda node, claim: Increment(node, 1, 2, {}, {claim.consumer: None}),
    "its server is here": with_its_servers,
    "its providers are here": with_its_providers,
    "its build has failed": lambda node, claim: BuildResult(node, 1, claim.consumer, False, "no", claim.scheduler),
    "the agent ends": lambda node, claim: Leave(node, 1, 1),
    "the claim is refused": lambda node, claim: Verdict(claim.claim_id, node, 1, False),
    "the claim is accepted": lambda node, claim: Verdict(claim.claim_id, node, 1, True, None, 2, (
        increment(node, claim, claim.consumer),
    )),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_row_and_the_claim_of_the_other_host_are_as_before(attack: str) -> None:
    # given a claim that one of two hosts is asked for
    driver = SchedulerDriver().with_agents(*NODES)
    claim = only_claim(driver.ask())
    [evil] = {*NODES} - {claim.node}
    before = row(driver, claim.node)

    # when the other one has said that
    effects = driver.hear(ATTACKS[attack](evil, claim))

    # then nothing was done, and the claim is written for the host that accepts it
    assert row(driver, claim.node) == before
    assert of_kind(ef.WriteAllocation, effects) == of_kind(ef.Answer, effects) == []
    [write] = of_kind(ef.WriteAllocation, driver.accept(claim))
    assert write.allocations == taken(claim.node)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_placed_server_of_the_other_host_stays_counted(attack: str) -> None:
    # given a server that was placed on one of two hosts, whose agent does not report it yet
    driver = SchedulerDriver().with_agents(*NODES)
    claim = only_claim(driver.ask())
    [write] = of_kind(ef.WriteAllocation, driver.accept(claim))
    driver.written(write)
    [evil] = {*NODES} - {claim.node}
    before = row(driver, claim.node)

    driver.hear(ATTACKS[attack](evil, claim))

    assert row(driver, claim.node) == before


def row(driver: SchedulerDriver, node: str) -> str:
    """All that the scheduler knows of a node, with its own claims."""
    table = driver.table
    known = [table.describe(node), table.freshness(node).value, table.outstanding(node)]
    return json.dumps(known, default=repr, sort_keys=True)

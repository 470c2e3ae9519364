# SPDX-License-Identifier: Apache-2.0
"""Every event and effect of the agent has a cause id, which connects it with the request."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from compute_agent import effects as ef
from compute_agent import events as ev
from shared_scheduler.protocol.causes import cause_of
from shared_scheduler.protocol.messages import Increment, Resync, Snapshot, Verdict
from tests.unit.compute_agent.core_node import SCHEDULER, Node, said
from tests.unit.compute_agent.node_facts import NODE, claim

AGENTS = (*get_args(ev.Event), *get_args(ef.Effect))


@pytest.mark.parametrize("kind", AGENTS, ids=lambda kind: kind.__name__)
def test_each_event_and_effect_has_a_cause(kind: type) -> None:
    is_field = "cause" in {each.name for each in fields(kind)}
    assert is_field or isinstance(getattr(kind, "cause", None), property)


def test_effects_of_a_claim_have_its_id() -> None:
    # given an agent that judges claims
    node = Node()
    node.start()

    # when it accepts one
    effects = node.send(wanted := claim("c1"))

    # then what it keeps, logs and answers has the claim's id
    of_claim = [one for one in effects if isinstance(one, ef.Keep | ef.Notice)]
    verdicts = [one for one in effects if isinstance(one, ef.Cast) and isinstance(one.message, Verdict)]
    assert {type(one) for one in of_claim} == {ef.Keep, ef.Notice}
    assert {one.cause for one in [*of_claim, *verdicts]} == {cause_of(wanted)} == {"c1"}
    # and the state that goes out has its node, epoch and sequence
    (sent,) = said([*effects, *node.pass_s(1)], Increment)
    assert cause_of(sent) == f"{NODE}@{sent.epoch}/{sent.sequence}"


def test_a_read_of_placement_has_the_cause_of_its_request() -> None:
    # given an agent that has read all that it wants
    node = Node()
    node.start()
    node.pass_s(5)

    # when a scheduler says that Placement contradicts it
    asked = Resync(NODE, SCHEDULER, 0, 0, recheck=True)
    effects = [*node.send(asked), *node.pass_s(5)]

    # then the reads are because of that
    reads = [one for one in effects if isinstance(one, ef.ReadTree | ef.ReadAllocations)]
    assert reads and {one.cause for one in reads} == {cause_of(asked)}
    assert said(effects, Snapshot)

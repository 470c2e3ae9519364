# SPDX-License-Identifier: Apache-2.0
"""What may happen while Placement is asked for the candidates of a host.

The host may close; then it is neither claimed nor an alternate.  And another server of the request may lose its host.
"""

from __future__ import annotations

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.messages import Increment
from tests.unit.core.scheduler_driver import (
    CELL,
    SchedulerDriver,
    claims_in,
    nodes_of,
    of_kind,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)
from tests.unit.core.test_node_names import NODE, of_a_booting_host, of_a_whole_node, read_from_the_database


def candidate_of(driver: SchedulerDriver, ask: ef.AskCandidates) -> list[ef.Effect]:
    """Placement has a candidate on the host that it was asked for."""
    found = ev.Candidate({key: dict(amounts) for key, amounts in taken(ask.node).items()}, {"": (ask.node,)})
    return driver.give(ev.CandidatesAnswered(ask.ask_id, (found,), cause=ask.cause))


def not_ready(node: str) -> Increment:
    """nova-compute has stopped."""
    return Increment(node, 1, 2, {"agent.ready": False}, {}, {})


@pytest.mark.parametrize("opens", [False, True])
def test_a_host_that_closes_while_placement_is_asked_is_not_claimed(opens: bool) -> None:
    # given a host for which Placement is asked
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-2", free_mb=4096)
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False)))
    # when its nova-compute stops before the answer
    driver.hear(not_ready(ask.node))
    # then the next one is asked
    again = only(ef.AskCandidates, candidate_of(driver, ask))
    assert {ask.node, again.node} == {"node-1", "node-2"}
    # and the first one is only out while it is closed
    if opens:
        driver.hear(Increment(ask.node, 1, 3, {"agent.ready": True}, {}, {}))
        driver.hear(not_ready(again.node))
        assert only(ef.AskCandidates, candidate_of(driver, again)).node == ask.node


def test_a_host_that_closes_while_placement_is_asked_is_no_alternate() -> None:
    # given a chosen host, and an alternate for which Placement is asked
    driver = SchedulerDriver().with_agents("node-1").with_agents("node-2", free_mb=4096)
    asked = request(root_only=False, num_alternates=1)
    claim = only_claim(candidate_of(driver, only(ef.AskCandidates, driver.ask(asked))))
    ask = only(ef.AskCandidates, driver.wait(0.001))
    # when its nova-compute stops before the answer
    driver.hear(not_ready(ask.node))
    candidate_of(driver, ask)
    # then the conductor does not try it
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    assert [choice.node for choice in answer.choices[0]] == nodes_of(answer) == [claim.node]


def test_a_node_that_was_added_anew_without_a_name_is_not_claimed() -> None:
    # given a node for which Placement is asked
    driver = read_from_the_database()
    driver.hear(of_a_whole_node())
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False)))
    # when it goes, and is heard again before nova-compute has named it
    driver.give(ev.NodesGone(CELL, frozenset({NODE})))
    driver.hear(of_a_booting_host())
    # then nothing is claimed there
    assert only(ef.Fail, candidate_of(driver, ask)).text == "0 of 1 hosts pass; rejected: never_reported: 1"


@pytest.mark.parametrize("answered", ["while it is rechecked", "afterwards"])
def test_placement_answers_for_one_server_while_the_request_is_rechecked_for_another(answered: str) -> None:
    # given a request for two servers: the first is claimed, and Placement is asked for the second
    driver = SchedulerDriver().with_agents("node-1")
    effects = candidate_of(driver, only(ef.AskCandidates, driver.ask(request("server-1", "server-2", root_only=False))))
    [claim], [ask] = claims_in(effects), of_kind(ef.AskCandidates, effects)
    # when no host is left for the first, because that one has refused, and Placement is asked where it fits
    fitting = only(ef.AskFitting, driver.refuse(claim))
    if answered == "while it is rechecked":
        assert candidate_of(driver, ask) == []
    driver.give(ev.FittingAnswered(fitting.ask_id, frozenset({"node-1"}), cause=fitting.cause))
    effects = candidate_of(driver, only(ef.AskCandidates, driver.hear(snapshot("node-1", sequence=2))))
    [first] = claims_in(effects)
    # then both are claimed; for the second, Placement is asked again if its answer came too early
    if answered == "while it is rechecked":
        [ask] = of_kind(ef.AskCandidates, effects)
    second = only_claim(candidate_of(driver, ask))
    assert (first.consumer, second.consumer) == ("server-1", "server-2")

# SPDX-License-Identifier: Apache-2.0
"""Alternates of a request whose hosts only Placement can judge are searched again after the check of spreading."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from tests.unit.core.racks import HINTS
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only, only_claim, request, snapshot, taken
from tests.unit.core.test_spreading_refusals import answered, racks_of_which_one_is_full


def named(driver: SchedulerDriver, ask: ef.AskCandidates) -> list[ef.Effect]:
    """Placement has a candidate on this host."""
    candidate = ev.Candidate(taken(ask.node), {"": (ask.node,)})
    return driver.give(ev.CandidatesAnswered(ask.ask_id, (candidate,), cause=ask.cause))


def test_alternates_that_pass_still_are_kept() -> None:
    # given a request whose alternate was found while it was written
    driver = racks_of_which_one_is_full("node-1", "node-3")
    driver.hear(snapshot("node-1", 3), snapshot("node-3", 3))
    asked = request("server-5", hints=HINTS, root_only=False, num_alternates=1)
    claim = only_claim(named(driver, only(ef.AskCandidates, driver.ask(asked))))
    named(driver, only(ef.AskCandidates, driver.wait(0.001)))
    ask = only(ef.AskGroup, driver.written(only(ef.WriteAllocation, driver.accept(claim, 4))))
    # when the check has passed, then Placement, which may be slow, is not asked for it again
    (answer,) = of_kind(ef.Answer, answered(driver, ask))
    assert [choice.node for choice in answer.choices[0]] == [claim.node, *({"node-1", "node-3"} - {claim.node})]


def test_a_question_for_an_alternate_that_waits_is_not_asked_again() -> None:
    # given a request that is written while Placement has not answered yet for its alternate
    driver = racks_of_which_one_is_full("node-1", "node-3")
    driver.hear(snapshot("node-1", 3), snapshot("node-3", 3))
    asked = request("server-5", hints=HINTS, root_only=False, num_alternates=1)
    claim = only_claim(named(driver, only(ef.AskCandidates, driver.ask(asked))))
    slow = only(ef.AskCandidates, driver.wait(0.001))
    ask = only(ef.AskGroup, driver.written(only(ef.WriteAllocation, driver.accept(claim, 4))))
    # when the check has passed, then the same question still waits
    assert not of_kind(ef.AskCandidates, answered(driver, ask))
    # and its answer is used
    (answer,) = of_kind(ef.Answer, named(driver, slow))
    assert [choice.node for choice in answer.choices[0]] == [claim.node, slow.node]

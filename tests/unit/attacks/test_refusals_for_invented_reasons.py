# SPDX-License-Identifier: Apache-2.0
"""A host refuses or accepts claims with reasons of its own: names of other endings, or another name each time."""

from __future__ import annotations

from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from shared_scheduler.answers import terms
from shared_scheduler.conf.mode import Mode
from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.record import DecisionRecord
from shared_scheduler.protocol.messages import Reason, Verdict
from shared_scheduler.service.engine import Engine
from shared_scheduler.service.metrics import SchedulerMetrics
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only_claim

INVENTED = ("written", "confirmed", "no_candidate", "consumer_conflict", "filter", "a reason of its own")


def refused_for(code: str) -> DecisionRecord:
    """The record of a request of which the only host has said that."""
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    effects = driver.hear(Verdict(claim.claim_id, claim.node, 1, False, Reason(code), 2))
    [failed] = of_kind(ef.Fail, effects + driver.wait(120.0))
    return failed.record


@pytest.mark.parametrize("code", INVENTED)
def test_the_record_says_that_the_host_has_refused(code: str) -> None:
    [attempt] = refused_for(code).attempts

    assert attempt.outcome == "refused"
    assert attempt.detail["code"] == code, "of a later release, operators can read it"


def test_an_acceptance_has_no_reason() -> None:
    # given a claim whose write was abandoned, because its request was
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask(within_s=20.0))
    effects = driver.hear(Verdict(claim.claim_id, claim.node, 1, True, Reason("written"), 2))
    [write] = of_kind(ef.WriteAllocation, effects)
    effects = driver.written(write, ev.WriteCode.UNREACHABLE)
    [delete] = of_kind(ef.DeleteAllocation, effects)

    [failed] = of_kind(ef.Fail, driver.deleted(delete) + driver.wait(120.0))

    assert "written" not in {attempt.outcome for attempt in failed.record.attempts}


def test_names_that_are_different_each_time_are_one_time_series() -> None:
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(cast(Engine, None), lambda: (), {}, registry, lambda: Mode.ACTIVE)
    registry.unregister(metrics)

    for number in range(50):
        metrics.observe(refused_for(f"reason-{number}"))

    samples = [one for family in registry.collect() for one in family.samples if one.name.endswith("attempts_total")]
    assert [(one.labels, one.value) for one in samples if one.value] == [({"outcome": "refused"}, 50.0)]
    assert {one.labels["outcome"] for one in samples} <= terms.ATTEMPTS.terms.keys()

# SPDX-License-Identifier: Apache-2.0
"""Where our counterparts of Nova's filters leave no host, Nova's own have the last word on a few."""

from __future__ import annotations

import json

from shared_scheduler.core import effects as ef
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.request import Group, Request
from tests.unit.core.scheduler_driver import Picky, SchedulerDriver, host_of, only, only_claim, request

#: one device of a kind that no node has
ASKED = json.dumps({"numa": None, "pci": [{"nova_object.data": {"count": 1, "spec": [{"vendor_id": "8086"}]}}]})
NODES = ("node-1", "node-2", "node-3", "node-4")


def with_a_device(**changes: object) -> Request:
    return request(topology=ASKED, has_pci=True, **changes)


def driver_of(judge: Picky, last_words_max: int) -> SchedulerDriver:
    decision = DecisionSettings(enabled_filters=("PciPassthroughFilter",))
    return SchedulerDriver(judge, decision, last_words_max=last_words_max).with_agents(*NODES)


def test_the_judge_reports_the_reasons_of_the_best_hosts() -> None:
    # given four hosts without the device, and Nova's filter that sees it the same way
    judge = Picky(*NODES)
    driver = driver_of(judge, last_words_max=2)

    # when no host is left
    fail = only(ef.Fail, driver.ask(with_a_device()))

    # then two of them were shown to it, and the record has its words beside the reasons for the others
    assert len(set(judge.asked)) == len(judge.asked) == 2
    assert [attempt.detail for attempt in fail.record.attempts] == [{"filter": "PickyFilter"}] * 2
    assert "PciPassthroughFilter: 4" in fail.text


def test_the_judge_overrides_the_columns() -> None:
    driver = driver_of(Picky("node-1", "node-2"), last_words_max=3)
    assert only_claim(driver.ask(with_a_device())).node in ("node-3", "node-4")


def test_hosts_that_fell_to_anything_else_are_not_shown() -> None:
    judge = Picky()
    driver = driver_of(judge, last_words_max=3)
    only(ef.Fail, driver.ask(with_a_device(force_hosts=("nowhere",), check_type=True)))
    assert judge.asked == []


def test_a_group_is_left_to_the_judge_as_well() -> None:
    # given a group whose policy our counterpart sees violated by every host
    group = Group("group", "anti-affinity", hosts=frozenset(map(host_of, NODES)))
    decision = DecisionSettings(enabled_filters=("ServerGroupAntiAffinityFilter",))
    driver = SchedulerDriver(Picky("node-1", "node-2", "node-3"), decision, last_words_max=4).with_agents(*NODES)
    # when Nova's own filter has nothing against one of them
    claim = only_claim(driver.ask(request(group=group)))
    # then it is tried
    assert claim.node == "node-4"


def test_where_the_judge_knows_no_more_than_the_columns_it_is_not_asked() -> None:
    judge = Picky()
    only(ef.Fail, driver_of(judge, last_words_max=0).ask(with_a_device()))
    assert judge.asked == []

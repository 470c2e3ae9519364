# SPDX-License-Identifier: Apache-2.0
"""What a decision keeps for the next one follows the table: when it grows, and when many rows have changed."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.table.host_table import CHANGES_MAX
from tests.unit.core.scheduler_driver import SchedulerDriver, request


def ranked(decider: Decider) -> list[str]:
    return list(decider.decide(request()).nodes())


def driver_of(**free_mb: int) -> SchedulerDriver:
    driver = SchedulerDriver()
    for name, left_mb in free_mb.items():
        driver.with_agents(name.replace("_", "-"), free_mb=left_mb)
    return driver


def test_a_host_that_joins_between_two_decisions_is_ranked_among_the_others() -> None:
    # given a decision over two hosts
    driver = driver_of(node_1=8192, node_2=2048)
    decider = Decider(driver.table)
    assert ranked(decider) == ["node-1", "node-2"]
    # when a third one joins that is neither the emptiest nor the fullest
    driver.with_agents("node-3", free_mb=4096)
    # then
    assert ranked(decider) == ["node-1", "node-3", "node-2"]


def test_after_more_changes_than_are_remembered_every_host_is_weighed_again() -> None:
    # given a decision over four hosts
    driver = driver_of(node_1=8192, node_2=6144, node_3=5120, node_4=2048)
    decider = Decider(driver.table)
    assert ranked(decider) == ["node-1", "node-2", "node-3", "node-4"]
    # when one of the middle fills up, and then rows change again and again
    at = {"epoch": 1, "sequence": 2}
    driver.table.apply("node-2", {"cn.free_ram_mb": 4096, "cn.memory_mb_used": 4096}, {}, {}, **at)
    for number in range(CHANGES_MAX + 10):
        driver.table.apply("node-4", {"stats.io_workload": number % 2}, {}, {}, epoch=1, sequence=2 + number)
    driver.table.apply("node-4", {"stats.io_workload": 0}, {}, {}, **at)
    # then
    assert ranked(decider) == ["node-1", "node-3", "node-2", "node-4"]


def test_a_mask_of_numbers_follows_each_boot() -> None:
    # given a flavor that wants hosts with few servers, and a host that has none
    driver = driver_of(node_1=8192, node_2=8192)
    few = replace(request().flavor, extra_specs={"capabilities:stats:num_instances": "<= 1"})
    asked = request(flavor=few)
    decider = Decider(driver.table)
    assert set(decider.decide(asked).nodes()) == {"node-1", "node-2"}
    # when a server boots there, which changes numbers only
    driver.table.apply("node-1", {"stats.num_instances": 3}, {}, {}, epoch=1, sequence=2)
    # then it does not pass any more
    assert set(decider.decide(asked).nodes()) == {"node-2"}

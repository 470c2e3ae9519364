# SPDX-License-Identifier: Apache-2.0
"""One valid message names thousands of resource classes or traits; a column of all hosts belongs to each name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from shared_scheduler.model.leaf_validation import CLASSES_PER_NODE_MAX, TRAITS_PER_NODE_MAX
from shared_scheduler.protocol.messages import Consumer, Leaf
from shared_scheduler.table.columns import NAMES_MAX
from shared_scheduler.table.host_columns import CLASSES_MAX
from tests.unit.core.scheduler_driver import SchedulerDriver, only_claim, snapshot

EVIL, ROOT = "node-1", "rp.node-1"


def with_root(classes: int = 0, traits: int = 0, prefix: str = "CUSTOM_") -> Mapping[str, Leaf]:
    """The leaves of the evil node with this many names more."""
    leaves = dict(snapshot(EVIL).leaves)
    root = leaves[ROOT]
    assert isinstance(root, dict) and isinstance(root["inventories"], dict) and isinstance(root["traits"], list)
    some = root["inventories"]["VCPU"]
    more: dict[str, Leaf] = {f"{prefix}{n}": some for n in range(classes)}
    leaves[ROOT] = root | {"inventories": root["inventories"] | more, "traits": [f"{prefix}{n}" for n in range(traits)]}
    return leaves


def tell(driver: SchedulerDriver, epoch: int, **changes: object) -> None:
    driver.hear(replace(snapshot(EVIL, epoch=epoch), **changes))  # type: ignore[arg-type]


def memory(driver: SchedulerDriver) -> int:
    return driver.table.columns.nbytes


@pytest.mark.parametrize("names", [{"classes": 4000}, {"traits": 4000}])
def test_one_node_does_not_name_thousands(names: Mapping[str, int]) -> None:
    driver = SchedulerDriver().with_agents(EVIL, "node-2")
    before = memory(driver)

    tell(driver, 2, leaves=with_root(**names))

    assert memory(driver) == before
    assert driver.core.counters()["messages_unusable"] == 1
    assert only_claim(driver.ask()).node  # the others are decided on as before


def test_a_node_has_as_many_names_as_real_ones_have() -> None:
    driver = SchedulerDriver().with_agents(EVIL)

    tell(driver, 2, leaves=with_root(CLASSES_PER_NODE_MAX - 8, TRAITS_PER_NODE_MAX - 8))

    assert driver.core.counters().get("messages_unusable", 0) == 0
    assert driver.table.freshness(EVIL).value == "fresh"


def test_the_names_of_consumers_take_no_column() -> None:
    driver = SchedulerDriver().with_agents(EVIL)
    before = memory(driver)

    tell(driver, 2, consumers={"vm-1": Consumer({EVIL: {f"CUSTOM_{n}": 1 for n in range(4000)}})})

    assert memory(driver) == before


def test_names_that_change_with_each_message_are_forgotten() -> None:
    driver = SchedulerDriver().with_agents(EVIL, "node-2")
    times = 1 + max(CLASSES_MAX // CLASSES_PER_NODE_MAX, NAMES_MAX // TRAITS_PER_NODE_MAX)

    for epoch in range(2, 2 + times):
        tell(driver, epoch, leaves=with_root(CLASSES_PER_NODE_MAX - 8, TRAITS_PER_NODE_MAX - 8, f"CUSTOM_{epoch}_"))

    assert len(driver.table.columns.rooms) <= CLASSES_MAX
    assert len(driver.table.columns.traits) <= NAMES_MAX
    assert driver.table.freshness(EVIL).value == "fresh"
    innocent = replace(snapshot("node-2", epoch=2), leaves=dict(snapshot("node-2").leaves) | other_names())
    driver.hear(innocent)
    assert driver.table.freshness("node-2").value == "fresh"
    assert driver.table.columns.traits.having_all(frozenset({"CUSTOM_GPU"}), driver.table.columns.high).sum() == 1


def other_names() -> dict[str, Leaf]:
    root = snapshot("node-2").leaves["rp.node-2"]
    assert isinstance(root, dict)
    return {"rp.node-2": root | {"traits": ["CUSTOM_GPU"]}}

# SPDX-License-Identifier: Apache-2.0
"""Members of server groups in the tests of the core: what agents, Placement and Nova say of them."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.messages import Consumer
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only, only_claim, taken

GROUP = Group("group", "affinity", frozenset({"server-1", "server-5"}))
SOFT_GROUP = Group("group", "soft-affinity", frozenset({"server-5", "server-9"}))


def member(node: str) -> Consumer:
    return Consumer(taken(node), True, "group")


def placed(driver: SchedulerDriver, effects: list[ef.Effect]) -> list[ef.Effect]:
    """The agent accepts the one claim of these effects, and Placement takes the write."""
    return driver.written(only(ef.WriteAllocation, driver.accept(only_claim(effects))))


def group_question(effects: list[ef.Effect]) -> ef.AskGroup:
    (found,) = of_kind(ef.AskGroup, effects)
    return found


def stand(driver: SchedulerDriver, ask: ef.AskGroup, error: str = "", **homes: str) -> list[ef.Effect]:
    """The members stand on these nodes (their names with _ for -); those that were left out are not read."""
    standing = {name.replace("_", "-"): frozenset({node}) for name, node in homes.items()}
    standing = {uuid: nodes for uuid, nodes in standing.items() if uuid not in ask.known}
    return driver.give(ev.GroupAnswered(ask.ask_id, standing, error, cause=ask.cause))

# SPDX-License-Identifier: Apache-2.0
"""An operator sees which release each scheduler and agent runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from shared_scheduler.core import events as ev
from shared_scheduler.core.effects import Broadcast
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.model.leaves import AGENT_RELEASE
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.messages import Hello, Role
from shared_scheduler.release import UNKNOWN, release
from shared_scheduler.service import inspection
from shared_scheduler.service.engine import Engine
from tests.unit.core.scheduler_driver import CELL, ME, SchedulerDriver


class Inspected:
    """In the engine's place."""

    def __init__(self, core: SchedulerCore) -> None:
        self.core = core

    def inspect(self, question: Callable[[SchedulerCore], Any]) -> Any:
        return question(self.core)


def releases(driver: SchedulerDriver) -> dict[str, dict[str, int]]:
    return inspection.releases(cast(Engine, Inspected(driver.core)))


def hello(sender: str, told: str) -> Hello:
    return Hello(Role.SCHEDULER, sender, 1, release=told)


def test_schedulers_are_counted_by_the_release_in_their_hello() -> None:
    # given two others, one of them of a release that does not tell it, and one of them in two cells
    driver = SchedulerDriver()
    driver.hear(hello("ssched.scheduler.b.17.aaaa", "1.2.0"), hello("ssched.scheduler.c.18.bbbb", ""))
    driver.hear(hello("ssched.scheduler.b.17.cccc", "1.2.0"), cell="other")

    assert releases(driver)["schedulers"] == {release(): 1, "1.2.0": 1, UNKNOWN: 1}


def test_one_that_has_gone_is_not_counted() -> None:
    driver = SchedulerDriver()
    driver.give(ev.ChannelChanged(CELL, True))
    driver.hear(hello("ssched.scheduler.b.17.aaaa", "1.2.0"))

    driver.wait(60.0)

    assert releases(driver)["schedulers"] == {release(): 1}


def test_agents_are_counted_by_their_leaf_while_they_report() -> None:
    driver = SchedulerDriver().with_agents("n1", "n2", **{AGENT_RELEASE: "1.2.0"})
    driver.with_agents("n3").without_agents("n4")

    assert releases(driver)["agents"] == {"1.2.0": 2, UNKNOWN: 1}


def test_our_hello_contains_our_release() -> None:
    driver = SchedulerDriver()
    object.__setattr__(driver.core.identity, "release", "1.3.0")

    sent = driver.give(ev.ChannelChanged(CELL, True))

    [said] = [one.message for one in sent if isinstance(one, Broadcast)]
    assert isinstance(said, Hello)
    assert (said.sender, codec.decode(codec.encode(said))) == (ME, said)
    assert said.release == "1.3.0"


def test_a_hello_of_the_first_release_is_understood() -> None:
    body = codec.encode(hello("ssched.scheduler.b", ""))
    fields = body[0] & 0x0F
    first = bytes([0x90 | (fields - 1)]) + body[1:-1]  # without the last field, an empty text of one byte

    assert codec.decode(first) == hello("ssched.scheduler.b", "")

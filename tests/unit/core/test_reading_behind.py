# SPDX-License-Identifier: Apache-2.0
"""A scheduler that reads more slowly than agents send does not take agents for silent whose messages wait unread.

If it did, it would ask them, and read their nodes elsewhere, which costs the time that it needs to read.
"""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.protocol.limits import READ_BEHIND_MAX_S, READ_BEHIND_PAUSE_S, SILENT_AFTER_S
from shared_scheduler.protocol.messages import Heartbeat, Increment
from shared_scheduler.table.row import Freshness
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, host_of, resyncs_in, snapshot

WAITING, BUSY = "node-1", "node-2"
STEP_S = 2.0


def heartbeat(node: str) -> Heartbeat:
    """Its agent is alive, and nothing has changed."""
    told = snapshot(node)
    return Heartbeat(node, 1, 1, host_of(node), told.digest)


def read_for(driver: SchedulerDriver, seconds: float) -> list[ef.Effect]:
    """Read only messages of the busy node for a while; others wait all the time."""
    found: list[ef.Effect] = []
    end_s = driver.now + seconds
    while driver.now < end_s:
        found += driver.give(ev.MessagesArrived(CELL, (heartbeat(BUSY),), more=True))
        found += driver.wait(STEP_S)
    return found


def test_nobody_is_silent_while_messages_wait_unread() -> None:
    # given two agents, and more messages than the scheduler can read
    driver = SchedulerDriver().with_agents(WAITING, BUSY)
    # when it reads only those of one of them, for longer than an agent may be silent
    effects = read_for(driver, 2 * SILENT_AFTER_S)
    # then it neither asks the other, nor reads its node elsewhere
    assert resyncs_in(effects) == []
    assert not [effect for effect in effects if isinstance(effect, ef.RefreshNode)]
    assert driver.core.table.freshness(WAITING) is Freshness.FRESH
    # and when it has read all, with a message of that one, the row is as fresh as before
    effects = driver.hear(heartbeat(BUSY), heartbeat(WAITING)) + driver.wait(STEP_S)
    assert resyncs_in(effects) == []
    assert driver.core.table.freshness(WAITING) is Freshness.FRESH


def test_an_agent_without_a_message_is_silent_when_all_is_read() -> None:
    driver = SchedulerDriver().with_agents(WAITING, BUSY)
    read_for(driver, 2 * SILENT_AFTER_S)

    driver.hear(heartbeat(BUSY))
    driver.wait(SILENT_AFTER_S)

    assert driver.core.table.freshness(WAITING) is Freshness.PROVISIONAL


def test_a_sender_that_never_stops_does_not_hide_a_silent_agent_for_ever() -> None:
    driver = SchedulerDriver().with_agents(WAITING, BUSY)

    read_for(driver, READ_BEHIND_MAX_S + SILENT_AFTER_S)

    assert driver.core.table.freshness(WAITING) is Freshness.PROVISIONAL


def test_a_scheduler_that_falls_behind_again_waits_as_long_as_before() -> None:
    # given one that stopped reading when messages still waited: the channel was away
    driver = SchedulerDriver().with_agents(WAITING, BUSY)
    read_for(driver, STEP_S)
    driver.give(ev.ChannelChanged(CELL, False))
    driver.wait(READ_BEHIND_MAX_S)
    driver.give(ev.ChannelChanged(CELL, True))
    # when it falls behind once more, with all that agents say now
    driver.give(ev.MessagesArrived(CELL, (snapshot(WAITING), snapshot(BUSY)), more=True))
    effects = read_for(driver, 2 * SILENT_AFTER_S)
    # then
    assert resyncs_in(effects) == []
    assert driver.core.table.freshness(WAITING) is Freshness.FRESH


def test_a_sender_that_pauses_does_not_hide_a_silent_agent_for_ever() -> None:
    # given a sender who lets the scheduler read all for a moment now and then, when no timer rings
    driver = SchedulerDriver().with_agents(WAITING, BUSY)
    end_s = driver.now + READ_BEHIND_MAX_S + 2 * SILENT_AFTER_S
    while driver.now < end_s:
        read_for(driver, READ_BEHIND_PAUSE_S - STEP_S)
        driver.hear(heartbeat(BUSY))
    # then
    assert driver.core.table.freshness(WAITING) is Freshness.PROVISIONAL


def test_a_missing_message_is_asked_for_at_once_and_not_again_while_its_answer_may_be_unread() -> None:
    # given an agent of which one message is lost; it cannot be among the unread ones, because they keep their order
    driver = SchedulerDriver().with_agents(WAITING, BUSY)
    driver.give(ev.MessagesArrived(CELL, (Increment(WAITING, 1, 3),), more=True))
    # when others send more than the scheduler can read
    effects = read_for(driver, SILENT_AFTER_S)
    # then the agent is asked once
    assert resyncs_in(effects) == [WAITING]

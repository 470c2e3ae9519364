# SPDX-License-Identifier: Apache-2.0
"""An agent that is frozen or deaf delays a request by the usual time of an answer, not by ``verdict_timeout_s``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.verdict_limit import FIRST_S, SHORTEST_S, VerdictLimit
from shared_scheduler.protocol.messages import Claim, Heartbeat, Release
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    claims_in,
    host_of,
    nodes_of,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
    resyncs_in,
    snapshot,
)

NODES = ("node-1", "node-2", "node-3")


def with_quick_agents() -> SchedulerDriver:
    """Three nodes whose agents have answered some claims within milliseconds."""
    driver = SchedulerDriver().with_agents(*NODES, vcpus=64, free_mb=65_536)
    for number in range(8):
        claim = only_claim(driver.ask(request(f"early-{number}")))
        driver.wait(0.005)
        driver.written(only(ef.WriteAllocation, driver.accept(claim, sequence=number + 2)))
    return driver


def left_after(driver: SchedulerDriver, claim: Claim, within_s: float = 0.2) -> Claim:
    """The claim for another host after the agent of ``claim`` was late."""
    effects = driver.wait(within_s)
    assert releases_in(effects) == [claim.claim_id]
    (second,) = claims_in(effects)
    assert second.node != claim.node and second.consumer == claim.consumer
    return second


def test_a_deaf_agent_costs_a_request_no_more_than_200_ms() -> None:
    # given agents that answer within 5 ms, and one that has become deaf
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    # when 200 ms have passed, then the next host is claimed and gets the server
    second = left_after(driver, deaf)
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(second, sequence=20))))
    assert nodes_of(answer) == [second.node]
    # and the loser is released again, if it accepts after all; nothing is written for it
    effects = driver.accept(deaf, sequence=20)
    assert releases_in(effects) == [deaf.claim_id] and len(effects) == 1
    driver.idle()


def test_the_releases_of_a_late_claim_tell_that_it_was_never_written() -> None:
    # given an agent that was late
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    at_once = driver.wait(0.2)
    # when it accepts after all, then both releases tell it that Placement was never asked
    assert never_written_in(at_once) == never_written_in(driver.accept(deaf, sequence=20)) == [True]


def test_the_release_of_a_claim_that_placement_has_refused_tells_that_it_was_asked() -> None:
    driver = with_quick_agents()
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask()), sequence=20))
    assert never_written_in(driver.written(write, ev.WriteCode.NO_CAPACITY)) == [False]


def never_written_in(effects: Sequence[ef.Effect]) -> list[bool]:
    sends = (effect for effect in effects if isinstance(effect, ef.Send))
    return [send.message.never_written for send in sends if isinstance(send.message, Release)]


def test_the_node_of_a_late_agent_is_selected_last_until_it_answers() -> None:
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    left_after(driver, deaf)
    assert driver.core.quarantine.nodes == {deaf.node}
    # when other requests come, then none of them waits for it while another host passes
    assert all(only_claim(driver.ask(request(f"other-{n}"))).node != deaf.node for n in range(3))
    # and when it answers, it is selected like the others
    driver.accept(deaf, sequence=20)
    assert driver.core.quarantine.nodes == frozenset()


def test_a_verdict_after_the_longest_time_ends_the_quarantine_as_well() -> None:
    # given an agent that stood still for longer than any claim waits for it
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    second = left_after(driver, deaf)
    driver.written(only(ef.WriteAllocation, driver.accept(second, sequence=20)))
    driver.wait(driver.core.settings.verdict_timeout_s + 1.0)
    assert driver.core.quarantine.nodes == {deaf.node}
    # when it answers after all, then its node is selected like the others, and the claim is released again
    assert releases_in(driver.accept(deaf, sequence=20)) == [deaf.claim_id]
    assert driver.core.quarantine.nodes == frozenset()


def test_a_verdict_on_a_claim_that_was_waited_for_in_vain_ends_the_quarantine_as_well() -> None:
    # given a late agent, and a request for its node only, which has waited for the longest time
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    second = left_after(driver, deaf)
    driver.written(only(ef.WriteAllocation, driver.accept(second, sequence=20)))
    others = frozenset(host_of(node) for node in NODES if node != deaf.node)
    waited = only_claim(driver.ask(request("server-9", ignore_hosts=others)))
    driver.wait(driver.core.settings.verdict_timeout_s + 1.0)
    assert driver.core.quarantine.nodes == {deaf.node}
    # when the verdict of that request comes first
    driver.accept(waited, sequence=20)
    assert driver.core.quarantine.nodes == frozenset()


def test_an_agent_that_refuses_in_time_is_not_late_any_more() -> None:
    # given a late agent, and a request for its node only
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    left_after(driver, deaf)
    others = frozenset(host_of(node) for node in NODES if node != deaf.node)
    claim = only_claim(driver.ask(request("server-9", ignore_hosts=others)))
    # when it refuses that one
    driver.refuse(claim)
    assert driver.core.quarantine.nodes == frozenset()


def test_an_agent_that_never_answers_is_asked_for_its_state_after_the_long_time() -> None:
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    second = left_after(driver, deaf)
    driver.written(only(ef.WriteAllocation, driver.accept(second, sequence=20)))
    assert resyncs_in(driver.wait(2.7)) == []
    assert resyncs_in(driver.wait(0.2)) == [deaf.node]
    # and its node is not selected until it is heard
    others = frozenset(host_of(node) for node in NODES if node != deaf.node)
    assert claims_in(driver.ask(request("server-9", ignore_hosts=others))) == []
    sequence = driver.table.version(deaf.node).sequence
    driver.hear(Heartbeat(deaf.node, 1, sequence, host_of(deaf.node), driver.table.digest(deaf.node)))
    assert only_claim(driver.ask(request("server-10", ignore_hosts=others))).node == deaf.node


def test_where_no_other_host_passes_a_late_agent_is_waited_for() -> None:
    driver = with_quick_agents()
    others = frozenset({"host-2", "host-3"})
    claim = only_claim(driver.ask(request("server-1", ignore_hosts=others)))
    assert releases_in(driver.wait(2.5)) == []
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim, sequence=20))))
    assert nodes_of(answer) == ["node-1"]


def test_if_all_agents_are_late_the_first_is_claimed_again_and_waited_for() -> None:
    # given a state channel that stands still for a second and a half
    driver = with_quick_agents()
    claims = [only_claim(driver.ask())]
    claims += claims_in(driver.wait(1.5))
    # then each host was claimed once and released, with twice the time for each further one
    assert {claim.node for claim in claims[:2]} < set(NODES) and len(claims) >= 3
    # and the last claim is not given up for want of another host
    last = claims[-1]
    effects = driver.accept(last, sequence=20)
    assert nodes_of(only(ef.Answer, driver.written(only(ef.WriteAllocation, effects)))) == [last.node]
    for claim in claims[:-1]:
        driver.accept(claim, sequence=21)
    driver.idle()


def test_a_pause_of_the_scheduler_itself_is_no_reason_to_claim_another_host() -> None:
    driver = with_quick_agents()
    claim = only_claim(driver.ask())
    # given a scheduler that stood still for nine tenths of a second: the timer rings before the verdict is handled
    driver.now += 0.9
    assert driver.give(ev.Tick()) == []
    write = only(ef.WriteAllocation, driver.accept(claim, sequence=20))
    assert nodes_of(only(ef.Answer, driver.written(write))) == [claim.node]


@pytest.mark.parametrize("frozen_s", [3.2, 5.0, 9.0, 12.5])
def test_a_verdict_that_arrives_while_the_scheduler_is_frozen_is_in_time(frozen_s: float) -> None:
    # given a claim, and its verdict, which arrives while the process is frozen for longer than a claim waits
    driver = with_quick_agents()
    claim = only_claim(driver.ask())
    driver.now += frozen_s
    # when the process continues, and the timers ring before the verdict is handled
    effects = driver.give(ev.Tick())
    # then the claim is accepted, and no other host is claimed
    assert (releases_in(effects), resyncs_in(effects)) == ([], [])
    assert {one.claim_id for one in claims_in(effects)} <= {claim.claim_id}
    write = only(ef.WriteAllocation, driver.accept(claim, sequence=20))
    assert nodes_of(only(ef.Answer, driver.written(write))) == [claim.node]
    assert driver.core.counters().get("verdicts_missed", 0) == 0


def test_a_late_verdict_that_arrives_while_the_scheduler_is_frozen_has_come() -> None:
    # given a claim that was left because its agent was late
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    second = left_after(driver, deaf)
    driver.written(only(ef.WriteAllocation, driver.accept(second, sequence=20)))
    # when its verdict arrives while the process is frozen
    driver.now += 5.0
    assert resyncs_in(driver.give(ev.Tick())) == []
    driver.accept(deaf, sequence=20)
    # then nobody takes the agent for one that never answers
    driver.wait(10.0)
    assert driver.core.counters().get("verdicts_missed", 0) == 0


def test_a_silent_agent_is_given_up_soon_after_the_scheduler_was_frozen() -> None:
    # given an agent that does not answer, and a scheduler that was frozen for six seconds
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    driver.now += 6.0
    assert releases_in(driver.give(ev.Tick())) == []
    # when the longest time has passed once more, then another host is claimed
    effects = driver.wait(driver.core.settings.verdict_timeout_s)
    assert releases_in(effects) == [deaf.claim_id] and resyncs_in(effects) == [deaf.node]
    (second,) = claims_in(effects)
    assert second.node != deaf.node


def test_a_scheduler_that_stands_still_again_and_again_does_not_wait_longer_than_it_may_write() -> None:
    # given an agent that does not answer, and a process that gets the processor twice a second
    driver = with_quick_agents()
    deaf, asked_s = only_claim(driver.ask()), driver.now
    released: list[str] = []
    while deaf.claim_id not in released:
        driver.now += 0.5
        released = releases_in(driver.give(ev.Tick()))
        # then it is given up when a verdict would be of no use any more
        assert driver.now - asked_s <= driver.core.settings.written_within_s + 0.5


def test_a_request_ends_in_its_time_even_if_the_scheduler_was_frozen() -> None:
    # given a caller that waits for eight seconds, and a scheduler that is frozen for seven of them
    driver = with_quick_agents()
    claim = only_claim(driver.ask(within_s=8.0))
    driver.now += 7.0
    # when the process continues, then the caller gets its answer at once, and the claim is released
    effects = driver.give(ev.Tick())
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [ef.FailureCode.TIMED_OUT]
    assert releases_in(effects) == [claim.claim_id]
    assert {one.claim_id for one in claims_in(effects)} <= {claim.claim_id}
    driver.idle()


def test_after_a_recheck_a_late_agent_is_left_as_in_a_new_request() -> None:
    # given a request that was left by one agent, refused by the other two, and by the first one when that was recalled
    driver = with_quick_agents()
    claim = left_after(driver, only_claim(driver.ask()))
    for _ in range(2):
        claim = only_claim(driver.refuse(claim))
    ask = only(ef.AskFitting, driver.refuse(claim))
    # when Placement says that all have room, and their rows were read
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset(NODES), cause=ask.cause))
    effects = [
        effect for node in NODES for effect in driver.hear(snapshot(node, sequence=20, vcpus=64, free_mb=65_536))
    ]
    # and the next agent does not answer, then another host is claimed after the usual time
    left_after(driver, only_claim(effects))


def test_an_agent_that_was_late_during_the_recheck_of_another_server_is_left_after_it() -> None:
    # given a request for two servers: one agent does not answer, and all refuse the other server
    driver = with_quick_agents()
    deaf, claim = claims_in(driver.ask(request("server-1", "server-2")))
    for _ in range(len(NODES) - 1):
        claim = only_claim(driver.refuse(claim))
    ask = only(ef.AskFitting, driver.refuse(claim))
    # when the time of the agent ends while Placement is asked
    assert releases_in(driver.wait(0.2)) == []
    driver.give(ev.FittingAnswered(ask.ask_id, frozenset(NODES), cause=ask.cause))
    for node in NODES:
        driver.hear(snapshot(node, sequence=20, vcpus=64, free_mb=65_536))
    # then its server gets another host as soon as the request goes on
    left_after(driver, deaf, within_s=0.0)


def test_a_late_verdict_of_another_node_changes_nothing() -> None:
    driver = with_quick_agents()
    deaf = only_claim(driver.ask())
    second = left_after(driver, deaf)
    driver.accept(replace(deaf, node=second.node))
    assert driver.core.quarantine.nodes == {deaf.node}


# -- the estimate


def test_before_the_first_answer_the_limit_is_that_of_tcp() -> None:
    assert VerdictLimit(3.0).after() == FIRST_S
    assert VerdictLimit(0.5).after() == 0.5


def test_quick_agents_give_the_shortest_limit_and_slow_ones_a_longer_one() -> None:
    quick, slow = VerdictLimit(3.0), VerdictLimit(3.0)
    for number in range(50):
        quick.answered(f"node-{number}", 0.004)
        slow.answered(f"node-{number}", 0.3 if number % 2 else 0.2)
    assert quick.after() == SHORTEST_S
    assert 0.3 < slow.after() < 0.6


def test_each_late_agent_doubles_the_limit_up_to_the_longest_time() -> None:
    limit = VerdictLimit(3.0)
    limit.answered("node-1", 0.004)
    assert [limit.after(late) for late in range(6)] == [0.18, 0.36, 0.72, 1.44, 2.88, 3.0]


def test_the_answers_of_one_frozen_agent_hardly_raise_the_limit_for_the_others() -> None:
    limit = VerdictLimit(3.0)
    for number in range(50):
        limit.answered(f"node-{number}", 0.004)
    for _ in range(32):
        limit.answered("node-7", 2.9)
    assert limit.after() < 0.45
    for number in range(12):
        limit.answered(f"node-{number}", 0.004)
    assert limit.after() == SHORTEST_S


def test_a_fleet_that_becomes_slow_is_followed() -> None:
    limit = VerdictLimit(3.0)
    for number in range(50):
        limit.answered(f"node-{number}", 0.004)
    for number in range(10):
        limit.answered(f"node-{number}", 1.0)
    assert limit.after() > 1.0

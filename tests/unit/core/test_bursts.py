# SPDX-License-Identifier: Apache-2.0
"""Requests for many servers at once, and more requests than Placement can write."""

from __future__ import annotations

from typing import Any

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.write_pace import DOUBT_S, FORECAST_VALID_S, WRITERS
from tests.unit.core.scheduler_driver import SchedulerDriver, claims_in, of_kind, only, only_claim, releases_in, request

VCPUS = 4_000
NEVER_SENT = ev.WriteCode.NEVER_SENT
WAIT_S = SchedulerSettings().crowded_wait_s


def servers(count: int) -> list[str]:
    return [f"server-{number}" for number in range(count)]


def large_nodes(**settings: Any) -> SchedulerDriver:
    """Four nodes with room for thousands, which take any number of claims at once."""
    driver = SchedulerDriver(claims_per_node_max=10_000, **settings)
    for number in range(4):
        node = f"node-{number}"
        driver.with_agents(node, vcpus=VCPUS, free_mb=VCPUS * 1_024, **facts(node))
    return driver


def facts(node: str) -> dict[str, Any]:
    return {f"rp.{node}": large_provider(node)}


def large_provider(node: str) -> Any:
    totals = {"VCPU": VCPUS, "MEMORY_MB": VCPUS * 1_024, "DISK_GB": VCPUS * 10}
    inventories = {name: [total, 0, 1, total, 1, 1.0] for name, total in totals.items()}
    return {"name": node, "parent": None, "generation": 1, "inventories": inventories, "traits": [], "aggregates": []}


def paced(driver: SchedulerDriver, consumer_s: float) -> None:
    """One server is placed, and Placement took so long for it."""
    claim = only_claim(driver.ask(request("first", request_id="req-0")))
    write = only(ef.WriteAllocation, driver.accept(claim))
    only(ef.Answer, driver.written(write, consumer_s=consumer_s))


class Burst:
    """One request for many servers whose claims are accepted at once; the test answers its writes."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.began_s = 0.0
        self.writes: list[ef.WriteAllocation] = []  # without an answer
        self.written: list[str] = []
        self.deletes: list[ef.DeleteAllocation] = []
        self.ends: list[ef.Answer | ef.Fail] = []

    def begin(self, driver: SchedulerDriver, within_s: float) -> None:
        """Ask for the servers."""
        self.began_s = driver.now
        self._take(driver, driver.ask(request(*self.names), within_s=within_s))

    def answer(self, driver: SchedulerDriver, count: int, consumer_s: float) -> None:
        """Placement has carried out the oldest writes, at this pace."""
        answered, self.writes = self.writes[:count], self.writes[count:]
        for write in answered:
            self.written.append(write.consumer)
            self._take(driver, driver.written(write, consumer_s=consumer_s))

    def delete_all(self, driver: SchedulerDriver) -> ef.Fail:
        """Carry out all deletes, of everything that was written; the failure that follows."""
        assert sorted(delete.consumer for delete in self.deletes) == sorted(self.written)
        for delete in self.deletes:
            assert self.ends == []
            self._take(driver, driver.deleted(delete))
        return only(ef.Fail, self.ends)

    def _take(self, driver: SchedulerDriver, effects: list[ef.Effect]) -> None:
        self.deletes += of_kind(ef.DeleteAllocation, effects)
        self.ends += [one for one in effects if isinstance(one, ef.Answer | ef.Fail)]
        for claim in claims_in(effects):
            self.writes.append(only(ef.WriteAllocation, driver.accept(claim)))


# -- too many for the time


def test_a_burst_that_placement_cannot_write_in_time_fails_at_once() -> None:
    # given a Placement that takes a second for each server, and a caller that waits for a minute
    driver = large_nodes()
    paced(driver, consumer_s=1.0)

    # when more servers are asked for than it writes in a minute
    effects = driver.ask(request(*servers(61 * WRITERS)), within_s=60.0)

    # then nothing is claimed, and the reason says it
    fail = only(ef.Fail, effects)
    assert fail.code == ef.FailureCode.NO_TIME
    assert "needs about 61 s to write 244 servers, and 58 s are left" in fail.text
    driver.idle()


def test_a_burst_that_can_end_in_time_is_tried() -> None:
    driver = large_nodes()
    paced(driver, consumer_s=1.0)
    assert claims_in(driver.ask(request(*servers(50 * WRITERS)), within_s=60.0))


def test_a_pace_of_long_ago_stops_nothing() -> None:
    driver = large_nodes()
    paced(driver, consumer_s=1.0)
    driver.now += FORECAST_VALID_S + 1.0
    assert claims_in(driver.ask(request(*servers(61 * WRITERS)), within_s=60.0))


def test_a_burst_without_a_known_pace_begins_with_few_writes() -> None:
    driver = large_nodes()
    claims = claims_in(driver.ask(request(*servers(400)), within_s=60.0))
    assert len(claims) == 2 * WRITERS


def test_a_burst_fails_when_its_first_writes_have_shown_that_it_cannot_end() -> None:
    # given a burst of 400 servers, and a Placement of which nobody knows that it takes a second for each
    driver, burst = large_nodes(), Burst(servers(400))
    burst.begin(driver, within_s=60.0)

    # when its writes are answered, four in a second
    while not burst.deletes:
        driver.now += 1.0
        burst.answer(driver, WRITERS, consumer_s=1.0)

    # then it ends after a few seconds, and everything that was written by then is deleted before the caller is told
    assert driver.now <= burst.began_s + 5.0
    burst.answer(driver, len(burst.writes), consumer_s=1.0)
    fail = burst.delete_all(driver)
    assert fail.code == ef.FailureCode.NO_TIME
    assert "needs about 97 s to write 387 more servers, and 54 s are left; 13 were written" in fail.text
    assert len(burst.written) < 10 * WRITERS
    driver.idle()


def test_a_placement_that_is_slow_only_at_first_stops_no_burst() -> None:
    """As one that has just started: the first call of each of its processes takes seconds."""
    # given a burst whose first writes took eight seconds each
    driver, burst = large_nodes(), Burst(servers(400))
    burst.begin(driver, within_s=60.0)
    driver.now += 8.0
    burst.answer(driver, WRITERS, consumer_s=8.0)

    # when all further ones are as fast as usual
    pace_s = 8.0
    while burst.writes:
        driver.now += 0.02
        pace_s = (pace_s + 0.02) / 2
        burst.answer(driver, WRITERS, consumer_s=pace_s)

    # then it is answered
    assert burst.deletes == [] and len(burst.written) == 400
    driver.idle()


def test_what_others_have_found_before_does_not_stop_a_burst_that_is_fast_itself() -> None:
    # given a burst, and another request whose call was sent long before and ends now
    driver, burst = large_nodes(), Burst(servers(400))
    other = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(request("other", request_id="req-0")))))
    burst.begin(driver, within_s=60.0)
    driver.now += 1.0
    driver.written(other, consumer_s=9.0)

    # when two of its own writes show for three seconds that Placement is well again
    for pace_s in (4.5, 2.0, 0.4, 0.1, 0.01):
        driver.now += 0.7
        burst.answer(driver, 1, consumer_s=pace_s)

    # then it goes on
    assert burst.deletes == [] and burst.writes


def test_a_burst_is_not_stopped_by_a_doubt_that_is_over() -> None:
    # given a burst that seemed too large for a moment, and again some time later
    driver, burst = large_nodes(), Burst(servers(400))
    burst.begin(driver, within_s=60.0)
    for pace_s in (1.0, 0.01, 1.0):
        driver.now += DOUBT_S - 0.5
        burst.answer(driver, 1, consumer_s=pace_s)
    assert burst.deletes == []


def test_a_burst_of_which_much_is_written_outlasts_a_placement_that_is_slow_for_a_while() -> None:
    # given a burst of 1,000 servers, of which 400 are written in two seconds
    driver, burst = large_nodes(), Burst(servers(1_000))
    burst.begin(driver, within_s=60.0)
    while len(burst.written) < 400:
        driver.now += 0.02
        burst.answer(driver, WRITERS, consumer_s=0.02)

    # when Placement takes a second for each server, for six seconds
    for _ in range(6):
        driver.now += 1.0
        burst.answer(driver, WRITERS, consumer_s=1.0)

    # then it goes on, because at the pace that it has had so far it ends in time
    assert burst.deletes == [] and burst.writes

    # and it ends when Placement stays slow
    while not burst.deletes:
        driver.now += 1.0
        burst.answer(driver, WRITERS, consumer_s=1.0)
    assert driver.now < burst.began_s + 40.0


@pytest.mark.parametrize(("takes_s", "deleted"), [(9.0, []), (9.5, ["server-0"]), (10.0, [])])
def test_a_burst_does_not_wait_for_certainty_while_the_time_to_take_it_back_runs_out(
    takes_s: float, deleted: list[str]
) -> None:
    # given a burst of which eight servers are claimed, and a minute: so slow that to write and to delete them takes 45,
    # 47 or 50 seconds
    driver, burst = large_nodes(), Burst(servers(400))
    burst.begin(driver, within_s=60.0)

    # when the first one is written
    driver.now += takes_s
    burst.answer(driver, 1, consumer_s=takes_s)

    # then it ends only if all can still be taken back, but not after a wait
    assert [delete.consumer for delete in burst.deletes] == deleted


def test_a_request_that_can_end_is_written_however_slow_placement_is() -> None:
    driver, burst = large_nodes(), Burst(servers(20))
    burst.begin(driver, within_s=60.0)
    while burst.writes:
        driver.now += 9.0
        burst.answer(driver, WRITERS, consumer_s=9.0)
    assert burst.deletes == [] and len(burst.written) == 20
    driver.idle()


def test_a_request_that_writes_nothing_needs_no_time() -> None:
    driver = large_nodes()
    paced(driver, consumer_s=1_000.0)
    only(ef.Answer, driver.ask(request("a", claim=False)))


def test_a_request_whose_time_is_over_when_it_is_heard_is_not_said_to_be_too_large() -> None:
    """As behind a scheduler that was stopped for longer than its callers wait."""
    # when a request is heard after its deadline
    driver = large_nodes()
    fail = only(ef.Fail, driver.ask(request("a"), within_s=-1.0))
    # then nothing is claimed, and Placement is not blamed
    assert (fail.code, fail.text) == (ef.FailureCode.TIMED_OUT, "its time was over before it could be decided")
    driver.idle()


def test_a_request_that_claims_nothing_is_answered_however_late_it_is_heard() -> None:
    only(ef.Answer, large_nodes().ask(request("a", claim=False), within_s=-1.0))


# -- in steps


def test_the_instances_of_a_burst_are_claimed_as_fast_as_they_are_written() -> None:
    # given a Placement that writes five servers in five seconds
    driver = large_nodes()
    paced(driver, consumer_s=4.0)
    claims = claims_in(driver.ask(request(*servers(7))))
    assert [claim.consumer for claim in claims] == servers(5)
    writes = [only(ef.WriteAllocation, driver.accept(claim)) for claim in claims]

    # when one is written, then the next one is claimed
    for write in writes[:2]:
        claims += claims_in(driver.written(write))
    assert [claim.consumer for claim in claims] == servers(7)

    # and the answer follows after the last one
    writes += [only(ef.WriteAllocation, driver.accept(claim)) for claim in claims[5:]]
    for write in writes[2:6]:
        assert not of_kind(ef.Answer, driver.written(write))
    assert len(only(ef.Answer, driver.written(writes[6])).choices) == 7


# -- all or nothing


@pytest.mark.parametrize("count", [100, 1_404])
def test_the_writes_of_a_burst_are_all_deleted_when_placement_fails(count: int) -> None:
    # given a request for many servers, of which half are written
    driver = large_nodes()
    waiting = claims_in(driver.ask(request(*servers(count)), within_s=600.0))
    written: list[ef.WriteAllocation] = []
    while len(written) < count // 2:
        write = only(ef.WriteAllocation, driver.accept(waiting.pop(0)))
        written.append(write)
        waiting += claims_in(driver.written(write))

    # when the next write is refused for good
    refused = only(ef.WriteAllocation, driver.accept(waiting.pop(0)))
    effects = driver.written(refused, ev.WriteCode.CONSUMER_CONFLICT)

    # then everything that was written is deleted and every other claim released, and the caller is told once
    deletes = of_kind(ef.DeleteAllocation, effects)
    assert [one.consumer for one in deletes] == [one.consumer for one in written]
    fails = [fail for delete in deletes for fail in of_kind(ef.Fail, driver.deleted(delete))]
    assert [fail.code for fail in fails] == [ef.FailureCode.CONSUMER_CONFLICT]
    driver.idle()


@pytest.mark.parametrize("code", [NEVER_SENT, ev.WriteCode.NOT_SERVED])
def test_a_write_that_waited_in_vain_is_asked_for_again_on_the_same_host(code: ev.WriteCode) -> None:
    # given a Placement that does not keep up, or is away, and a caller that waits for a minute
    driver = large_nodes()
    claim = only_claim(driver.ask(within_s=60.0))
    write = only(ef.WriteAllocation, driver.accept(claim))

    # when the write was not sent, because the agent would not keep its claim any longer
    driver.now += 10.0
    effects = driver.written(write, code)

    # then the claim is released, nothing is deleted, and the caller is not told that there is no host
    assert releases_in(effects) == [claim.claim_id]
    assert of_kind(ef.DeleteAllocation, effects) == [] and of_kind(ef.Fail, effects) == []

    # and after a pause the same host is claimed again, and the request succeeds
    again = only_claim(driver.wait(WAIT_S))
    assert (again.node, again.consumer) == (claim.node, claim.consumer) and again.claim_id != claim.claim_id
    only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(again))))
    driver.idle()


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (NEVER_SENT, ef.FailureCode.OVERLOADED),
        (ev.WriteCode.NOT_SERVED, ef.FailureCode.PLACEMENT_UNREACHABLE),
    ],
)
def test_a_write_that_waited_in_vain_fails_its_request_when_its_time_is_over(
    code: ev.WriteCode, failure: ef.FailureCode
) -> None:
    driver = large_nodes()
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(within_s=12.0))))

    driver.now += 9.5
    effects = driver.written(write, code)
    assert of_kind(ef.DeleteAllocation, effects) == [] and claims_in(effects) == []
    assert [fail.code for fail in of_kind(ef.Fail, effects)] == [failure]
    driver.idle()


def test_a_request_whose_time_ends_during_another_write_says_why_the_ones_before_were_in_vain() -> None:
    # given a write that no Placement was there for, and the next one, which ends later than the time for a clean-up
    driver = large_nodes()
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(within_s=15.0))))
    driver.now += 10.0
    driver.written(write, ev.WriteCode.NOT_SERVED)
    again = only(ef.WriteAllocation, driver.accept(only_claim(driver.wait(WAIT_S))))

    # when the time is over, and the second write ends like the first one
    driver.wait(3.0)
    (fail,) = of_kind(ef.Fail, driver.written(again, ev.WriteCode.NOT_SERVED))

    # then the caller hears of Placement, and not of hosts
    assert fail.code == ef.FailureCode.PLACEMENT_UNREACHABLE
    driver.idle()


def test_a_request_whose_time_ends_after_a_host_has_refused_does_not_speak_of_placement() -> None:
    # given a write that no Placement was there for, and an agent that refuses the next claim
    driver = large_nodes()
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(within_s=15.0))))
    driver.now += 10.0
    driver.written(write, ev.WriteCode.NOT_SERVED)
    assert len(claims_in(driver.refuse(only_claim(driver.wait(WAIT_S))))) == 1

    # when the time is over, and the agent of another host has not answered yet
    (fail,) = of_kind(ef.Fail, driver.wait(2.5))
    assert fail.code == ef.FailureCode.TIMED_OUT
    driver.idle()


def test_a_write_that_waited_in_vain_fails_its_request_while_half_of_the_places_are_taken() -> None:
    # given a scheduler that takes four requests, and three that are under way: the newest have to find a place
    driver = large_nodes(requests_max=4)
    writes = [
        only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(request(name, request_id=f"req-{name}")))))
        for name in ("a", "b", "c")
    ]

    # then the first one ends, and the second one waits
    fails = of_kind(ef.Fail, driver.written(writes[0], NEVER_SENT))
    assert [fail.code for fail in fails] == [ef.FailureCode.OVERLOADED]
    assert of_kind(ef.Fail, driver.written(writes[1], NEVER_SENT)) == []


def test_the_others_of_a_burst_are_kept_while_one_write_waited_in_vain() -> None:
    # given two servers of one request, of which one is written and the other one waited in vain
    driver = large_nodes()
    first, second = claims_in(driver.ask(request("a", "b"), within_s=60.0))
    driver.written(only(ef.WriteAllocation, driver.accept(first)))
    assert of_kind(ef.Fail, driver.written(only(ef.WriteAllocation, driver.accept(second)), NEVER_SENT)) == []

    # when the second one is written later, then both are answered, and nothing was deleted
    again = only_claim(driver.wait(WAIT_S))
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(again))))
    assert len(answer.choices) == 2
    driver.idle()

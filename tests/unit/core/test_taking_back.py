# SPDX-License-Identifier: Apache-2.0
"""Allocations that no request needs are deleted, or left to their new owner."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.group_check import YIELD_PAUSE_S
from shared_scheduler.decision.request import Group
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    claims_in,
    of_kind,
    only,
    only_claim,
    releases_in,
    request,
    taken,
)


def test_the_allocation_of_an_unheard_answer_is_deleted() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    answer = only(ef.Answer, driver.written(only(ef.WriteAllocation, driver.accept(claim))))
    assert answer.claim_ids == (claim.claim_id,)

    delete = only(ef.DeleteAllocation, driver.give(ev.AnswerUnheard(answer.claim_ids, cause="req-1")))

    assert delete.written == taken("node-1")
    assert releases_in(driver.deleted(delete)) == [claim.claim_id]
    assert driver.table.outstanding("node-1") == ()
    assert driver.give(ev.AnswerUnheard(answer.claim_ids, cause="req-1")) == []


def test_an_agent_that_starts_later_gets_the_release_of_a_direct_write() -> None:
    # given a write on a node without an agent, and an agent that has come meanwhile
    driver = SchedulerDriver().without_agents("node-1")
    write = only(ef.WriteAllocation, driver.ask())
    driver.with_agents("node-1")

    # when nobody knows whether it was written, and it is taken back
    delete = only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))
    effects = driver.deleted(delete)

    # then the agent, which may have seen it in Placement, is told
    assert releases_in(effects) == [write.claim_id]


def test_no_release_is_sent_to_a_node_without_an_agent() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    write = only(ef.WriteAllocation, driver.ask())
    delete = only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))

    assert releases_in(driver.deleted(delete)) == []


def test_only_while_its_request_waits_is_a_delete_the_only_operation_of_its_server() -> None:
    # given a write with an unknown outcome, and some time left
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(within_s=100.0))))
    deletes = [only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))]
    told: list[ef.Fail] = []
    # when its deletes fail until the request is told
    while not told:
        away = ev.AllocationDeleted(write.claim_id, False, "Placement is away", cause=write.cause)
        told = of_kind(ef.Fail, driver.give(away))
        deletes += of_kind(ef.DeleteAllocation, driver.wait(5.0))
    # then somebody else may write before the last one
    *early, late = deletes
    assert {delete.sole_until_s for delete in early} == {200.0}
    assert late.sole_until_s == float("-inf")


def test_an_unheard_answer_may_not_be_the_only_operation_of_its_server() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    answer = only(ef.Answer, driver.written(write))
    delete = only(ef.DeleteAllocation, driver.give(ev.AnswerUnheard(answer.claim_ids, cause="req-1")))
    assert delete.sole_until_s == float("-inf")


def test_a_request_does_not_wait_until_nova_shows_who_needs_what_others_have_changed() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    (write,) = of_kind(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    delete = only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))

    # when the first answer to the delete is that the server moves
    effects = driver.give(ev.AllocationDeleted(delete.claim_id, False, "it moves", changed=True, cause=delete.cause))

    # then the request fails, and the delete is repeated until it has an end
    assert only(ef.Fail, effects).code is ef.FailureCode.CONSUMER_CONFLICT
    again = only(ef.DeleteAllocation, driver.wait(1.0))
    assert releases_in(driver.deleted(again)) == [write.claim_id]
    driver.idle()


def test_allocations_changed_by_another_writer_are_never_deleted() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    (write,) = of_kind(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    delete = only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))

    effects = driver.give(
        ev.AllocationDeleted(delete.claim_id, False, "somebody has added to it", left_alone=True, cause=delete.cause)
    )

    fail = only(ef.Fail, effects)
    assert fail.code is ef.FailureCode.CONSUMER_CONFLICT
    assert "somebody has added" in fail.text
    assert driver.core.claims.endings["left_alone"] == 1
    assert of_kind(ef.DeleteAllocation, driver.wait(120.0)) == []
    driver.idle()


def test_a_late_write_is_deleted_when_its_answer_arrives() -> None:
    # given a claim whose write was not answered, and that ended because Placement held nothing of it
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    (delete,) = of_kind(ef.DeleteAllocation, driver.wait(120.0))
    driver.deleted(delete)
    # when the answer comes after all: it was written, after we had read it
    late = only(ef.DeleteAllocation, driver.written(write))
    # then it is deleted (the simulator's seed 34, where a clock ran ahead)
    assert late.written == taken("node-1")
    assert driver.table.outstanding("node-1") != ()
    driver.deleted(late)
    assert driver.core.claims.endings["deleted"] == 1
    assert driver.written(write) == []
    driver.idle()


def test_a_delete_that_a_lost_write_has_outrun_is_done_once_more() -> None:
    # given a write that was not answered, and a delete under way
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    (delete,) = of_kind(ef.DeleteAllocation, driver.wait(120.0))
    # when the write was done after all, who knows whether before that delete or after it
    assert driver.written(write) == []
    # then "gone" is no news of what it wrote, and it is deleted until that is gone
    again = only(ef.DeleteAllocation, driver.deleted(delete))
    assert again.written == taken("node-1")
    assert driver.table.outstanding("node-1") != ()
    driver.give(ev.AllocationDeleted(again.claim_id, False, "Placement is away", cause=again.cause))
    (last,) = of_kind(ef.DeleteAllocation, driver.wait(5.0))
    driver.deleted(last)
    assert driver.core.claims.endings["deleted"] == 1
    assert of_kind(ef.DeleteAllocation, driver.wait(120.0)) == []
    driver.idle()


def test_a_delete_that_is_tried_again_at_once_is_not_tried_later_as_well() -> None:
    # given a write that was not answered, and a delete that failed and waits for its next attempt
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    (delete,) = of_kind(ef.DeleteAllocation, driver.wait(120.0))
    driver.give(ev.AllocationDeleted(delete.claim_id, False, "Placement is away", cause=delete.cause))
    # when the answer comes after all, and the delete that follows it does its work
    again = only(ef.DeleteAllocation, driver.written(write))
    driver.deleted(again)
    # then the claim has ended, and nothing rings for it any more
    assert driver.core.claims.endings["deleted"] == 1
    assert of_kind(ef.DeleteAllocation, driver.wait(120.0)) == []
    driver.idle()


def test_the_request_is_informed_once_about_an_abandoned_claim() -> None:
    # given two servers of one request, and no answer to either write
    driver = SchedulerDriver(delete_attempts_max=2).with_agents("node-1")
    first, second = claims_in(driver.ask(request("server-1", "server-2"), within_s=600.0))
    writes = [only(ef.WriteAllocation, driver.accept(claim)) for claim in (first, second)]
    deletes = [only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE)) for write in writes]
    # when the delete of the first fails again and again, longer than its request waits for it
    for _ in range(4):
        assert of_kind(ef.Fail, driver.deleted(deletes[0], gone=False)) == []
        assert [delete.claim_id for delete in of_kind(ef.DeleteAllocation, driver.wait(5.0))] == [first.claim_id]
    # and the request ends with that of the second
    (fail,) = of_kind(ef.Fail, driver.deleted(deletes[1]))
    # then its record has each claim once
    ended = [(attempt.claim_id, attempt.outcome) for attempt in fail.record.attempts]
    assert ended == [(first.claim_id, "abandoned"), (second.claim_id, "deleted")]


def test_a_write_that_may_arrive_late_is_not_deleted_after_its_server_was_written_there_again() -> None:
    # given a member that was written on a node by a repeated write, and has yielded to another host
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    group = Group("group", "affinity", frozenset({"server-5", "server-9"}))
    first = only_claim(driver.ask(request("server-9", group=group), within_s=300.0))
    other = "node-2" if first.node == "node-1" else "node-1"
    effects = yields_to(other, driver, repeated_write(driver, only(ef.WriteAllocation, driver.accept(first))))
    # when it yields once more, back to that node, and is answered there
    second = only_claim(effects)
    effects = driver.written(only(ef.WriteAllocation, driver.accept(second)))
    third = only_claim(yields_to(first.node, driver, effects))
    ask = only(ef.AskGroup, driver.written(only(ef.WriteAllocation, driver.accept(third))))
    only(ef.Answer, driver.give(stands(ask, first.node)))
    # then the claim before is only released when its write cannot arrive any more: Placement cannot tell both apart
    effects = driver.wait(CARRIED_OUT_WITHIN_S)
    assert of_kind(ef.DeleteAllocation, effects) == []
    assert releases_in(effects) == [first.claim_id]
    assert [one.claim_id for one in driver.table.outstanding(first.node)] == [third.claim_id]
    driver.idle()


def repeated_write(driver: SchedulerDriver, write: ef.WriteAllocation) -> list[ef.Effect]:
    """Placement has carried out the second attempt of a write, and may still carry out the first one."""
    code, allocations = ev.WriteCode.WRITTEN, write.allocations
    written = ev.AllocationWritten(write.claim_id, code, "", allocations, cause=write.cause, may_arrive=True)
    return driver.give(written)


def stands(ask: ef.AskGroup, node: str) -> ev.GroupAnswered:
    """The other member stands on this node."""
    return ev.GroupAnswered(ask.ask_id, {"server-5": frozenset({node})}, cause=ask.cause)


def yields_to(node: str, driver: SchedulerDriver, effects: list[ef.Effect]) -> list[ef.Effect]:
    """The other member stands on this node: a written server is deleted, and decided again."""
    delete = only(ef.DeleteAllocation, driver.give(stands(only(ef.AskGroup, effects), node)))
    driver.deleted(delete)
    return driver.wait(YIELD_PAUSE_S)


def test_a_delete_that_nobody_answers_is_sent_again() -> None:
    # given a delete that the writer has lost
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    lost = only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))
    # when a long time has gone
    effects = driver.wait(3600.0)
    # then it is sent again, long after the time in which its request alone may place the server, and its answer counts
    again, *_ = of_kind(ef.DeleteAllocation, effects)
    assert (again.claim_id, again.written) == (lost.claim_id, lost.written) and again.sole_until_s < driver.now
    assert releases_in(driver.deleted(again)) == [write.claim_id]
    assert driver.wait(3600.0) == []
    driver.idle()


def delete_that_was_sent_again() -> tuple[SchedulerDriver, ef.DeleteAllocation]:
    """A delete that waited for so long that it was sent again."""
    driver = SchedulerDriver().with_agents("node-1")
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    only(ef.DeleteAllocation, driver.written(write, ev.WriteCode.UNREACHABLE))
    again, *_ = of_kind(ef.DeleteAllocation, driver.wait(3600.0))
    return driver, again


def test_two_answers_to_a_delete_that_was_sent_again_are_one() -> None:
    driver, again = delete_that_was_sent_again()
    # when both are answered, the second one while the pause of the first one lasts
    driver.deleted(again, gone=False)
    driver.wait(0.1)
    driver.deleted(again, gone=False)
    # then one delete follows
    (last,) = of_kind(ef.DeleteAllocation, driver.wait(60.0))
    driver.deleted(last)
    driver.idle()


def test_an_answer_that_ends_a_claim_after_another_one_that_did_not_is_the_last_of_it() -> None:
    driver, again = delete_that_was_sent_again()
    # when one of them fails, and the other one succeeds before the pause is over
    driver.deleted(again, gone=False)
    driver.deleted(again)
    # then nothing follows
    assert driver.wait(3600.0) == []
    driver.idle()

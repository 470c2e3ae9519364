# SPDX-License-Identifier: Apache-2.0
"""A server is placed on a node again, by another request, while an earlier claim of it there is still taken back.

nova-conductor asks again when the first answer does not reach it.  Placement cannot tell what both claims wrote.
"""

from __future__ import annotations

from typing import Any

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.model.moves import Move
from shared_scheduler.protocol.limits import CARRIED_OUT_WITHIN_S, MAPPED_WITHIN_S
from shared_scheduler.protocol.messages import Allocations
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, of_kind, only, request, taken

LONG_S = 2 * CARRIED_OUT_WITHIN_S


def asked(driver: SchedulerDriver, request_id: str) -> ef.WriteAllocation:
    """A request for the server, on the only node, which has no agent."""
    (write,) = of_kind(ef.WriteAllocation, driver.ask(request(request_id=request_id)))
    return write


def written_at_the_second_attempt(driver: SchedulerDriver, write: ef.WriteAllocation) -> ef.Answer:
    """The first attempt has got no answer, and may still be carried out."""
    return only(ef.Answer, driver.unanswered(write, ev.WriteCode.WRITTEN))


def taken_back_but_for_a_late_write(driver: SchedulerDriver, request_id: str) -> ef.WriteAllocation:
    """A request has failed because its write got no answer; the write may still be carried out."""
    write = asked(driver, request_id)
    delete = only(ef.DeleteAllocation, driver.unanswered(write))
    assert of_kind(ef.Fail, driver.deleted(delete))
    return write


def deletes_in(effects: list[ef.Effect]) -> list[str]:
    return [one.claim_id for one in of_kind(ef.DeleteAllocation, effects)]


def test_the_claim_of_an_unheard_answer_does_not_take_what_the_next_request_wrote() -> None:
    # given an answer that nobody has heard, and whose write may arrive once more
    driver = SchedulerDriver().without_agents("node-1")
    unheard = written_at_the_second_attempt(driver, asked(driver, "req-1"))
    delete = only(ef.DeleteAllocation, driver.give(ev.AnswerUnheard(unheard.claim_ids, cause="req-1")))
    driver.deleted(delete)
    # when the conductor asks again, and gets the same node
    only(ef.Answer, driver.written(asked(driver, "req-2")))
    # then that stays
    assert deletes_in(driver.wait(LONG_S)) == []
    driver.idle()


def test_the_first_claim_does_not_take_what_the_third_wrote_when_the_second_ended_before() -> None:
    # given two claims that failed, each with a write that may still arrive
    driver = SchedulerDriver().without_agents("node-1")
    first = taken_back_but_for_a_late_write(driver, "req-1")
    second = taken_back_but_for_a_late_write(driver, "req-2")
    # when the last delete of the second succeeds, but that of the first one does not
    deletes = of_kind(ef.DeleteAllocation, driver.wait(CARRIED_OUT_WITHIN_S))
    assert [one.claim_id for one in deletes] == [first.claim_id, second.claim_id]
    for delete in deletes:
        driver.deleted(delete, gone=delete.claim_id == second.claim_id)
    # and the server is placed there
    only(ef.Answer, driver.written(asked(driver, "req-3")))
    # then that stays
    assert deletes_in(driver.wait(LONG_S)) == []
    driver.idle()


def test_a_later_claim_that_failed_does_not_hide_the_one_that_was_answered() -> None:
    # given a claim that failed, and whose write may still arrive, and an answer for the same server and node
    driver = SchedulerDriver().without_agents("node-1")
    taken_back_but_for_a_late_write(driver, "req-1")
    only(ef.Answer, driver.written(asked(driver, "req-2")))
    # when the server is asked for once more, in vain
    driver.written(asked(driver, "req-3"), ev.WriteCode.CONSUMER_CONFLICT)
    # then what was answered stays
    assert deletes_in(driver.wait(LONG_S)) == []


def two_requests_at_once(driver: SchedulerDriver) -> tuple[ef.WriteAllocation, ef.WriteAllocation]:
    """The broker has delivered a request once more, and the user has heard of its failure and asked again: two requests
    for one server in one scheduler, both on the same node."""
    return asked(driver, "req-1"), asked(driver, "req-2")


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_requests_at_once_the_one_that_fails_does_not_take_what_the_other_writes(first: int) -> None:
    driver = SchedulerDriver().without_agents("node-1")
    writes = two_requests_at_once(driver)
    fails, goes_well = writes[first], writes[1 - first]
    # when the write of one gets no answer while that of the other is under way
    effects = driver.unanswered(fails)
    # then that request has failed, and nothing is deleted: Placement cannot tell which of them wrote
    assert of_kind(ef.Fail, effects)
    assert deletes_in(effects) == []
    # and the other one is answered, and stays
    only(ef.Answer, driver.written(goes_well))
    assert deletes_in(driver.wait(LONG_S)) == []
    driver.idle()


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_requests_at_once_the_one_that_was_answered_keeps_what_the_other_cancels(first: int) -> None:
    # given two requests that are written; the first one was answered
    driver = SchedulerDriver().without_agents("node-1")
    writes = two_requests_at_once(driver)
    only(ef.Answer, driver.written(writes[first]))
    other = only(ef.Answer, driver.written(writes[1 - first]))
    # when nobody hears the answer of the second one
    effects = driver.give(ev.AnswerUnheard(other.claim_ids, cause=other.cause))
    # then what both have written stays
    assert deletes_in([*effects, *driver.wait(LONG_S)]) == []
    driver.idle()


def test_of_two_requests_at_once_that_both_fail_the_last_one_is_deleted() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    first, second = two_requests_at_once(driver)
    # when neither write gets an answer
    assert deletes_in(driver.unanswered(first)) == []
    effects = [*driver.unanswered(second), *driver.wait(LONG_S)]
    # then both are deleted
    assert {*deletes_in(effects)} == {first.claim_id, second.claim_id}


def written_as(
    driver: SchedulerDriver, write: ef.WriteAllocation, generation: int | None, before: Allocations | None = None
) -> ef.Answer:
    """Placement has what this write has left in this generation; its request is answered."""
    left, rest = {**(before or {}), **write.allocations}, before or {}
    event = ev.AllocationWritten(write.claim_id, ev.WriteCode.WRITTEN, "", left, rest, generation, cause=write.cause)
    (answer,) = of_kind(ef.Answer, driver.give(event))
    return answer


def unheard(driver: SchedulerDriver, answer: ef.Answer) -> list[ef.Effect]:
    """Nobody hears an answer; all that happens because of that."""
    effects = driver.give(ev.AnswerUnheard(answer.claim_ids, cause=answer.cause))
    return effects + driver.wait(LONG_S)


def test_of_two_answers_that_nobody_hears_the_last_one_deletes_what_was_written_last() -> None:
    # given two requests at once, of which the second has written over the first
    driver = SchedulerDriver().without_agents("node-1")
    first, second = two_requests_at_once(driver)
    answers = written_as(driver, first, 1), written_as(driver, second, 2)
    # when nobody hears the second answer, what both have written stays
    assert deletes_in(unheard(driver, answers[1])) == []
    # and when nobody hears the first one either, that is deleted as the second has left it
    (delete,) = of_kind(ef.DeleteAllocation, unheard(driver, answers[0]))
    assert (delete.claim_id, delete.generation) == (first.claim_id, 2)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_of_moves_whose_answers_nobody_hears_the_last_one_leaves_what_stood_before_all(order: tuple[int, ...]) -> None:
    # given the same move three times, of which each has merged with what stood
    driver = SchedulerDriver().without_agents("node-1")
    source = taken("node-2")
    asks = (driver.ask(request(request_id=f"req-{one}", merge_with_existing=True)) for one in range(3))
    writes = [of_kind(ef.WriteAllocation, effects)[0] for effects in asks]
    both = {**source, **writes[0].allocations}
    answers = [written_as(driver, write, 5 + one, both if one else source) for one, write in enumerate(writes)]
    # when nobody hears any answer
    deletes = [of_kind(ef.DeleteAllocation, unheard(driver, answers[one])) for one in order]
    # then one delete of what was written last leaves the source
    assert deletes[:2] == [[], []]
    ((delete,),) = deletes[2:]
    assert (delete.generation, delete.before) == (7, source)


def test_of_moves_whose_answers_nobody_hears_what_others_have_added_in_between_is_all_that_is_left() -> None:
    # given the same move twice; neutron has added a port after the first write, and the second one kept both
    driver = SchedulerDriver().without_agents("node-1")
    asks = [driver.ask(request(request_id=one, merge_with_existing=True)) for one in ("req-1", "req-2")]
    first, second = (of_kind(ef.WriteAllocation, effects)[0] for effects in asks)
    source, port = taken("node-2"), {"port": {"NET_BW_EGR_KILOBIT_PER_SEC": 1}}
    answers = [
        written_as(driver, first, 5, source),
        written_as(driver, second, 7, {**source, **first.allocations, **port}),
    ]
    # when nobody hears either answer, the delete leaves the source and the port
    assert deletes_in(unheard(driver, answers[0])) == []
    (delete,) = of_kind(ef.DeleteAllocation, unheard(driver, answers[1]))
    assert (delete.generation, delete.before) == (7, {**source, **port})


@pytest.mark.parametrize("unclear", [0, 1])
def test_of_moves_whose_answers_nobody_hears_the_last_one_leaves_the_source_whatever_is_known_of_generations(
    unclear: int,
) -> None:
    # given the same move twice; it is not known which generation one of them has made
    driver = SchedulerDriver().without_agents("node-1")
    asks = [driver.ask(request(request_id=one, merge_with_existing=True)) for one in ("req-1", "req-2")]
    first, second = (of_kind(ef.WriteAllocation, effects)[0] for effects in asks)
    source = taken("node-2")
    made = [None if one == unclear else 5 + one for one in range(2)]
    answers = [
        written_as(driver, first, made[0], source),
        written_as(driver, second, made[1], {**source, **first.allocations}),
    ]
    # when nobody hears either answer
    assert deletes_in(unheard(driver, answers[0])) == []
    (delete,) = of_kind(ef.DeleteAllocation, unheard(driver, answers[1]))
    # then the delete leaves the source, whichever was written last
    assert (delete.generation, delete.before) == (None, source)


def answered_before(driver: SchedulerDriver, **more: Any) -> ef.WriteAllocation:
    """A request was answered, and then the broker delivers it again; the write of the second one."""
    only(ef.Answer, driver.written(of_kind(ef.WriteAllocation, driver.ask(request(**more)))[0]))
    driver.wait(0.1)
    return of_kind(ef.WriteAllocation, driver.ask(request(request_id="req-2", **more)))[0]


@pytest.mark.parametrize("moves", [False, True])
def test_what_was_answered_before_a_claim_began_is_not_deleted_before_nova_can_tell_who_needs_it(moves: bool) -> None:
    driver = SchedulerDriver().without_agents("node-1")
    write = answered_before(driver, merge_with_existing=moves)
    # when the write of the second one gets no answer
    effects = driver.unanswered(write)
    # then its request has failed, and nothing is deleted: Placement cannot tell which of them wrote
    assert of_kind(ef.Fail, effects)
    assert deletes_in([*effects, *driver.wait(60.0)]) == []
    # and the delete that follows asks Nova
    delete = of_kind(ef.DeleteAllocation, driver.wait(20.0))[0]
    assert (delete.claim_id, delete.sole_until_s) == (write.claim_id, float("-inf"))


def found_without_time(driver: SchedulerDriver) -> list[ef.Effect]:
    """An answer, and the same request, delivered again, which fails at its deadline while its write is under way.  That
    write has got no answer, and finds the same allocations, without time to write them once more: they count as
    written, in the generation of the first one.  All effects since the second request has come."""
    (first,) = of_kind(ef.WriteAllocation, driver.ask(request(), within_s=5.0))
    written_as(driver, first, 1)
    driver.wait(0.5)
    (again,) = of_kind(ef.WriteAllocation, driver.ask(request(), within_s=5.0))
    effects = driver.wait(4.9)
    done, stands = ev.WriteCode.WRITTEN, again.allocations
    late = ev.AllocationWritten(again.claim_id, done, "", stands, {}, 1, cause=again.cause, found=True)
    return [*effects, *driver.wait(0.1), *driver.give(late)]


def test_a_write_that_was_not_sent_in_time_over_what_was_answered_does_not_delete_that() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    effects = found_without_time(driver)
    # then nothing is deleted before Nova can tell who needs it
    assert deletes_in([*effects, *driver.wait(8.0)]) == []


def test_what_a_write_has_only_found_is_no_change_by_others() -> None:
    # given a write that was found in the generation of a first one, after another write was answered
    driver = SchedulerDriver().without_agents("node-1")
    assert of_kind(ef.ExamineChange, found_without_time(driver)) == []


def test_what_a_write_has_only_found_may_be_gone_before_its_delete() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    found_without_time(driver)
    # when it is deleted, because Nova can tell who needs it
    (delete,) = of_kind(ef.DeleteAllocation, driver.wait(MAPPED_WITHIN_S + 1.0))
    # then it need not stand: the request that wrote it may have taken it back
    assert not delete.stood


def test_a_first_write_is_deleted_at_once_although_the_server_was_answered_there_before() -> None:
    # given an answer for a server that has left the node since, and is placed there again
    driver = SchedulerDriver().without_agents("node-1")
    answer = written_as(driver, answered_before(driver), 1)
    # when nobody hears that
    effects = driver.give(ev.AnswerUnheard(answer.claim_ids, cause=answer.cause))
    # then the delete is not delayed: the generation shows that nothing stood
    assert deletes_in(effects) == [*answer.claim_ids]


def test_an_answer_that_nobody_has_heard_delays_no_delete_of_the_next_claim() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    answer = only(ef.Answer, driver.written(asked(driver, "req-1")))
    driver.deleted(only(ef.DeleteAllocation, driver.give(ev.AnswerUnheard(answer.claim_ids, cause=answer.cause))))
    write = asked(driver, "req-2")
    assert deletes_in(driver.unanswered(write)) == [write.claim_id]


def test_the_first_of_two_answers_counts_when_nobody_has_heard_the_second_one() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    second = only(ef.Answer, driver.written(answered_before(driver)))
    driver.give(ev.AnswerUnheard(second.claim_ids, cause=second.cause))
    assert deletes_in(driver.unanswered(asked(driver, "req-3"))) == []


@pytest.mark.parametrize("between_s", [0.0, 0.1])
def test_the_second_of_two_answers_counts_when_nobody_has_heard_the_first_one(between_s: float) -> None:
    # given two answers, one after the other, the first of which nobody hears
    driver = SchedulerDriver().without_agents("node-1")
    first = only(ef.Answer, driver.written(asked(driver, "req-1")))
    driver.wait(between_s)
    only(ef.Answer, driver.written(asked(driver, "req-2")))
    driver.give(ev.AnswerUnheard(first.claim_ids, cause=first.cause))
    # when the server is asked for once more, and that write gets no answer, the second answer stays
    assert deletes_in(driver.unanswered(asked(driver, "req-3"))) == []


def test_nova_knows_of_an_answer_after_the_deadline_of_its_request_whatever_time_its_write_has() -> None:
    driver = SchedulerDriver(write_timeout_s=5.0).without_agents("node-1")
    write = asked(driver, "req-1")
    assert (write.deadline_s, write.nova_knows_s) == (driver.now + 5.0, driver.now + 60.0 + MAPPED_WITHIN_S)


def test_a_second_write_over_an_answer_is_not_deleted_before_nova_knows_of_that() -> None:
    # given an answer to a request with much time, and one with little time that has written the same again
    driver = SchedulerDriver().without_agents("node-1")
    only(ef.Answer, driver.written(asked(driver, "req-1")))
    driver.wait(0.1)
    (write,) = of_kind(ef.WriteAllocation, driver.ask(request(request_id="req-2"), within_s=5.0))
    answer = written_as(driver, write, 2)
    # when nobody hears of the second one
    effects = driver.give(ev.AnswerUnheard(answer.claim_ids, cause=answer.cause))
    # then nothing is deleted before Nova knows of the first one
    assert deletes_in([*effects, *driver.wait(60.0)]) == []
    assert deletes_in(driver.wait(20.0)) == [write.claim_id]


def test_an_answer_of_long_ago_delays_no_delete() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    only(ef.Answer, driver.written(asked(driver, "req-1")))
    driver.wait(LONG_S)
    write = asked(driver, "req-2")
    assert deletes_in(driver.unanswered(write)) == [write.claim_id]


def lost_write(driver: SchedulerDriver) -> tuple[ef.WriteAllocation, ef.DeleteAllocation]:
    """A write that was never answered, and the delete that follows."""
    write = asked(driver, "req-1")
    (delete,) = of_kind(ef.DeleteAllocation, driver.wait(LONG_S))
    return write, delete


def test_a_delete_that_a_lost_write_has_outrun_is_not_done_again_after_the_server_was_placed_there() -> None:
    # given a lost write that was carried out after all, during the delete
    driver = SchedulerDriver().without_agents("node-1")
    write, delete = lost_write(driver)
    assert driver.written(write) == []
    # when the next request of the server writes there before the delete ends
    again = asked(driver, "req-2")
    effects = driver.deleted(delete)
    effects += driver.written(again)
    # then that stays
    assert of_kind(ef.Answer, effects)
    assert deletes_in(effects + driver.wait(LONG_S)) == []
    driver.idle()


def test_the_late_answer_to_a_lost_write_does_not_delete_what_the_next_request_wrote() -> None:
    # given a lost write of which nothing was found, and an answer for the same server and node
    driver = SchedulerDriver().without_agents("node-1")
    write, delete = lost_write(driver)
    driver.deleted(delete)
    only(ef.Answer, driver.written(asked(driver, "req-2")))
    # when the lost write is answered: Placement has such an allocation
    effects = driver.written(write)
    # then that stays
    assert deletes_in(effects + driver.wait(LONG_S)) == []
    driver.idle()


def test_a_lost_write_that_is_answered_after_its_node_was_removed_is_deleted() -> None:
    # given a lost write of which nothing was found, and whose node has gone since
    driver = SchedulerDriver().without_agents("node-1")
    write, delete = lost_write(driver)
    driver.deleted(delete)
    driver.give(ev.NodesGone(CELL, frozenset({"node-1"})))
    # when the lost write is answered: Placement has the allocation, and still the provider
    delete = only(ef.DeleteAllocation, driver.written(write))
    # then that is deleted, as on other nodes
    driver.deleted(delete)
    driver.idle()


def test_a_delete_waits_while_the_later_claim_is_under_way_and_follows_when_that_has_failed() -> None:
    # given a claim that failed, and whose write may still arrive, and a later one that is being written
    driver = SchedulerDriver().without_agents("node-1")
    first = taken_back_but_for_a_late_write(driver, "req-1")
    driver.wait(CARRIED_OUT_WITHIN_S - 2.0)
    later = asked(driver, "req-2")
    # when the first write cannot arrive any more
    assert deletes_in(driver.wait(5.0)) == []
    # and the later one is not carried out
    driver.written(later, ev.WriteCode.CONSUMER_CONFLICT)
    # then the delete is done
    assert deletes_in(driver.wait(5.0)) == [first.claim_id]


def test_what_a_claim_holds_is_kept_until_its_write_cannot_arrive_any_more() -> None:
    # given a write without an answer, whose delete has failed so often that the request was told
    driver = SchedulerDriver(delete_attempts_max=1).without_agents("node-1")
    delete = only(ef.DeleteAllocation, driver.unanswered(asked(driver, "req-1")))
    assert of_kind(ef.Fail, driver.deleted(delete, gone=False))
    # when another request of the server is answered on the node
    only(ef.Answer, driver.written(asked(driver, "req-2")))
    # then the claim ends when the write cannot arrive any more, and not before
    assert deletes_in(driver.wait(CARRIED_OUT_WITHIN_S - 1.0)) == []
    assert len(driver.core.claims) == 1
    assert deletes_in(driver.wait(2.0)) == []
    driver.idle()


def test_what_was_written_twice_is_deleted_when_the_later_claim_was_not_answered() -> None:
    # given a claim that failed, and whose write may still arrive, and a later one that is written
    driver = SchedulerDriver().without_agents("node-1")
    first = taken_back_but_for_a_late_write(driver, "req-1")
    answer = only(ef.Answer, driver.written(asked(driver, "req-2")))
    # when nobody hears that answer
    delete = only(ef.DeleteAllocation, driver.give(ev.AnswerUnheard(answer.claim_ids, cause="req-2")))
    driver.deleted(delete)
    # then the first one is deleted once more when its write cannot arrive any more
    assert deletes_in(driver.wait(CARRIED_OUT_WITHIN_S)) == [first.claim_id]


def written_as_by_another(driver: SchedulerDriver, write: ef.WriteAllocation) -> list[ef.Effect]:
    """Placement had the same allocations of another scheduler, which has got the same request, and has them anew."""
    done = ev.WriteCode.WRITTEN
    return driver.give(ev.AllocationWritten(write.claim_id, done, "", write.allocations, generation=2, cause="req-1"))


def test_what_another_scheduler_has_written_too_is_not_deleted_while_that_one_may_answer() -> None:
    # given a request for two servers that was delivered to two schedulers, of which the other one wrote the first
    driver = SchedulerDriver().without_agents("node-1", "node-2")
    first, second = of_kind(ef.WriteAllocation, driver.ask(request("server-1", "server-2"), within_s=60.0))
    deadline_s = driver.now + 60.0
    written_as_by_another(driver, first)
    # when the second one is on another host already
    (fail,) = of_kind(ef.Fail, driver.written(second, ev.WriteCode.CONSUMER_CONFLICT))
    # then the request has failed, and the first server keeps its allocations until Nova knows where it is
    assert fail.code is ef.FailureCode.CONSUMER_CONFLICT
    effects = driver.wait(60.0)
    assert deletes_in(effects) == []
    delete = only(ef.DeleteAllocation, driver.wait(CARRIED_OUT_WITHIN_S))
    assert delete.claim_id == first.claim_id and delete.generation == 2
    assert delete.sole_until_s < deadline_s
    driver.give(ev.AllocationDeleted(first.claim_id, False, left_alone=True, cause="req-1"))
    driver.idle()


def test_an_unheard_answer_that_another_scheduler_may_have_given_too_is_not_taken_back_at_once() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    answer = only(ef.Answer, written_as_by_another(driver, asked(driver, "req-1")))
    assert driver.give(ev.AnswerUnheard(answer.claim_ids, cause="req-1")) == []
    assert deletes_in(driver.wait(60.0)) == []
    assert deletes_in(driver.wait(CARRIED_OUT_WITHIN_S)) == list(answer.claim_ids)


def test_an_evacuation_that_found_nothing_and_was_written_by_another_scheduler_too_is_not_taken_back_at_once() -> None:
    # given the evacuation of a server without allocations
    driver = SchedulerDriver().without_agents("node-1")
    (write,) = of_kind(ef.WriteAllocation, driver.ask(request(merge_with_existing=True)))
    answer = only(ef.Answer, written_as_by_another(driver, write))
    assert driver.give(ev.AnswerUnheard(answer.claim_ids, cause="req-1")) == []


def test_a_write_without_an_answer_that_replaced_that_of_another_scheduler_is_not_deleted_at_once() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    write = asked(driver, "req-1")
    unknown = ev.AllocationWritten(
        write.claim_id, ev.WriteCode.UNREACHABLE, "", write.allocations, generation=2, cause="req-1", may_arrive=True
    )
    assert of_kind(ef.Fail, driver.give(unknown))
    assert deletes_in(driver.wait(CARRIED_OUT_WITHIN_S)) == []
    assert deletes_in(driver.wait(CARRIED_OUT_WITHIN_S)) == [write.claim_id]


def test_a_server_that_is_asked_for_again_and_again_keeps_no_list_of_what_has_failed() -> None:
    # given a server whose requests fail one after the other, while no delete is answered
    driver = SchedulerDriver().without_agents("node-1", vcpus=16, free_mb=32768)
    for one in range(8):
        driver.unanswered(asked(driver, f"req-{one}"))
    # then their claims are open, and each knows of the next one at most, which is noted when that begins
    known = [len(claim.others) for claim in driver.core.claims.open()]
    assert len(known) == 8 and max(known) <= 1


def test_while_a_delete_of_one_claim_is_under_way_what_the_other_wrote_need_not_stand() -> None:
    # given two requests at once, of which the first fails while the write of the second one is under way
    driver = SchedulerDriver().without_agents("node-1")
    (first,) = of_kind(ef.WriteAllocation, driver.ask(request(request_id="req-1"), within_s=5.0))
    (second,) = of_kind(ef.WriteAllocation, driver.ask(request(request_id="req-2"), within_s=5.0))
    effects = [*driver.wait(5.0), *driver.unanswered(first)]
    assert deletes_in(effects) == [first.claim_id]
    # when that ends too late, and is deleted as well
    written = ev.AllocationWritten(
        second.claim_id, ev.WriteCode.WRITTEN, "", second.allocations, generation=1, cause=second.cause
    )
    delete = only(ef.DeleteAllocation, driver.give(written))
    # then the first delete may have taken it
    assert (delete.claim_id, delete.stood) == (second.claim_id, False)


def test_a_delete_of_one_claim_may_have_taken_what_the_other_wrote_before() -> None:
    # given two requests for a server at once; the write of one got no answer, and that of the other one replaced it
    driver = SchedulerDriver().without_agents("node-1")
    first = asked(driver, "req-1")
    second, other = of_kind(ef.WriteAllocation, driver.ask(request("server-1", "server-2", request_id="req-2")))
    unknown = ev.AllocationWritten(first.claim_id, ev.WriteCode.UNREACHABLE, "", first.allocations, cause=first.cause)
    assert deletes_in([*driver.give(unknown), *driver.wait(0.1)]) == []
    done = ev.WriteCode.WRITTEN
    written = ev.AllocationWritten(second.claim_id, done, "", second.allocations, generation=2, cause=second.cause)
    driver.give(written)
    # when the other request fails too, and the first claim is deleted
    effects = [*driver.written(other, ev.WriteCode.CONSUMER_CONFLICT), *driver.wait(5.0)]
    (delete,) = of_kind(ef.DeleteAllocation, effects)
    assert delete.claim_id == first.claim_id
    driver.deleted(delete)
    # and then the second one, when Nova can tell who needs it
    (delete,) = of_kind(ef.DeleteAllocation, driver.wait(LONG_S))[:1]
    # then nobody else has removed what that wrote
    assert (delete.claim_id, delete.stood) == (second.claim_id, False)


def test_a_lost_move_that_was_carried_out_is_deleted_although_its_first_delete_has_left_it_alone() -> None:
    # given a move whose write was lost, so that its delete does not know what it was merged with
    driver = SchedulerDriver().without_agents("node-1")
    (write,) = of_kind(ef.WriteAllocation, driver.ask(request(merge_with_existing=True)))
    delete = of_kind(ef.DeleteAllocation, driver.wait(LONG_S))[0]
    assert (delete.before, delete.generation) == ({}, None)
    # when the write ends after all, and then the delete finds more than it knows
    left, source = {**taken("node-2"), **write.allocations}, taken("node-2")
    driver.give(ev.AllocationWritten(write.claim_id, ev.WriteCode.WRITTEN, "", left, source, 5, cause=write.cause))
    alone = ev.AllocationDeleted(write.claim_id, False, "changed", left_alone=True, cause=write.cause)
    again = only(ef.DeleteAllocation, driver.give(alone))
    # then it is deleted again, with what is known now
    assert (again.written, again.before, again.generation) == (left, source, 5)
    driver.deleted(again)
    driver.idle()


def test_a_move_that_began_soon_after_an_answer_asks_nova_however_late_its_write_ends() -> None:
    # given the answer of a move, and the same request again shortly before Nova knows of that
    driver = SchedulerDriver(write_timeout_s=30.0).without_agents("node-1")
    only(ef.Answer, driver.written(of_kind(ef.WriteAllocation, driver.ask(request(move=Move.RESIZE)))[0]))
    driver.wait(60.0)
    (again,) = of_kind(ef.WriteAllocation, driver.ask(request(move=Move.RESIZE)))
    # when the write of that ends without an answer some time later
    driver.wait(30.0)
    (delete,) = of_kind(ef.DeleteAllocation, driver.unanswered(again))
    # then the delete asks Nova, because what stands may be of the answer
    assert delete.sole_until_s == float("-inf")


def test_a_write_that_may_still_arrive_is_deleted_then_although_its_first_delete_has_left_another_one_alone() -> None:
    # given a write without an answer, whose delete finds what another request has written over it
    driver = SchedulerDriver().without_agents("node-1")
    write = asked(driver, "req-1")
    delete = only(ef.DeleteAllocation, driver.unanswered(write))
    alone = ev.AllocationDeleted(delete.claim_id, False, "changed", left_alone=True, cause=delete.cause)
    assert of_kind(ef.Fail, driver.give(alone))
    # when it cannot arrive any more
    assert deletes_in(driver.wait(CARRIED_OUT_WITHIN_S - 1.0)) == []
    (again,) = of_kind(ef.DeleteAllocation, driver.wait(1.0))
    # then it is deleted, because the other one may be gone by now, and it may have arrived
    assert again.claim_id == write.claim_id
    driver.give(alone)
    driver.idle()

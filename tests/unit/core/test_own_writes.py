# SPDX-License-Identifier: Apache-2.0
"""What an agent publishes of a server shows whether somebody has changed what this scheduler wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.core.own_writes import CHANGES_BURST, Known, OwnWrite, OwnWrites
from shared_scheduler.core.step import Step
from shared_scheduler.protocol.limits import SILENT_AFTER_S
from shared_scheduler.protocol.messages import Allocations, Consumer, Increment
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import Version
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    host_of,
    node_read,
    of_kind,
    only,
    only_claim,
    request,
    snapshot,
    taken,
)

SERVER, NODE, OTHER = "server-1", "node-1", "node-2"
#: the server as the agent publishes it when it has read Placement after the write
BUILT = Consumer(taken(NODE), True, generation=1)
#: it runs, and Placement has nothing of it
BARE = Consumer({}, True)
PORT: Allocations = {"port": {"NET_BW": 1}}


class Story:
    """A server that this scheduler has placed on the first node, whose agent then publishes one increment after the
    other."""

    def __init__(self, *, shown: bool = True, generation: int = 1) -> None:
        self.driver = SchedulerDriver().with_agents(NODE, OTHER)
        self.sequences = {NODE: 1, OTHER: 1}
        self.claim = self._claim(request(SERVER, force_hosts=(host_of(NODE),)))
        self.write = self.accepted(self.claim, NODE)
        self.answer = only(ef.Answer, self.written(self.write, generation))
        if shown:
            self.publish(replace(BUILT, generation=generation), claims={self.claim.claim_id: None})

    def _claim(self, asked: Any) -> Any:
        return only_claim(self.driver.ask(asked))

    def written(self, write: ef.WriteAllocation, generation: int) -> list[ef.Effect]:
        done = ev.AllocationWritten(
            write.claim_id, ev.WriteCode.WRITTEN, "", write.allocations, generation=generation, cause=write.cause
        )
        return self.driver.give(done)

    def accepted(self, claim: Any, node: str, consumer: Consumer | None = None) -> ef.WriteAllocation:
        """The agent accepts a claim, which its next increment says."""
        increment = self._increment(consumer or Consumer(taken(node), True), node, claims={claim.claim_id: SERVER})
        [write] = of_kind(ef.WriteAllocation, self.driver.hear(increment))
        return write

    def publish(self, consumer: Consumer | None, node: str = NODE, **more: Any) -> list[ef.ExamineChange]:
        """The next increment of the agent."""
        return changes(self.driver.hear(self._increment(consumer, node, **more)))

    def _increment(self, consumer: Consumer | None, node: str = NODE, **more: Any) -> Increment:
        self.sequences[node] += 1
        return replace(Increment(node, 1, self.sequences[node], {}, {SERVER: consumer}), **more)


def changes(effects: Sequence[ef.Effect]) -> list[ef.ExamineChange]:
    return of_kind(ef.ExamineChange, effects)


def test_what_the_agent_publishes_of_our_write_is_no_change() -> None:
    story = Story(shown=False)
    assert story.publish(BUILT, claims={story.claim.claim_id: None}) == []
    assert story.publish(replace(BUILT, whole=True)) == []


def test_a_later_generation_is_a_change() -> None:
    story = Story()
    [change] = story.publish(replace(BUILT, generation=2))
    assert change == ef.ExamineChange(
        SERVER, NODE, host_of(NODE), taken(NODE), 1, taken(NODE), 2, ef.SeenBy.REPORT, cause=change.cause
    )


def test_a_change_before_the_first_report_of_our_write() -> None:
    story = Story(shown=False)
    [change] = story.publish(Consumer({**taken(NODE), **PORT}, True, generation=2))
    assert (change.generation_before, change.generation_after) == (1, 2)
    assert change.after == {**taken(NODE), **PORT}


def test_after_a_change_only_a_part_is_known() -> None:
    story = Story()
    [first] = story.publish(replace(BUILT, generation=2))
    [second] = story.publish(BARE)
    assert (first.whole, second.whole) == (True, False)


def test_each_change_is_told_once() -> None:
    story = Story()
    story.publish(replace(BUILT, generation=2))
    assert story.publish(replace(BUILT, generation=2, whole=True)) == []
    [change] = story.publish(replace(BUILT, generation=3))
    assert (change.generation_before, change.generation_after) == (2, 3)


def test_all_allocations_of_a_server_that_runs_are_removed() -> None:
    story = Story()
    [change] = story.publish(BARE)
    assert (change.before, change.generation_before, change.after, change.generation_after) == (
        taken(NODE), 1, {}, None,
    )  # fmt: skip
    # and it is not found once more
    assert story.publish(replace(BARE, group="g")) == []


def test_they_are_removed_and_written_anew_with_equal_amounts() -> None:
    # given an agent that reads Placement in between
    story = Story()
    assert len(story.publish(BARE)) == 1
    # when they are there again in their first generation, then the removal was found, and is told once
    assert story.publish(BUILT) == []


def test_an_earlier_generation_is_one_of_a_new_record() -> None:
    story = Story(generation=2)
    [change] = story.publish(BUILT)
    assert (change.generation_before, change.generation_after) == (2, 1)


@pytest.mark.parametrize("last", [None, Consumer({}, False)])
def test_a_server_that_nova_deletes_leaves_the_node_first(last: Consumer | None) -> None:
    story = Story()
    assert story.publish(replace(BUILT, member=False)) == []
    assert story.publish(last) == []


def test_both_may_be_one_increment() -> None:
    assert Story().publish(None) == []


def test_a_claim_that_ends_because_placement_has_its_allocations_no_more() -> None:
    # given a claim that nova-compute has not taken over, and whose write the agent has seen
    story = Story(shown=False)
    pending = {story.claim.claim_id: SERVER}
    assert story.publish(BUILT, claims=pending) == []
    # when they are gone, then Nova must say whether it was asked to delete the server
    [change] = story.publish(None, claims={story.claim.claim_id: None})
    assert change.after == {}


def test_a_report_that_is_older_than_our_write_is_no_change() -> None:
    story = Story(shown=False, generation=3)
    assert story.publish(replace(BUILT, generation=2)) == []
    assert story.publish(None) == []
    assert story.publish(replace(BUILT, generation=3)) == []


def test_of_an_unknown_generation_nothing_is_known() -> None:
    assert Story().publish(replace(BUILT, generation=0)) == []


def test_an_agent_that_is_not_ready_has_not_read_placement() -> None:
    story = Story()
    assert story.publish(BARE, leaves={"agent.ready": False}) == []
    # when it is ready again, its word counts
    [change] = story.publish(BARE, leaves={"agent.ready": True})
    assert change.after == {}


def test_a_snapshot_counts_as_an_increment_does() -> None:
    story = Story()
    heard = story.driver.hear(snapshot(NODE, epoch=2, consumers={SERVER: replace(BUILT, generation=2)}))
    assert [change.generation_after for change in changes(heard)] == [2]


def test_a_snapshot_without_the_server() -> None:
    assert changes(Story().driver.hear(snapshot(NODE, epoch=2))) == []


def test_databases_tell_it_of_a_node_whose_agent_is_silent() -> None:
    story = Story()
    story.driver.wait(2 * SILENT_AFTER_S)
    read, members = node_read(NODE, read_at_s=story.driver.now), frozenset([SERVER])
    held = {SERVER: taken(NODE)}
    found = story.driver.give(replace(read, consumers=held, members=members, generations={SERVER: 2}))
    assert [change.generation_after for change in changes(found)] == [2]


def test_an_agent_that_starts_may_have_read_placement_before_the_databases_showed_the_server() -> None:
    # given a server on a node without an agent, which Placement has shown
    driver = SchedulerDriver().without_agents(NODE)
    write = only(ef.WriteAllocation, driver.ask(request(SERVER)))
    done = ev.AllocationWritten(write.claim_id, ev.WriteCode.WRITTEN, "", write.allocations, generation=1, cause="")
    driver.give(done)
    driver.now += 10
    read = replace(node_read(NODE, read_at_s=driver.now), consumers={SERVER: taken(NODE)}, generations={SERVER: 1})
    assert changes(driver.give(read)) == []
    # when its agent starts, then what it has read is not newer for certain
    assert changes(driver.hear(snapshot(NODE))) == []
    assert changes(driver.hear(Increment(NODE, 1, 2, {}, {SERVER: BUILT}))) == []
    # and its next word is
    assert len(changes(driver.hear(Increment(NODE, 1, 3, {}, {SERVER: BARE})))) == 1


def test_the_newest_writes_are_remembered() -> None:
    table, step = HostTable(), Step(1.0, "test")
    writes = OwnWrites(table, writes_max=2)
    for number in range(4):
        writes.begin(f"server-{number}")
        writes.written(step, OwnWrite("claim", f"server-{number}", NODE, taken(NODE), 1, Version(0, 0)))
    assert len(writes) == 2
    assert writes.left("server-1") is None
    assert writes.left("server-3") == Consumer(taken(NODE), generation=1, whole=True)


@pytest.mark.parametrize("generation", [1, pytest.param(0, id="its generation is not known")])
def test_a_write_that_is_found_may_be_the_earlier_one(generation: int) -> None:
    # given a server that one claim has written
    writes, step = OwnWrites(HostTable()), Step(2.0, "test")
    for claim_id, found in (("first", False), ("second", True)):
        writes.begin(SERVER)
        # when another claim finds that, after its own write got no answer
        known = 1 if found else generation
        writes.written(step, OwnWrite(claim_id, SERVER, NODE, taken(NODE), known, Version(0, 0), found))
    # then nobody else has changed anything, and what stands is known
    assert changes(step.effects) == []
    assert writes.left(SERVER) == Consumer(taken(NODE), generation=1, whole=True)


@pytest.mark.parametrize(
    ("node", "deleted", "known"), [(NODE, "earlier", False), (NODE, "another", True), (OTHER, "earlier", True)]
)
def test_a_delete_of_an_earlier_claim_may_take_a_later_write_with_it(node: str, deleted: str, known: bool) -> None:
    # given two claims of a server on a node, of which the later one was written last
    writes = OwnWrites(HostTable())
    writes.begin(SERVER)
    writes.written(Step(2.0, "test"), OwnWrite("later", SERVER, NODE, taken(NODE), 2, Version(0, 0)))
    # when a delete of the earlier one begins after that, and leaves nothing
    assert writes.delete(SERVER, "earlier", began_s=1.0) == Known()
    writes.deleted(SERVER, node, deleted)
    # then the delete of the later one does not tell that somebody else has removed it
    assert writes.delete(SERVER, "later", began_s=1.5).stood is known


def two_answers_of_which_the_first_is_deleted(story: Story) -> ef.DeleteAllocation:
    """A server was answered twice on its node, and nobody has heard either answer; the first delete."""
    story.driver.wait(1.0)
    again = story._claim(request(SERVER, request_id="req-2", force_hosts=(host_of(NODE),)))
    write = story.accepted(again, NODE, BUILT)
    second = only(ef.Answer, story.written(write, 2))
    story.publish(replace(BUILT, member=False, generation=2), claims={again.claim_id: None})
    assert story.driver.give(ev.AnswerUnheard(second.claim_ids, cause="req-2")) == []
    effects = story.driver.give(ev.AnswerUnheard(story.answer.claim_ids, cause="req-1"))
    (delete,) = of_kind(ef.DeleteAllocation, effects)
    assert delete.claim_id == story.claim.claim_id
    return delete


def test_a_delete_that_is_reported_before_its_answer_is_no_change_although_another_claim_was_written_last() -> None:
    story = Story()
    delete = two_answers_of_which_the_first_is_deleted(story)
    # when the agent reports what the delete has left, and then Placement's answer comes
    assert story.publish(None) == []
    assert changes(story.driver.deleted(delete)) == []


def test_after_a_delete_of_another_claim_that_has_left_everything_a_removal_is_a_change() -> None:
    story = Story()
    delete = two_answers_of_which_the_first_is_deleted(story)
    # when the delete was not carried out
    story.driver.deleted(delete, gone=False)
    # then others have removed what is gone then
    assert [change.after for change in story.publish(None)] == [{}]


def test_what_a_delete_of_a_later_claim_leaves_is_not_known() -> None:
    # given a claim whose write was never answered, and which began after that of another claim of its server
    writes = OwnWrites(HostTable())
    writes.begin(SERVER)
    writes.written(Step(2.0, "test"), OwnWrite("earlier", SERVER, NODE, taken(NODE), 1, Version(0, 0)))
    # when its delete begins
    assert writes.delete(SERVER, "later", began_s=3.0) == Known()
    # then what stands is not known any more
    assert writes.left(SERVER) is None


def test_a_read_that_began_before_our_write_is_no_change() -> None:
    driver = SchedulerDriver().without_agents(NODE)
    driver.now += 10
    write = only(ef.WriteAllocation, driver.ask(request(SERVER)))
    done = ev.AllocationWritten(write.claim_id, ev.WriteCode.WRITTEN, "", write.allocations, generation=1, cause="")
    driver.give(done)
    stale = replace(node_read(NODE, read_at_s=driver.now - 1), consumers={SERVER: taken(NODE)}, generations={SERVER: 7})
    assert changes(driver.give(stale)) == []


def evacuating(story: Story) -> ef.WriteAllocation:
    """The write of an evacuation to the other node, whose agent has accepted it."""
    move = request(
        SERVER, merge_with_existing=True, ignore_hosts=frozenset([host_of(NODE)]), force_hosts=(host_of(OTHER),)
    )
    claim = only_claim(story.driver.ask(move))
    return story.accepted(claim, OTHER)


def test_while_a_write_of_ours_is_under_way_reports_may_show_it_already() -> None:
    # given a server that is evacuated by this scheduler
    story = Story()
    write = evacuating(story)
    # when the agent of the source has read it before the answer comes
    assert story.publish(replace(BUILT, generation=2)) == []
    # then it is no change, neither now nor when the answer is there
    both = {**taken(NODE), **taken(OTHER)}
    done = ev.AllocationWritten(
        write.claim_id, ev.WriteCode.WRITTEN, "", both, taken(NODE), generation=2, cause=write.cause
    )
    assert changes(story.driver.give(done)) == []
    assert story.publish(Consumer(taken(OTHER), True, generation=2), OTHER) == []
    # and one that follows is
    [change] = story.publish(Consumer(taken(OTHER), True, generation=3), OTHER)
    assert (change.node, change.generation_before) == (OTHER, 2)
    # and it may be the source, which removes the part that no report of this node shows
    assert (change.before, change.elsewhere, change.whole) == (taken(OTHER), taken(NODE), True)


def test_what_was_missed_during_a_write_that_failed_is_found_after_it() -> None:
    story = Story()
    write = evacuating(story)
    assert story.publish(replace(BUILT, generation=2)) == []
    full = ev.AllocationWritten(write.claim_id, ev.WriteCode.NO_CAPACITY, "full", cause=write.cause)
    found = story.driver.give(full)
    assert [change.generation_after for change in changes(found)] == [2]


def test_what_we_delete_is_no_change() -> None:
    story = Story()
    [delete] = of_kind(
        ef.DeleteAllocation, story.driver.give(ev.AnswerUnheard(story.answer.claim_ids, cause="unheard"))
    )
    assert story.publish(BARE) == []
    assert changes(story.driver.deleted(delete)) == []
    assert story.publish(None) == []


def test_a_removal_shows_at_the_next_first_write() -> None:
    # given a server on a node whose agent has told nothing since
    story = Story()
    # when it is moved, and Placement knows no allocations of it
    claim = only_claim(story.driver.ask(request(SERVER, force_hosts=(host_of(OTHER),))))
    write = story.accepted(claim, OTHER)
    # then somebody has taken them away
    [change] = changes(story.written(write, 1))
    assert (change.node, change.before, change.after, change.seen_by) == (NODE, taken(NODE), {}, ef.SeenBy.NEW)


def test_another_request_for_the_same_server_that_replaces_our_write_is_no_change() -> None:
    # given a server, and the same request once more, which the caller has repeated
    story = Story()
    claim = only_claim(story.driver.ask(request(SERVER, force_hosts=(host_of(OTHER),))))
    write = story.accepted(claim, OTHER)
    # when its write replaces what stands, as the generation shows
    assert changes(story.written(write, 2)) == []


def test_a_removal_that_was_published_is_not_found_again_at_the_next_write() -> None:
    story = Story()
    assert len(story.publish(BARE)) == 1
    claim = only_claim(story.driver.ask(request(SERVER, force_hosts=(host_of(OTHER),))))
    write = story.accepted(claim, OTHER)
    assert changes(story.written(write, 1)) == []


def test_one_host_cannot_keep_the_examiner_busy() -> None:
    # given an agent that tells another generation again and again
    story = Story()
    told = [len(story.publish(replace(BUILT, generation=number))) for number in range(2, 1_000)]
    assert sum(told) == CHANGES_BURST
    assert story.driver.core.counters()["foreign_changes_left_out"] == len(told) - CHANGES_BURST


def test_what_one_host_tells_of_a_server_is_bounded() -> None:
    # given an agent that tells thousands of amounts of one server, again and again
    story, much = Story(), dict.fromkeys([f"CUSTOM_{number}" for number in range(4_000)], 1)
    [first] = story.publish(Consumer({NODE: much}, True, generation=2))
    [second] = story.publish(Consumer({NODE: {**much, "CUSTOM_0": 2}}, True, generation=3))
    # then a change that waits, or is kept, does not take as much memory
    kept = [*first.after.values(), *second.before.values(), *second.after.values()]
    assert max(map(len, kept)) <= 100


def test_a_delete_knows_which_changes_were_told() -> None:
    # given a server to which somebody has added a port, as its agent has told
    story = Story()
    story.publish(replace(BUILT, generation=2))
    heard = story.driver.give(ev.AnswerUnheard(story.answer.claim_ids, cause="unheard"))
    [delete] = of_kind(ef.DeleteAllocation, heard)
    assert (delete.stood, delete.generation, delete.noted) == (True, 1, 2)


def test_a_delete_is_not_told_of_changes_if_there_were_none() -> None:
    story = Story()
    heard = story.driver.give(ev.AnswerUnheard(story.answer.claim_ids, cause="unheard"))
    [delete] = of_kind(ef.DeleteAllocation, heard)
    assert (delete.stood, delete.noted) == (True, None)


def test_after_a_removal_that_was_told_a_delete_does_not_tell_it_again() -> None:
    story = Story()
    story.publish(BARE)
    heard = story.driver.give(ev.AnswerUnheard(story.answer.claim_ids, cause="unheard"))
    [delete] = of_kind(ef.DeleteAllocation, heard)
    assert not delete.stood


def test_a_node_that_is_removed_says_nothing_more_of_its_servers() -> None:
    story = Story()
    assert changes(story.driver.give(ev.NodesGone("cell-1", frozenset([NODE])))) == []

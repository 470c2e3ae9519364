# SPDX-License-Identifier: Apache-2.0
"""What a foreign change was: Nova's databases and Placement tell, and only a removal that nobody explains is one."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from shared_scheduler.core.change_kinds import CONFIRMED_AFTER_S, ChangeKind
from shared_scheduler.core.effects import ExamineChange, SeenBy
from shared_scheduler.placement import change_examiner
from shared_scheduler.placement.change_examiner import ChangeExaminer
from shared_scheduler.placement.foreign_changes import MAX_CHANGES, ForeignChange, ForeignChanges
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from shared_scheduler.protocol.messages import Allocations
from tests.unit.placement.real_placement import Clock, World, in_trouble

UNDER_WAY = ServerLocation(ServerActivity.UNDER_WAY)
UNREAD = ServerLocation(ServerActivity.UNREAD)
BUILDS = ServerLocation(ServerActivity.NO_OWNER)
DELETED = ServerLocation(ServerActivity.NO_OWNER, deleted=True)
ANOTHER_NODE = str(uuid.uuid4())
SHELVED = ServerLocation(ServerActivity.AT_REST)


class Story:
    """A server on a node, of which a report tells a change."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world, self.clock = world, clock
        self.node, self.server = world.provider(), str(uuid.uuid4())
        self.recorded: list[ForeignChange] = []
        self.changes = ForeignChanges(record=self.recorded.append)
        self.found: ServerLocation | Exception = self.lives_here
        self.examiner = ChangeExaminer(world.client, self.locate, self.changes, clock, lambda: 1.8e9)

    @property
    def lives_here(self) -> ServerLocation:
        return ServerLocation(ServerActivity.AT_REST, self.node)

    @property
    def before(self) -> Allocations:
        return {self.node: {"VCPU": 1}}

    def locate(self, _: str) -> ServerLocation:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def tell(self, after: Allocations | None = None, generation: int | None = None, **more: Any) -> None:
        found = ExamineChange(
            self.server, self.node, "cmp1", self.before, 1, after or {}, generation, SeenBy.REPORT, cause="test"
        )
        self.examiner.found(replace(found, **more))

    def kinds(self) -> list[ChangeKind]:
        """All that has been told some seconds later."""
        for _ in range(2):
            self.examiner.examine_due()
            self.clock.now += CONFIRMED_AFTER_S
        return [change.kind for change in self.recorded]


@pytest.fixture
def story(world: World, clock: Clock) -> Story:
    return Story(world, clock)


def test_a_removal_that_nobody_explains(story: Story) -> None:
    story.tell()
    assert story.kinds() == [ChangeKind.REMOVED]
    assert story.changes.report()["count"] == 1
    assert (story.recorded[0].host, story.recorded[0].consumer) == ("cmp1", story.server)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (UNDER_WAY, ChangeKind.OPERATION), (SHELVED, ChangeKind.OPERATION), (DELETED, ChangeKind.DELETED),
        (BUILDS, ChangeKind.REMOVED), (UNREAD, ChangeKind.UNEXAMINED),
        (ServerLocation(ServerActivity.AT_REST, ANOTHER_NODE), ChangeKind.OPERATION),
    ],
)  # fmt: skip
def test_what_nova_says_of_a_removal(story: Story, found: ServerLocation, kind: ChangeKind) -> None:
    story.found = found
    story.tell()
    assert story.kinds() == [kind]


def test_nova_may_tell_some_seconds_later_that_it_has_deleted_the_server(story: Story) -> None:
    story.tell()
    story.examiner.examine_due()
    assert story.recorded == []
    story.found = DELETED
    assert story.kinds() == [ChangeKind.DELETED]


def test_what_was_removed_may_be_there_again(story: Story) -> None:
    story.tell()
    story.world.take(story.server, story.before)
    assert story.kinds() == [ChangeKind.REWRITTEN]
    assert (story.recorded[0].after, story.recorded[0].generation_after) == (story.before, 1)


def test_other_and_equal_amounts(story: Story) -> None:
    story.tell({story.node: {"VCPU": 2}}, 2)
    story.tell(story.before, 3)
    assert story.kinds() == [ChangeKind.CHANGED, ChangeKind.REWRITTEN]


def test_what_a_conductor_has_given_to_the_migration_is_all_that_was_written(story: Story) -> None:
    migration = str(uuid.uuid4())
    story.world.take(migration, story.before)
    story.found = replace(UNDER_WAY, migration=migration)
    story.tell()
    assert story.kinds() == [ChangeKind.OPERATION]


def test_what_a_conductor_takes_is_not_told_again_if_only_a_part_of_it_was_known(story: Story) -> None:
    # given a server of which a report has told another generation: a port was added in another tree
    migration = str(uuid.uuid4())
    story.world.take(migration, {**story.before, story.world.provider(): {"VCPU": 1}})
    story.found = replace(UNDER_WAY, migration=migration)
    # when it begins to move
    story.tell(whole=False)
    # then the port was told already
    assert story.kinds() == [ChangeKind.OPERATION]


def test_the_source_of_an_evacuation_returns_and_removes_its_part(story: Story) -> None:
    # given a server that this scheduler has evacuated to the node of the report
    source = {story.world.provider(): {"VCPU": 1}}
    story.world.take(story.server, story.before)
    # when only the allocations of the node are left, in a later generation
    story.tell(story.before, 3, elsewhere=source)
    # then Nova has done this, and it does not count
    assert story.kinds() == [ChangeKind.OPERATION]
    assert (story.recorded[0].before, story.recorded[0].after) == ({**story.before, **source}, story.before)
    assert story.changes.report()["count"] == 0


@pytest.mark.parametrize(("added", "kind"), [(0, ChangeKind.REWRITTEN), (1, ChangeKind.CHANGED)])
def test_an_evacuated_server_that_others_change(story: Story, added: int, kind: ChangeKind) -> None:
    source = {story.world.provider(): {"VCPU": 1}}
    others = {story.world.provider(): {"VCPU": 1} for _ in range(added)}
    story.world.take(story.server, {**story.before, **source, **others})
    story.tell(story.before, 3, elsewhere=source)
    assert story.kinds() == [kind]


def test_what_nova_does_is_listed_and_does_not_count(story: Story) -> None:
    story.found = UNDER_WAY
    story.tell()
    assert story.kinds() == [ChangeKind.OPERATION]
    report = story.changes.report()
    assert (report["count"], report["kinds"]["operation"], len(report["changes"])) == (0, 1, 1)


def test_a_placement_that_does_not_answer_leaves_it_unexamined(story: Story) -> None:
    story.world.http.every_read = in_trouble
    story.tell()
    assert story.kinds() == [ChangeKind.UNEXAMINED]


def test_an_unexpected_error_leaves_it_unexamined_and_keeps_no_other_one(story: Story) -> None:
    # given a change whose server Nova shows in a way that this release does not know
    story.found = ValueError("a state of the next release")
    story.tell()
    story.examiner.examine_due()
    # when another one is found
    story.found = DELETED
    story.tell()
    # then both are told
    assert story.kinds() == [ChangeKind.UNEXAMINED, ChangeKind.DELETED]


def test_many_at_once_are_counted_and_not_examined(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_examiner, "MAX_WAITING", 1)
    for _ in range(3):
        story.tell()
    assert [change.kind for change in story.recorded] == [ChangeKind.UNEXAMINED] * 2


def test_databases_that_answer_slowly_do_not_keep_the_thread(story: Story) -> None:
    # given three changes, while each question takes six seconds
    def slowly(_: str) -> ServerLocation:
        story.clock.now += 6.0
        return UNREAD

    examiner = ChangeExaminer(story.world.client, slowly, story.changes, story.clock, lambda: 1.8e9)
    story.examiner = examiner
    for _ in range(3):
        story.tell()
    examiner.examine_due()
    # then the third one waits for the next time
    assert (len(story.recorded), len(examiner)) == (2, 1)


def test_what_waits_when_the_scheduler_stops_is_recorded(story: Story) -> None:
    story.tell()
    story.examiner.end()
    assert [change.kind for change in story.recorded] == [ChangeKind.UNEXAMINED]
    assert len(story.examiner) == 0


def test_a_record_that_cannot_be_kept_is_counted(story: Story) -> None:
    def full(_: ForeignChange) -> None:
        raise OSError("disk full")

    changes = ForeignChanges(record=full)
    changes.keep(replace(_a_change(story), kind=ChangeKind.REMOVED))
    assert changes.counts()["removed"] == 1


@pytest.mark.parametrize("nested", [False, True])
def test_what_an_agent_tells_does_not_multiply_the_calls_to_placement(story: Story, nested: bool) -> None:
    # given a server of which an agent has told dozens of providers, the first one perhaps below the node
    first = story.world.provider() if nested else story.node
    if nested:
        story.world.put_below(first, story.node)
    told = {first: {"VCPU": 1}, **{str(uuid.uuid4()): {"VCPU": 1} for _ in range(60)}}
    calls_before = len(story.world.http.calls)
    # when it tells others
    story.tell({first: {"VCPU": 2}}, 2, before=told)
    # then one call is enough to know that the server is on this node
    assert story.kinds() == [ChangeKind.CHANGED]
    assert len(story.world.http.calls) - calls_before <= 1


def test_one_host_does_not_displace_the_changes_of_others(story: Story) -> None:
    # given a change of a server on one host
    changes, one = story.changes, _a_change(story)
    changes.keep(one)
    # when the agent of another one tells hundreds
    for _ in range(2 * MAX_CHANGES):
        changes.keep(replace(one, host="cmp2"))
    # then the first one is listed still, and all count
    report = changes.report()
    assert "cmp1" in [change["host"] for change in report["changes"]]
    assert report["count"] == 2 * MAX_CHANGES + 1


def test_operations_of_nova_do_not_displace_others(story: Story) -> None:
    changes, one = ForeignChanges(max_changes=1), _a_change(story)
    changes.keep(replace(one, kind=ChangeKind.REMOVED))
    for _ in range(300):
        changes.keep(replace(one, kind=ChangeKind.OPERATION))
    kinds = [change["kind"] for change in changes.report()["changes"]]
    assert ChangeKind.REMOVED in kinds
    assert len(kinds) < 100


def _a_change(story: Story) -> ForeignChange:
    return ForeignChange(story.server, story.before, 1, {}, None, SeenBy.REPORT, 1.8e9, ChangeKind.UNEXAMINED, "cmp1")

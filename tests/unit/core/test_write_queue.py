# SPDX-License-Identifier: Apache-2.0
"""Which writes go out together, and which come first."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared_scheduler.core.write_pace import FURTHER_WRITER_AFTER_S, MAX_BATCH, OVERLOADED_AFTER_S, WritePace
from shared_scheduler.core.write_queue import Job, WriteQueue, halves

NOW = 100.0


def job(
    consumer: str, *providers: str, alone: bool = False, queued_s: float = NOW, deadline_s: float = float("inf")
) -> Job[str]:
    return Job(consumer, frozenset(providers), alone, consumer, queued_s, queued_s, deadline_s)


def delete(consumer: str, *providers: str) -> Job[str]:
    return Job(consumer, frozenset(providers), True, f"delete {consumer}", NOW, deletes=True)


def pace_of(consumer_s: float = 0.0) -> WritePace:
    """The pace of a Placement that takes so long for one consumer."""
    pace = WritePace()
    pace.measured(1, 0.0, consumer_s)
    return pace


def names(batch: tuple[Job[str], ...]) -> list[str]:
    return [one.consumer for one in batch]


def queue(*jobs: Job[str], consumer_s: float = 0.0) -> WriteQueue[str]:
    batches: WriteQueue[str] = WriteQueue(pace_of(consumer_s))
    for one in jobs:
        assert batches.add(one)
    return batches


def test_a_single_write_goes_at_once() -> None:
    assert names(queue(job("a", "n1")).take(NOW)) == ["a"]


def test_queued_writes_are_sent_together_sorted_by_provider() -> None:
    batches = queue(job("a", "n3"), job("b", "n1"), job("c", "n2"))
    assert names(batches.take(NOW)) == ["b", "c", "a"]


def test_writes_gather_while_a_writer_is_at_work() -> None:
    # given a write under way
    batches = queue(job("a", "n1"))
    first = batches.take(NOW)
    # when others come, then a second writer leaves them to the first one
    batches.add(job("b", "n2"))
    batches.add(job("c", "n3", queued_s=NOW + FURTHER_WRITER_AFTER_S / 2))
    assert batches.take(NOW + FURTHER_WRITER_AFTER_S / 2, at_work=1) == ()
    # and that one takes them together
    batches.done(first[0])
    assert names(batches.take(NOW + FURTHER_WRITER_AFTER_S / 2)) == ["b", "c"]


def test_a_second_writer_takes_what_has_waited_for_too_long_and_what_came_since() -> None:
    batches = queue(job("a", "n1"))
    batches.take(NOW)
    batches.add(job("b", "n2"))
    batches.add(job("c", "n3", queued_s=NOW + FURTHER_WRITER_AFTER_S))
    assert names(batches.take(NOW + 2 * FURTHER_WRITER_AFTER_S, at_work=1)) == ["b", "c"]


def test_a_write_that_is_alone_gathers_nothing_and_is_sent_at_once() -> None:
    batches = queue(job("a", "n1"))
    batches.take(NOW)
    batches.add(job("b", "n2", alone=True))
    assert names(batches.take(NOW, at_work=1)) == ["b"]


def test_while_placement_does_not_keep_up_no_writer_waits_for_writes_to_gather() -> None:
    # given a write under way, one that has waited for long, and a newer one that comes first therefore
    batches = queue(job("a", "n1"), consumer_s=2.0)
    batches.take(NOW)
    batches.add(job("old", "n2", queued_s=NOW - 2 * OVERLOADED_AFTER_S))
    batches.add(job("new", "n3"))
    # when other writers are free, then they send both
    assert [names(batches.take(NOW, at_work=one)) for one in (1, 2)] == [["new"], ["old"]]


def test_a_full_batch_gathers_nothing() -> None:
    batches = queue(job("a", "n1"))
    batches.take(NOW)
    for number in range(MAX_BATCH):
        batches.add(job(f"b{number}", "n2"))
    assert len(batches.take(NOW, at_work=1)) == MAX_BATCH


def test_while_writes_gather_a_delete_is_not_held_up() -> None:
    batches = queue(job("a", "n1"))
    batches.take(NOW)
    batches.add(job("b", "n2"))
    batches.add(delete("c", "n3"))
    assert names(batches.take(NOW, at_work=1)) == ["c"]


def test_a_provider_in_flight_is_waited_for_and_others_are_not() -> None:
    batches = queue(job("a", "n1"))
    first = batches.take(NOW)
    batches.add(job("b", "n1"))
    batches.add(job("c", "n2"))
    assert names(batches.take(NOW)) == ["c"]
    batches.done(first[0])
    assert names(batches.take(NOW)) == ["b"]


def test_writes_to_a_provider_keep_their_order() -> None:
    batches = queue(job("a", "n1"))
    first = batches.take(NOW)
    for one in (job("wide", "n1", "n2"), job("narrow", "n2")):
        batches.add(one)
    assert batches.take(NOW) == ()
    batches.done(first[0])
    assert names(batches.take(NOW)) == ["wide", "narrow"]


def test_one_consumer_is_written_in_order_and_never_twice_at_once() -> None:
    batches = queue(job("a", "n1"), job("a", "n2"))
    first = batches.take(NOW)
    assert len(first) == 1 and batches.take(NOW) == ()
    batches.done(first[0])
    assert [one.providers for one in batches.take(NOW)] == [{"n2"}]


def test_alone_is_alone() -> None:
    batches = queue(job("a", "n1"), job("b", "n2", alone=True), job("c", "n3"))
    assert names(batches.take(NOW)) == ["a", "c"]
    assert names(batches.take(NOW)) == ["b"]


def test_too_many_are_turned_away() -> None:
    batches: WriteQueue[str] = WriteQueue(WritePace(), max_waiting=1)
    assert batches.add(job("a", "n1"))
    assert not batches.add(job("b", "n2"))


def test_dropped_writes_are_returned_and_block_no_others() -> None:
    batches = queue(job("a", "n1"))
    first = batches.take(NOW)
    batches.add(job("late", "n1", "n2"))
    batches.add(job("b", "n2"))
    assert names(tuple(batches.drop(lambda work: work == "late"))) == ["late"]
    assert names(batches.take(NOW)) == ["b"]
    assert batches.done(first[0])
    assert not batches.done(first[0])


def test_parts_of_a_refused_batch_go_next_and_side_by_side() -> None:
    batches = queue(job("a", "n1"), job("b", "n2"), job("c", "n3"))
    batch = batches.take(NOW)
    batches.add(job("later", "n1"))
    batches.put_back(halves(batch))
    assert [names(batches.take(NOW)) for _ in range(3)] == [["a"], ["b", "c"], []]


def test_parts_that_share_a_provider_wait_for_one_another() -> None:
    batches = queue(job("a", "n1"), job("b", "n1"))
    batches.put_back(halves(batches.take(NOW)))
    first = batches.take(NOW)
    assert len(first) == 1 and batches.take(NOW) == ()
    batches.done(first[0])
    assert len(batches.take(NOW)) == 1


def test_parts_are_known_counted_and_dropped() -> None:
    batches = queue(job("a", "n1"), job("b", "n2"))
    batches.put_back(halves(batches.take(NOW)))
    assert (batches.waiting, batches.in_flight, batches.knows("b")) == (2, 0, True)
    assert names(tuple(batches.drop(lambda work: work == "a"))) == ["a"]
    assert names(batches.take(NOW)) == ["b"]


# -- while Placement does not keep up


def waiting(*names: str, since_s: float) -> list[Job[str]]:
    """Writes for a host of their own each, one second apart."""
    return [job(name, f"n-{name}", queued_s=since_s + number) for number, name in enumerate(names)]


def test_the_oldest_goes_first_while_placement_keeps_up() -> None:
    batches = queue(*waiting("a", "b", since_s=NOW - OVERLOADED_AFTER_S), consumer_s=2.0)
    assert names(batches.take(NOW)) == ["a"]


def test_the_newest_goes_first_once_one_has_waited_too_long() -> None:
    batches = queue(*waiting("a", "b", "c", since_s=NOW - 2 * OVERLOADED_AFTER_S), consumer_s=2.0)
    assert [names(batches.take(NOW)) for _ in range(3)] == [["c"], ["b"], ["a"]]


def test_the_writes_of_one_request_keep_their_order() -> None:
    # given two writes of a request that has others behind it, and a newer request
    older = [replace(one, asked_s=NOW - 9.0) for one in waiting("a", "b", since_s=NOW - 9.0)]
    batches = queue(*older, job("c", "n-c"), consumer_s=2.0)
    assert [names(batches.take(NOW)) for _ in range(3)] == [["c"], ["a"], ["b"]]


def test_the_wait_for_a_provider_is_not_counted_as_placements_time() -> None:
    batches = queue(job("first", "n1"), consumer_s=2.0)
    batches.take(NOW)
    for one in (job("patient", "n1", queued_s=NOW - 60.0), *waiting("a", "b", since_s=NOW - 1.0)):
        batches.add(one)
    assert names(batches.take(NOW)) == ["a"]


def test_the_wait_for_a_delete_of_its_server_is_not_counted_as_placements_time() -> None:
    # given two deletes, and a write of the second server that has to wait for both
    patient = job("gone", "n2", queued_s=NOW - 2 * OVERLOADED_AFTER_S)
    batches = queue(delete("other", "n0"), delete("gone", "n1"), patient, consumer_s=2.0)
    # when other writes come, then the oldest is still the first
    for one in waiting("a", "b", since_s=NOW - 1.0):
        batches.add(one)
    assert names(batches.take(NOW)) == ["a"]


def test_the_newest_first_keeps_the_order_of_each_consumer() -> None:
    old, new = (job("a", name, queued_s=NOW - 5.0) for name in ("n1", "n2"))
    batches = queue(old, new, consumer_s=2.0)
    assert batches.take(NOW) == (old,)
    assert batches.take(NOW) == ()
    batches.done(old)
    assert batches.take(NOW) == (new,)


def test_a_slow_placement_gets_small_batches() -> None:
    batches = queue(*waiting(*"abcdef", since_s=NOW - 6.0), consumer_s=0.5)
    assert [len(batches.take(NOW)) for _ in range(2)] == [4, 2]


def test_a_write_that_cannot_end_in_time_is_not_sent_and_is_dropped() -> None:
    late, early = job("late", "n1", deadline_s=NOW + 0.5), job("early", "n2", deadline_s=NOW + 1.5)
    batches = queue(late, early, consumer_s=1.0)
    assert batches.take(NOW) == (early,)
    assert batches.take(NOW) == ()
    assert batches.drop_late(NOW) == [late]
    assert batches.waiting == 0


def test_a_part_of_a_refused_batch_that_cannot_end_in_time_is_not_sent_and_is_dropped() -> None:
    # given a refused batch of two writes, and one of them has no time left for another call
    late, early = job("late", "n1", deadline_s=NOW + 1.2), job("early", "n2", deadline_s=NOW + 9.0)
    batches = queue(late, early, consumer_s=1.0)
    batch = batches.take(NOW)
    assert set(batch) == {late, early}
    batches.put_back((batch,))

    # then only the other one is sent again
    assert batches.take(NOW + 1.0) == (early,)
    assert batches.take(NOW + 1.0) == ()
    assert batches.drop_late(NOW + 1.0) == [late]
    assert batches.waiting == 0


def test_a_late_part_keeps_no_provider_from_another_part() -> None:
    late, early = job("a", "n1", deadline_s=NOW + 1.2), job("b", "n1", deadline_s=NOW + 9.0)
    batches = queue(late, early, consumer_s=1.0)
    batches.put_back(halves(batches.take(NOW)))
    assert batches.take(NOW + 1.0) == (early,)


def test_no_write_overtakes_a_late_part_of_its_consumer() -> None:
    """Placement may become faster before the late one is dropped, and it is then sent after all."""
    late, next_one = job("a", "n1", deadline_s=NOW + 1.2), job("a", "n2")
    batches = queue(late, job("b", "n1"), consumer_s=1.0)
    batches.put_back(halves(batches.take(NOW)))
    batches.add(next_one)
    assert [names(batches.take(NOW + 1.0)) for _ in range(2)] == [["b"], []]
    assert batches.drop_late(NOW + 1.0) == [late]
    assert batches.take(NOW + 1.0) == (next_one,)


# -- writes that wait until they are sent again


def test_a_write_that_waits_frees_its_provider_and_not_its_consumer() -> None:
    batches = queue(job("a", "n1"))
    (first,) = batches.take(NOW)
    for one in (job("b", "n1"), delete("c", "n1"), job("a", "n2")):
        batches.add(one)
    assert batches.take(NOW) == ()
    batches.pause(first)
    assert names(batches.take_delete()) == ["c"]
    assert batches.take(NOW) == ()
    assert batches.knows("a") and batches.in_flight == 2


def test_a_write_that_has_waited_goes_on_before_later_ones() -> None:
    batches = queue(job("a", "n1"))
    (first,) = batches.take(NOW)
    batches.pause(first)
    batches.add(job("b", "n1"))
    (second,) = batches.take(NOW)
    assert not batches.resume(first)
    batches.add(job("c", "n1"))
    batches.done(second)
    assert batches.take(NOW) == ()
    assert batches.resume(first)
    assert batches.take(NOW) == ()
    batches.done(first)
    assert names(batches.take(NOW)) == ["c"]


def test_writes_that_have_waited_go_on_in_their_order() -> None:
    batches = queue(job("a", "n1"), job("b", "n1"))
    one, two = batches.take(NOW)
    batches.pause(one)
    batches.pause(two)
    batches.add(job("c", "n1"))
    (third,) = batches.take(NOW)
    assert not batches.resume(one) and not batches.resume(two)
    batches.pause(third)
    assert not batches.resume(two)
    assert batches.resume(one)
    assert not batches.resume(two)
    batches.done(one)
    assert batches.resume(two)


def test_a_write_that_ends_while_it_waits_holds_up_nothing() -> None:
    batches = queue(job("a", "n1"), job("b", "n1"))
    one, two = batches.take(NOW)
    batches.pause(one)
    assert not batches.resume(one)
    batches.done(one)
    batches.done(two)
    batches.add(job("c", "n1"))
    assert names(batches.take(NOW)) == ["c"]


# -- deletes


def test_deletes_come_after_writes_unless_their_own_writer_takes_them() -> None:
    one, two = delete("a", "n1"), delete("b", "n2")
    batches = queue(one, two, job("c", "n3"), job("d", "n4"))
    assert batches.take_delete() == (one,)
    assert names(batches.take(NOW)) == ["c", "d"]
    assert batches.take(NOW) == (two,)
    assert batches.take_delete() == ()


def test_who_carries_out_deletes_is_told_whether_any_waits() -> None:
    batches = queue(job("a", "n1"))
    assert not batches.has_deletes
    batches.add(delete("b", "n2"))
    assert batches.has_deletes
    batches.take_delete()
    assert not batches.has_deletes


def test_the_next_delete_keeps_its_provider_free() -> None:
    batches = queue(job("a", "n1"))
    first = batches.take(NOW)
    for one in (delete("b", "n1"), job("c", "n1"), job("d", "n2")):
        batches.add(one)
    assert batches.take_delete() == ()
    assert names(batches.take(NOW)) == ["d"]
    batches.done(first[0])
    assert names(batches.take(NOW)) == ["b"]


def test_a_delete_whose_server_is_being_written_keeps_nothing_free() -> None:
    batches = queue(job("a", "n2"))
    (first,) = batches.take(NOW)
    batches.pause(first)
    waits, next_one = delete("a", "n1"), delete("b", "n3")
    for one in (waits, next_one, job("c", "n1"), job("d", "n3")):
        batches.add(one)
    assert names(batches.take(NOW)) == ["c"]
    assert batches.take(NOW) == (next_one,)


def test_a_delete_never_overtakes_a_write_of_its_consumer_nor_a_write_a_delete() -> None:
    jobs = (job("a", "n1"), delete("a", "n1"), job("a", "n2"))
    batches = queue(*jobs)
    for one in jobs:
        assert batches.take(NOW) == (one,)
        assert batches.take(NOW) == batches.take_delete() == ()
        batches.done(one)


def test_a_delete_waits_for_its_write_in_a_refused_batch() -> None:
    batches = queue(job("a", "n1"), job("b", "n1"))
    batches.put_back(halves(batches.take(NOW)))
    batches.add(delete("b", "n1"))
    assert batches.take_delete() == ()


def deletes_of_a_pool(count: int) -> tuple[WriteQueue[str], Job[str]]:
    """Deletes of servers on hosts that share a pool, and the first of them, which is under way."""
    batches = queue(*(delete(f"gone{number}", f"n{number}", "pool") for number in range(count)))
    (first,) = batches.take_delete()
    return batches, first


def test_deletes_and_writes_take_turns_on_what_all_hosts_share() -> None:
    # given more deletes than can end in the time of a write, and writes that come meanwhile
    batches, gone = deletes_of_a_pool(50)
    for name in "abc":
        batches.add(job(name, f"n-{name}", "pool"))
    # when the delete under way ends, then the writes are sent before the next one
    batches.done(gone)
    assert batches.take_delete() == ()
    batch = batches.take(NOW)
    assert names(batch) == ["a", "b", "c"]
    # and that one before the writes that come then
    batches.add(job("d", "n-d", "pool"))
    for one in batch:
        batches.done(one)
    assert batches.take(NOW)[0].deletes


def test_a_part_of_a_refused_batch_has_its_turn_among_deletes() -> None:
    batches = queue(job("a", "n1", "pool"), job("b", "n2", "pool"))
    batch = batches.take(NOW)
    batches.add(delete("c", "n3", "pool"))
    batches.add(delete("d", "n4", "pool"))
    batches.put_back(halves(batch))
    (gone,) = batches.take_delete()
    batches.done(gone)
    assert batches.take_delete() == ()
    assert names(batches.take(NOW)) == ["a"]


def test_a_delete_waits_for_no_write_that_cannot_be_sent() -> None:
    # given a write that waits for another host besides the pool
    batches, gone = deletes_of_a_pool(2)
    batches.add(job("a", "n-a"))
    batches.add(job("b", "n-a", "pool"))
    assert names(batches.take(NOW)) == ["a"]
    # when the delete under way ends, then the next one is sent
    batches.done(gone)
    assert names(batches.take_delete()) == ["gone1"]


def test_a_delete_waits_for_no_write_while_no_writer_is_free() -> None:
    batches, gone = deletes_of_a_pool(2)
    batches.add(job("a", "n-a", "pool"))
    batches.done(gone)
    assert batches.take_delete() == ()
    assert names(batches.take_delete(may_yield=False)) == ["gone1"]


@given(st.integers(2, 16))
def test_halves_are_smaller_and_nothing_is_lost(size: int) -> None:
    batch = tuple(job(f"c{number}", "n") for number in range(size))
    left, right = halves(batch)
    assert left + right == batch and 0 < len(left) < size and 0 < len(right) < size


def providers_of(batch: tuple[Job[int], ...]) -> set[str]:
    return {provider for one in batch for provider in one.providers}


class Traffic(RuleBasedStateMachine):
    """Any order of adding, taking and ending keeps the rules of the module, while Placement keeps up and while not."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: WriteQueue[int] = WriteQueue(pace_of(0.5), max_waiting=12)
        self.now = NOW
        self.accepted: list[Job[int]] = []
        self.started: list[Job[int]] = []
        self.flying: list[tuple[Job[int], ...]] = []
        self.paused: list[Job[int]] = []
        self.resuming: list[Job[int]] = []
        self.refused: set[int] = set()
        #: so many of the first jobs were there when the newest may have been sent first
        self.unordered = 0

    @rule(
        consumer=st.sampled_from("abcde"),
        providers=st.frozensets(st.sampled_from(["n1", "n2", "n3", "n4"]), min_size=1, max_size=3),
        alone=st.booleans(),
        deletes=st.booleans(),
    )
    def add(self, consumer: str, providers: frozenset[str], alone: bool, deletes: bool) -> None:
        one = Job(consumer, providers, alone or deletes, len(self.accepted), self.now, self.now, deletes=deletes)
        room = self.batches.waiting < 12
        assert self.batches.add(one) is room
        if room:
            self.accepted.append(one)

    @rule()
    def time_passes(self) -> None:
        self.now += 2 * OVERLOADED_AFTER_S

    @rule()
    def take(self) -> None:
        sent = {one.work for one in self.started}
        if any(one.queued_s < self.now for one in self.accepted if one.work not in sent):
            self.unordered = len(self.accepted)
        batch = self.batches.take(self.now)
        assert len(batch) <= 4
        assert len(batch) == 1 or not any(one.alone for one in batch)
        assert list(batch) == sorted(batch, key=lambda one: one.rank)
        self.start(batch)

    @rule()
    def take_delete(self) -> None:
        batch = self.batches.take_delete()
        assert len(batch) <= 1 and all(one.deletes for one in batch)
        self.start(batch)

    def start(self, batch: tuple[Job[int], ...]) -> None:
        if batch:
            self.flying.append(batch)
            self.started += sorted(batch, key=lambda one: one.work)

    @rule(which=st.integers(0, 3))
    def end(self, which: int) -> None:
        if self.flying:
            for one in self.flying.pop(which % len(self.flying)):
                assert self.batches.done(one)
                self.stands_still(one)

    def stands_still(self, job: Job[int]) -> None:
        """The write has ended, or is queued again."""
        self.paused = [one for one in self.paused if one is not job]
        self.resuming = [one for one in self.resuming if one is not job]

    def active(self) -> list[Job[int]]:
        waiting = [one.work for one in (*self.paused, *self.resuming)]
        return [one for batch in self.flying for one in batch if one.work not in waiting]

    @rule(which=st.integers(0, 3))
    def pause(self, which: int) -> None:
        writes = [one for one in self.active() if not one.deletes]
        if writes:
            one = writes[which % len(writes)]
            self.batches.pause(one)
            self.paused.append(one)

    @rule(which=st.integers(0, 3))
    def resume(self, which: int) -> None:
        waiting = [*self.resuming, *self.paused]
        if waiting:
            one = waiting[which % len(waiting)]
            if one in self.paused:
                self.paused.remove(one)
                self.resuming.append(one)
            before = (*self.active(), *self.resuming[: self.resuming.index(one)])
            if self.batches.resume(one):
                assert providers_of(before).isdisjoint(one.providers)
                self.resuming.remove(one)
            else:
                assert not providers_of(before).isdisjoint(one.providers)

    @rule(which=st.integers(0, 3))
    def refuse(self, which: int) -> None:
        writes = [batch for batch in self.flying if not batch[0].deletes]
        if writes:
            batch = writes[which % len(writes)]
            self.flying.remove(batch)
            self.batches.put_back(halves(batch))
            for one in batch:
                self.stands_still(one)
            self.started = [one for one in self.started if one not in batch]
            self.refused |= {one.work for one in batch}

    @invariant()
    def batches_in_flight_are_disjoint(self) -> None:
        for index, batch in enumerate(self.flying):
            for other in self.flying[index + 1 :]:
                assert self.used_by(batch).isdisjoint(self.used_by(other))
                assert not {one.consumer for one in batch} & {one.consumer for one in other}

    def used_by(self, batch: tuple[Job[int], ...]) -> set[str]:
        return providers_of(tuple(one for one in self.active() if one in batch))

    @invariant()
    def nobody_overtakes(self) -> None:
        started = {one.work for one in self.started}
        for one in self.accepted:
            if one.work in started or one.work in self.refused:
                continue
            for later in self.started:
                if later.work > one.work:
                    assert later.consumer != one.consumer
                    same_lane = not (later.deletes or one.deletes)
                    if same_lane and one.work >= self.unordered:
                        assert later.providers.isdisjoint(one.providers)

    @invariant()
    def something_goes_whenever_nothing_flies(self) -> None:
        idle = not self.flying and self.batches.waiting
        if idle:
            self.take()
            assert self.flying

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.batches.waiting + len(self.started) == len(self.accepted)


TestTraffic = Traffic.TestCase

# SPDX-License-Identifier: Apache-2.0
"""Which writes go out together."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared_scheduler.placement.group_commit import Batches, Job, halves


def job(consumer: str, *providers: str, alone: bool = False) -> Job[str]:
    return Job(consumer, frozenset(providers), alone, consumer)


def names(batch: tuple[Job[str], ...]) -> list[str]:
    return [one.consumer for one in batch]


def queue(*jobs: Job[str], max_batch: int = 16) -> Batches[str]:
    batches: Batches[str] = Batches(max_batch)
    for one in jobs:
        assert batches.add(one)
    return batches


def test_a_single_write_goes_at_once() -> None:
    assert names(queue(job("a", "n1")).take()) == ["a"]


def test_what_queued_up_goes_together_sorted_by_provider() -> None:
    batches = queue(job("a", "n3"), job("b", "n1"), job("c", "n2"))
    assert names(batches.take()) == ["b", "c", "a"]


def test_a_provider_in_flight_is_waited_for_and_others_are_not() -> None:
    batches = queue(job("a", "n1"))
    first = batches.take()
    batches.add(job("b", "n1"))
    batches.add(job("c", "n2"))
    assert names(batches.take()) == ["c"]
    batches.done(first[0])
    assert names(batches.take()) == ["b"]


def test_nobody_overtakes_on_a_provider() -> None:
    batches = queue(job("a", "n1"))
    first = batches.take()
    for one in (job("wide", "n1", "n2"), job("narrow", "n2")):
        batches.add(one)
    assert batches.take() == ()
    batches.done(first[0])
    assert names(batches.take()) == ["wide", "narrow"]


def test_one_consumer_is_written_in_order_and_never_twice_at_once() -> None:
    batches = queue(job("a", "n1"), job("a", "n2"))
    first = batches.take()
    assert len(first) == 1 and batches.take() == ()
    batches.done(first[0])
    assert [one.providers for one in batches.take()] == [{"n2"}]


def test_alone_is_alone() -> None:
    batches = queue(job("a", "n1"), job("b", "n2", alone=True), job("c", "n3"))
    assert names(batches.take()) == ["a", "c"]
    assert names(batches.take()) == ["b"]


def test_too_many_are_turned_away() -> None:
    batches: Batches[str] = Batches(max_waiting=1)
    assert batches.add(job("a", "n1"))
    assert not batches.add(job("b", "n2"))


def test_what_is_dropped_is_handed_back_and_frees_the_way() -> None:
    batches = queue(job("a", "n1"))
    first = batches.take()
    batches.add(job("late", "n1", "n2"))
    batches.add(job("b", "n2"))
    assert names(tuple(batches.drop(lambda work: work == "late"))) == ["late"]
    assert names(batches.take()) == ["b"]
    assert batches.done(first[0])
    assert not batches.done(first[0])


def test_parts_of_a_refused_batch_go_next_and_side_by_side() -> None:
    batches = queue(job("a", "n1"), job("b", "n2"), job("c", "n3"))
    batch = batches.take()
    batches.add(job("later", "n1"))
    batches.put_back(halves(batch))
    assert [names(batches.take()) for _ in range(3)] == [["a"], ["b", "c"], []]


def test_parts_that_share_a_provider_wait_for_one_another() -> None:
    batches = queue(job("a", "n1"), job("b", "n1"))
    batches.put_back(halves(batches.take()))
    first = batches.take()
    assert len(first) == 1 and batches.take() == ()
    batches.done(first[0])
    assert len(batches.take()) == 1


def test_parts_are_known_counted_and_dropped() -> None:
    batches = queue(job("a", "n1"), job("b", "n2"))
    batches.put_back(halves(batches.take()))
    assert (batches.waiting, batches.in_flight, batches.knows("b")) == (2, 0, True)
    assert names(tuple(batches.drop(lambda work: work == "a"))) == ["a"]
    assert names(batches.take()) == ["b"]


@given(st.integers(2, 16))
def test_halves_are_smaller_and_nothing_is_lost(size: int) -> None:
    batch = tuple(job(f"c{number}", "n") for number in range(size))
    left, right = halves(batch)
    assert left + right == batch and 0 < len(left) < size and 0 < len(right) < size


def providers_of(batch: tuple[Job[int], ...]) -> set[str]:
    return {provider for one in batch for provider in one.providers}


class Traffic(RuleBasedStateMachine):
    """Any order of adding, taking and ending keeps the rules of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: Batches[int] = Batches(max_batch=4, max_waiting=12)
        self.accepted: list[Job[int]] = []
        self.started: list[Job[int]] = []
        self.flying: list[tuple[Job[int], ...]] = []
        self.refused: set[int] = set()

    @rule(
        consumer=st.sampled_from("abcde"),
        providers=st.frozensets(st.sampled_from(["n1", "n2", "n3", "n4"]), min_size=1, max_size=3),
        alone=st.booleans(),
    )
    def add(self, consumer: str, providers: frozenset[str], alone: bool) -> None:
        one = Job(consumer, providers, alone, len(self.accepted))
        room = self.batches.waiting < 12
        assert self.batches.add(one) is room
        if room:
            self.accepted.append(one)

    @rule()
    def take(self) -> None:
        batch = self.batches.take()
        assert len(batch) <= 4
        assert len(batch) == 1 or not any(one.alone for one in batch)
        assert list(batch) == sorted(batch, key=lambda one: one.rank)
        if batch:
            self.flying.append(batch)
            self.started += sorted(batch, key=lambda one: one.work)

    @rule(which=st.integers(0, 3))
    def end(self, which: int) -> None:
        if self.flying:
            for one in self.flying.pop(which % len(self.flying)):
                assert self.batches.done(one)

    @rule(which=st.integers(0, 3))
    def refuse(self, which: int) -> None:
        if self.flying:
            batch = self.flying.pop(which % len(self.flying))
            self.batches.put_back(halves(batch))
            self.started = [one for one in self.started if one not in batch]
            self.refused |= {one.work for one in batch}

    @invariant()
    def batches_in_flight_are_disjoint(self) -> None:
        for index, batch in enumerate(self.flying):
            for other in self.flying[index + 1 :]:
                assert providers_of(batch).isdisjoint(providers_of(other))
                assert not {one.consumer for one in batch} & {one.consumer for one in other}

    @invariant()
    def nobody_overtakes(self) -> None:
        started = {one.work for one in self.started}
        for one in self.accepted:
            if one.work in started or one.work in self.refused:
                continue
            for later in self.started:
                if later.work > one.work:
                    assert later.consumer != one.consumer
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

# SPDX-License-Identifier: Apache-2.0
"""The merge of a move's allocations with those of others, by examples and against a model with racing writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, note, settings

from shared_scheduler.core.allocation_merge import MAX_MERGES, merge
from shared_scheduler.model.resources import add_amounts, plain_allocations, sum_amounts
from tests.support.examples import examples

BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
SOURCE = {"source": {"VCPU": 2, "MEMORY_MB": 512}}
TARGET = {"target": {"VCPU": 2, "MEMORY_MB": 512}}
TARGET_WITH_PORT = TARGET | {"target-port": {BANDWIDTH: 1}}
PORT = {"source-port": {BANDWIDTH: 1000}}
Amounts = Mapping[str, Mapping[str, int]]


# -- examples ------------------------------------------------------------------------------------


def test_a_port_attached_during_the_move_is_kept() -> None:
    merged = merge(SOURCE, TARGET, SOURCE | PORT)
    assert merged is not None
    assert (merged.allocations, merged.rest) == (SOURCE | PORT | TARGET, SOURCE | PORT)


def test_a_port_detached_during_the_move_is_not_restored() -> None:
    merged = merge(SOURCE | PORT, TARGET, SOURCE)
    assert merged is not None
    assert merged.allocations == SOURCE | TARGET


def test_an_accelerator_that_was_added_before_the_first_write_is_kept() -> None:
    merged = merge({}, TARGET, {"device": {"FPGA": 1}})
    assert merged is not None
    assert merged.allocations == TARGET | {"device": {"FPGA": 1}}


def test_our_own_write_without_an_answer_is_not_added_twice() -> None:
    merged = merge(SOURCE, TARGET, SOURCE | TARGET | PORT)
    assert merged is not None
    assert (merged.allocations, merged.rest) == (SOURCE | TARGET | PORT, SOURCE | PORT)


@pytest.mark.parametrize(
    ("why", "base", "theirs"),
    [
        ("the server was deleted", SOURCE, {}),
        ("a part of the server was deleted", SOURCE, {"source": {"VCPU": 2}}),
        ("the server was resized", SOURCE, {"source": {"VCPU": 4, "MEMORY_MB": 512}}),
        ("another operation placed the server on another host", SOURCE, SOURCE | {"third": {"VCPU": 2}}),
        ("another operation placed the server, before the first write", {}, {"third": {"DISK_GB": 1}}),
        ("somebody added to our provider", SOURCE, SOURCE | {"target": {"FPGA": 1}}),
        ("somebody added to our provider after our write", SOURCE, SOURCE | {"target": {"VCPU": 3, "MEMORY_MB": 512}}),
    ],
)
def test_undecidable(why: str, base: Amounts, theirs: Amounts) -> None:
    assert merge(base, TARGET, theirs) is None, why


def test_a_class_of_the_request_outside_the_list_places_the_server_too() -> None:
    bare_metal, other = {"target": {"CUSTOM_BAREMETAL": 1}}, {"third": {"CUSTOM_BAREMETAL": 1}}
    assert merge({}, bare_metal, other) is None
    assert merge({}, TARGET, other) is not None


def test_a_port_on_a_provider_of_the_request_is_ours() -> None:
    with_port = TARGET | {"target-port": {BANDWIDTH: 1000}}
    assert merge(SOURCE | PORT, with_port, SOURCE | {"source-port": {BANDWIDTH: 3000}}) is not None
    assert merge(SOURCE | PORT, with_port, SOURCE | PORT | {"target-port": {BANDWIDTH: 500}}) is None


def test_a_part_of_ports_only_cannot_be_judged() -> None:
    assert merge(SOURCE, {"target-port": {BANDWIDTH: 1}}, SOURCE | PORT) is None


# -- against a model -----------------------------------------------------------------------------


class ModelPlacement:
    """One consumer: a write is carried out only with the present generation.

    Generations do not begin anew: nobody removes the record of the consumer while a write may still arrive.
    """

    def __init__(self, allocations: Amounts) -> None:
        self.allocations = plain_allocations(allocations)
        self.writes = int(bool(allocations))

    @property
    def generation(self) -> int | None:
        return self.writes if self.allocations else None

    def write(self, allocations: Amounts, generation: int | None) -> bool:
        if generation != self.generation:
            return False
        self.allocations, self.writes = plain_allocations(allocations), self.writes + 1
        return True


class Others:
    """They add and remove by difference, as Nova and neutron do.  ``theirs``: the result without us."""

    def __init__(self, placement: ModelPlacement) -> None:
        self.placement = placement
        self.theirs = plain_allocations(placement.allocations)
        self.added = [("source-port", name, amount) for name, amount in self.theirs.get("source-port", {}).items()]

    def add(self, provider: str, name: str, amount: int) -> None:
        self.added.append((provider, name, amount))
        self.change(provider, name, amount)

    def remove(self, number: int) -> None:
        if self.added:
            provider, name, amount = self.added.pop(number % len(self.added))
            self.change(provider, name, -amount)

    def change(self, provider: str, name: str, amount: int) -> None:
        add_amounts(self.theirs, {provider: {name: amount}})
        now = plain_allocations(self.placement.allocations)
        add_amounts(now, {provider: {name: amount}})
        assert self.placement.write(now, self.placement.generation)


class Mover:
    """A move of ours, which merges as ``placement/allocation_writer.py`` does."""

    def __init__(self, placement: ModelPlacement, part: Amounts) -> None:
        self.placement, self.part = placement, part
        self.rest: Amounts = plain_allocations(placement.allocations)
        self.wanted: Amounts = dict(self.rest) | dict(part)
        self.generation = placement.generation
        self.late: list[tuple[Amounts, int | None]] = []
        self.merges = 0
        self.outcome: bool | None = None
        self.is_taken_back = False

    def send(self, fate: str) -> None:
        """One write with this fate; without an answer that it was carried out, one read and one merge."""
        if self.outcome is not None:
            return
        if fate == "late":
            self.late.append((self.wanted, self.generation))
        elif self.placement.write(self.wanted, self.generation) and fate == "answered":
            self.outcome = True
            return
        self.generation = self.placement.generation
        merged = merge(self.rest, self.part, self.placement.allocations)
        self.merges += 1
        if merged is None or self.merges > MAX_MERGES:
            self.outcome = False
        else:
            self.wanted, self.rest = merged.allocations, merged.rest

    def arrive(self) -> None:
        """A write without an answer is carried out late, or refused."""
        if self.late:
            self.placement.write(*self.late.pop())

    def take_back(self) -> None:
        """Restore what was there before, if nobody has written since.

        A consumer that was new is removed when no write of ours can arrive any more, which would create it again: the
        claim stays in DELETING until then (``core/claims.py``).
        """
        if self.late and not self.rest:
            return
        if self.outcome and self.placement.allocations == plain_allocations(self.wanted):
            self.is_taken_back = self.placement.write(self.rest, self.placement.generation)


ADD = st.tuples(st.just("add"), st.sampled_from(["source-port", "target-port"]),
                st.sampled_from([BANDWIDTH, "FPGA"]), st.just(1))  # fmt: skip
SEND = st.tuples(st.just("send"), st.sampled_from(["answered", "answered", "answer lost", "late"]))
REMOVE, ARRIVE = st.tuples(st.just("remove"), st.integers(0, 1)), st.tuples(st.just("arrive"))
TAKE_BACK = st.tuples(st.just("take_back"))


@settings(max_examples=examples(300))
@example(
    SOURCE, TARGET, [("send", "answer lost"), ("add", "source-port", "FPGA", 1), ("send", "answered"), ("take_back",)]
)
@example({}, TARGET_WITH_PORT, [("send", "late"), ("send", "answered"), ("take_back",), ("arrive",)])
@example({}, TARGET_WITH_PORT, [("add", "target-port", BANDWIDTH, 1), ("send", "answered"), ("send", "answered")])
@given(
    st.sampled_from([{}, SOURCE | PORT]),
    st.sampled_from([TARGET_WITH_PORT, TARGET]),
    st.lists(st.one_of(ADD, ADD, SEND, SEND, SEND, REMOVE, ARRIVE, TAKE_BACK), min_size=3, max_size=10),
)
def test_no_other_allocation_is_lost_and_ours_exists_at_most_once(
    base: Amounts, part: Amounts, steps: list[tuple[Any, ...]]
) -> None:
    # given a server, a move of ours, and others who write as well
    placement = ModelPlacement(base)
    others, mover = Others(placement), Mover(placement, part)
    for name, *arguments in steps:
        # when one of them takes a step
        ended = mover.outcome is not None
        getattr(others if name in ("add", "remove") else mover, name)(*arguments)
        note(f"{name} {arguments}: {placement.allocations} at {placement.generation}")

        # then the consumer has what the others alone would have left there, and our part once or not at all
        alone = plain_allocations(others.theirs)
        both = plain_allocations(sum_amounts([alone, part]))
        assert placement.allocations in (alone, both)
        assert placement.allocations == alone or not mover.is_taken_back
        assert ended or not mover.outcome or placement.allocations == both

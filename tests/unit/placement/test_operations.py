# SPDX-License-Identifier: Apache-2.0
"""The table of operations equals the documentation and the behaviour of the scheduler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shared_scheduler.conf import opts
from shared_scheduler.core.effects import ConsumerPolicy, Fail, FailureCode, WriteAllocation
from shared_scheduler.core.events import WriteCode
from tests.support.operations import MERGED, OPERATIONS, OURS, Operation, Then, operation
from tests.unit.core.scheduler_driver import SchedulerDriver, of_kind, only, request

DOCUMENT = Path(__file__).parents[3] / "doc" / "source" / "contributor" / "allocation_writes.rst"


def documented() -> list[list[str]]:
    """The rows of the document's table, cut where its rulers say."""
    lines = DOCUMENT.read_text().splitlines()
    head = next(n for n, line in enumerate(lines) if line.startswith("operation "))
    ruler = lines[head - 1]
    assert lines[head + 1] == ruler
    starts = [n for n in range(len(ruler)) if ruler[n] == "=" and (n == 0 or ruler[n - 1] == " ")]
    ends = [*starts[1:], None]
    body = lines[head + 2 : lines.index(ruler, head + 2)]
    return [[line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in body]


def cells(one: Operation) -> list[str]:
    return [
        one.name, one.writer.value, one.sends, one.no_capacity.value, one.provider_conflict.value,
        one.consumer_conflict.value, one.own_attempt.value,
    ]  # fmt: skip


def test_the_document_shows_the_table_of_the_code() -> None:
    assert documented() == [cells(one) for one in OPERATIONS]


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_our_writes_never_overwrite_those_of_another_writer(one: Operation) -> None:
    assert one.policy is not None
    assert one.consumer_conflict is Then.FAILS
    assert one.sends == ("null" if one.policy is ConsumerPolicy.NEW else "as known")


def test_the_option_names_the_moves_of_the_table() -> None:
    (option,) = (one for one in opts.PLACEMENT if one.name == "merged_moves")
    assert sorted(option.type.item_type.choices) == sorted(one.merged_move for one in MERGED)
    assert option.default == []


@pytest.mark.parametrize("one", MERGED, ids=lambda one: one.name)
def test_a_merged_move_differs_only_after_a_consumer_conflict(one: Operation) -> None:
    plain = operation(one.name.removesuffix(", merged"))
    assert plain.consumer_conflict is Then.FAILS
    assert one == replace(plain, name=one.name, consumer_conflict=Then.MERGED, merged_move=one.merged_move)


def test_only_an_evacuation_expects_allocations() -> None:
    assert [one.name for one in OURS if one.policy is ConsumerPolicy.MERGE] == ["evacuate"]


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
@pytest.mark.parametrize("code", [WriteCode.NO_CAPACITY, WriteCode.PROVIDER_CONFLICT, WriteCode.CONSUMER_CONFLICT])
def test_the_core_follows_the_table(one: Operation, code: WriteCode) -> None:
    driver = SchedulerDriver().without_agents("node-1", "node-2")
    asked = request(merge_with_existing=one.policy is ConsumerPolicy.MERGE)
    write = only(WriteAllocation, driver.ask(asked))
    assert write.policy is one.policy
    effects = driver.written(write, code)
    if code is WriteCode.CONSUMER_CONFLICT:
        assert one.consumer_conflict is Then.FAILS
        assert only(Fail, effects).code is FailureCode.CONSUMER_CONFLICT
    else:
        assert one.no_capacity is Then.NEXT_HOST and one.provider_conflict is Then.RACE
        (again,) = of_kind(WriteAllocation, effects)
        assert set(again.allocations).isdisjoint(write.allocations)

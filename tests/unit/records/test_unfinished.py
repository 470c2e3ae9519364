# SPDX-License-Identifier: Apache-2.0
"""A scheduler that starts finds the builds that nobody has recorded the end of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.core.events import UnfinishedBuild
from shared_scheduler.records import unfinished as module
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import Store
from shared_scheduler.records.unfinished import AGE_MAX_S, OTHERS_AGE_MIN_S, unfinished

NOW_S = 1_760_000_000.0
ME, OTHER = "scheduler-a", "scheduler-b"


def placed(ago_s: float, *hosts: str, scheduler: str = ME, servers: tuple[str, ...] = ("server-1",)) -> dict[str, Any]:
    asked = {"instances": list(servers), "forms": [{"resources": {"VCPU": 1}}]}
    return {
        "kind": "decision", "at": NOW_S - ago_s, "scheduler": scheduler, "request_id": "req-1", "result": "placed",
        "instances": list(servers), "hosts": list(hosts), "asked": asked, "answer": [[host, "c9"] for host in hosts],
    }  # fmt: skip


def build(ago_s: float, host: str, result: str, server: str = "server-1") -> dict[str, Any]:
    return {
        "kind": "build", "at": NOW_S - ago_s, "scheduler": OTHER, "request_id": "req-1", "result": result,
        "instances": [server], "hosts": [host],
    }  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = JsonLines(tmp_path / "records.jsonl")
    yield opened
    opened.close()


def test_a_server_without_an_end_is_taken_up(store: Store) -> None:
    store.write([placed(20, "c1", "c2", servers=("server-1", "server-2")), build(10, "c2", "active", "server-2")])

    assert unfinished(store, ME, NOW_S) == (UnfinishedBuild("server-1", "c1", 20.0),)


def test_a_failed_build_is_no_end_and_is_not_recorded_again(store: Store) -> None:
    store.write([placed(20, "c1"), build(10, "c1", "failed"), build(5, "c9", "failed")])

    assert unfinished(store, ME, NOW_S) == (UnfinishedBuild("server-1", "c1", 20.0, frozenset({"c1", "c9"})),)


def test_the_end_of_an_earlier_placement_is_no_end_of_the_newest(store: Store) -> None:
    store.write([placed(50, "c1"), build(40, "c1", "active"), placed(20, "c2")])

    assert unfinished(store, ME, NOW_S) == (UnfinishedBuild("server-1", "c2", 20.0),)


def test_an_end_with_the_whole_second_in_which_the_server_was_placed_is_its_end(store: Store) -> None:
    store.write([placed(20.0, "c1"), build(20.9, "c1", "active")])

    assert unfinished(store, ME, NOW_S) == ()


def test_the_builds_of_another_scheduler_are_taken_up_when_it_would_have_read_them(store: Store) -> None:
    store.write([
        placed(OTHERS_AGE_MIN_S + 10, "c1", scheduler=OTHER, servers=("old",)),
        placed(OTHERS_AGE_MIN_S - 10, "c1", scheduler=OTHER, servers=("new",)),
    ])  # fmt: skip

    assert [one.server for one in unfinished(store, ME, NOW_S)] == ["old"]


def test_what_is_too_old_or_claimed_nothing_is_left(store: Store) -> None:
    nothing = placed(20, "c1", servers=("server-2",))
    nothing["asked"]["forms"] = []
    store.write([placed(AGE_MAX_S + 1, "c1"), nothing])

    assert unfinished(store, ME, NOW_S) == ()


def test_a_placement_is_left_if_its_end_may_be_older_than_what_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_MAX", 2)
    store.write([
        placed(50, "c1", servers=("a",)), placed(45, "c1", servers=("b",)), build(40, "c1", "active", "b"),
        build(35, "c1", "active", "c"), placed(30, "c2", servers=("d",)), build(25, "c1", "active", "e"),
    ])  # fmt: skip

    assert [one.server for one in unfinished(store, ME, NOW_S)] == ["d"]

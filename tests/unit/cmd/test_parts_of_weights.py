# SPDX-License-Identifier: Apache-2.0
"""``why-not`` and ``story`` tell which weigher has given a host which part of its weight."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.decision.record import DecisionCounts, Weighed
from shared_scheduler.records import entries
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import Record
from tests.unit.records.test_entries import record

Told = Callable[..., str]
RAM, IO = "RAMWeigher", "IoOpsWeigher"
STATE = "(state at epoch 3, sequence 1)"


Best = tuple[str, float, dict[str, float]]


def decided(*best: Best, chosen: Best | None = None) -> dict[str, Any]:
    """The record of a decision of nine hosts."""
    weighed = tuple(map(_weighed, best))
    counts = DecisionCounts(0, 9, 9, {}, weighed, None if chosen is None else _weighed(chosen))
    found = record(("server-1",), decisions=(counts,), attempts=(), answer=())
    return entries.entry(found, "sched1", 1_760_000_000.0)


def _weighed(one: Best) -> Weighed:
    host, weight, shares = one
    return Weighed("n", host, weight, 3, 1, shares)


@pytest.fixture
def first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """The first fact of an answer about the only record."""

    def ask(found: Record, *words: str) -> str:
        JsonLines(tmp_path / "r").write([found])
        assert manage.main([*words, "--format", "json", "--records", str(tmp_path / "r")]) == 0
        return str(json.loads(capsys.readouterr().out)[0]["text"])

    return ask


APART = decided(("c1", 1.5, {RAM: 1.0, IO: 0.5}), ("c2", 0.75, {RAM: 1.0, IO: -0.25}))
ALIKE = decided(("c1", 1.5, {RAM: 1.0, IO: 0.5}), ("c2", 1.5, {RAM: 0.5, IO: 1.0}), ("c3", 1.0, {RAM: 1.0, IO: -0.0}))


@pytest.mark.parametrize(("found", "host", "told"), [
    (APART, "c1", f"passed, number 1 by weight 1.5 = RAMWeigher 1 + IoOpsWeigher 0.5 {STATE}"),
    (APART, "c2", f"passed, number 2 by weight 0.75 = RAMWeigher 1 + IoOpsWeigher -0.25 {STATE}; "
                  "c1 was the first with 1.5 = RAMWeigher 1 + IoOpsWeigher 0.5"),
    (ALIKE, "c2", f"passed, one of the best 2, by weight 1.5 = RAMWeigher 0.5 + IoOpsWeigher 1 {STATE}"),
    (ALIKE, "c3", f"passed, number 3 by weight 1 = RAMWeigher 1 + IoOpsWeigher 0 {STATE}; "
                  "c1 was the first with 1.5 = RAMWeigher 1 + IoOpsWeigher 0.5"),
])  # fmt: skip
def test_a_host_that_passed_has_the_parts_of_its_weight(first: Told, found: Record, host: str, told: str) -> None:
    assert first(found, "why-not", "server-1", host) == told


def test_the_story_of_a_host_has_them_too(first: Told) -> None:
    selected = {**APART, "hosts": ["c1"], "answer": [["c1"]]}

    told = f"passed, number 1 by weight 1.5 = RAMWeigher 1 + IoOpsWeigher 0.5 {STATE}"
    assert first(selected, "story", "c1") == told


def test_a_record_without_parts_has_the_weight_alone(first: Told) -> None:
    older = decided(("c1", 1.5, {}), ("c2", 1.25, {}))
    for counts in older["decisions"]:
        for one in counts["best"]:
            del one["shares"]

    assert first(older, "why-not", "server-1", "c2") == (
        f"passed, number 2 by weight 1.25 {STATE}; c1 was the first with 1.5"
    )


CHOSEN = decided(("c1", 1.5, {RAM: 1.0, IO: 0.5}), chosen=("c9", 1.45, {RAM: 1.0, IO: 0.45}))


def test_a_chosen_host_that_is_none_of_the_best_has_its_weight_too(first: Told) -> None:
    assert first(CHOSEN, "why-not", "server-1", "c9") == (
        f"passed and was chosen, by weight 1.45 = RAMWeigher 1 + IoOpsWeigher 0.45 {STATE}; "
        "c1 was the first with 1.5 = RAMWeigher 1 + IoOpsWeigher 0.5"
    )


def test_a_chosen_host_that_weighs_as_much_as_the_best_is_not_ranked_behind_them(first: Told) -> None:
    alike = decided(("c1", 1.5, {RAM: 1.0, IO: 0.5}), chosen=("c9", 1.5, {RAM: 0.5, IO: 1.0}))

    assert first(alike, "why-not", "server-1", "c9") == (
        f"passed and was chosen, by weight 1.5 = RAMWeigher 0.5 + IoOpsWeigher 1 {STATE}"
    )


def test_why_tells_it_behind_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    JsonLines(tmp_path / "r").write([CHOSEN])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    assert "c1 1.5 = RAMWeigher 1 + IoOpsWeigher 0.5; chosen: c9 1.45 = RAMWeigher 1 + IoOpsWeigher 0.45\n" in out
    assert "Behind chosen stands the host that was chosen" in " ".join(out.split())


def test_a_record_has_no_chosen_host_beside_the_best() -> None:
    assert "chosen" not in APART["decisions"][0]


def test_the_words_of_the_line_are_defined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    JsonLines(tmp_path / "r").write([ALIKE])

    assert manage.main(["why-not", "server-1", "c1", "--records", str(tmp_path / "r")]) == 0
    assert "Each weigher of Nova adds its part." in " ".join(capsys.readouterr().out.split())

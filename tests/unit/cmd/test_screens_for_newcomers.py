# SPDX-License-Identifier: Apache-2.0
"""Whoever has never seen this scheduler finds each word of a screen defined below it, and each fact told once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.core.effects import NodeChange, RecordBuild, RecordNode
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.decision.record import Attempt, DecisionCounts, Weighed
from shared_scheduler.records import entries
from shared_scheduler.records.askers import NOBODY
from shared_scheduler.records.json_lines import JsonLines
from tests.unit.cmd.test_questions_to_records import build, stored
from tests.unit.records.test_entries import record

BEGIN_S = 1_760_000_000.0
FILTER = "ServerGroupAntiAffinityFilter"
MEMBERS = {"filter": FILTER, "members_on_host": ["server-1"], "max_server_per_host": 1}


def placed(server: str, sequence: int, at_s: float, *hosts: str) -> dict[str, Any]:
    """A decision on this sequence of the state of its hosts."""
    best = tuple(Weighed(f"n-{host}", host, 1.5, 3, sequence) for host in hosts)
    written = Attempt(server, f"n-{hosts[0]}", hosts[0], "written", {}, 3, sequence, 2.5, 8.0)
    decided = record((server,), attempts=(written,), answer=(hosts,), decisions=(DecisionCounts(0, 2, 2, {}, best),))
    return entries.entry(decided, "sched1", at_s)


def rejected_by_filters() -> dict[str, Any]:
    """Of three hosts that a filter of Nova rejected, the record has the numbers of two."""
    tries = tuple(Attempt("server-5", f"n{n}", f"c{n}", "filter", {"filter": FILTER}) for n in range(3))
    near = entries.Near([ExplainedHost(f"n{n}", f"c{n}", "filter", MEMBERS, epoch=3, sequence=4) for n in range(2)])
    failed = record(("server-5",), failure="no_valid_host", text="0 of 3 hosts pass", answer=(), attempts=tries,
                    decisions=(DecisionCounts(0, 3, 0, {FILTER: 3}),))  # fmt: skip
    return entries.entry(failed, "sched1", BEGIN_S, near)


def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], records: list[Any], *question: str) -> str:
    JsonLines(tmp_path / "r").write(records)
    assert manage.main([question[0], "--records", str(tmp_path / "r"), *question[1:]]) == 0
    return capsys.readouterr().out


def defined(screen: str) -> set[str]:
    """The words that the end of a screen defines."""
    lines = screen.partition("\nWords:\n")[2].splitlines()
    return {line.strip().partition("  ")[0] for line in lines if line[2:3].strip()}


@pytest.mark.parametrize(("question", "rejections"), [
    (("why", "server-5"), {"c0": 1, "c1": 1, "c2": 1}),
    (("story", "c0"), {"server-5": 1}),
    (("why-not", "server-5", "c1"), {"rejected: ": 1}),
])  # fmt: skip
def test_the_rejection_of_a_host_by_a_filter_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], question: tuple[str, ...], rejections: dict[str, int]
) -> None:
    screen = shown(tmp_path, capsys, [rejected_by_filters()], *question).partition("\nWords:")[0]

    told = [line for line in screen.splitlines() if FILTER in line and "hosts pass" not in line]
    assert {name: sum(name in line for line in told) for name in rejections} == rejections
    assert all("members_on_host server-1" in line for line in told if " c2: " not in line)
    assert "tried: " not in screen, "no claim was sent"


def test_what_limits_every_request_limits_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given a request of a server group, which has a hint, and the trait that a filter adds to all requests
    entry = placed("server-1", 4, BEGIN_S, "c1")
    forms = [{"resources": {"VCPU": 1}, "root_required": ["OWNER_NOVA"]}]
    entry["asked"] |= {"forms": forms, "group": ["group-1", "affinity"], "hints": ["group"]}

    screen = shown(tmp_path, capsys, [entry], "why", "server-1")

    assert [line.split() for line in screen.splitlines() if "limited" in line] == [
        ["limited", "group", "affinity", "group-1"]
    ]


@pytest.mark.parametrize(("question", "words"), [
    (("why", "server-1"), {"agent", "claim", "written", "weights", "alternates"}),
    (("why-not", "server-1", "c1"), {"agent", "claim", "written", "weights", "selected"}),
    (("why-not", "server-1", "c2"), {"agent", "weights", "alternates"}),
    (("story", "c1"), {"agent", "claim", "written", "weights", "selected", "snapshot", "increment", "resync"}),
])  # fmt: skip
def test_each_word_of_a_screen_is_defined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], question: tuple[str, ...], words: set[str]
) -> None:
    begun = entries.node_entry(RecordNode("c1", NodeChange.SNAPSHOT, 3, 1, 0, cause=""), "sched1", BEGIN_S)
    asked = entries.node_entry(RecordNode("c1", NodeChange.RESYNC, 3, 4, 3, cause=""), "sched1", BEGIN_S + 3)
    built = entries.build_entry(RecordBuild("n", "c1", "server-1", True, "", cause=""), NOBODY, "sched1", BEGIN_S + 2)

    screen = shown(tmp_path, capsys, [begun, placed("server-1", 2, BEGIN_S + 1, "c1", "c2"), built, asked], *question)

    assert words - defined(screen) == set()


def test_the_story_of_a_host_has_the_increments_between_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given decisions on states of a host, one of a scheduler that was behind, and a new run of its agent
    begun = entries.node_entry(RecordNode("c1", NodeChange.SNAPSHOT, 3, 1, 0, cause=""), "sched1", BEGIN_S)
    again = entries.node_entry(RecordNode("c1", NodeChange.SNAPSHOT, 4, 2, 0, cause=""), "sched1", BEGIN_S + 9)
    sequences = (2, 7, 5, 8)
    decisions = [placed(f"s-{n}", sequence, BEGIN_S + 1 + n, "c1") for n, sequence in enumerate(sequences)]

    screen = shown(tmp_path, capsys, [begun, *decisions, again], "story", "c1", "--format", "json")

    texts = [one["text"] for one in json.loads(screen)]
    assert [text for text in texts if "increment" in text] == [
        "its agent had sent increment 2", "its agent had sent increments 3 to 7", "its agent had sent increment 8",
    ]  # fmt: skip
    assert texts[1].startswith("its agent had sent") and texts[2].startswith("passed, "), (
        "before what follows from them"
    )


def test_a_host_that_passed_alone_has_no_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = (Weighed("n", "c3", 0.0, 3, 1),)
    found = record(
        ("server-1",), decisions=(DecisionCounts(0, 3, 1, {"no_room:VCPU": 2}, best),), attempts=(), answer=()
    )
    JsonLines(tmp_path / "r").write([entries.entry(found, "sched1", BEGIN_S)])

    manage.main(["why", "server-1", "--records", str(tmp_path / "r")])
    assert "  weights   only c3 passed, so it was not weighed" in capsys.readouterr().out.splitlines()
    manage.main(["why-not", "server-1", "c3", "--records", str(tmp_path / "r")])
    assert "passed, as the only one (state at epoch 3, sequence 1)" in capsys.readouterr().out


@pytest.mark.parametrize(("second", "told"), [("no address", True), ("no disk", False)])
def test_builds_that_failed_for_one_reason_point_to_what_the_hosts_share(
    second: str, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [build("c1", BEGIN_S + 1, reason="no address"), build("c2", BEGIN_S + 2, reason=second)]
    JsonLines(tmp_path / "r").write([stored()[0], *ends])

    manage.main(["why", "server-1", "--records", str(tmp_path / "r")])
    assert ("  next      each build failed for the same reason: " in capsys.readouterr().out) == told

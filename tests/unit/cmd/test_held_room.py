# SPDX-License-Identifier: Apache-2.0
"""``why``, ``why-not`` and ``story`` tell who held the room of a host that refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers.held_room import held_text
from shared_scheduler.answers.schema import schemas
from shared_scheduler.cmd import manage
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.decision.record import Attempt
from shared_scheduler.records import entries
from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import RecordWriter
from tests.unit.records.test_entries import record

FULL = {"provider": "n1", "resource_class": "VCPU", "asked": 1, "used": 8, "capacity": 8}
HELD: dict[str, Any] = {
    "servers": 3, "pending": 1, "amounts": {"VCPU": 8}, "epoch": 3, "sequence": 42,
    "largest": [{"server": "winner", "amounts": {"VCPU": 4}, "pending": True},
                {"server": "older", "amounts": {"VCPU": 3}, "pending": False}],
}  # fmt: skip
TOLD = "by 3 servers (VCPU 8): winner (VCPU 4, project acme, claim pending), older (VCPU 3) and 1 more; 1 claim pending"

Ask = Callable[..., tuple[int, str, str]]


def stored() -> list[dict[str, Any]]:
    """Another project's server has taken the last room of c1 at the same moment."""
    asked = {**record(("winner",)).asked, "project_id": "acme"}
    winner = record(("winner",), request_id="req-winner", asked=asked)
    refused = Attempt("loser", "n1", "c1", "no_capacity", FULL, 3, 41, 2.5, held=HELD)
    loser = record(("loser",), request_id="req-loser", failure="no_valid_host", text="none took it", answer=(),
                   attempts=(refused,))  # fmt: skip
    late = record(("late",), request_id="req-late", failure="no_valid_host", text="0 of 1 hosts pass", answer=())
    full = ExplainedHost("n1", "c1", "no_room:VCPU", {name: FULL[name] for name in ("asked", "used", "capacity")})
    return [
        entries.entry(winner, "sched1", 1_760_000_000.0),
        entries.entry(loser, "sched2", 1_760_000_000.5),
        entries.entry(late, "sched2", 1_760_000_001.0, entries.Near([full], held={"n1": HELD})),
    ]


@pytest.fixture(params=["file", "database"])
def ask(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Asks about ``stored``: exit code, output, errors."""
    place = str(tmp_path / "r") if request.param == "file" else f"sqlite:///{tmp_path}/records.sqlite"
    store: RecordWriter = JsonLines(Path(place)) if request.param == "file" else RecordTable(place)
    store.write(stored())
    store.close()

    def answer(*arguments: str) -> tuple[int, str, str]:
        return manage.main([*arguments, "--records", place]), *capsys.readouterr()

    return answer


def test_why_names_the_servers_that_held_the_room_and_their_projects(ask: Ask) -> None:
    code, out, _ = ask("why", "loser")

    lines = out.splitlines()
    refusal = lines.index("  tried     c1: no_capacity (resource_class VCPU, asked 1, used 8, capacity 8); "
                          "verdict 2.5 ms")  # fmt: skip
    assert (code, lines[refusal + 1]) == (0, f"  held      c1: {TOLD}")
    assert any(line.startswith("  held  ") for line in lines[lines.index("Words:") :]), "the word is defined"


def test_why_names_who_holds_the_room_of_a_host_that_was_rejected(ask: Ask) -> None:
    code, out, _ = ask("why", "late")

    lines = out.splitlines()
    [number] = [number for number, line in enumerate(lines) if line.startswith("  host      c1: no_room:VCPU (asked 1")]
    assert (code, lines[number + 1]) == (0, f"  held      c1: {TOLD}")
    assert any(line.startswith("  held  ") for line in lines[lines.index("Words:") :]), "the word is defined"


@pytest.mark.parametrize("question", [("why-not", "loser", "c1"), ("why-not", "late", "c1"), ("story", "c1")])
def test_the_questions_about_a_host_tell_it_too(ask: Ask, question: tuple[str, ...]) -> None:
    _, out, _ = ask(*question, "--format", "json")

    found = json.loads(out)
    Draft202012Validator(schemas()[question[0]]).validate(found)
    assert f"held {TOLD}" in [one["text"] for one in found]


def test_programs_get_the_same_with_the_project(ask: Ask) -> None:
    _, out, _ = ask("why", "loser", "--format", "json")

    story = json.loads(out)
    Draft202012Validator(schemas()["why"]).validate(story)
    [attempt] = story["records"][0]["attempts"]
    assert [one.get("project_id") for one in attempt["held"]["largest"]] == ["acme", None]
    assert {**attempt["held"], "largest": HELD["largest"]} == HELD


def test_a_server_without_a_refusal_for_lack_of_room_has_no_such_line(ask: Ask) -> None:
    _, out, _ = ask("why", "winner")
    assert "  held " not in out


@pytest.mark.parametrize(("change", "told"), [
    ({"servers": 0, "largest": []}, "by no server that the scheduler knew of"),
    ({"servers": 1, "pending": 0, "amounts": {"VCPU": 5}, "largest": HELD["largest"][1:]},
     "by 1 server (VCPU 5): older (VCPU 3); VCPU 3 more by servers that the scheduler did not know of"),
    ({"servers": 2, "pending": 2}, "by 2 servers (VCPU 8): winner (VCPU 4, claim pending) and older (VCPU 3); "
                                   "2 claims pending"),
])  # fmt: skip
def test_what_is_not_known_is_said(change: dict[str, Any], told: str) -> None:
    assert held_text({"detail": FULL, "held": {**HELD, **change}}) == told


@pytest.mark.parametrize("held", [None, {}, {"servers": 2}, {"largest": [{}], "servers": 1}])
def test_a_record_of_another_release_is_no_obstacle(held: Any) -> None:
    assert isinstance(held_text({"detail": {}, "held": held}), str)

# SPDX-License-Identifier: Apache-2.0
"""Of a request for several servers, each line names the server that it is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.decision.record import Attempt, DecisionCounts, Weighed
from shared_scheduler.page.queries import PageQuestions
from shared_scheduler.page.views import Views
from shared_scheduler.records import entries
from shared_scheduler.records.json_lines import JsonLines
from tests.unit.records.test_entries import record

FIRST, SECOND = "5cbf52ed-2d8d-456b-a05a-3418922fe579", "b7458e95-2a2b-4a2c-a8b8-4accde107716"
ALIKE = ("76ffabd2-2feb-4091-9feb-13e0616bfa82", "76ffabd2-8feb-4091-9feb-13e0616bfa82")
AT_S = 1_760_000_000.0


def placed(*servers: str) -> dict[str, Any]:
    """The first one is refused by c9; each is written to a host of its own."""
    best = (Weighed("n1", "c1", 1.5, 3, 7), Weighed("n2", "c2", 1.25, 3, 7))
    decided = tuple(DecisionCounts(index, 3, 2, {"no_room:VCPU": 1}, best) for index, _ in enumerate(servers))
    tries = [Attempt(servers[0], "n9", "c9", "no_capacity", {}, 3, 7, 1.5, after_decisions=1)]
    tries += [Attempt(server, f"n{place}", f"c{place}", "written", {}, 3, 7, 1.5, 8.0, after_decisions=place)
              for place, server in enumerate(servers, 1)]  # fmt: skip
    answer = tuple((f"c{place}", "c7") for place, _ in enumerate(servers, 1))
    made = record(servers, decisions=decided, attempts=tuple(tries), answer=answer)
    return entries.entry(made, "sched1", AT_S)


def failed() -> dict[str, Any]:
    """The first one had a host, the second one found none and was refused."""
    decided = (DecisionCounts(0, 2, 1, {}), DecisionCounts(1, 2, 1, {}), DecisionCounts(1, 2, 0, {"no_room:VCPU": 2}))
    tries = (Attempt(SECOND, "n9", "c9", "no_capacity", {}, 3, 7, 1.5, after_decisions=2),)
    made = record((FIRST, SECOND), decisions=decided, attempts=tries, answer=(), failure="no_valid_host",
                  text="0 of 2 hosts pass")  # fmt: skip
    return entries.entry(made, "sched1", AT_S)


class Asked:
    """The commands and the page, of some records."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys = path, capsys

    def __call__(self, *question: str) -> str:
        assert manage.main([question[0], "--records", str(self.path), *question[1:]]) == 0
        return self._capsys.readouterr().out

    def lines(self, *question: str) -> list[str]:
        return self(*question).partition("\n\nWords:")[0].splitlines()


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    JsonLines(tmp_path / "r").write([placed(FIRST, SECOND)])
    return Asked(tmp_path / "r", capsys)


def test_why_names_the_server_of_each_line(asked: Asked) -> None:
    lines = asked.lines("why", "req-7")

    named = [line.split()[:4] for line in lines if line[2:9] in ("decided", "tried  ")]
    assert named == [
        ["decided", "5cbf52ed:", "2", "of"], ["tried", "5cbf52ed", "on", "c9:"], ["tried", "5cbf52ed", "on", "c1:"],
        ["decided", "b7458e95:", "2", "of"], ["tried", "b7458e95", "on", "c2:"],
    ]  # fmt: skip


def test_a_server_alone_is_not_named_in_each_line(asked: Asked) -> None:
    JsonLines(asked.path).write([{**placed(FIRST), "request_id": "req-8"}])

    assert "  tried     c9: no_capacity; verdict 1.5 ms" in asked.lines("why", "req-8")
    assert any(line.startswith("  decided   2 of 3 hosts passed") for line in asked.lines("why", "req-8"))


def test_servers_whose_names_begin_alike_are_named_whole(asked: Asked) -> None:
    JsonLines(asked.path).write([{**placed(*ALIKE), "request_id": "req-8"}])

    tried = [line.split()[1] for line in asked.lines("why", "req-8") if line.startswith("  tried ")]
    assert tried == [ALIKE[0], *ALIKE]


def test_a_cause_names_the_server_without_a_host(asked: Asked) -> None:
    JsonLines(asked.path).write([{**failed(), "request_id": "req-8"}])

    assert asked.lines("why", "req-8")[1] == (
        "  cause     1 of 2 servers had a host when server 2, b7458e95, found none, and a request places all or none: "
        "0 of 2 hosts pass; tried: c9 no_capacity for b7458e95; rejected: 2 no_room:VCPU"
    )


def test_why_not_names_the_server_of_each_fact(asked: Asked) -> None:
    lines = asked.lines("why-not", "req-7", "c1")

    facts = [line.partition("Z  ")[2] for line in lines[1:]]
    assert [fact.partition(" (")[0] for fact in facts] == [
        "5cbf52ed: passed, number 1 by weight 1.5", "5cbf52ed: tried: written",
        "b7458e95: passed, number 1 by weight 1.5", "5cbf52ed: selected",
    ]  # fmt: skip
    assert any("  req-7, 5cbf52ed: selected" in line for line in asked.lines("why-not", SECOND, "c1"))


def test_the_answer_of_why_not_as_json_has_whole_uuids(asked: Asked) -> None:
    told = json.loads(asked("why-not", "req-7", "c1", "--format", "json"))

    assert [one["instance"] for one in told] == [FIRST, FIRST, SECOND, FIRST]


def test_a_story_names_the_server_of_each_line(asked: Asked) -> None:
    found = json.loads(asked("story", "c2", "--format", "json"))
    assert [(one["instances"], one["text"].partition(" ")[0]) for one in found] == [
        ([FIRST], "passed,"),
        ([SECOND], "passed,"),
        ([SECOND], "tried:"),
        ([SECOND], "selected"),
    ]
    assert [line.split()[3] for line in asked.lines("story", "c2")[1:]] == [FIRST, SECOND, SECOND, SECOND]


def test_records_name_the_servers_of_each_host(asked: Asked) -> None:
    assert "  c1 for 5cbf52ed, c2 for b7458e95 (refused: c9 for 5cbf52ed)" in asked.lines("records", "last", "1")[1]


def test_many_servers_of_a_host_are_counted(asked: Asked) -> None:
    servers = tuple(f"{number:08}-server" for number in range(5))
    JsonLines(asked.path).write([{**placed(*servers), "answer": [["c1"]] * 5, "attempts": []}])

    assert "  c1 for 00000000, 00000001, 00000002 and 2 more" in asked.lines("records", "last", "1")[1]


def test_the_page_names_them_too(asked: Asked) -> None:
    views = Views(PageQuestions(JsonLines(asked.path), asked.path.parent, lambda: AT_S))

    story = views.pages["/why"]({"id": "req-7", "host": "c1"})
    assert "<caption>b7458e95: 2 of 3 hosts passed" in story
    assert '<tr><td>b7458e95</td><th scope="row"><a href="/host?host=c2">' in story
    assert "<p>b7458e95: selected " in story
    assert f'<span><a class="id" href="/why?id={FIRST}">{FIRST}</a>: tried: written</span>' in story
    host = views.pages["/host"]({"host": "c2"})
    assert f'href="/why?id={SECOND}"' in host and "and 1 more" not in host

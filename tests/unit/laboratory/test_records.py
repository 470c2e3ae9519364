# SPDX-License-Identifier: Apache-2.0
"""``tools/lab records`` asks every question that operators may ask, and gets an answer to each."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shared_scheduler.answers import from_schedulers
from shared_scheduler.cmd import manage
from shared_scheduler.page.queries import PageQuestions
from shared_scheduler.page.views import Views
from shared_scheduler.records.json_lines import JsonLines
from tools.laboratory import command as laboratory
from tools.laboratory.records import command, made_records
from tools.laboratory.records.live_scheduler import LiveScheduler
from tools.laboratory.records.page_views import Page, views

RECORDS, HOSTS = 200, 40


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = tmp_path / "records.jsonl"
    JsonLines(path).write(list(islice(made_records.made(RECORDS, time.time() - 100.0), RECORDS)))
    return str(path)


def test_every_view_of_the_page_and_every_question_of_its_json_is_measured(tmp_path: Path) -> None:
    questions = PageQuestions(JsonLines(tmp_path / "r"), None, time.time)

    asked = {urlsplit(path).path for path in views(RECORDS).values()}

    assert asked == {*Views(questions).pages, "/find", "/api/schema", *(f"/api/{name}" for name in questions.names)}


def test_each_command_that_asks_records_or_a_scheduler_is_measured(tmp_path: Path) -> None:
    asked = [*command.of_scheduler().values(), *command.questions(RECORDS, 0.0, tmp_path).values()]

    assert {"why", "why-not", "records", "story", "fit", "top", "status"} == {one[0] for one in asked}
    assert [one for one in asked if one[0] == "why-not" and "--socket-dir" in one], "what a scheduler answers now"


def test_the_scheduler_answers_each_question_from_its_table(place: str, capsys: pytest.CaptureFixture[str],
                                                            tmp_path: Path) -> None:  # fmt: skip
    with LiveScheduler(tmp_path, HOSTS):
        codes = {
            what: manage.main([*one, "--socket-dir", str(tmp_path)]) for what, one in command.of_scheduler().items()
        }
        assert manage.main(["why-not", made_records.server(1), made_records.host(0), "--records", place,
                            "--socket-dir", str(tmp_path)]) == 0  # fmt: skip
        assert len(from_schedulers.fleet(tmp_path)["hosts"]) == HOSTS

    out = capsys.readouterr().out
    assert {what for what, code in codes.items() if code} == {"fit: too large for all hosts"}
    assert f"40 of 40 servers fit (scheduler controller-1, {HOSTS} hosts)" in out
    assert f"0 of {HOSTS} hosts pass; rejected: {HOSTS} no_room:MEMORY_MB" in out
    assert "now, scheduler controller-1: passes, weight " in out


def test_each_view_of_the_page_is_shown(place: str, tmp_path: Path) -> None:
    with LiveScheduler(tmp_path, HOSTS), Page(place, tmp_path) as page:
        assert all(page.took(path)[0] > 0 for path in views(RECORDS).values())


def test_a_directory_of_the_stores_that_does_not_exist_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert laboratory.run("records", ["--records", "1", "--directory", str(tmp_path / "none")]) == 1

    (error,) = capsys.readouterr().err.splitlines()
    assert error == f"tools/lab records: {tmp_path / 'none'} is not a directory; create it, or omit --directory"

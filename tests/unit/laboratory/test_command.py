# SPDX-License-Identifier: Apache-2.0
"""`tools/lab` and its subcommands explain themselves and fail in one line."""

from __future__ import annotations

import importlib
import json
import shlex
import socket
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from tools.laboratory import ROOT, command
from tools.laboratory.errors import LabError
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, Table, rows_report, write_page

ROOMS = {name: importlib.import_module(f"tools.laboratory.{name}.command") for name in command.SUBCOMMANDS}
TABLE = Table(["fault", "healed s"], [["a cut, and more", "1.5"], ["", "12.0"]], "Faults")


@pytest.mark.parametrize("name", ROOMS)
def test_every_manual_has_its_parts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        command.main([name, "--help"])

    text = capsys.readouterr().out
    assert ending.value.code == 0
    for part in ("needs:", "how long it takes:", "examples:", "exit codes:"):
        assert f"\n{part}\n  " in text


@pytest.mark.parametrize("name", ROOMS)
def test_every_example_of_a_manual_can_be_run(name: str) -> None:
    manual: Manual = ROOMS[name].MANUAL
    for example, _ in manual.examples:
        tool, subcommand, *arguments = shlex.split(example)
        assert (tool, subcommand) == ("tools/lab", name)
        asked: Namespace = ROOMS[name].parser().parse_args(arguments)
        assert asked.format in ("text", "json", "rst")


def test_without_a_subcommand_the_command_line_makes_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["nosuch"]):
        with pytest.raises(SystemExit) as ending:
            command.main(arguments)
        assert ending.value.code == 2
    assert "invalid choice: 'nosuch'" in capsys.readouterr().err


def test_the_manual_of_all_names_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    text = capsys.readouterr().out
    assert all(f"\n    {name} " in text for name in ROOMS)


@pytest.mark.parametrize("linked", command.LINKS)
def test_every_old_name_is_a_link_to_the_one_command(linked: str) -> None:
    link = Path(__file__).resolve().parents[3] / "tools" / linked
    assert link.is_symlink() and link.readlink() == Path("lab")


class Room:
    """A subcommand that ends as the test requires."""

    def __init__(self, ending: Report | BaseException) -> None:
        self._ending = ending

    def parser(self) -> ArgumentParser:
        return ROOMS["fire"].parser()  # type: ignore[no-any-return]

    def run(self, asked: Namespace, progress: ProgressLine) -> Report:
        if isinstance(self._ending, BaseException):
            raise self._ending
        return self._ending


@pytest.mark.parametrize(
    ("ending", "code", "error"),
    [
        (Report({"found": 1}, ["found: 1"]), 0, ""),
        (Report({"found": 1}, ["found: 1"], wrong=True), 1, ""),
        (LabError("no broker; run tools/install"), 1, "tools/lab fire: no broker; run tools/install\n"),
        (KeyboardInterrupt(), 130, "tools/lab fire: interrupted\n"),
    ],
)
def test_how_a_subcommand_ends_is_its_exit_code(
    ending: Report | BaseException, code: int, error: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(importlib, "import_module", lambda name: Room(ending))

    assert command.main(["fire"]) == code

    assert capsys.readouterr() == ("found: 1\n" if isinstance(ending, Report) else "", error)


def test_a_report_is_text_json_and_restructured_text() -> None:
    report = Report({"faults": 2}, ["Two [faults].", TABLE])

    lines = [line.rstrip() for line in report.text("text").splitlines()]
    assert lines == ["Two [faults].", "Faults", "fault            healed s", "a cut, and more       1.5",
                     "                     12.0"]  # fmt: skip
    assert json.loads(report.text("json")) == {"faults": 2}
    table = "Faults\n------\n\n.. list-table::\n   :header-rows: 1\n\n   * - fault\n     - healed s\n"
    assert table in report.text("rst")


def test_a_line_is_never_broken_without_a_terminal() -> None:
    long = "x" * 500
    assert Report([], [long, Table(["a", "b"], [[long, long]])]).text("text").count(long) == 3


def test_plain_rows_are_a_table_and_plain_fields_lines() -> None:
    assert rows_report([{"name": "c1", "pid": None}]).parts == [Table(["name", "pid"], [["c1", ""]], left=range(2))]
    assert rows_report({"cpu_s": 1.5, "killed": []}).parts == ["cpu s: 1.5", "killed: none"]
    assert rows_report([["a", 1]]).parts == ["a\t1"]
    assert rows_report(None).parts == []


def test_a_page_keeps_what_is_above_its_mark(tmp_path: Path) -> None:
    page = tmp_path / "page.rst"
    page.write_text("By hand.\n\n.. mark\n\nold tables\n")

    write_page(page, ".. mark", "new tables\n")

    assert page.read_text() == "By hand.\n\n.. mark\n\nnew tables\n"
    with pytest.raises(LabError, match="no line"):
        write_page(page, ".. other mark", "")
    with pytest.raises(LabError, match="No such file"):
        write_page(tmp_path / "none.rst", ".. mark", "")


@pytest.mark.parametrize("name", ROOMS)
def test_a_command_does_not_import_modules_of_its_processes(name: str) -> None:
    code = f"import sys, tools.laboratory.{name}.command; sys.exit('nova' in sys.modules or 'eventlet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_file_without_results_of_the_benchmark_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"format": 0}')
    assert command.main(["bench", "--show", str(other)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"tools/lab bench: {other}: no results of this benchmark ('format 0, wanted 1')\n"


def test_a_query_that_the_database_does_not_answer_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a cloud that is stopped: its port is taken, and nobody listens there
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        identity = {"ports": {"mariadb": taken.getsockname()[1]}, "mark": "m"}
        (tmp_path / "identity.json").write_text(json.dumps(identity))
        ending = command.main(["cloud", "sql", "--data", str(tmp_path), "nova_api", "SELECT 1"])

    # then the error of the database is told, and no traceback
    assert ending == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("tools/lab cloud: sql: nova_api: 2003: Can't connect")


def test_a_query_without_a_cloud_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["cloud", "sql", "--data", str(tmp_path), "nova_api", "SELECT 1"]) == 1

    [line] = capsys.readouterr().err.splitlines()
    assert line == f"tools/lab cloud: sql: there is no cloud in {tmp_path}; `tools/lab cloud up` makes one"

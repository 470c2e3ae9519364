# SPDX-License-Identifier: Apache-2.0
"""``demo``: its view, and that its output is sufficient to run the same world again."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd.live_view import LiveView
from shared_scheduler.cmd.manage import main
from shared_scheduler.cmd.world_arguments import with_trace
from shared_scheduler.sim.exhibition import DemoPlan, Exhibition
from tests.unit.sim import planted

PROGRAM = "shared-scheduler-manage"
#: with numbers that a shortened text would change
SMALL = "--nodes 12 --schedulers 2 --duration 1.3 --rate 23.456789012 --loss 1.2345678%".split()


def printed_command(text: str) -> list[str]:
    """The arguments of the one command that a text contains."""
    (line,) = [line.strip() for line in text.splitlines() if line.strip().startswith(f"{PROGRAM} ")]
    return shlex.split(line)[1:]


def same_again(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Run a printed command as it is, but print figures for programs."""
    code = main([*arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def run_as_json(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    return same_again([command, *SMALL, "--seed", "7"], capsys)


@pytest.mark.long
def test_the_command_that_the_demo_prints_runs_the_same_world_with_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # given a demo, and what it came to
    code, figures = run_as_json("demo", capsys)
    # when it is run again by the command that it prints
    main(["demo", *SMALL, "--seed", "7"])
    again = printed_command(capsys.readouterr().out)
    # then everything happens again, and the trace is there
    assert code == 0
    code, figures_again = same_again(again, capsys)
    assert (code, figures_again["trace"]) == (0, figures["trace"])
    assert figures_again["messages"] == figures["messages"]
    assert "answers req-1:" in Path("trace.txt").read_text()


@pytest.mark.long
def test_the_command_that_a_broken_demo_prints_breaks_in_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planted.answer_before_the_write.patch(monkeypatch)
    code, figures = run_as_json("demo", capsys)
    assert code == 1 and figures["violations"]

    main(["demo", *SMALL, "--seed", "7"])
    again = printed_command(capsys.readouterr().out)

    code, figures_again = same_again(again, capsys)
    assert code == 1
    assert figures_again["violations"] == figures["violations"]
    assert figures_again["trace"] == figures["trace"]
    assert "BROKEN written_first" in Path("trace.txt").read_text()


def test_the_command_that_simulate_prints_breaks_in_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planted.answer_before_the_write.patch(monkeypatch)
    assert main(["simulate", *SMALL, "--seed", "7", "--format", "json"]) == 1
    told = capsys.readouterr()
    figures = json.loads(told.out)

    code, figures_again = same_again(printed_command(told.err), capsys)

    assert code == 1
    assert figures_again["violations"] == figures["violations"]
    assert figures_again["trace"] == figures["trace"]


#: how a frame that replaces another begins, and what changes the style of text
REPLACES = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
STYLE = re.compile(r"\x1b\[[\d;?]*[a-z]")


class Terminal(io.StringIO):
    """A screen that stores its output."""

    def isatty(self) -> bool:
        """It is one."""
        return True

    def frames(self) -> list[str]:
        """The frames as they were seen, without their style."""
        return [STYLE.sub("", frame) for frame in REPLACES.split(self.getvalue()) if frame.strip()]


def watched(columns: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A demo of three seconds as a terminal of this size has shown it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(rows))
    plan, screen = DemoPlan(1, nodes=12, duration_s=3.0), Terminal()
    world = plan.world()
    exhibition = Exhibition(world, plan.duration_s)
    exhibition.run(LiveView(world, exhibition, plan.duration_s, screen, True).show)
    return screen


#: the largest and the smallest; ``tests/longer/test_demo.py`` has others
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (20, 5)], ids=str)
@pytest.mark.long
def test_the_live_view_fits_into_a_small_terminal(columns: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_fits(columns, rows, monkeypatch)


def assert_fits(columns: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that no line wraps, and no frame scrolls the screen."""
    # given a demo that has told much of what happens
    frames = watched(columns, rows, monkeypatch).frames()
    assert len(frames) > 30
    assert max(len(line) for frame in frames for line in frame.splitlines()) <= columns
    assert max(frame.count("\n") for frame in frames) < rows


@pytest.mark.long
def test_the_live_view_shows_the_events_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    last = watched(80, 24, monkeypatch).frames()[-1]
    for word in ("without a verdict", "answered p50", "snapshots", "starts again", "requests end"):
        assert word in last


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    plan, screen = DemoPlan(1, nodes=12, duration_s=3.0), Terminal()
    world = plan.world()
    exhibition = Exhibition(world, plan.duration_s)
    exhibition.run(LiveView(world, exhibition, plan.duration_s, screen, True).show)
    assert "\x1b" not in screen.getvalue() and "decisions/s" in screen.getvalue()


def test_a_demo_without_a_terminal_prints_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *SMALL, "--seed", "7", "--fast"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.count("requests end") == 2, "when it happens, and in the summary"


def test_the_printed_command_has_the_path_of_a_program_that_is_not_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a program in an environment of its own, as tools/demo makes one
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr("sys.argv", [str(tmp_path / ".venv/demo/bin" / PROGRAM), "demo"])
    command = with_trace(DemoPlan(1).command())
    assert command.startswith(f".venv/demo/bin/{PROGRAM} demo --seed 1 ")
    assert command.endswith("--trace trace.txt")

# SPDX-License-Identifier: Apache-2.0
"""The command line: its output, its errors and its exit codes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator

import pytest

from shared_scheduler.cmd import simulate
from shared_scheduler.cmd.live_view import LiveView
from shared_scheduler.cmd.manage import COMMANDS, main
from shared_scheduler.cmd.progress import Progress
from shared_scheduler.cmd.swarm import SeedOutcome
from shared_scheduler.daemon.endings import INTERRUPTED
from shared_scheduler.release import release
from shared_scheduler.sim.exhibition import Exhibition
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World
from tests.unit.sim import planted

SMALL = ["--nodes", "4", "--schedulers", "2", "--rate", "10"]


class Terminal(io.StringIO):
    """A screen that stores its output."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_its_release_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"shared-scheduler-manage {release()}\n"


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulat"]) == 2
    assert "there is no command 'simulat'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["simulate", "--nodes", "many"], "'many' is not a whole number"),
        (["simulate", "--loss", "2"], "2 is not within 0 and 1"),
        (["demo", "--schedulers", "0"], "0 is not within 1 and 16"),
        (["demo", "--rate", "fast"], "'fast' is not a number"),
        (["simulate", "--trace", "/no/such/place/trace.txt"], "there is no directory /no/such/place"),
        (["simulate", "--trace", "/"], "/ is a directory"),
    ],
)
def test_a_wrong_argument_gets_one_clear_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_simulate_reports_as_json_and_the_same_again(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", *SMALL, "--seed", "5", "--duration", "5", "--loss", "5%", "--format", "json"]
    traces = set()
    for _ in range(2):
        assert main(asked) == 0
        figures = json.loads(capsys.readouterr().out)
        assert figures["seed"] == 5 and figures["violations"] == []
        assert figures["messages"]["lost"] > 0
        traces.add(figures["trace"])
    assert len(traces) == 1


@pytest.mark.long
def test_simulate_runs_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "2", "--seed", "11", "--format", "json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["seeds"] == 2 and figures["broken_seeds"] == 0 and figures["checks"] > 0


#: figures that are of the machine, not of the worlds
TIMES = ("wall_s", "cpu_s", "simulated_s_per_cpu_s")


@pytest.mark.long
def test_many_seeds_come_to_the_same_in_one_process_and_in_several(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = []
    for jobs in ("1", "2"):
        asked = ["simulate", "--seeds", "2", "--seed", "11", "--jobs", jobs, "--format", "json"]
        assert main(asked) == 0
        figures = json.loads(capsys.readouterr().out)
        told.append({k: v for k, v in figures.items() if k not in TIMES})
    assert told[0] == told[1]


@pytest.mark.long
def test_a_broken_seed_is_printed_with_its_replay_and_its_trace(
    tmp_path: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted.forget_a_forget.patch(monkeypatch)
    name = f"{tmp_path}/trace.txt"
    asked = ["simulate", "--seeds", "4", "--seed", "1", "--jobs", "1", "--trace", name]
    assert main(asked) == 1
    assert "shared-scheduler-manage simulate --seeds 1 --seed" in capsys.readouterr().err
    with open(name) as file:
        story = file.read()
    assert "BROKEN" in story and "window of node-" in story and "-> all Heartbeat" in story


def swarm_that_ends(with_error: BaseException) -> Callable[..., Iterator[SeedOutcome]]:
    """Seeds of which the second is broken; then nothing comes any more."""

    def many(*_: object) -> Iterator[SeedOutcome]:
        yield SeedOutcome(11, ())
        yield SeedOutcome(12, ("overlay: somebody forgot",))
        raise with_error

    return many


def test_a_broken_seed_is_printed_as_soon_as_it_is_found(
    tmp_path: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a long run that somebody ends when one of its seeds has broken
    monkeypatch.setattr(simulate, "run_seeds", swarm_that_ends(KeyboardInterrupt()))
    name = f"{tmp_path}/trace.txt"
    asked = ["simulate", "--seeds", "2000", "--seed", "11", "--trace", name, "--format", "json"]
    assert main(asked) == INTERRUPTED
    # then its replay has been told, its trace is there, and what ran until then is summed up
    told = capsys.readouterr()
    assert "shared-scheduler-manage simulate --seeds 1 --seed 12 --trace trace.txt" in told.err
    assert "overlay: somebody forgot" in told.err
    figures = json.loads(told.out)
    assert (figures["seeds"], figures["broken_seeds"]) == (2, 1)
    with open(name) as file:
        assert "--seed 12" in file.readline()


def test_a_broken_invariant_exits_with_one_and_prints_how_to_replay_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.forget_a_forget.patch(monkeypatch)
    asked = ["simulate", *SMALL, "--seed", "5", "--duration", "10", "--loss", "0.3"]
    assert main(asked) == 1
    told = capsys.readouterr()
    assert "overlay" in told.out or "converged" in told.out
    assert "shared-scheduler-manage simulate --seed 5 --nodes 4 --schedulers 2" in told.err


def test_simulate_writes_a_trace_that_a_person_can_read(
    tmp_path: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{tmp_path}/trace.txt"
    assert main(["simulate", *SMALL, "--seed", "5", "--duration", "5", "--trace", name]) == 0
    capsys.readouterr()
    with open(name) as file:
        lines = file.read().splitlines()
    assert any("accepts" in line for line in lines)
    assert any("answers req-1:" in line for line in lines)


@pytest.mark.long
def test_the_demo_ends_by_itself_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *SMALL, "--duration", "2", "--seed", "1"]) == 0
    shown = capsys.readouterr().out
    assert "decisions/s" in shown and "checks of invariants, 0 broken" in shown
    assert "node is cut off" in shown and "scheduler-0 starts again" in shown


def test_the_demo_as_json_is_nothing_but_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *SMALL, "--duration", "2", "--seed", "1", "--format", "json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["nodes"] == 4 and len(figures["faults"]) >= 4
    assert figures["decision_wall_ms"]["p50"] > 0, "really measured"


@pytest.mark.long
def test_the_demo_exits_with_one_when_an_invariant_breaks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.answer_before_the_write.patch(monkeypatch)
    assert main(["demo", *SMALL, "--duration", "2", "--seed", "1"]) == 1
    assert "written_first" in capsys.readouterr().out


def test_an_interrupted_demo_restores_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr(World, "run", interrupted)
    assert main(["demo", *SMALL, "--duration", "2", "--seed", "1"]) == INTERRUPTED
    assert screen.getvalue().endswith("\n\x1b[?25h")


def test_the_live_view_redraws_in_place_and_restores_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a terminal
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    world = World(1, Sizes(nodes=4, schedulers=2), Workload(), NetworkFaults())
    view = LiveView(world, Exhibition(world, 5.0), 5.0, screen, True)
    for _ in range(40):
        world.run(0.1)
        view.show()
    view.close()
    # then each frame replaces the one before it, shows the figures, and the cursor comes back
    frames = screen.getvalue().split("\r\x1b[2K")
    assert len(frames) == 1 + 40, "the last frame is drawn once more, whole"
    for word in ("decisions", "claims", "lag of nodes", "scheduler-1.1", "scheduler-0 ", "worst"):
        assert word in frames[-1]
    assert screen.getvalue().endswith("\n\x1b[?25h")


def test_a_progress_bar_is_for_terminals_only() -> None:
    screen, file = Terminal(), io.StringIO()
    for out in (screen, file):
        with Progress("working", out) as progress:
            progress.update(0.5)
    assert " 50%" in screen.getvalue() and file.getvalue() == ""

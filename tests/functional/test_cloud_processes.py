# SPDX-License-Identifier: Apache-2.0
"""``tools/lab cloud`` stops all processes that it has started, and no others."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.laboratory.errors import LabError
from tools.laboratory.processes.control import ControlError
from tools.laboratory.processes.controlled import Program, ask_all, ask_those_that_answer, start_all
from tools.laboratory.processes.guard import ROOT, Guard
from tools.laboratory.processes.startup import Startup, Step, wait_for
from tools.laboratory.processes.table import MARK, ProcessTable, is_same, session_of, stat_of, wait_dead

WAIT_S = 180.0
WITH_CHILD = ("sh", "-c", "sleep 600 & wait")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
)
#: more than its arguments have room for
RENAMED = (
    sys.executable,
    "-c",
    "import setproctitle, time; setproctitle.setproctitle('master process ' + 'x' * 400);"
    "print('renamed', flush=True); time.sleep(600)",
)
#: starts three processes under a guard, prints their ids, and waits
OWNER = f"""
import sys, time
from pathlib import Path
from tools.laboratory.processes.guard import Guard
from tools.laboratory.processes.table import ProcessTable
home = Path(sys.argv[1])
table = ProcessTable(home, "mark-" + str(home).replace("/", "-"))
Guard(table, home)
def start(name, argv):
    return table.spawn(name, argv, {{}}, home / name, "test", "").pid
started = [start("one", ["sleep", "600"]), start("deaf", {DEAF!r}), start("renamed", {RENAMED!r})]
while "renamed" not in (home / "renamed").read_text() or "deaf" not in (home / "deaf").read_text():
    time.sleep(0.05)
table.forget("renamed")
print(*started, flush=True)
time.sleep(600)
"""
#: a test session whose fixture stops what it has started, in a `finally` that SIGTERM leaves out
SESSION = """
import os, tempfile, time
from pathlib import Path
import pytest
from tools.laboratory.processes.guard import Guard
from tools.laboratory.processes.table import ProcessTable

@pytest.fixture
def service():
    home = Path(tempfile.mkdtemp())
    table = ProcessTable(home, "mark-" + home.name)
    guard = Guard(table, home)
    try:
        yield table.spawn("one", ["sleep", "600"], {}, home / "log", "test", ""), home
    finally:
        table.end_all()
        guard.release()

def test_waits(service):
    process, home = service
    note = Path(os.environ["NOTE"])
    note.with_suffix(".new").write_text(f"{process.pid} {home}")
    note.with_suffix(".new").rename(note)
    time.sleep(600)
"""


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    processes = ProcessTable(tmp_path, mark=tmp_path.name)
    yield processes
    processes.stop(processes.names(), grace_s=0.1)


def spawn(table: ProcessTable, tmp_path: Path, name: str, argv: tuple[str, ...] = ("sleep", "600")) -> int:
    return table.spawn(name, argv, {}, tmp_path / f"{name}.log", "test", "").pid


def test_a_process_is_found_again_by_another_run_of_the_tool(table: ProcessTable, tmp_path: Path) -> None:
    pid = spawn(table, tmp_path, "one")

    found = ProcessTable(tmp_path, tmp_path.name).alive("one")

    assert found is not None and found.pid == pid


def test_kill_ends_forked_processes_too(table: ProcessTable, tmp_path: Path) -> None:
    pid = spawn(table, tmp_path, "parent", WITH_CHILD)
    wait_for("its child", lambda: len(session_of(pid)) == 2, WAIT_S)
    members = session_of(pid)

    table.kill("parent")

    assert table.alive("parent") is None
    assert [member for member in members if member in session_of(pid)] == []


def test_one_that_ignores_term_is_killed_and_named(table: ProcessTable, tmp_path: Path) -> None:
    spawn(table, tmp_path, "deaf", DEAF)
    wait_for("it to be deaf", lambda: "deaf" in (tmp_path / "deaf.log").read_text(), WAIT_S)
    spawn(table, tmp_path, "polite")

    killed = table.stop(["deaf", "polite"], grace_s=3.0)

    assert killed == ["deaf"]
    assert table.alive("deaf") is None and table.alive("polite") is None


def test_a_frozen_one_is_stopped_as_well(table: ProcessTable, tmp_path: Path) -> None:
    spawn(table, tmp_path, "frozen")
    table.signal("frozen", signal.SIGSTOP)

    assert table.stop(["frozen"], WAIT_S) == []
    assert table.alive("frozen") is None


def test_a_process_that_has_reused_an_id_is_not_touched(table: ProcessTable, tmp_path: Path) -> None:
    # given a record of ours that points at a process which started at another time: the id was used again
    with subprocess.Popen(["sleep", "600"]) as stranger:
        stat = stat_of(stranger.pid)
        assert stat is not None
        spawn(table, tmp_path, "ours")
        record = table.find("ours")
        assert record is not None
        ours = record.pid
        foreign = dataclasses.replace(record, pid=stranger.pid, start_ticks=stat.start_ticks - 1)
        (tmp_path / "ours.json").write_text(json.dumps(dataclasses.asdict(foreign)))

        # when we end it
        assert table.stop(["ours"], grace_s=0.1) == []
        with pytest.raises(LabError, match="ours does not run"):
            table.kill("ours")

        # then the stranger lives
        assert is_same(stranger.pid, stat.start_ticks)
        stranger.terminate()
        os.kill(ours, signal.SIGKILL)


def test_a_process_whose_record_was_never_written_is_found_by_its_mark(table: ProcessTable, tmp_path: Path) -> None:
    pid = spawn(table, tmp_path, "lost")
    record = table.find("lost")
    assert record is not None
    table.forget("lost")

    # its environment is that of its parent until it has started its program
    wait_for("the process to be found", lambda: table.strays() == [pid], WAIT_S)

    os.kill(pid, signal.SIGKILL)
    assert wait_dead([record], WAIT_S) == []
    assert table.strays() == []


def test_a_process_that_renames_itself_is_found_by_its_mark(table: ProcessTable, tmp_path: Path) -> None:
    # given a process that overwrites its command line, as nova-conductor does, and whose record is lost
    pid = spawn(table, tmp_path, "renamed", RENAMED)
    wait_for("its new name", lambda: "renamed" in (tmp_path / "renamed.log").read_text(), WAIT_S)
    table.forget("renamed")

    found = table.strays()

    os.kill(pid, signal.SIGKILL)
    assert found == [pid]


def test_an_interrupted_start_ends_before_down_can_begin(table: ProcessTable) -> None:
    # given a step under way when Ctrl-C is pressed
    finished: list[str] = []

    def act() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        finished.append("step")

    with pytest.raises(LabError, match="interrupted"):
        Startup(table, [Step("step", (), act)], {}, lambda line: None).run()

    # then it starts nothing any more once the caller goes on
    assert finished == ["step"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_nothing_survives_an_owner_that_a_signal_has_ended(number: signal.Signals, tmp_path: Path) -> None:
    # given somebody who started processes under a guard, one of which has renamed itself and has no record
    home = tmp_path / "home"
    home.mkdir()
    with subprocess.Popen([sys.executable, "-c", OWNER, str(home)], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as owner:  # fmt: skip
        assert owner.stdout is not None
        started = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(started) == 3
        # when it ends with nothing put away
        owner.send_signal(number)

    # then its processes end, and its directory goes
    wait_for("the directory to go", lambda: not home.exists(), WAIT_S)
    assert [pid for pid in started if session_of(pid)] == []


def test_an_interrupted_test_session_leaves_no_process(tmp_path: Path) -> None:
    """As a time limit of CI ends it: SIGTERM, for which pytest runs no fixture's end."""
    test = tmp_path / "test_one.py"
    test.write_text(SESSION)
    note = tmp_path / "note"
    with subprocess.Popen([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)], cwd=ROOT,
                          env={**os.environ, "NOTE": str(note)}, stdout=subprocess.DEVNULL) as session:  # fmt: skip
        wait_for("the test to run", note.exists, WAIT_S)
        session.terminate()

    pid, home = note.read_text().split()
    wait_for("its directory to go", lambda: not Path(home).exists(), WAIT_S)
    assert session_of(int(pid)) == []


def test_a_guard_that_is_released_ends_nothing(table: ProcessTable, tmp_path: Path) -> None:
    pid = spawn(table, tmp_path, "one")
    guard = Guard(table, tmp_path / "kept")

    guard.release()

    assert session_of(pid) == [pid]


def test_our_own_environment_does_not_leak_into_the_services(tmp_path: Path, table: ProcessTable,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("OS_CLOUD", "production")
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")

    table.spawn("env", ["env"], {"OURS": "1"}, tmp_path / "env.log", "test", "")
    wait_for("its output", lambda: "OURS=1" in (tmp_path / "env.log").read_text(), WAIT_S)

    seen = (tmp_path / "env.log").read_text()
    assert "OS_CLOUD" not in seen and "PYTHONPATH" not in seen
    assert f"{MARK}={tmp_path.name}/env" in seen


@pytest.fixture
def programs(table: ProcessTable, tmp_path: Path) -> list[Program]:
    """Two of our own, which answer: stand-ins for Placement."""
    made = [Program(table, tmp_path, name) for name in ("one", "two")]
    for program in made:
        program.runs("placement", str(program.socket), "small", "3")
    start_all(table, made)
    return made


def test_programs_are_asked_and_one_that_was_killed_answers_again_in_its_next_life(programs: list[Program]) -> None:
    assert ask_all(programs, "consumers") == [{}, {}]
    one, _ = programs

    one.kill()

    assert one.ended_by == signal.SIGKILL
    assert ask_those_that_answer(programs, "consumers", WAIT_S) == [None, {}]
    one.start()
    assert (one.ended_by, one.ask("consumers")) == (0, {})


def test_a_frozen_program_is_known_as_such_and_does_not_answer(programs: list[Program]) -> None:
    one, two = programs
    one.signal(signal.SIGSTOP)
    wait_for("it to stop", lambda: one.stopped, WAIT_S)

    assert not two.stopped
    with pytest.raises(ControlError, match=r"one\.sock: consumers: timed out"):
        one.ask("consumers", 0.2)


def test_a_question_that_a_program_cannot_answer_is_an_error_with_its_words(programs: list[Program]) -> None:
    with pytest.raises(ControlError, match=r"two\.sock: colour: KeyError: 'colour'"):
        programs[1].ask("colour")


def test_a_program_that_ends_at_once_is_reported_with_the_end_of_its_log(table: ProcessTable, tmp_path: Path) -> None:
    broken = Program(table, tmp_path, "broken").runs("placement", "only one argument")

    with pytest.raises(LabError, match=r"the process ended; see .*broken\.log: ValueError"):
        broken.start()

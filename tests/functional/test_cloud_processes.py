# SPDX-License-Identifier: Apache-2.0
"""The cloud's tool ends what it has started, all of it, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.realcloud.errors import CloudError
from tools.realcloud.probes import wait_for
from tools.realcloud.processes import MARK, ProcessTable, is_same, session_of, stat_of, wait_dead

WITH_CHILD = ("sh", "-c", "sleep 600 & wait")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
)


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


def test_kill_takes_what_the_process_has_forked(table: ProcessTable, tmp_path: Path) -> None:
    pid = spawn(table, tmp_path, "parent", WITH_CHILD)
    wait_for("its child", lambda: len(session_of(pid)) == 2, 10)
    members = session_of(pid)

    table.kill("parent")

    assert table.alive("parent") is None
    assert [member for member in members if member in session_of(pid)] == []


def test_one_that_ignores_term_is_killed_and_named(table: ProcessTable, tmp_path: Path) -> None:
    spawn(table, tmp_path, "deaf", DEAF)
    wait_for("it to be deaf", lambda: "deaf" in (tmp_path / "deaf.log").read_text(), 10)
    spawn(table, tmp_path, "polite")

    killed = table.stop(["deaf", "polite"], grace_s=0.3)

    assert killed == ["deaf"]
    assert table.alive("deaf") is None and table.alive("polite") is None


def test_a_frozen_one_is_stopped_as_well(table: ProcessTable, tmp_path: Path) -> None:
    spawn(table, tmp_path, "frozen")
    table.signal("frozen", signal.SIGSTOP)

    assert table.stop(["frozen"], grace_s=10) == []
    assert table.alive("frozen") is None


def test_an_id_that_somebody_else_has_now_is_left_alone(table: ProcessTable, tmp_path: Path) -> None:
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
        with pytest.raises(CloudError, match="ours does not run"):
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

    assert table.strays() == [pid]

    os.kill(pid, signal.SIGKILL)
    assert wait_dead([record], 10) == []
    assert table.strays() == []


def test_our_own_environment_does_not_leak_into_the_services(tmp_path: Path, table: ProcessTable,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("OS_CLOUD", "production")
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")

    table.spawn("env", ["env"], {"OURS": "1"}, tmp_path / "env.log", "test", "")
    wait_for("its output", lambda: "OURS=1" in (tmp_path / "env.log").read_text(), 10)

    seen = (tmp_path / "env.log").read_text()
    assert "OS_CLOUD" not in seen and "PYTHONPATH" not in seen
    assert f"{MARK}={tmp_path.name}/env" in seen

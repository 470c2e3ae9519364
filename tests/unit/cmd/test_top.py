# SPDX-License-Identifier: Apache-2.0
"""``top`` shows what the schedulers of this machine do, for people and for scripts."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from shared_scheduler.cmd import manage
from shared_scheduler.daemon import admin
from shared_scheduler.protocol.phases import WindowPhase
from tests.unit.cmd.waiting import WAIT_S

FORGED = "c9\x1b[2K"
LOAD = {
    "scheduler": "sched1", "pid": 17, "nodes": 3,
    "windows": {each.value: 0 for each in WindowPhase} | {"in_order": 2, "gap": 1},
    "lags": {"0": 2, "1": 0, "4": 1, "16": 0, "more": 0, "silent": 1, "without_agent": 4},
    "lagging": [{"host": FORGED, "state": "gap", "agent": "heard", "lag": 3, "heard_ago_s": 1.5},
                {"host": "c7", "state": "silent", "agent": "silent", "lag": 1234, "heard_ago_s": 95.0}],
    "failures": 1_234_567, "refusals": 1, "conflicts": 0,
    "queues": {"requests": 2, "placement_writes": 4, "records": 0},
}  # fmt: skip


class Deciding:
    """A scheduler whose clock goes on by half a second, and that makes five decisions, between two questions."""

    def __init__(self, pid: int) -> None:
        self.pid, self.asked = pid, 0

    def answer(self, _: Mapping[str, Any]) -> dict[str, Any]:
        self.asked += 1
        return {**LOAD, "pid": self.pid, "clock_s": self.asked / 2, "decisions": 5 * self.asked}


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Path]:
    servers = [admin.AdminServer(tmp_path / f"s-{pid}.sock", {"top": Deciding(pid).answer}) for pid in (17, 18)]
    for each in servers:
        each.start()
    yield tmp_path
    for each in servers:
        each.stop()


def once(sockets: Path, *more: str) -> int:
    return manage.main(["top", "--socket-dir", str(sockets), "--once", "--interval", "0.1", *more])


def test_the_view_shows_rates_queues_windows_and_lagging_nodes(
    sockets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert once(sockets, "--scheduler", "17") == 0

    out = capsys.readouterr().out
    first, *others = out.splitlines()
    assert first == "sched1 (process 17), 3 nodes"
    assert [line.split() for line in others if "/s" in line and "decisions" in line] == [["decisions", "10.0/s", "10"]]
    assert [line.split() for line in others if "without host" in line][:1] == [
        ["without", "host", "0.0/s", "1,234,567"]
    ]
    assert "queues   2 requests, 4 placement_writes, 0 records" in out
    assert "2 in_order" in out and "1 behind by up to 4" in out
    assert "  lag      nodes: 2 in step, 1 behind by up to 4, 1 silent, 4 without agent\n" in out, (
        "empty classes are no news"
    )
    assert "  windows  nodes: 2 in_order, 1 gap\n" in out
    assert [line.split() for line in others if line.startswith("  c7")] == [["c7", "-", "silent", "95.0"]]
    assert "c9\\x1b[2K " in out, "what an agent calls itself moves no cursor"


def test_each_word_of_the_view_is_defined(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert once(sockets, "--scheduler", "17") == 0

    words = capsys.readouterr().out.partition("\nWords:\n")[2]
    defined = {line.strip().partition("  ")[0] for line in words.splitlines() if line[2:3].strip()}
    assert {
        "decisions", "without host", "refusals", "conflicts", "requests", "placement_writes", "records", "windows",
        "in_order", "gap", "lag", "in step", "agent", "claim",
    } - defined == set()  # fmt: skip


def test_scripts_get_all_schedulers_in_one_line(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert once(sockets, "--format", "json") == 0

    answer = json.loads(capsys.readouterr().out)
    Draft202012Validator(schemas()["top"]).validate(answer)
    assert [one["pid"] for one in answer] == [17, 18]
    assert [one["per_s"]["decisions"] for one in answer] == [10.0, 10.0]


@pytest.mark.parametrize(("name", "code", "named"), [("", 2, True), ("sched1", 0, False)])
def test_a_killed_scheduler_is_named_unless_another_one_was_asked_for(
    sockets: Path, name: str, code: int, named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(sockets / "sched2-18.sock"))

    assert once(sockets, "--scheduler", name) == code

    assert ("top: sched2 (process 18) has ended" in capsys.readouterr().err) == named


@pytest.mark.parametrize(("name", "told"), [
    ("sched9", "no scheduler is called sched9; those that answer: sched1, sched1"),
    ("", "no scheduler of this machine"),
])  # fmt: skip
def test_one_that_is_not_there_is_one_line(
    sockets: Path, tmp_path: Path, name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    assert once(sockets if name else empty, "--scheduler", name) == 2

    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert told in shown.err


def test_a_terminal_is_drawn_until_control_c(sockets: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "shared_scheduler.cmd.manage", "top", "--socket-dir", str(sockets),
               "--interval", "0.1"]  # fmt: skip
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as running:
        os.close(theirs)
        shown = b""
        while shown.count(b"in_order") < 3:  # the second frame replaces the first
            shown += os.read(ours, 4096)
        running.send_signal(signal.SIGINT)
        with open(ours, "rb", buffering=0) as rest:
            try:
                while rest.read(4096):
                    pass
            except OSError:  # the terminal is closed when the command has ended
                pass
        assert running.wait(WAIT_S) == 130

# SPDX-License-Identifier: Apache-2.0
"""``resync`` orders, waits, and prints what each scheduler has read."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from shared_scheduler.cmd import manage
from shared_scheduler.daemon import admin

HOST = "c1"


class OneScheduler:
    """Answers as a scheduler; the results of its nodes come one after the other."""

    def __init__(self, name: str, *results: str, pid: int = 17, **fields: Any) -> None:
        self.name, self.pid, self.results, self.fields = name, pid, list(results), fields
        self.orders: list[Mapping[str, Any]] = []

    def order(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self.orders.append(question)
        return self.result(question)

    def result(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert question["order"] == self.orders[0]["order"]
        nodes = []
        if self.results:
            result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
            nodes = [{
                "node": "node-1", "cell": "cell-1", "source": "agent", "result": result, "epoch_before": 3,
                "sequence_before": 41, "epoch": 3, "sequence": 44, "ended_quarantine": False, "quarantined": False,
                **self.fields,
            }]  # fmt: skip
        return {"scheduler": self.name, "pid": self.pid, "host": question["host"], "nodes": nodes}


@pytest.fixture
def schedulers() -> list[OneScheduler]:
    """What runs on this machine; a test may change it before it runs the command."""
    return [OneScheduler("sched1", "waiting", "waiting", "read"), OneScheduler("sched2", "read")]


@pytest.fixture
def sockets(tmp_path: Path, schedulers: list[OneScheduler]) -> Iterator[Path]:
    servers = [
        admin.AdminServer(tmp_path / f"{one.name}-17.sock", {"resync": one.order, "resync-result": one.result})
        for one in schedulers
    ]
    for server in servers:
        server.start()
    yield tmp_path
    for server in servers:
        server.stop()


def resync(sockets: Path, *arguments: str) -> int:
    return manage.main(["resync", HOST, "--socket-dir", str(sockets), *arguments])


def test_all_schedulers_are_told_once_and_waited_for(
    sockets: Path, schedulers: list[OneScheduler], capsys: pytest.CaptureFixture[str]
) -> None:
    assert resync(sockets) == 0

    assert [[order["host"] for order in one.orders] for one in schedulers] == [[HOST], [HOST]]
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["scheduler", "node", "result", "before", "after", "quarantine"]
    assert [" ".join(row.split()) for row in rows] == [
        f"{one.name} node-1 read epoch 3, sequence 41 epoch 3, sequence 44 no" for one in schedulers
    ]


def test_programs_get_the_same_as_json(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resync(sockets, "--format", "json") == 0
    answers = json.loads(capsys.readouterr().out)
    Draft202012Validator(schemas()["resync"]).validate(answers)
    assert [one["scheduler"] for one in answers] == ["sched1", "sched2"]
    assert {node["result"] for one in answers for node in one["nodes"]} == {"read"}


def test_an_agent_that_does_not_answer_in_time_is_told(
    sockets: Path, schedulers: list[OneScheduler], capsys: pytest.CaptureFixture[str]
) -> None:
    schedulers[0].results[:] = ["waiting"]
    assert resync(sockets, "--wait", "0") == 1
    out = capsys.readouterr().out
    assert "waiting" in out and "The scheduler goes on asking" in out


def test_a_scheduler_that_hangs_does_not_hide_what_another_one_has_read(
    sockets: Path,
    schedulers: list[OneScheduler],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a scheduler that is stopped by a signal: its answer is awaited for as long as the command may wait
    schedulers[0].results[:] = ["waiting", "read"]
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", 1.1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hanging:
        hanging.bind(str(sockets / "sched3-17.sock"))
        hanging.listen()
        # when
        assert resync(sockets, "--wait", "1") == 2
    # then the result of the others is the one of now
    captured = capsys.readouterr()
    assert "waiting" not in captured.out
    assert captured.err.count("sched3-17.sock") == 1


@pytest.mark.parametrize(
    ("results", "shown"), [(["too_soon"], "less than ten seconds ago"), ([], "no compute node of this host")]
)
def test_what_was_not_asked_is_told(
    sockets: Path, schedulers: list[OneScheduler], capsys: pytest.CaptureFixture[str], results: list[str], shown: str
) -> None:
    schedulers[1].results[:] = results
    assert resync(sockets) == 1
    assert shown in capsys.readouterr().out


def test_a_quarantine_that_has_ended_is_told(
    sockets: Path, schedulers: list[OneScheduler], capsys: pytest.CaptureFixture[str]
) -> None:
    schedulers[0].fields["ended_quarantine"] = True
    schedulers[1].fields.update(epoch_before=0, sequence_before=0)
    assert resync(sockets) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[-1] == "ended"
    assert "databases" in second  # no agent had published the row


def test_a_scheduler_that_ends_before_it_has_read_the_host_is_named(
    sockets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a scheduler that is stopped while the command waits for it, and starts again as another process
    restarted = OneScheduler("sched3", "too_soon", pid=19)
    after = admin.AdminServer(sockets / "sched3-19.sock", {"resync-result": restarted.result})

    class Ends(OneScheduler):
        def order(self, question: Mapping[str, Any]) -> dict[str, Any]:
            threading.Thread(target=restart).start()
            return super().order(question)

    def restart() -> None:
        before.stop()
        restarted.orders.append({"order": ends.orders[0]["order"]})
        after.start()

    ends = Ends("sched3", "waiting", pid=18)
    before = admin.AdminServer(sockets / "sched3-18.sock", {"resync": ends.order, "resync-result": ends.result})
    before.start()
    # when
    try:
        code = resync(sockets)
    finally:
        before.stop()
        after.stop()
    # then it is not passed over, and nothing is said about an order that the new process did not get
    assert code == 2
    captured = capsys.readouterr()
    assert "sched3 (process 18) has ended" in captured.err
    assert "read" in captured.out and "too_soon" not in captured.out


def test_a_scheduler_of_an_earlier_release_is_named(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    older = admin.AdminServer(sockets / "sched3-17.sock", {"status": lambda _: {}})
    older.start()
    try:
        assert resync(sockets) == 2
    finally:
        older.stop()
    captured = capsys.readouterr()
    assert "sched1" in captured.out and "sched3-17.sock" in captured.err


def test_without_a_scheduler_it_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resync(tmp_path) == 2
    assert capsys.readouterr().err.startswith("resync: no scheduler of this machine answers in ")

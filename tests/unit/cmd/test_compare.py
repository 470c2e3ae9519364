# SPDX-License-Identifier: Apache-2.0
"""``compare`` exits with 0, 1 or 2, and reports a source that it could not read in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from shared_scheduler.cmd import compare, manage
from shared_scheduler.daemon import admin
from shared_scheduler.nova import source_readers
from shared_scheduler.novalib import threading_backend
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.service.source_differences import AGENT, DATABASE, PLACEMENT, Fact, SourceDifference, SourceView


class SourceReadersStub:
    """The views of databases, Placement and agents: an error, or no nodes."""

    def __init__(self, error: Exception | None = None, agents: tuple[str, ...] = ()) -> None:
        self.error, self.agents = error, agents

    def read(self, say: Any) -> tuple[list[SourceView], frozenset[str]]:
        if self.error is not None:
            raise self.error
        known: dict[str, dict[Fact, Any]] = {"node-1": {}, "node-2": {}} if self.agents else {}
        agents: dict[str, dict[Fact, Any]] = {node: {} for node in self.agents}
        names: dict[str, dict[Fact, Any]] = {node: {("node",): f"c{node[-1]}"} for node in known}
        database = SourceView(DATABASE, frozenset(), names)
        return [
            SourceView(PLACEMENT, frozenset(), known),
            database,
            SourceView(AGENT, frozenset(), agents),
        ], frozenset()


@pytest.fixture(autouse=True)
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that runs and knows no node."""
    monkeypatch.setattr(threading_backend, "choose_threads", lambda: None)
    monkeypatch.setattr(source_readers, "configure", lambda files: None)
    monkeypatch.setattr(source_readers, "admin_socket_dir", lambda: tmp_path)
    monkeypatch.setattr(source_readers, "SourceReaders", SourceReadersStub)
    answer = {"scheduler": "sched1", "nodes": []}
    server = admin.AdminServer(tmp_path / "sched1-17.sock", {"tables": lambda _: answer})
    server.start()
    yield
    server.stop()


def run(*arguments: str) -> int:
    return manage.main(["compare", "--config-file", "nova.conf", *arguments])


def test_no_difference_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    Draft202012Validator(schemas()["compare"]).validate(told)
    assert told["differences"] == []


def test_foreign_changes_are_counted_for_each_scheduler_and_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a second scheduler that has found changes; the first one is of a release that does not tell
    answers = {
        "tables": lambda _: {"scheduler": "sched2", "nodes": []},
        "foreign-changes": lambda _: {"scheduler": "sched2", "count": 7, "changes": []},
    }
    server = admin.AdminServer(tmp_path / "sched2-18.sock", answers)
    server.start()
    try:
        assert run() == 0
    finally:
        server.stop()
    assert "foreign changes since the start (status --foreign-changes): sched2 7" in capsys.readouterr().out


def test_the_foreign_changes_of_all_workers_of_a_scheduler_count(tmp_path: Path) -> None:
    # given two workers of one scheduler, which have its name
    servers = [worker(tmp_path, 18, count=7), worker(tmp_path, 19, count=0)]
    # then the changes that one of them has found are not hidden by the other one
    try:
        assert compare.foreign_changes(tmp_path) == {"sched2": 7}
    finally:
        for server in servers:
            server.stop()


def worker(sockets: Path, pid: int, count: int) -> admin.AdminServer:
    """A worker that has found so many foreign changes."""
    answer = {"scheduler": "sched2", "pid": pid, "count": count, "changes": []}
    server = admin.AdminServer(sockets / f"sched2-{pid}.sock", {"foreign-changes": lambda _: answer})
    server.start()
    return server


def test_nodes_whose_agent_did_not_answer_are_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given two nodes, of which one has an agent that answers
    monkeypatch.setattr(source_readers, "SourceReaders", lambda: SourceReadersStub(agents=("node-1",)))

    # then a reader learns that the other one was compared without it
    assert run() == 0
    told = capsys.readouterr().out
    assert "of 1 of 2 nodes, no agent answered in time: c2; only their other sources are compared" in told
    assert run("--format", "json") == 0
    report = json.loads(capsys.readouterr().out)
    Draft202012Validator(schemas()["compare"]).validate(report)
    assert (report["nodes_without_agent"], report["hosts_without_agent"]) == (["node-2"], ["c2"])


def test_a_difference_exits_with_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare.source_differences, "orphans", lambda *_: ["consumer c has no owner"])
    assert run() == 1
    assert "consumer c has no owner" in capsys.readouterr().out


def test_a_difference_names_the_host(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_readers, "SourceReaders", lambda: SourceReadersStub(agents=("node-1",)))
    monkeypatch.setattr(compare.source_differences, "orphans", lambda *_: ["node-2: member c: x"] * 51)
    assert run() == 1
    out = capsys.readouterr().out
    assert "c2 (node-2): member c: x" in out
    assert "  member  A server that nova-compute counts on the node;" in out
    assert "(+1 more; --format json has all)" in out


def test_a_node_of_another_host_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = str(SourceDifference("node-2", ("node",), DATABASE, "c2", "table of sched1", "c9"))
    monkeypatch.setattr(compare.source_differences, "orphans", lambda *_: [line])
    assert run() == 1
    assert "  node  The host of the node;" in capsys.readouterr().out


def test_a_source_that_cannot_be_read_exits_with_2_and_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = KeyringError("/etc/keys: Permission denied", "[shared_scheduler] signing_keys_file")
    monkeypatch.setattr(source_readers, "SourceReaders", lambda: SourceReadersStub(keys))
    assert run() == 2
    shown = capsys.readouterr()
    assert "signing_keys_file" in shown.err
    assert shown.err.count("\n") == 1


def test_an_unexpected_error_is_not_reported_as_a_difference(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_readers, "SourceReaders", lambda: SourceReadersStub(RuntimeError("a mistake of ours")))
    assert run() == 2
    assert capsys.readouterr().err.endswith("compare: unexpected RuntimeError: a mistake of ours\n")

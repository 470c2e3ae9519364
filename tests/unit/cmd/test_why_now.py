# SPDX-License-Identifier: Apache-2.0
"""``why`` shows the stored data of a request, and reports when no scheduler has any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.daemon import admin
from shared_scheduler.model.services import DISABLED_TRAIT
from shared_scheduler.records.moments import iso

ANSWER = {
    "scheduler": "sched1", "pid": 17, "found": True, "at": 1795000000.0, "request_id": "req-7",
    "result": "no_valid_host", "reason": "There are not enough hosts available.", "hosts": [],
    "asked": {"flavor": "huge", "instances": ["s1"], "forms": [{"resources": {"MEMORY_MB": 4096}}]},
    "decisions": [{"survivors": 1, "hosts": 12, "reasons": {"no_room:MEMORY_MB": 11}}],
    "attempts": [{"host": "c1", "outcome": "no_capacity", "held": {
        "servers": 2, "pending": 1, "amounts": {"VCPU": 8},
        "largest": [{"server": "s2", "amounts": {"VCPU": 8}, "pending": True}]},
        "detail": {"provider": "p1", "resource_class": "VCPU", "asked": 4, "used": 8, "capacity": 8}}],
    "now": [
        {"host": "c1", "code": "", "detail": {}, "weights": {"RAMWeigher": 0.25}},
        {"host": "c2", "code": "no_room:MEMORY_MB", "weights": {},
         "detail": {"asked": 4096, "used": 8000, "capacity": 8192, "provider": "p2", "resource_class": "MEMORY_MB"}},
        {"host": "c3", "code": "root_traits", "weights": {},
         "detail": {"missing": [], "forbidden": [DISABLED_TRAIT], "disabled_reason": "new disks"}},
    ],
    "counts_now": {"": 1, "no_room:MEMORY_MB": 11, "root_traits": 1},
}  # fmt: skip


@pytest.fixture
def asked() -> list[dict[str, Any]]:
    """The questions as they arrive."""
    return []


@pytest.fixture
def sockets(tmp_path: Path, asked: list[dict[str, Any]]) -> Iterator[Path]:
    """Two schedulers; one remembers req-7."""

    def knows(question: Any) -> dict[str, Any]:
        asked.append(dict(question))
        return ANSWER if question["request"] == "req-7" else {"found": False}

    servers = [
        admin.AdminServer(tmp_path / "sched1-17.sock", {"why": knows}),
        admin.AdminServer(tmp_path / "sched2-18.sock", {"why": lambda _: {"found": False}}),
    ]
    for server in servers:
        server.start()
    yield tmp_path
    for server in servers:
        server.stop()


def test_why_prints_the_request_the_attempts_and_the_numbers(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["why-now", "req-7", "--socket-dir", str(sockets)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("req-7, ")
    assert out[0].endswith("sched1 (process 17)")
    assert out[1:4] == [
        "  asked    1 server, flavor huge, MEMORY_MB 4096",
        "  outcome  no_valid_host: There are not enough hosts available.",
        "  decided  1 of 12 hosts passed; rejected: 11 no_room:MEMORY_MB",
    ]
    held = "held by 2 servers (VCPU 8): s2 (VCPU 8, claim pending) and 1 more; 1 claim pending"
    assert f"  c1    no_capacity  resource_class VCPU, asked 4, used 8, capacity 8; {held}" in out
    assert "  c1    passes             RAMWeigher 0.25" in out
    assert "  c2    no_room:MEMORY_MB  asked 4096 MB, used 8000 MB, capacity 8192 MB; short by 3.81 GiB" in out
    assert "  c3    disabled           new disks" in out
    assert out[out.index("Words:") - 2] == "  10 more: no_room:MEMORY_MB"
    defined = [line.split()[0] for line in out[out.index("Words:") + 1 :] if line[2:3] != " "]
    shown, own = ["no_valid_host", "no_room", "no_capacity", "held", "disabled"], ["agent", "claim"]
    assert defined == [*shown, *own], "each once, in the order of the lines"


def test_the_hosts_of_each_reason_are_counted_as_on_all_screens(
    sockets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWER, "reason", "0 of 5 hosts pass; rejected: no_room:VCPU: 3, traits: 2")
    manage.main(["why-now", "req-7", "--socket-dir", str(sockets)])
    outcome = "  outcome  no_valid_host: 0 of 5 hosts pass; rejected: 3 no_room:VCPU, 2 traits\n"
    assert outcome in capsys.readouterr().out


def test_of_one_host_only_and_as_data(
    sockets: Path, asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["why-now", "req-7", "--socket-dir", str(sockets), "--host", "c2", "--each", "3"]
    assert manage.main(arguments) == 0
    assert "more:" not in capsys.readouterr().out
    assert manage.main([*arguments, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{**ANSWER, "time": iso(ANSWER["at"])}]
    assert asked[-1] == {"ask": "why", "request": "req-7", "hosts": ["c2"], "each_max": 3}


def test_an_unknown_request_is_one_line(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["why-now", "req-8", "--socket-dir", str(sockets)]) == 1
    err = capsys.readouterr().err
    assert "none of the 2 schedulers asked here remembers req-8" in err
    assert err.count("\n") == 1

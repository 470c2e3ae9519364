# SPDX-License-Identifier: Apache-2.0
"""``story`` of a host with many servers: lines that can be read, as many as were asked for, of a span of time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.core.effects import NodeChange, RecordNode
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.nova import instance_actions
from shared_scheduler.records import entries
from shared_scheduler.records.json_lines import JsonLines
from tests.unit.cmd.test_questions_to_records import build
from tests.unit.cmd.test_screens_for_newcomers import BEGIN_S, placed
from tests.unit.records.test_entries import record

EVENT = "compute__do_build_and_run_instance"


@pytest.fixture
def story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(records: list[Any], *more: str) -> str:
        JsonLines(tmp_path / "r").write(records)
        assert manage.main(["story", "c1", "--records", str(tmp_path / "r"), *more]) == 0
        return capsys.readouterr().out

    return ask


def texts(out: str) -> list[str]:
    return [one["text"] for one in json.loads(out)]


def snapshot(at_s: float) -> dict[str, Any]:
    return entries.node_entry(RecordNode("c1", NodeChange.SNAPSHOT, 3, 1, 0, cause=""), "sched1", at_s)


def test_a_line_about_a_whole_request_names_the_first_of_its_servers(story: Any) -> None:
    # given a request for six servers that found no host
    servers = tuple(f"server-{number}" for number in range(6))
    full = entries.Near([ExplainedHost("n1", "c1", "no_room:VCPU", {}, epoch=3, sequence=4)])
    failed = record(servers, attempts=(), decisions=(), answer=(), failure="no_valid_host", text="no host")
    decided = entries.entry(failed, "sched1", BEGIN_S, full)

    lines = story([decided]).partition("\nWords:")[0].splitlines()

    assert "  server-0 and 5 more  " in lines[1] and "server-1" not in lines[1]
    shown = json.loads(story([], "--format", "json"))
    assert {tuple(one["instances"]) for one in shown} == {servers}, "a program gets all"


def test_last_counts_what_is_printed(story: Any) -> None:
    # given requests of which each says several things of the host
    decisions = [placed(f"s-{number}", 2 + number, BEGIN_S + number, "c1") for number in range(3)]
    whole = texts(story(decisions, "--format", "json"))
    assert len(whole) > 5

    assert texts(story([], "--last", "5", "--format", "json")) == whole[-5:]


def test_what_nova_did_counts_too(story: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted = {"at": BEGIN_S + 50, "request_id": "req-9", "instance": "s-0", "action": "delete", "host": "c1",
               "event": "compute_terminate_instance", "result": "Success", "details": ""}  # fmt: skip
    monkeypatch.setattr(instance_actions, "read", lambda files, servers: [deleted] if "s-0" in servers else [])
    decisions = [placed(f"s-{number}", 2 + number, BEGIN_S + number, "c1") for number in range(3)]

    # then the deletion of a server is the newest line, although its decision is older than all that are shown
    assert texts(story(decisions, "--nova", "--last", "2", "--format", "json")) == [
        "selected", "Nova, delete: compute_terminate_instance began; Success",
    ]  # fmt: skip


@pytest.mark.parametrize(("span", "told"), [
    (["--since", f"{BEGIN_S + 10}"], ["1", "nova", "2"]),
    (["--until", f"{BEGIN_S + 10}"], ["0", "1"]),
    (["--since", f"{BEGIN_S + 5}", "--until", f"{BEGIN_S + 15}"], ["1", "nova"]),
])  # fmt: skip
def test_a_span_of_time_is_shown(story: Any, monkeypatch: pytest.MonkeyPatch, span: list[str], told: list[str]) -> None:
    # given snapshots at three moments, a server of the second, and what Nova did with it
    moments = [BEGIN_S, BEGIN_S + 10, BEGIN_S + 20]
    began = {"at": BEGIN_S + 11, "request_id": "req-1", "instance": "s-1", "action": "create", "event": EVENT,
             "host": "c1", "result": "Success", "details": ""}  # fmt: skip
    monkeypatch.setattr(instance_actions, "read", lambda files, servers: [began] * bool(list(servers)))
    records = [snapshot(at_s) | {"scheduler": str(number)} for number, at_s in enumerate(moments)]
    records += [build("c1", BEGIN_S + 10, reason="", uuid="s-1")]

    shown = texts(story(records, "--nova", "--format", "json", *span))

    names = [text.partition(": a snapshot")[0].replace(f"Nova, create: {EVENT} began; Success", "nova")
             for text in shown if not text.startswith("the build")]  # fmt: skip
    assert names == told


def test_a_time_that_cannot_be_read_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        manage.main(["story", "c1", "--since", "yesterday"])
    assert "'yesterday' is not a time such as 30m" in capsys.readouterr().err


def test_a_build_that_nova_handed_back_is_no_success(story: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # given builds of two servers on the host; one failed, and nova-compute ended both events with Success
    event = {"request_id": "req-1", "action": "create", "event": EVENT, "host": "c1", "result": "Success",
             "details": ""}  # fmt: skip
    events = [{**event, "instance": name, "at": BEGIN_S} for name in ("server-1", "server-2")]
    monkeypatch.setattr(instance_actions, "read", lambda files, servers: events)
    ends = [build("c1", BEGIN_S + 3), build("c1", BEGIN_S + 3, reason="", uuid="server-2")]
    asked = {**placed("server-1", 2, BEGIN_S, "c1"), "instances": ["server-1", "server-2"]}

    # then the story of the time of both events says so, although the builds ended later
    shown = json.loads(story([asked, *ends], "--nova", "--format", "json", "--until", f"{BEGIN_S + 2}"))
    assert {one["instances"][0]: one["text"].partition(" began; ")[2] for one in shown if "Nova, " in one["text"]} == {
        "server-1": "it ended (the build was handed back to nova-conductor)", "server-2": "Success",
    }  # fmt: skip
    assert "  Success  " in story([], "--nova").partition("\nWords:\n")[2]
    assert "\n  Success  " in story([], "--nova").partition("\nWords:\n")[2]

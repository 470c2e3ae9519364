# SPDX-License-Identifier: Apache-2.0
"""``status`` shows the schedulers that answer, and reports those that do not."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers import terms
from shared_scheduler.answers.schema import schemas
from shared_scheduler.cmd import manage
from shared_scheduler.cmd.status import ROUTINE
from shared_scheduler.daemon import admin
from shared_scheduler.sync.read_registry import SOURCES
from shared_scheduler.sync.revalidator import Revalidator
from tests.unit.daemon.test_admin import impatient_with

ANSWER = {
    "scheduler": "sched1", "pid": 17, "release": "1.1.0",
    "releases": {"schedulers": {"1.1.0": 2}, "agents": {"1.0.2": 3, "1.1.0": 9}},
    "freshness": {"fresh": 3}, "nodes": 3, "in_flight": 1,
    "claims_open": 2, "cells": {"c1": {"connected": True, "in_state_s": 50.2, "heard_ago_s": 2.1, "host_keys": "off"}},
    "quarantined": ["5c9f-of-node-9"], "quarantined_hosts": ["c9"],
    "counters": {"requests_answered": 5, "requests_failed": 0},
}  # fmt: skip


READS = {
    "scheduler": "sched1", "pid": 17, "reads": Revalidator(lambda event: None).report(),
}  # fmt: skip
READS["reads"][0].update({"reads": 4, "seconds": 0.006, "queries": 4, "rows": 2, "oldest_s": 1.25})  # type: ignore[index]


#: a port with QoS that neutron added to a server, and a server that another writer placed first
FOREIGN = {
    "scheduler": "sched1", "pid": 17, "count": 7, "kinds": {"changed": 7, "operation": 2, "deleted": 1}, "changes": [
        {"consumer": "server-1", "before": {"node-1": {"VCPU": 2}}, "generation_before": 1,
         "after": {"node-1": {"VCPU": 2}, "port-1": {"NET_BW_EGR_KILOBIT_PER_SEC": 100}}, "generation_after": 2,
         "seen_by": "merge", "seen_at_s": 1795458605.2, "kind": "changed", "host": "c1"},
        {"consumer": "server-2", "before": {}, "generation_before": None,
         "after": {"node-2": {"VCPU": 1}}, "generation_after": 1, "seen_by": "new", "seen_at_s": 1795458600.0},
    ],
}  # fmt: skip


NODE = {
    "node": "n1", "host": "c1", "cell": "cell-1", "freshness": "fresh", "agent": "heard", "epoch": 3, "sequence": 41,
    "heard_ago_s": 2.5, "choosable": True, "why_not": "", "outstanding": 0, "pending": 1, "used": {"VCPU": 2},
}  # fmt: skip
SILENT = {**NODE, "node": "n2", "host": "c2", "freshness": "provisional", "agent": "silent", "heard_ago_s": 310.4,
          "why_not": "quarantined"}  # fmt: skip
NODES = {"scheduler": "sched1", "nodes": [NODE, SILENT]}


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Path]:
    server = admin.AdminServer(
        tmp_path / "sched1-17.sock",
        {
            "status": lambda _: ANSWER,
            "nodes": lambda _: NODES,
            "reads": lambda _: READS,
            "foreign-changes": lambda _: FOREIGN,
        },
    )
    server.start()
    yield tmp_path
    server.stop()


def test_one_that_runs_is_shown(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["status", "--socket-dir", str(sockets)]) == 0
    out = capsys.readouterr().out
    assert "sched1 (process 17)" in out
    assert "c1 connected for 50 s, heard 2 s ago" in out
    assert "senders    not verified: " in out and "host_keys = off; accept or require" in out
    assert "release    1.1.0; schedulers: 2 1.1.0; agents: 3 1.0.2, 9 1.1.0" in out
    assert "requests_failed" not in out  # what is 0 is no news
    assert "under way  1 request, 2 claims\n" in out
    assert "quarantine c9\n" in out, "the host, because no operator knows the uuid of a node"


def words_of(out: str) -> list[str]:
    """The words that are defined below the answer."""
    return re.findall(r"^  (\w+) ", out.partition("\nWords:\n")[2], re.MULTILINE)


def test_the_words_of_an_answer_are_defined_below_it(
    sockets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given nodes of two kinds, one of them in quarantine, and an agent that is silent
    monkeypatch.setitem(ANSWER, "freshness", {"fresh": 3, "suspect": 1})
    monkeypatch.setitem(ANSWER, "agents_silent", 1)
    monkeypatch.setitem(ANSWER, "silent_agents", [{"host": "c7", "node": "n7", "heard_ago_s": 95.0}])
    # then only the words that are printed are defined
    manage.main(["status", "--socket-dir", str(sockets)])
    assert words_of(capsys.readouterr().out) == ["fresh", "suspect", "quarantine", "silent", "agent", "claim"]

    # and those of the nodes
    manage.main(["status", "--nodes", "--socket-dir", str(sockets)])
    out = capsys.readouterr().out
    assert words_of(out) == [
        "fresh", "provisional", "quarantined", "agent", "heard_ago_s", "outstanding", "pending", "claim",
    ]  # fmt: skip
    assert "  pending      Claims of any scheduler that the agent accepted" in out


@pytest.mark.parametrize("options", [[], ["--nodes"], ["--reads"], ["--foreign-changes"]])
def test_programs_get_no_definitions(sockets: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    manage.main(["status", "--socket-dir", str(sockets), "--format", "json", *options])
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and json.loads(out)


def test_agents_that_were_heard_and_are_not_now_are_named(
    sockets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [{"host": f"c{number}", "node": f"n{number}", "heard_ago_s": 310.4 - number} for number in range(7)]
    monkeypatch.setitem(ANSWER, "agents_silent", 7)
    monkeypatch.setitem(ANSWER, "silent_agents", named)

    assert manage.main(["status", "--socket-dir", str(sockets)]) == 0

    out = capsys.readouterr().out
    assert (
        "  silent     7 agents were heard and are not now: c0 (last heard 310 s ago), c1 (last heard 309 s ago), "
        in out
    )
    assert "c4 (last heard 306 s ago) and 2 more (status --nodes)\n" in out
    monkeypatch.setitem(ANSWER, "agents_silent", 0)
    manage.main(["status", "--socket-dir", str(sockets)])
    assert "  silent  " not in capsys.readouterr().out


def test_each_node_tells_whether_its_agent_is_heard(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["status", "--nodes", "--socket-dir", str(sockets)]) == 0

    _, head, *rows = capsys.readouterr().out.splitlines()[:4]
    shown = [dict(zip(re.split(r"\s{2,}", head), re.split(r"\s{2,}", row), strict=False)) for row in rows]
    assert [(row["host"], row["freshness"], row["agent"]) for row in shown] == [
        ("c1", "fresh", "heard"), ("c2", "provisional", "silent"),
    ]  # fmt: skip


@pytest.mark.parametrize(("reason", "told"), [
    ("exchange of memory", "disabled (exchange of memory)"), ("", "disabled"), ("x" * 100, f"disabled ({'x' * 60}…)"),
])  # fmt: skip
def test_a_disabled_node_is_shown_with_its_reason(
    sockets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, reason: str, told: str
) -> None:
    monkeypatch.setitem(NODE, "why_not", "disabled")
    monkeypatch.setitem(NODE, "disabled_reason", reason)

    assert manage.main(["status", "--nodes", "--socket-dir", str(sockets)]) == 0

    out = capsys.readouterr().out
    assert f"  {told}  " in out.partition("\nWords:")[0]
    assert "  disabled     An administrator or nova-compute" in out


def test_each_counter_says_what_it_counts(
    sockets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = {"requests_answered": 1_234_567, "silences": 2, "Tick": 40, "of_another_release": 1}
    monkeypatch.setitem(ANSWER, "counters", counters)

    assert manage.main(["status", "--counters", "--socket-dir", str(sockets)]) == 0

    out = capsys.readouterr().out.partition("\n\nWords:")[0].splitlines()
    assert out[-5:] == [
        "  counters   since the start of the process; status --help defines them in full",
        "    requests_answered   1,234,567  Requests that were answered with hosts",
        "    silences                    2  Agents that were not heard for agent_silent_after_s",
        "    Tick                       40  Events of this name that were processed",
        "    of_another_release          1",
    ]


def test_counters_of_usual_work_are_shown_on_request_only(
    sockets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given counters of usual work, of what an administrator should know, and one of another release
    counters = {"AllocationWritten": 24, "CastReturned": 4, "MalformedMessage": 1, "Tick": 578, "core_failures": 1,
                "digests_equal": 75, "of_another_release": 3, "received_verdict": 25, "refused": 1,
                "requests_failed": 5, "returned": 4, "silences": 0}  # fmt: skip
    monkeypatch.setitem(ANSWER, "counters", counters)

    assert manage.main(["status", "--socket-dir", str(sockets)]) == 0

    out = capsys.readouterr().out.partition("\n\nWords:")[0].splitlines()
    shown = {line.split()[0]: " ".join(line.split()[2:]) for line in out if line.startswith("    ")}
    assert list(shown) == ["MalformedMessage", "core_failures", "of_another_release", "refused", "requests_failed"]
    assert shown["refused"] == "Claims that an agent refused"
    assert shown["requests_failed"] == "Requests that ended without a host: none was found, or the request failed"
    assert "  counters   since the start of the process; 6 more of usual work: status --counters" in out


def test_counters_of_usual_work_are_counters() -> None:
    assert set(ROUTINE) < terms.COUNTERS.terms.keys()


def test_without_an_argument_the_schedulers_are_those_of_novas_own_configuration(
    sockets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a nova.conf where Nova's commands find it
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".nova").mkdir(parents=True)
    conf = f"[shared_scheduler]\nadmin_socket_dir = {sockets}\n"
    (tmp_path / "home" / ".nova" / "nova.conf").write_text(conf)

    # then its schedulers are asked
    assert manage.main(["status"]) == 0
    assert "sched1 (process 17)" in capsys.readouterr().out


def test_a_cell_is_shown_by_its_name_in_nova(
    sockets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"name": "north", "connected": False, "in_state_s": 12.3, "heard_ago_s": None}
    monkeypatch.setitem(ANSWER, "cells", {"0b5b1ff2": named})

    assert manage.main(["status", "--socket-dir", str(sockets)]) == 1

    shown = capsys.readouterr()
    assert "cells      north NOT CONNECTED for 12 s" in shown.out
    assert "sched1: cell north has not been connected" in shown.err


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_cell_that_is_cut_off_is_a_failure(
    sockets: Path, form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off = {"connected": False, "in_state_s": 12.3, "heard_ago_s": None}
    monkeypatch.setitem(ANSWER["cells"], "c2", cut_off)  # type: ignore[arg-type]

    status = manage.main(["status", "--socket-dir", str(sockets), "--format", form])

    shown = capsys.readouterr()
    assert status == 1
    assert "sched1: cell c2 has not been connected for 12 s" in shown.err
    assert shown.err.count("\n") == 1
    assert form == "json" or "c2 NOT CONNECTED for 12 s, nothing heard yet" in shown.out


def test_foreign_changes_are_shown_newest_first(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["status", "--foreign-changes", "--socket-dir", str(sockets)]) == 0
    title, head, first, second, _, where = capsys.readouterr().out.splitlines()
    assert where == "status --help defines the columns"
    assert title == "sched1 (process 17): 7 foreign changes since its start, and 3 by operations of Nova"
    assert head.split() == ["seen_at", "kind", "consumer", "host", "seen_by", "before", "after"]
    assert re.split(r"\s{2,}", first) == [
        "2026-11-23 18:30:05Z", "changed", "server-1", "c1", "merge", "1: node-1 VCPU:2",
        "2: node-1 VCPU:2; port-1 NET_BW_EGR_KILOBIT_PER_SEC:100",
    ]  # fmt: skip
    # of an older release, the kind and the host are not known
    assert re.split(r"\s{2,}", second)[1:] == ["server-2", "new", "nothing", "1: node-2 VCPU:1"]


def test_the_reads_are_shown_with_ages_and_costs(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["status", "--reads", "--socket-dir", str(sockets)]) == 0
    _, head, first, *others = capsys.readouterr().out.partition("\n\nstatus --help")[0].splitlines()
    assert [line.split("  ")[0] for line in (first, *others)] == [source.name for source in SOURCES]
    shown = dict(zip(head.split(), re.split(r"\s{2,}", first), strict=True))
    assert {name: shown[name] for name in ("decision_waits", "oldest_s", "reads", "ms_each", "queries_each")} == {
        "decision_waits": "nothing is written", "oldest_s": "1.2", "reads": "4",
        "ms_each": "1.5", "queries_each": "1.0",
    }  # fmt: skip


def test_the_reads_are_data_too(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["status", "--reads", "--format", "json", "--socket-dir", str(sockets)]) == 0
    [answer] = json.loads(capsys.readouterr().out)
    assert answer["reads"][0]["rows"] == 2


def test_a_frozen_scheduler_is_reported_beside_the_answers_of_the_others(
    sockets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient_with(sockets / "sched2-18.sock", monkeypatch)
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(sockets / "sched2-18.sock"))
        frozen.listen()
        status = manage.main(["status", "--socket-dir", str(sockets), "--format", "json"])

    shown = capsys.readouterr()
    assert status == 2
    assert [answer["scheduler"] for answer in json.loads(shown.out)] == ["sched1"]
    assert "sched2-18.sock: nothing answers there" in shown.err
    assert shown.err.count("\n") == 1


def leave_socket(path: Path) -> None:
    """What a killed scheduler leaves behind."""
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))


def test_a_killed_scheduler_is_named_beside_the_answers_of_the_others(
    sockets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_socket(sockets / "sched2-18.sock")
    monkeypatch.setitem(
        ANSWER["cells"], "c2", {"connected": False, "in_state_s": 12.3, "heard_ago_s": None}  # type: ignore[arg-type]
    )  # fmt: skip

    assert manage.main(["status", "--socket-dir", str(sockets), "--format", "json"]) == 2

    shown = capsys.readouterr()
    killed, cut_off = shown.err.splitlines()
    assert [answer["scheduler"] for answer in json.loads(shown.out)] == ["sched1"]
    assert killed.startswith("status: sched2 (process 18) has ended without an orderly stop; ")
    assert killed.endswith(f"if it shall not run here any more, delete {sockets / 'sched2-18.sock'}")
    assert "cell c2" in cut_off, "the exit code of the one problem does not hide the other"


def test_no_running_scheduler_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["status", "--socket-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_sockets_are_found_without_nova(
    sockets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_text(f"[DEFAULT]\nstate_path = {sockets}\n[shared_scheduler]\nadmin_socket_dir = $state_path\n")
    monkeypatch.setitem(sys.modules, "shared_scheduler.nova.source_readers", None)  # it takes seconds to import

    assert manage.main(["status", "--config-file", str(conf)]) == 0
    assert "sched1 (process 17)" in capsys.readouterr().out


def test_no_directory_of_sockets_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_text("[shared_scheduler]\nadmin_socket_dir =\n")

    assert manage.main(["status", "--config-file", str(conf)]) == 2
    assert "admin_socket_dir is empty" in capsys.readouterr().err


def test_a_broker_that_nova_cannot_use_is_one_line_too(tmp_path: Path) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_text("[DEFAULT]\ntransport_url = rabit://nova:secret@mq:5672/\n")

    ended = subprocess.run(
        [sys.executable, "-m", "shared_scheduler.cmd.manage", "compare", "--config-file", str(conf)],
        capture_output=True, text=True,
    )  # fmt: skip

    assert ended.returncode == 2
    assert "transport_url" in ended.stderr and "rabit" in ended.stderr
    assert ended.stderr.count("\n") == 1 and "secret" not in ended.stderr


@pytest.mark.parametrize(("question", "options"), [
    ("reads", ["--reads"]), ("foreign-changes", ["--foreign-changes"]), ("nodes", ["--nodes"]),
])  # fmt: skip
def test_what_programs_get_obeys_its_schema(
    sockets: Path, capsys: pytest.CaptureFixture[str], question: str, options: list[str]
) -> None:
    assert manage.main(["status", "--socket-dir", str(sockets), "--format", "json", *options]) == 0

    Draft202012Validator(schemas()[question]).validate(json.loads(capsys.readouterr().out))

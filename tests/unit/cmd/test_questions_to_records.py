# SPDX-License-Identifier: Apache-2.0
"""``why``, ``why-not``, ``records`` and ``story`` read what schedulers have stored, and nothing else."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.core.change_kinds import ChangeKind
from shared_scheduler.core.effects import NodeChange, RecordBuild, RecordNode, SeenBy
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.decision.record import Attempt, DecisionCounts, Weighed
from shared_scheduler.nova import instance_actions
from shared_scheduler.placement.foreign_changes import ForeignChange
from shared_scheduler.records import entries
from shared_scheduler.records.askers import NOBODY
from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import NO_REASON, RecordWriter
from tests.unit.records.test_entries import record

NO_ADDRESS = "NoMoreFixedIps: No fixed IP addresses available for network: lan"
COMPARED = {"asked": 4096, "used": 8000, "capacity": 8192}
SHORT = ExplainedHost("n1", "c1", "no_room:MEMORY_MB", COMPARED, epoch=3, sequence=7)
REJECTION = (
    "no_room:MEMORY_MB (asked 4096 MB, used 8000 MB, capacity 8192 MB; short by 3.81 GiB; "
    "from its agent, state at epoch 3, sequence 7, 0.4 s old)"
)
NEAR = entries.Near([SHORT], {"no_room:MEMORY_MB": (512, 3904)}, {"n1": {"source": "agent", "age_s": 0.4}})

Ask = Callable[..., tuple[int, str, str]]


def build(host: str, at_s: float, uuid: str = "server-1", reason: str = NO_ADDRESS) -> dict[str, Any]:
    effect = RecordBuild("n", host, uuid, not reason, reason, cause="test")
    return entries.build_entry(effect, NOBODY, "sched1", at_s)


def stored() -> list[dict[str, Any]]:
    """Server 1 fails on three hosts without a new decision; server 2 has no host; server 3 is built."""
    best = (Weighed("n1", "c1", 1.5, 3, 41), Weighed("n2", "c2", 1.25, 3, 7))
    refused = Attempt("server-1", "n9", "c9", "topology", {"why": "NUMA"}, 3, 2, 1.5)
    written = Attempt("server-1", "n1", "c1", "written", {}, 3, 41, 2.5, 8.0)
    placed = record(
        ("server-1",), request_id="req-global", local_request_id="req-local", attempts=(refused, written),
        answer=(("c1", "c2", "c3"),), decisions=(DecisionCounts(0, 5, 4, {"no_room:VCPU": 1}, best),),
    )  # fmt: skip
    nothing = record(
        ("server-2",), request_id="req-none", failure="no_valid_host", text="0 of 5 hosts pass", answer=(), attempts=(),
        decisions=(DecisionCounts(0, 5, 0, {"no_room:MEMORY_MB": 5}),),
    )  # fmt: skip
    return [
        entries.entry(placed, "sched1", 1_760_000_000.0),
        build("c1", 1_760_000_001.0), build("c2", 1_760_000_002.0), build("c3", 1_760_000_003.0),
        build("c3", 1_760_000_003.2),  # two schedulers have recorded it
        entries.entry(nothing, "sched2", 1_760_000_010.0, NEAR),
        entries.entry(record(("server-3",), request_id="req-good"), "sched1", 1_760_000_020.0),
        build("cmp2", 1_760_000_021.0, "server-3", ""),
    ]  # fmt: skip


@pytest.fixture(params=["file", "database", "configuration"])
def ask(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Asks about ``stored``: exit code, output, errors."""
    path, url = tmp_path / "shared-scheduler" / "records.jsonl", f"sqlite:///{tmp_path}/records.sqlite"
    conf = tmp_path / "nova.conf"
    conf.write_text(f"[DEFAULT]\nstate_path = {tmp_path}\n")
    where = {
        "file": ["--records", str(path)], "database": ["--records", url], "configuration": ["--config-file", str(conf)],
    }  # fmt: skip
    store: RecordWriter = RecordTable(url) if request.param == "database" else JsonLines(path)
    store.write(stored())
    store.close()

    def answer(*arguments: str) -> tuple[int, str, str]:
        code = manage.main([arguments[0], *where[request.param], *arguments[1:]])
        return code, *capsys.readouterr()

    return answer


@pytest.mark.parametrize("name", ["req-local", "req-global", "server-1"])
def test_the_true_cause_of_a_failed_build_is_named(ask: Ask, name: str) -> None:
    code, out, _ = ask("why", name)

    lines = out.splitlines()
    assert code == 0
    assert lines[0] == f"{name}: the builds on c1, c2 and c3 failed"
    assert lines[1] == f"  cause     {NO_ADDRESS} (on c1, c2 and c3)", "all hosts, not the last; the reason once"
    assert lines[2].startswith("  end "), "no alternate is left"
    assert lines[3].startswith("  next ")
    assert "  tried     c9: topology (why NUMA); verdict 1.5 ms" in lines
    assert "  answer    server-1 on c1; alternates c2, c3" in lines
    assert "  weights   c1 1.5; c2 1.25" in lines
    took = "  took      12.3 ms: 1 decision, 2 hosts tried; the request came at 2025-10-09 08:53:19.987Z"
    assert took in lines, "what the times do not count is there"
    assert "  decision of sched1: req-local (global id req-global)\n" in out
    words = lines[lines.index("Words:") + 1 :]
    assert [word for word in ("no_room", "topology", "written", "weights", "alternates", "verdict", "write")
            if not any(line.startswith(f"  {word} ") for line in words)] == []  # fmt: skip
    assert out.count(": failed\n") == 3, "the end that two schedulers recorded is shown once"


def test_a_request_without_a_host_has_the_missing_resources(ask: Ask) -> None:
    code, out, _ = ask("why", "server-2")

    assert code == 0
    assert "server-2: no host was found (no_valid_host)" in out
    assert "  cause     0 of 5 hosts pass; rejected: 5 no_room:MEMORY_MB\n" in out
    assert "  decided   0 of 5 hosts passed; rejected: 5 no_room:MEMORY_MB" in out
    assert "  lacking   5 hosts are short of MEMORY_MB by 512 MB to 3.81 GiB\n" in out
    assert f"  host      c1: {REJECTION}\n" in out


def test_the_end_of_a_build_that_no_agent_has_told_says_who_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = RecordBuild("", "c2", "server-1", False, "Build of instance aborted", 1_760_000_009.0, cause="builds read")
    JsonLines(tmp_path / "r").write([*stored()[:2], entries.build_entry(read, NOBODY, "sched1", 1_760_000_009.0)])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    assert "build of server-1 on c1: failed\n" in out
    assert "build of server-1 on c2: failed (read from Nova's databases)\n" in out


def test_a_build_of_which_nova_keeps_no_reason_has_no_cause_but_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = {"c3": NO_REASON, "c1": NO_REASON, "c2": NO_ADDRESS}
    read = [build(host, 1_760_000_001.0 + n, reason=reason) for n, (host, reason) in enumerate(reasons.items())]
    JsonLines(tmp_path / "r").write([stored()[0], *read])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "server-1: the builds on c3, c1 and c2 failed",
        f"  cause     {NO_ADDRESS} (on c2)",
        "  end       no alternate was left after these builds, and Nova gave up",
        "  unknown   on c3 and c1: Nova keeps no reason of a build that it tries on another host",
        "  next      the logs of nova-compute on c3, c1 and c2 have the traceback",
    ]


@pytest.mark.parametrize(("refused", "failed", "told"), [
    ((), (), "became active on c1"),
    (("c3",), (), "became active on c1 (c3 refused before)"),
    ((), ("c2",), "became active on c1 (the build on c2 failed before)"),
    (("c4", "c5"), ("c2", "c3"), "became active on c1 (c4 and c5 refused and the builds on c2 and c3 failed before)"),
])  # fmt: skip
def test_a_server_that_is_active_after_trouble_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: tuple[str, ...], failed: tuple[str, ...], told: str
) -> None:
    tries = [*(Attempt("server-1", "n", host, "no_capacity", {}) for host in refused),
             Attempt("server-1", "n", "c1", "written", {})]  # fmt: skip
    placed = record(("server-1",), attempts=tuple(tries), answer=(("c1",),))
    builds = [build(host, 1_760_000_001.0 + n) for n, host in enumerate(failed)]
    last = build("c1", 1_760_000_009.0, reason="")
    JsonLines(tmp_path / "r").write([entries.entry(placed, "sched1", 1_760_000_000.0), *builds, last])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"server-1: {told}"


def test_the_traits_that_all_hosts_lack_are_part_of_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lacks = ExplainedHost("n1", "c1", "traits", {"missing": ["HW_CPU_X86_AVX512F"]})
    refused = record(("server-4",), failure="no_candidates", text="0 of 1 hosts pass", answer=(), attempts=())
    JsonLines(tmp_path / "r").write([entries.entry(refused, "sched1", 1_760_000_000.0, entries.Near([lacks]))])

    assert manage.main(["why", "server-4", "--records", str(tmp_path / "r")]) == 0
    cause = "0 of 1 hosts pass; rejected: 6 no_room, 1 ComputeFilter; missing: HW_CPU_X86_AVX512F"
    assert f"  cause     {cause}\n" in capsys.readouterr().out


def test_a_filter_that_ended_a_try_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = {"filter": "ServerGroupAntiAffinityFilter", "members": ["server-1", "server-2"], "forbidden": []}
    attempt = Attempt("server-5", "n", "c1", "filter", members)
    failed = record(("server-5",), failure="no_valid_host", text="none", answer=(), attempts=(attempt,))
    JsonLines(tmp_path / "r").write([entries.entry(failed, "sched1", 1_760_000_000.0)])

    assert manage.main(["why", "server-5", "--records", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    assert "tried: c1 ServerGroupAntiAffinityFilter; rejected:" in out.splitlines()[1]
    assert "  rejected  c1: ServerGroupAntiAffinityFilter (members server-1 server-2)\n" in out


@pytest.mark.parametrize(("failure", "text", "outcomes", "first", "cause"), [
    ("timed_out", "", (), "the request failed (timed_out)", "timed_out"),
    ("placement_unreachable", "no answer", ("unreachable",),
     "the request failed (placement_unreachable)", "no answer; tried: c0 unreachable"),
    ("no_valid_host", "0 of 9 hosts pass; rejected: no_room: 6, tried: 2", ("topology", "late"),
     "no host was found (no_valid_host)",
     "0 of 9 hosts pass; rejected: 6 no_room, 2 tried; tried: c0 topology, c1 late"),
    ("no_valid_host", "none accepted", ("late",) * 6, "no host was found (no_valid_host)",
     "none accepted; tried: c0 late, c1 late, c2 late, c3 late, c4 late and 1 more; "
     "rejected: 6 no_room, 1 ComputeFilter"),
])  # fmt: skip
def test_the_cause_of_a_failure_names_what_was_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failure: str, text: str, outcomes: tuple[str, ...],
    first: str, cause: str,
) -> None:  # fmt: skip
    attempts = tuple(Attempt("server-5", "n", f"c{n}", outcome, {}) for n, outcome in enumerate(outcomes))
    failed = record(("server-5",), failure=failure, text=text, answer=(), attempts=attempts)
    JsonLines(tmp_path / "r").write([entries.entry(failed, "sched1", 1_760_000_000.0)])

    assert manage.main(["why", "server-5", "--records", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [f"server-5: {first}", f"  cause     {cause}"]


def test_a_server_that_was_built_has_no_cause(ask: Ask) -> None:
    code, out, _ = ask("why", "req-good", "--format", "json")

    story = json.loads(out)
    assert (code, story["outcome"], story["causes"]) == (0, "became active on cmp2", [])
    assert [each["kind"] for each in story["records"]] == ["decision", "build"]


def test_a_placed_server_without_the_end_of_its_build_is_reported_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    JsonLines(tmp_path / "r").write(stored()[:1])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.startswith("server-1: placed on c1; no build is recorded after that\n")


@pytest.mark.parametrize("command", ["why req-new", "why-not req-new c1", "story c1", "records last 1"])
def test_a_record_of_a_later_release_is_shown_as_such(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = {"kind": "network_faults", "at": 1_760_000_000.0, "request_id": "req-new", "hosts": ["c1"], "wind": "north"}
    JsonLines(tmp_path / "r").write([later])

    assert manage.main([*command.split(), "--records", str(tmp_path / "r")]) == 0
    assert "network_faults" in capsys.readouterr().out


def test_a_record_of_a_later_release_changes_no_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = {"kind": "network_faults", "at": 1_760_000_030.0, "instances": ["server-1"], "result": "sunny"}
    JsonLines(tmp_path / "r").write([*stored(), later])

    manage.main(["why", "server-1", "--records", str(tmp_path / "r")])
    assert capsys.readouterr().out.startswith("server-1: the builds on c1, c2 and c3 failed\n")


def test_why_names_the_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placed = stored()[0]
    moved = {**placed, "asked": {**placed["asked"], "move": "live_migration"}}
    JsonLines(tmp_path / "r").write([moved])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    assert "  asked     live migration of 1 server, flavor " in capsys.readouterr().out


def test_a_missing_record_is_one_line(ask: Ask) -> None:
    code, out, err = ask("why", "server-9")

    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("why: server-9: there is no record of it")
    assert "uuids of servers were searched" in err
    assert "names of hosts were searched" in ask("story", "c99")[2]


@pytest.mark.parametrize(
    ("host", "told"),
    [
        (
            "c1",
            [
                "passed, number 1 by weight 1.5 (state at epoch 3, sequence 41)",
                "tried: written",
                "selected",
                NO_ADDRESS,
            ],
        ),
        (
            "c2",
            [
                "passed, number 2 by weight 1.25 (state at epoch 3, sequence 7); c1 was the first with 1.5",
                "alternate of c1",
            ],
        ),
        ("c9", ["tried: topology (why NUMA)"]),
        ("c7", ["does not name c7, so its own reason is not known", "4 hosts passed, rejected: 1 no_room:VCPU"]),
    ],
)
def test_why_not_prints_all_records_of_one_host(ask: Ask, host: str, told: list[str]) -> None:
    code, out, _ = ask("why-not", "server-1", host)

    assert code == 0
    assert [text for text in told if text not in out] == []


def test_why_not_gives_the_numbers_compared(ask: Ask) -> None:
    _, out, _ = ask("why-not", "req-none", "c1", "--format", "json")

    assert json.loads(out)[0]["text"] == f"rejected: {REJECTION}"


def test_the_last_records_are_listed(ask: Ask) -> None:
    code, out, _ = ask("records", "last", "3")

    assert code == 0
    assert [line.split()[2] for line in out.splitlines()[1:]] == ["decision", "decision", "build"]
    assert [line.split()[-3:-1] for line in out.splitlines()[-1:]] == [["server-3", "active"]]


def test_a_decision_is_listed_with_its_selected_hosts_and_those_that_refused(ask: Ask) -> None:
    _, out, _ = ask("records", "last", "9", "--kind", "decision")

    assert [re.split("  +", line)[5:6] for line in out.splitlines()[1:]] == [
        ["c1 (refused: c9)"], ["0 of 5 hosts pass"], ["cmp2"],
    ]  # fmt: skip


def test_whoever_asks_for_what_failed_learns_that_other_results_failed_too(ask: Ask) -> None:
    assert "no_valid_host" in ask("records", "last", "9", "--result", "failed")[1].splitlines()[-1]
    assert "no_valid_host" not in ask("records", "last", "9", "--result", "placed")[1]


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        (["--result", "failed"], 4), (["--host", "c3", "--kind", "build"], 2), (["--reason", "no such text"], 0),
        (["--reason", "No fixed IP"], 4), (["--reason", "no_room:MEMORY_MB"], 1), (["--project", "other"], 0),
        (["--since", "1760000010", "--until", "1760000020"], 2),
        # the ends were recorded by a scheduler that does not know whose servers these are
        (["--project", "demo"], 8), (["--project", "demo", "--kind", "build", "--result", "failed"], 4),
        (["--project", "demo", "--kind", "build", "--since", "1760000021"], 1),
        (["--project", "demo", "--host", "c2"], 1),
        (["--project", "other", "--kind", "build"], 0),
    ],
)  # fmt: skip
def test_the_last_records_with_conditions(ask: Ask, conditions: list[str], count: int) -> None:
    code, out, err = ask("records", "last", "100", "--format", "json", *conditions)

    assert (code, len(out.splitlines())) == (0 if count else 1, count)
    assert err == (
        "" if count else "records: no record meets all conditions; schedulers keep only the newest records\n"
    )


def test_the_newest_records_of_a_project_are_chosen_with_its_ends(ask: Ask) -> None:
    _, out, _ = ask("records", "last", "2", "--project", "demo", "--format", "json")

    assert [(one["kind"], one["request_id"]) for one in map(json.loads, out.splitlines())] == [
        ("decision", "req-good"), ("build", "req-good"),
    ]  # fmt: skip


def test_the_story_of_a_host(ask: Ask) -> None:
    code, out, _ = ask("story", "c1", "--format", "json")

    assert code == 0
    assert [one["text"] for one in json.loads(out)] == [
        "passed, number 1 by weight 1.5 (state at epoch 3, sequence 41)", "tried: written", "selected",
        f"the build on c1 ended: failed: {NO_ADDRESS}", f"rejected: {REJECTION}",
    ]  # fmt: skip
    assert ask("story", "c8")[0] == 1


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (["--records", "/nowhere/records.jsonl"], "records_file: there is no file /nowhere/records.jsonl; name it"),
        (["--records", "/proc/self/typo.jsonl"], "records_file: there is no file /proc/self/typo.jsonl"),
        (["--records", "what://no"], "records_connection: "),
        (["--records", "mysql://nova@db/records"], "write mysql+pymysql://"),
        (["--config-file", "/nowhere/nova.conf"], "the configuration: "),
    ],
)
def test_records_that_cannot_be_read_are_one_clear_line(
    where: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert manage.main(["why", "req-1", *where]) == 2

    err = capsys.readouterr().err
    assert err.count("\n") == 1 and text in err


#: what a question imports neither from a file nor from a database
HEAVY = ("nova", "alembic", "oslo_messaging", "oslo_config")


@pytest.mark.parametrize(
    "command", [["why", "req-good"], ["records", "last", "5"], ["story", "c1"], ["why-not", "server-1", "c1"]]
)
@pytest.mark.parametrize(("place", "absent"), [("/records.jsonl", "sqlalchemy"), ("sqlite:////records", "numpy")])
def test_a_question_imports_only_what_reads_its_store(
    command: list[str], place: str, absent: str, tmp_path: Path
) -> None:
    place = place.replace("/records", f"{tmp_path}/records")
    store: RecordWriter = RecordTable(place) if "://" in place else JsonLines(Path(place))
    store.write(stored())
    store.close()
    script = f"""
import sys
from shared_scheduler.cmd import manage
manage.main({[command[0], "--records", place, *command[1:]]!r})
print([name for name in {(*HEAVY, absent)!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_the_story_of_a_host_has_snapshots_and_gaps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = [
        RecordNode("c1", change, 3, sequence, increments, cause="")
        for change, sequence, increments in zip(NodeChange, (1, 41, 0), (0, 40, 0), strict=True)
    ]
    first, gap, silent = (entries.node_entry(one, "s1", 1_760_000_000.0 + n) for n, one in enumerate(changes))
    JsonLines(tmp_path / "r").write([first, build("c1", 1_760_000_000.5), gap, silent])

    assert manage.main(["story", "c1", "--records", str(tmp_path / "r"), "--format", "json"]) == 0
    assert [one["text"] for one in json.loads(capsys.readouterr().out)] == [
        "s1: a snapshot: state at epoch 3, sequence 1",
        f"the build on c1 ended: failed: {NO_ADDRESS}",
        "s1: 40 increments, then asked for the messages after its state at epoch 3, sequence 41",
        "s1: its agent is silent: its state is read from the databases",
    ]


def test_a_foreign_change_is_found_after_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given the record of a scheduler that has found a removal
    change = ForeignChange(
        "server-1", {"n1": {"VCPU": 1}}, 1, {}, None, SeenBy.REPORT, 1_760_000_000.5, ChangeKind.REMOVED, "c1"
    )
    JsonLines(tmp_path / "r").write([entries.foreign_entry(change, NOBODY, "s1"), build("c1", 1_760_000_000.0)])
    records = ("--records", str(tmp_path / "r"))

    # then the feed, the story of the server and that of its host have it
    assert manage.main(["records", "last", "9", "--kind", "foreign", "--result", "removed", *records]) == 0
    assert "1: n1 VCPU:1 -> nothing" in capsys.readouterr().out
    assert manage.main(["why", "server-1", *records]) == 0
    told = capsys.readouterr().out
    assert "another writer changed allocations of server-1 on c1" in told
    assert "kind      removed, seen by report of s1" in told
    assert manage.main(["story", "c1", *records]) == 0
    assert "another writer changed allocations: removed: 1: n1 VCPU:1 -> nothing" in capsys.readouterr().out


def test_the_story_of_a_host_has_rejections_of_servers_that_were_tried_nowhere(ask: Ask) -> None:
    # given server 2, for which no host was found; of c1, its record tells why
    code, out, _ = ask("story", "c1", "--format", "json")

    # then the story of the host has it
    assert code == 0
    assert [(one["instances"], one["text"]) for one in json.loads(out)][-1] == (["server-2"], f"rejected: {REJECTION}")
    # and the host was neither selected nor tried
    assert ask("records", "last", "9", "--host", "c1", "--kind", "decision")[1].count("no_valid_host") == 0


def test_an_end_that_another_scheduler_recorded_has_the_ids_of_its_decision(ask: Ask) -> None:
    # given builds that were recorded by a scheduler that had not placed the server
    _, out, _ = ask("records", "last", "9", "--kind", "build", "--format", "json")

    # then they have the ids of the decision, in the list and in the stories
    found = [json.loads(line) for line in out.splitlines()]
    ids = {(one["instances"][0], one["request_id"], one["global_request_id"], one["project_id"]) for one in found}
    assert ids == {("server-1", "req-local", "req-global", "demo"), ("server-3", "req-good", "", "demo")}
    told = json.loads(ask("story", "c1", "--format", "json")[1])
    assert [one["request_id"] for one in told if "the build on c1" in one["text"]] == ["req-local"]
    why = json.loads(ask("why", "server-3", "--format", "json")[1])
    assert [one["project_id"] for one in why["records"] if one["kind"] == "build"] == ["demo"]


def test_what_nova_did_on_a_host_is_in_its_story(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server that was built on the host in the second of its decision, and deleted later
    asked: list[str] = []

    def read(config_files: object, instances: list[str]) -> list[dict[str, Any]]:
        asked.extend(instances)
        event = {"request_id": "req-1", "instance": "server-3", "result": "Success", "details": ""}
        return [
            {**event, "at": 1_760_000_020.0, "action": "create", "event": "compute__do_build", "host": "cmp2"},
            {**event, "at": 1_760_000_022.0, "action": "migrate", "event": "compute_prep_resize", "host": "c9"},
            {**event, "at": 1_760_000_030.0, "action": "fault", "event": "500", "host": "cmp2", "details": "lost"},
            {**event, "at": 1_760_000_040.0, "action": "delete", "event": "compute_terminate_instance", "host": "cmp2"},
        ]

    monkeypatch.setattr(instance_actions, "read", read)
    JsonLines(tmp_path / "r").write(stored())

    assert manage.main(["story", "cmp2", "--nova", "--records", str(tmp_path / "r"), "--format", "json"]) == 0

    # then both are in the story, and what was done elsewhere is not
    assert asked == ["server-3"]
    assert [one["text"].partition(" by ")[0] for one in json.loads(capsys.readouterr().out)] == [
        "passed, number 1", "tried: written", "selected", "Nova, create: compute__do_build began; Success",
        "the build on cmp2 ended: active", "Nova, fault: lost",
        "Nova, delete: compute_terminate_instance began; Success",
    ]  # fmt: skip


def test_an_end_that_nova_kept_in_the_second_of_the_decision_stands_behind_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a build that ended in the second of its decision, of which Nova keeps whole seconds
    decided = {**stored()[0], "at": 1_760_000_000.7}
    read = RecordBuild("", "c1", "server-1", True, "", 1_760_000_000.0, cause="builds read")
    JsonLines(tmp_path / "r").write([decided, entries.build_entry(read, NOBODY, "sched1", 1_760_000_000.0)])

    # then the decision comes first, and the build is what became of it
    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "server-1: became active on c1 (c9 refused before)"
    assert [line.partition("Z  ")[2].split()[0] for line in out if line.startswith("20")] == ["decision", "build"]
    assert manage.main(["story", "c1", "--records", str(tmp_path / "r"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["text"] == "the build on c1 ended: active"


def test_novas_events_are_shown_between_our_records_in_order_of_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def read(config_files: object, instances: list[str]) -> list[dict[str, Any]]:
        asked.extend(instances)
        return [{"at": 1_760_000_001.5, "request_id": "req-local", "action": "create", "event": "compute__do_build",
                 "instance": "server-1", "host": "c1", "result": "Error",
                 "details": "No more IP addresses"}]  # fmt: skip

    monkeypatch.setattr(instance_actions, "read", read)
    JsonLines(tmp_path / "r").write(stored())

    assert manage.main(["why", "req-local", "--nova", "--records", str(tmp_path / "r")]) == 0

    heads = [line.partition("Z  ")[2] for line in capsys.readouterr().out.splitlines() if line.startswith("20")]
    assert asked == ["server-1"]
    assert [head.split(":")[0] for head in heads] == [
        "decision of sched1", "build of server-1 on c1", "Nova, create", "build of server-1 on c2",
        "build of server-1 on c3",
    ]  # fmt: skip


def test_novas_events_stand_behind_the_decision_of_their_second_and_say_how_they_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(config_files: object, instances: list[str]) -> list[dict[str, Any]]:
        begun = {"request_id": "req-local", "action": "create", "event": "compute__do_build_and_run_instance",
                 "details": "", "instance": "server-1"}  # fmt: skip
        return [
            {**begun, "at": 1_760_000_000.0, "host": "c1", "result": "Success"},
            {**begun, "at": 1_760_000_001.0, "host": "c2", "result": "unfinished"},
            {**begun, "at": 1_760_000_002.0, "host": "c3", "result": "Success"},
        ]

    monkeypatch.setattr(instance_actions, "read", read)
    decided = {**stored()[0], "at": 1_760_000_000.4}
    ends = [build("c1", 1_760_000_001.0), build("c3", 1_760_000_002.0, reason="")]
    JsonLines(tmp_path / "r").write([decided, *ends])

    assert manage.main(["why", "server-1", "--nova", "--records", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    event = "Nova, create: compute__do_build_and_run_instance on"
    assert [line for line in out.splitlines() if line.startswith("20")] == [
        "2025-10-09 08:53:20.400Z  decision of sched1: req-local (global id req-global)",
        f"2025-10-09 08:53:20Z  {event} c1 began; it ended (the build was handed back to nova-conductor)",
        f"2025-10-09 08:53:21Z  {event} c2 began; no end recorded",
        "2025-10-09 08:53:21.000Z  build of server-1 on c1: failed",
        f"2025-10-09 08:53:22Z  {event} c3 began; Success",
        "2025-10-09 08:53:22.000Z  build of server-1 on c3: active",
    ]
    assert "  no end recorded  " in out and "  Success  " in out


def test_no_warning_of_a_library_of_nova_is_printed(tmp_path: Path) -> None:
    path, conf = tmp_path / "records.jsonl", tmp_path / "nova.conf"
    JsonLines(path).write(stored())
    conf.write_text(f"[DEFAULT]\n[shared_scheduler]\nrecords_file = {path}\n[api_database]\nconnection = sqlite://\n")
    command = [sys.executable, "-m", "shared_scheduler.cmd.manage", "why", "server-1", "--nova"]
    done = subprocess.run([*command, "--config-file", str(conf)], capture_output=True, text=True, check=False)

    assert "--nova" in done.stderr, "its databases have no tables"
    assert "Eventlet" not in done.stderr


def test_novas_databases_that_cannot_be_read_are_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(config_files: object, instances: list[str]) -> list[dict[str, Any]]:
        raise ConnectionError("Can't connect to MySQL server")

    monkeypatch.setattr(instance_actions, "read", read)
    JsonLines(tmp_path / "r").write(stored())

    assert manage.main(["why", "req-local", "--nova", "--records", str(tmp_path / "r")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "Can't connect to MySQL server" in line and "--config-file" in line


@pytest.mark.parametrize(("name", "said"), [
    ("req-local", "why req-local --nova --records {} shows Nova's own events and faults"),
    ("server-2", "why-not server-2 HOST --records {} shows what one host lacked"),
])  # fmt: skip
def test_a_next_command_reads_the_same_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    path = str(tmp_path / "my records")
    JsonLines(Path(path)).write(stored())

    assert manage.main(["why", name, "--records", path]) == 0
    assert f"  next      {said.format(shlex.quote(path))}\n" in capsys.readouterr().out


def test_a_next_command_does_not_repeat_the_password_of_a_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    store = RecordTable(url)
    store.write(stored())
    store.close()

    assert manage.main(["why", "req-local", "--records", url]) == 0
    assert "why req-local --nova --records URL shows" in capsys.readouterr().out


def test_a_result_that_does_not_exist_is_told(ask: Ask) -> None:
    assert "'plcaed' is no result that --help lists" in ask("records", "last", "9", "--result", "plcaed")[2]
    assert "--help" not in ask("records", "last", "9", "--result", "timed_out")[2]


def test_the_records_of_a_host_say_who_recorded_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard = RecordNode("c7", NodeChange.SNAPSHOT, 3, 1, 0, cause="")
    JsonLines(tmp_path / "r").write([entries.node_entry(heard, "s1", 1_760_000_000.0)])

    assert manage.main(["records", "last", "1", "--records", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.endswith("  c7     s1: a snapshot: state at epoch 3, sequence 1\n")


@pytest.mark.parametrize("host", ["c77", "C1"])
def test_a_host_that_no_record_names_may_be_misspelt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    JsonLines(tmp_path / "r").write(stored())
    told = f"no record of any request names a host {host}; check its name"

    place = ["--records", str(tmp_path / "r")]

    assert manage.main(["why-not", "server-1", host, *place]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == told
    assert manage.main(["why-not", "server-1", host, "--format", "json", *place]) == 0
    assert capsys.readouterr().err == f"why-not: {told}\n"
    assert manage.main(["why-not", "server-3", "c9", *place]) == 0
    assert "check its name" not in capsys.readouterr().out, "another request names it"


def test_why_not_says_first_what_became_of_the_server(ask: Ask) -> None:
    assert ask("why-not", "server-3", "c1")[1].splitlines()[0] == "server-3 and host c1: became active on cmp2"


def test_hosts_of_equal_weight_are_not_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = tuple(Weighed("n", host, weight, 3, 1) for host, weight in (("c3", 2.0), ("c1", 2.0), ("c4", 1.5)))
    found = record(("server-1",), decisions=(DecisionCounts(0, 3, 3, {}, best),), attempts=(), answer=())
    JsonLines(tmp_path / "r").write([entries.entry(found, "sched1", 1_760_000_000.0)])

    def told(host: str) -> str:
        manage.main(["why-not", "server-1", host, "--records", str(tmp_path / "r"), "--format", "json"])
        return str(json.loads(capsys.readouterr().out)[0]["text"])

    state = "(state at epoch 3, sequence 1)"
    assert told("c3") == told("c1") == f"passed, one of the best 2, by weight 2 {state}"
    assert told("c4") == f"passed, number 3 by weight 1.5 {state}; c3 was the first with 2"


def test_one_host_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = record(("server-1",), decisions=(DecisionCounts(0, 3, 1, {}),), attempts=(), answer=())
    JsonLines(tmp_path / "r").write([entries.entry(found, "sched1", 1_760_000_000.0)])

    assert manage.main(["why-not", "server-1", "c5", "--records", str(tmp_path / "r")]) == 0
    assert "; 1 host passed, rejected: " in capsys.readouterr().out


def test_a_decision_tells_when_its_request_came_and_no_negative_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = (Weighed("n", "c3", 2.0, 3, 1, {"RAMWeigher": 2.0, "IoOpsWeigher": -0.0}),)
    times = {"total": 1500.0, "decisions": 1, "attempts": 0}
    found = record(("server-1",), decisions=(DecisionCounts(0, 3, 2, {}, best),), timings_ms=times)
    JsonLines(tmp_path / "r").write([entries.entry(found, "sched1", 1_760_000_000.0)])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  weights   c3 2 = RAMWeigher 2 + IoOpsWeigher 0" in lines
    assert "  took      1500.0 ms: 1 decision, 0 hosts tried; the request came at 2025-10-09 08:53:18.500Z" in lines


def test_a_filter_that_is_counted_already_is_told_once_in_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "ServerGroupAntiAffinityFilter"
    tries = tuple(Attempt("server-5", "n", f"c{n}", "filter", {"filter": name}) for n in range(3))
    counts = (DecisionCounts(0, 3, 0, {name: 3}),)
    failed = record(("server-5",), failure="no_valid_host", text="0 of 3 hosts pass", answer=(), attempts=tries,
                    decisions=counts)  # fmt: skip
    JsonLines(tmp_path / "r").write([entries.entry(failed, "sched1", 1_760_000_000.0)])

    assert manage.main(["why", "server-5", "--records", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"  cause     0 of 3 hosts pass; rejected: 3 {name}"


@pytest.mark.parametrize(("name", "said"), [
    ("req-local", ["each build failed for the same reason: ",
                   "the logs of nova-compute on c1, c2 and c3 have the traceback", "why req-local --nova "]),
    ("server-2", ["why-not server-2 HOST ", "fit --flavor "]),
    ("server-3", []),
])  # fmt: skip
def test_a_story_says_what_to_do_next(ask: Ask, name: str, said: list[str]) -> None:
    found = [
        line.removeprefix("  next").strip() for line in ask("why", name)[1].splitlines() if line.startswith("  next")
    ]

    assert len(found) == len(said)
    assert all(line.startswith(part) for line, part in zip(found, said, strict=True))


def test_a_request_that_was_decided_in_one_step_is_not_said_to_take_no_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = record(("server-1",), failure="no_valid_host", timings_ms={"total": 0.0, "decisions": 1, "attempts": 3})
    JsonLines(tmp_path / "r").write([entries.entry(refused, "sched1", 1_760_000_000.0)])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    assert "  took      less than 0.1 ms of waiting: 1 decision, 3 hosts tried" in out


def test_each_try_stands_behind_the_decision_that_selected_its_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a server that was refused twice, and decided again each time
    tries = [Attempt("server-1", f"n{n}", f"c{n}", outcome, {}, after_decisions=n)
             for n, outcome in enumerate(("no_capacity", "topology", "written"), 1)]  # fmt: skip
    best = [(Weighed("n1", "c1", 1.5, 3, 1),), (Weighed("n1", "c1", 1.25, 3, 2),), (Weighed("n3", "c3", 1.0, 3, 1),)]
    counts = tuple(DecisionCounts(0, 9, 9 - n, {"tried": n}, one) for n, one in enumerate(best))
    found = record(("server-1",), decisions=counts, attempts=tries, answer=(("c3",),))
    JsonLines(tmp_path / "r").write([entries.entry(found, "sched1", 1_760_000_000.0)])
    place = ["--records", str(tmp_path / "r")]

    # then why shows them in the order in which they happened
    assert manage.main(["why", "server-1", *place]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("  decided   ", "  tried   "))]
    assert [" ".join(line.split()[:2]) for line in lines[:6]] == [
        "decided 9", "tried c1:", "decided 8", "tried c2:", "decided 7", "tried c3:",
    ]  # fmt: skip

    # and why-not does for one host
    assert manage.main(["why-not", "server-1", "c1", "--format", "json", *place]) == 0
    assert [one["text"].split(" by ")[0] for one in json.loads(capsys.readouterr().out)] == [
        "passed, number 1", "tried: no_capacity", "passed, number 1",
    ]  # fmt: skip


def test_equal_weights_are_told_once_and_a_decision_without_hosts_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = {"CPUWeigher": 1.0, "RAMWeigher": 1.0}
    best = tuple(Weighed("n", host, weight, 3, 1, shares if weight == 2 else {})
                 for host, weight in (("c3", 2.0), ("c1", 2.0), ("c4", 1.5)))  # fmt: skip
    found = record(("server-1",), decisions=(DecisionCounts(0, 0, 0, {}), DecisionCounts(0, 3, 3, {}, best)))
    JsonLines(tmp_path / "r").write([entries.entry(found, "sched1", 1_760_000_000.0)])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("  decided ", "  weights  "))][:3] == [
        "  decided   no host was known yet",
        "  decided   3 of 3 hosts passed",
        "  weights   c3 and c1 each 2 = CPUWeigher 1 + RAMWeigher 1; c4 1.5",
    ]


def test_the_reasons_that_a_question_asked_for_are_shown_for_a_placed_server_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a server that was placed although a host had no room
    JsonLines(tmp_path / "r").write(stored())
    place = ["--kind", "decision", "--records", str(tmp_path / "r")]

    # when an operator asks for what had no room, then each line shows why it is there
    assert manage.main(["records", "last", "9", "--reason", "no_room", *place]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [re.split("  +", line)[-1] for line in lines] == [
        "rejected: 1 no_room:VCPU", "0 of 5 hosts pass; rejected: 5 no_room:MEMORY_MB", "rejected: 6 no_room",
    ]  # fmt: skip

    # and without this question nothing is added
    assert manage.main(["records", "last", "9", *place]) == 0
    assert "no_room" not in capsys.readouterr().out


def test_a_host_that_a_filter_rejected_is_not_said_to_have_refused_or_been_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a decision in which a filter of Nova rejected each selected host, so that no agent was asked
    name = "ServerGroupAntiAffinityFilter"
    tries = tuple(Attempt("server-5", "n", f"c{n}", "filter", {"filter": name}) for n in range(3))
    failed = record(("server-5",), failure="no_valid_host", text="0 of 3 hosts pass", answer=(), attempts=tries,
                    decisions=(DecisionCounts(0, 3, 0, {name: 3}),))  # fmt: skip
    JsonLines(tmp_path / "r").write([entries.entry(failed, "sched1", 1_760_000_000.0)])
    place = ["--records", str(tmp_path / "r")]

    # then why and records agree
    assert manage.main(["why", "server-5", *place]) == 0
    out = capsys.readouterr().out
    assert "1 decision, 0 hosts tried, 3 rejected by a filter" in out
    assert f"  rejected  c0: {name}\n" in out
    assert manage.main(["records", "last", "1", *place]) == 0
    assert "(rejected by a filter: c0,c1,c2)" in capsys.readouterr().out


def test_an_active_server_tells_which_host_a_filter_rejected_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tries = (Attempt("server-1", "n", "c2", "filter", {"filter": "NUMATopologyFilter"}),
             Attempt("server-1", "n", "c1", "written", {}))  # fmt: skip
    placed = entries.entry(record(("server-1",), attempts=tries, answer=(("c1",),)), "sched1", 1_760_000_000.0)
    JsonLines(tmp_path / "r").write([placed, build("c1", 1_760_000_001.0, reason="")])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    assert capsys.readouterr().out.startswith("server-1: became active on c1 (a filter rejected c2 before)\n")


GAVE_UP = "  end       no alternate was left after these builds, and Nova gave up"


@pytest.mark.parametrize(("failed", "told"), [(("c1", "c2", "c3"), True), (("c1", "c2"), False)])
def test_a_server_whose_build_failed_on_all_hosts_of_the_answer_has_no_alternate_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failed: tuple[str, ...], told: bool
) -> None:
    builds = [build(host, 1_760_000_001.0 + n) for n, host in enumerate(failed)]
    JsonLines(tmp_path / "r").write([stored()[0], *builds])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    assert (GAVE_UP in capsys.readouterr().out.splitlines()) == told


def test_the_builds_before_a_new_decision_say_nothing_of_its_alternates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given builds that failed on all hosts, and then a new decision that has only one of its builds behind it
    builds = [build(host, 1_760_000_001.0 + n) for n, host in enumerate(("c1", "c2", "c3"))]
    again = {**stored()[0], "at": 1_760_000_009.0}
    JsonLines(tmp_path / "r").write([stored()[0], *builds, again, build("c1", 1_760_000_010.0)])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    assert GAVE_UP not in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", ["why server-1", "why-not server-1 c1", "story c1", "records last 3"])
def test_a_file_whose_lines_are_no_records_is_told_from_a_name_that_is_not_there(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r").write_text("root:x:0:0:root:/root:/bin/bash\n")
    assert manage.main([*command.split(), "--records", str(tmp_path / "r")]) == 1
    assert "no records of shared_scheduler are there" in capsys.readouterr().err

    JsonLines(tmp_path / "other").write(stored()[:1])
    other = ["records", "last", "3", "--kind", "build"] if command.startswith("records") else ["why", "server-9"]
    assert manage.main([*other, "--records", str(tmp_path / "other")]) == 1
    assert "no records of shared_scheduler" not in capsys.readouterr().err

# SPDX-License-Identifier: Apache-2.0
"""The log line of a decision."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from shared_scheduler.core.change_kinds import ChangeKind
from shared_scheduler.core.effects import RecordBuild, SeenBy
from shared_scheduler.decision.record import Attempt, DecisionCounts, DecisionRecord, Weighed, asked_of
from shared_scheduler.decision.request import Flavor, Request
from shared_scheduler.placement.foreign_changes import ForeignChange
from shared_scheduler.protocol.messages import Usage
from shared_scheduler.records import entries
from shared_scheduler.records.askers import NOBODY, asker_of
from shared_scheduler.records.record_shape import read_record


def record(instances: tuple[str, ...] = ("i-1",), **changes: Any) -> DecisionRecord:
    request = Request(
        request_id="req-7",
        project_id="demo",
        user_id="u",
        flavor=Flavor(name="m1"),
        forms=(),
        usage=Usage(),
        instance_uuids=instances,
    )
    values: dict[str, Any] = {
        "decisions": (
            DecisionCounts(0, 10, 3, {"ComputeFilter": 1, "no_room": 6}, (Weighed("n2", "cmp2", 1.75, 3, 41),)),
        ),
        "attempts": (Attempt("i-1", "n2", "cmp2", "written", {}, 3, 41, 2.5, 8.0),),
        "answer": tuple((f"cmp{n}", "cmp9") for n, _ in enumerate(instances, 2)),
        "timings_ms": {"total": 12.345},
    }
    return DecisionRecord(**{"request_id": "req-7", "asked": asked_of(request), **values, **changes})


def test_a_placed_server_is_one_line() -> None:
    assert entries.line(record()) == (
        "req-7: Placed i-1 on cmp2; 3 of 10 hosts passed, rejected: 6 no_room, 1 ComputeFilter; 12.3 ms"
    )


def test_hosts_that_turned_it_down_are_named() -> None:
    refused = Attempt("i-1", "n5", "cmp5", "topology", {})

    text = entries.line(record(attempts=(refused, *record().attempts)))

    assert "1 hosts refused: cmp5 topology" in text


def test_no_host_has_a_reason() -> None:
    text = entries.line(record(failure="no_valid_host", text="0 of 10 hosts pass", answer=()))

    assert text.startswith("req-7: No host for i-1: no_valid_host: 0 of 10 hosts pass;")


def test_a_large_request_does_not_make_a_long_line() -> None:
    text = entries.line(record(tuple(f"i-{n}" for n in range(100))))

    assert "and 96 more" in text
    assert len(text) < 400


def test_the_entry_has_the_search_keys_and_the_whole_decision() -> None:
    kept = entries.entry(record(), "sched1", 1_760_000_000.25)

    assert (kept["result"], kept["hosts"], kept["project_id"]) == ("placed", ["cmp2"], "demo")
    assert kept["asked"]["flavor"] == "m1"
    assert kept["decisions"][0]["best"][0]["sequence"] == 41
    json.dumps(kept)


def test_the_end_of_a_build_has_the_names_of_its_decision() -> None:
    build = RecordBuild("n2", "cmp2", "i-1", False, "NoMoreFixedIps: none left", cause="build of i-1")

    kept = entries.build_entry(build, asker_of(record(local_request_id="req-local")), "sched1", 1.0)

    assert (kept["kind"], kept["result"], kept["reason"]) == ("build", "failed", "NoMoreFixedIps: none left")
    assert (kept["request_id"], kept["global_request_id"], kept["instances"]) == ("req-local", "req-7", ["i-1"])
    assert (kept["project_id"], kept["hosts"]) == ("demo", ["cmp2"])
    assert entries.build_entry(build, NOBODY, "sched1", 1.0)["request_id"] == "", "placed before this process started"


def test_a_foreign_change_tells_what_was_and_what_is() -> None:
    port = {"n2": {"VCPU": 1}, "port": {"NET_BW": 100}}
    change = ForeignChange("i-1", {"n2": {"VCPU": 1}}, 1, port, 2, SeenBy.REPORT, 1.5, ChangeKind.CHANGED, "cmp2")

    kept = entries.foreign_entry(change, asker_of(record()), "sched1")

    assert (kept["kind"], kept["result"], kept["instances"]) == ("foreign", "changed", ["i-1"])
    assert (kept["hosts"], kept["project_id"], kept["at"]) == (["cmp2"], "demo", 1.5)
    assert kept["reason"] == "1: n2 VCPU:1 -> 2: n2 VCPU:1; port NET_BW:100"
    assert read_record(json.dumps(kept)) == kept
    gone = entries.foreign_entry(replace(change, after={}, generation_after=None, host=""), NOBODY, "sched1")
    assert (gone["reason"], gone["hosts"]) == ("1: n2 VCPU:1 -> nothing", [])


def test_a_failure_is_its_outcome() -> None:
    kept = entries.entry(record(failure="timed_out", answer=()), "sched1", 0.0)

    assert (kept["result"], kept["hosts"]) == ("timed_out", ["cmp2"])

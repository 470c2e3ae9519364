# SPDX-License-Identifier: Apache-2.0
"""``records --reason`` finds records by the reasons that all screens show, and by the codes that records have."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.decision.record import Attempt, DecisionCounts
from shared_scheduler.records import entries
from shared_scheduler.records.database import RecordTable
from shared_scheduler.records.json_lines import JsonLines
from tests.unit.records.test_entries import record

Ask = Callable[[str], tuple[int, list[str], str]]
ANTI = "ServerGroupAntiAffinityFilter"


def failed(server: str, at_s: float, reasons: dict[str, int], near: ExplainedHost, **more: Any) -> dict[str, Any]:
    text = "0 of 3 hosts pass; rejected: " + ", ".join(f"{code}: {count}" for code, count in reasons.items())
    counts = (DecisionCounts(0, 3, 0, reasons),)
    made: dict[str, Any] = {"attempts": (), "answer": (), **more}
    found = record((server,), failure="no_valid_host", text=text, decisions=counts, **made)
    return entries.entry(found, "sched1", at_s, entries.Near([near]))


TRAIT = ExplainedHost("n1", "c1", "root_traits", {"forbidden": ["COMPUTE_STATUS_DISABLED"]})
SERVICE = ExplainedHost("n1", "c1", "ComputeFilter", {"disabled": True, "up": True, "forced_down": False})
RECORDS = [
    failed("by-trait", 1_760_000_000.0, {"root_traits": 1, "aggregates": 2}, TRAIT),
    failed("by-service", 1_760_000_001.0, {"ComputeFilter": 1, "aggregates": 2}, SERVICE),
    failed("of-group", 1_760_000_002.0, {"tried": 1, "aggregates": 2}, ExplainedHost("n2", "c2", "aggregates", {}),
           attempts=(Attempt("of-group", "n1", "c1", "filter", {"filter": ANTI}, after_decisions=1),)),
]  # fmt: skip


@pytest.fixture(params=["file", "database"])
def ask(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Exit code, the servers and reasons of the rows, and errors of ``records last 9 --reason``."""
    place = str(tmp_path / "r") if request.param == "file" else f"sqlite:///{tmp_path}/records.sqlite"
    store = JsonLines(tmp_path / "r") if request.param == "file" else RecordTable(place)
    store.write(RECORDS)
    store.close()

    def asked(reason: str) -> tuple[int, list[str], str]:
        code = manage.main(["records", "last", "9", "--reason", reason, "--records", place])
        told = capsys.readouterr()
        rows = [re.split("  +", line) for line in told.out.splitlines()[1:]]
        return code, [f"{row[3]}: {row[-1]}" for row in rows], told.err

    return asked


def test_the_told_name_finds_what_all_screens_call_so(ask: Ask) -> None:
    code, rows, _ = ask("disabled")

    assert (code, rows) == (0, [
        "by-trait: 0 of 3 hosts pass; rejected: 2 aggregates, 1 disabled",
        "by-service: 0 of 3 hosts pass; rejected: 2 aggregates, 1 disabled",
    ])  # fmt: skip


@pytest.mark.parametrize(("code", "server"), [("root_traits", "by-trait"), ("ComputeFilter", "by-service")])
def test_the_code_of_the_record_finds_it_too_and_is_shown(ask: Ask, code: str, server: str) -> None:
    assert ask(code)[1] == [f"{server}: 0 of 3 hosts pass; rejected: 2 aggregates, 1 disabled; rejected: 1 {code}"]


@pytest.mark.parametrize("reason", [ANTI, "AntiAffinity", "filter"])
def test_a_filter_that_ended_a_try_is_found_by_its_name_and_its_code(ask: Ask, reason: str) -> None:
    [row] = ask(reason)[1]

    assert row.startswith("of-group: ") and f"tried: c1 {ANTI}" in row


@pytest.mark.parametrize(("reason", "told"), [
    ("disabld", "'disabld' is no name of a reason; these are: disabled"),
    ("xyzzy", "'xyzzy' is no name of a reason; these are: root_traits, traits, aggregates, "),
])  # fmt: skip
def test_an_unknown_name_is_one_line_with_the_known_ones(ask: Ask, reason: str, told: str) -> None:
    code, rows, err = ask(reason)

    assert (code, rows, err.count("\n")) == (1, [], 1)
    assert told in err


@pytest.mark.parametrize("reason", [
    "no_room", "no_room:VCPU", "SiteFilter", "No more IP addresses", "topology", "VCPU", "PortBindingFailed",
])  # fmt: skip
def test_a_name_that_no_record_has_is_not_said_to_be_unknown(ask: Ask, reason: str) -> None:
    code, _, err = ask(reason)

    assert code == 1 and "is no name of a reason" not in err

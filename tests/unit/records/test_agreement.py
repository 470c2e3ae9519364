# SPDX-License-Identifier: Apache-2.0
"""How ours and nova-scheduler are compared, and what ``agreement`` shows of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from shared_scheduler.cmd import manage
from shared_scheduler.decision.record import Attempt, DecisionRecord
from shared_scheduler.records import agreement
from shared_scheduler.records.agreement import Agreement, Chosen, ComparedRequest, compare
from shared_scheduler.records.json_lines import JsonLines

ASKED = {"request_id": "req-1", "global_request_id": "", "project_id": "p", "user_id": "u", "instances": ["server-1"]}
WEIGHTS = {"n1": 3.0, "n2": 2.95, "n3": 2.95, "n4": 1.0}
NEAR_TIE = 0.1


def chosen(*nodes: str, error: str = "", took_ms: float = 10.0) -> Chosen:
    return Chosen(tuple((node, node.replace("n", "host")) for node in nodes), error, took_ms)


def refused(node: str) -> str:
    return f"reason of {node}"


def compared(ours: Chosen, stock: Chosen, failure: str = "", attempts: tuple[Attempt, ...] = ()) -> ComparedRequest:
    record = DecisionRecord("req-1", {}, attempts=attempts, failure=failure, weights=WEIGHTS)
    return compare(ASKED, record, ours, stock, NEAR_TIE, refused)


@pytest.mark.parametrize(
    ("ours", "stock", "result", "reason", "place"),
    [
        (("n1",), ("n1",), Agreement.SAME, "", None),
        (("n1", "n2"), ("n2", "n1"), Agreement.SAME, "", None),
        (("n1",), ("n2",), Agreement.DIFFERENT, "near_tie", 2),
        (("n2",), ("n3",), Agreement.DIFFERENT, "equal_weight", 2),
        (("n1",), ("n4",), Agreement.DIFFERENT, "weight", 4),
        (("n1", "n1"), ("n1", "n4"), Agreement.DIFFERENT, "weight", 4),
        (("n1",), ("n9",), Agreement.DIFFERENT, "reason of n9", None),
    ],
)
def test_two_choices(ours: Any, stock: Any, result: Agreement, reason: str, place: int | None) -> None:
    found = compared(chosen(*ours), chosen(*stock))

    assert (found.result, found.reason) == (result, reason)
    assert (found.rank.place if found.rank else None) == place


@pytest.mark.parametrize(
    ("ours", "stock", "result", "reason"),
    [
        ("no_valid_host", "", Agreement.OURS_REFUSED, "reason of n2"),
        ("no_valid_host", "NoValidHost", Agreement.BOTH_REFUSED, ""),
        ("", "NoValidHost", Agreement.STOCK_REFUSED, "NoValidHost"),
        ("timed_out", "", Agreement.OURS_FAILED, "timed_out"),
        ("timed_out", "NoValidHost", Agreement.OURS_FAILED, "timed_out"),
        ("", "MessagingTimeout", Agreement.STOCK_FAILED, "MessagingTimeout"),
        ("no_valid_host", "MessagingTimeout", Agreement.STOCK_FAILED, "MessagingTimeout"),
    ],
)
def test_errors(ours: str, stock: str, result: Agreement, reason: str) -> None:
    nodes: tuple[str, ...] = () if ours else ("n1",)
    answer = chosen(error=stock) if stock else chosen("n2")

    found = compared(chosen(*nodes, error=ours), answer, failure=ours)

    assert (found.result, found.reason) == (result, reason)


def test_the_filter_of_nova_that_refused_the_host_is_the_reason() -> None:
    attempts = (Attempt("server-1", "n9", "host9", "filter", {"filter": "NUMATopologyFilter"}),)

    found = compared(chosen("n1"), chosen("n9"), attempts=attempts)

    assert found.reason == "NUMATopologyFilter"


def test_a_week_in_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given eight comparisons of this week, and one that is older
    now_s, file = time.time(), tmp_path / "records.jsonl"
    same = compared(chosen("n1", took_ms=2.0), chosen("n1", took_ms=80.0))
    other = compared(chosen("n1"), chosen("n4", took_ms=90.0))
    dropped = ComparedRequest(ASKED, Agreement.DROPPED, "", Chosen(), chosen("n1", took_ms=70.0))
    store = JsonLines(file)
    store.write([same.entry("sched1", now_s - 8 * 86400)])
    store.write([one.entry("sched1", now_s - 60) for one in [*[same] * 6, other, dropped]])
    store.close()

    # when the operator asks
    assert manage.main(["agreement", "--records", str(file), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert manage.main(["agreement", "--records", str(file)]) == 0
    text = capsys.readouterr().out

    # then they are in one table
    Draft202012Validator(schemas()["agreement"]).validate(told)
    assert told["requests"] == 8
    assert told["results"] == {each.value: 0 for each in Agreement} | {"same": 6, "different": 1, "dropped": 1}
    assert told["reasons"] == [{"result": "different", "reason": "weight", "requests": 1}]
    assert told["latency_ms"]["stock"] == {"p50": 80.0, "p99": 90.0, "max": 90.0}
    assert told["latency_ms"]["ours"]["p50"] == 2.0
    assert told["rank_of_stocks_host"]["max"] == 4
    assert [one["stock"]["hosts"] for one in told["differences"]] == [["host4"]]
    assert "75.00 %" in text and "3 and 1" in text and "host4" in text


def test_a_long_time_is_read_in_parts_and_nothing_is_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given more comparisons in one second than are read at once, and others over three days
    monkeypatch.setattr(agreement, "PART_MAX", 4)
    store, same = JsonLines(tmp_path / "records.jsonl"), compared(chosen("n1"), chosen("n1"))
    times_s = sorted([1e9 + hour * 3600 for hour in range(72)] + [1e9 + 90 + n / 1e6 for n in range(10)])
    store.write([same.entry("sched1", at_s) for at_s in times_s])

    found = [record["at"] for record in agreement.comparisons(store, 1e9, 1e9 + 72 * 3600)]

    assert found == [round(at_s, 6) for at_s in times_s]
    store.close()


def test_the_story_of_a_request_names_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "records.jsonl"
    store = JsonLines(file)
    store.write([compared(chosen("n1"), chosen("n4")).entry("sched1", time.time())])
    store.close()

    for command, name in (("why", "server-1"), ("why-not", "server-1"), ("story", "host1")):
        host = ["host4"] if command == "why-not" else []
        assert manage.main([command, name, *host, "--records", str(file)]) == 0
        text = capsys.readouterr().out
        assert "host1" in text and "host4" in text


def test_without_a_comparison_there_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text("")

    assert manage.main(["agreement", "--records", str(file)]) == 1
    assert "mode shadow" in capsys.readouterr().err


@pytest.mark.parametrize("since", ["d", "+7d", "7w", "9999999d", "nan", "2026-13-01"])
def test_a_wrong_time_is_refused(since: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        manage.main(["agreement", "--since", since])
    assert "is not a time such as" in capsys.readouterr().err


@pytest.mark.parametrize(("since", "span"), [("30m", "30 minutes"), ("36h", "36 hours"), ("7d", "7 days")])
def test_how_far_back_was_looked_is_told(
    since: str, span: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "records.jsonl").write_text("")

    assert manage.main(["agreement", "--since", since, "--records", str(file)]) == 1
    assert capsys.readouterr().err == (
        f"agreement: no comparison in the last {span}; comparisons are made in mode shadow; "
        "--since reaches further back\n"
    )


@pytest.mark.parametrize("since", ["30m", "2026-11-23T17:00", "1795500000"])
@pytest.mark.parametrize("command", [["agreement"], ["records", "last", "5"]])
def test_all_commands_read_the_same_forms_of_a_time(
    command: list[str], since: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text("")

    assert manage.main([*command, "--since", since, "--records", str(file)]) == 1
    err = capsys.readouterr().err
    assert "no comparison in the last" in err or "no records of shared_scheduler are there" in err

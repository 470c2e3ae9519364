# SPDX-License-Identifier: Apache-2.0
"""The figures of repeated measurements, and their text."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from tools.laboratory.bench import plots, report
from tools.laboratory.bench.claim_counters import in_a_hundred
from tools.laboratory.bench.command import contestants
from tools.laboratory.bench.contest import SHARED, STOCK, in_turn
from tools.laboratory.bench.meters import Used
from tools.laboratory.bench.report import introduction, without_background
from tools.laboratory.bench.results import (
    Measurement,
    Messages,
    Results,
    Round,
    burst_of,
    from_json,
    measured,
    quantile,
    ratio,
)
from tools.laboratory.cloud.access_log import parse

ACCESS_LOG = """\
1763708000001 17 GET /allocation_candidates?limit=1000&resources=VCPU%3A1 200 254000 905000 - nova-scheduler
1763708000002 17 GET /allocations/c1 200 3000 90 - nova-scheduler
1763708000003 18 PUT /allocations/c1 409 21000 300 req-1 nova-scheduler
1763708000004 18 POST /allocations 204 15000 0 req-1 shared-scheduler
"""
MACHINE = {
    "commit": "0123456789ab", "processor": "EPYC", "cores": 2, "memory_gb": 24, "kernel": "6", "python": "3.11",
    "mariadb": "10.11", "rabbitmq": "3.10", "packages": {"nova": "34.0.0"}, "load": [0.1],
}  # fmt: skip


#: 4 servers, placed by 2 schedulers that run for 10 s beside a few hosts
MESSAGES = Messages(10.0, {
    "sent_claim": 5, "received_claim": 5, "sent_verdict": 5, "received_verdict": 5, "sent_release": 1,
    "received_release": 1, "sent_increment": 8, "received_increment": 16, "sent_buildresult": 8,
    "received_buildresult": 12, "sent_heartbeat": 30, "received_heartbeat": 60, "sent_hello": 4, "received_hello": 4,
})  # fmt: skip


def tally(latencies_s: list[float], hosts: list[str]) -> dict[str, Any]:
    told = {f"instance-{number}": host for number, host in enumerate(hosts)}
    return {"wall_s": 2.0, "latencies_s": latencies_s, "hosts": told, "alternates": 6, "failures": 0, "errors": []}


def used(scheduler_s: float) -> Used:
    requests = [request for line in ACCESS_LOG.splitlines() if (request := parse(line))]
    assert len(requests) == 4
    return Used(2.0, {"scheduler": scheduler_s, "placement": 0.5}, {"scheduler": {"select_commands": 12.0}}, requests)


def measurement(per_second: float = 1.0, scheduler_s: float = 1.0) -> Measurement:
    one = measured(
        tally([0.1, 0.3, 0.2, 0.9], ["a", "a", "b", "a"]), used(scheduler_s), 8, (0.1, 0.2), {"answered": 4}, MESSAGES,
        {"scheduler": 0.02},
    )  # fmt: skip
    return dataclasses.replace(one, per_second=per_second)


def results(rates: dict[str, list[float]]) -> Results:
    rounds = []
    for name, of in rates.items():
        for repeat, rate in enumerate(of, 1):
            rounds.append(Round(name, 1000, repeat, measurements=[measurement(rate, 40 / rate)]))
    return Results(MACHINE, {}, rounds)


def test_a_measurement_is_reported_per_request() -> None:
    one = measurement()
    assert (one.answered, one.min_ms, one.median_ms, one.p95_ms) == (4, 100, 300, 900)
    assert one.cpu_s_each == {"scheduler": 0.25, "placement": 0.125}
    assert one.background_s_each == {"scheduler": 0.01}
    assert without_background(one) == 365.0
    assert one.calls_each == {"candidates": 0.25, "other": 0.25, "writes": 0.5, "conflicts": 0.25}
    assert one.write_ms == 21.0
    assert one.statements_each == {"scheduler": {"select_commands": 3.0}}
    assert (one.distinct_hosts, one.busiest_host, one.alternates_each) == (2, 3, 1.5)


def test_the_introduction_tells_how_fast_the_interpreter_is() -> None:
    timed = Results(MACHINE | {"python_loop_ms": 21.3}, {}, [])

    assert "Python 3.11 (the loop of machine.py takes 21.3 ms), " in introduction(timed)
    assert "Python 3.11, " in introduction(results({}))


def test_a_measurement_without_answers_is_reported() -> None:
    one = measured(tally([], []) | {"failures": 4, "errors": ["Timeout"]}, used(0.1), 8, (0.0, 0.0), {}, Messages(), {})
    assert (one.answered, one.per_second, one.median_ms, one.distinct_hosts) == (0, 0, 0, 0)


def test_ratios_are_taken_within_a_repeat() -> None:
    """A machine that is twice as slow in one repeat slows both; the ratio does not show it."""
    found = ratio(results({"stock": [2.0, 1.0], "shared": [60.0, 30.0]}), 1000, 8, report.per_second, "shared", "stock")
    assert found is not None
    assert (found.low, found.median, found.high, found.count) == (30, 30, 30, 2)


def test_a_repeat_that_one_side_lacks_gives_no_ratio() -> None:
    assert ratio(results({"stock": [], "shared": [60.0]}), 1000, 8, report.per_second, "shared", "stock") is None


def test_results_survive_their_file() -> None:
    before = results({"stock": [2.0], "shared": [60.0]})
    assert from_json(json.loads(report.report_of(before).text("json"))) == before


def test_a_file_of_another_format_is_refused() -> None:
    with pytest.raises(KeyError, match="format 0"):
        from_json({"format": 0})


@pytest.mark.parametrize("form", ["text", "rst"])
def test_tables_name_the_ratio_of_rate_and_of_cpu(form: str) -> None:
    text = report.report_of(results({"stock": [2.0, 1.0], "shared": [60.0, 40.0]})).text(form)
    assert "35x (30x to 40x)" in text
    assert "1/34.3 (1/40 to 1/30)" in text


def test_quantiles_are_of_the_values_that_were_seen() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (quantile(values, 0.0), quantile(values, 0.5), quantile(values, 0.95)) == (1, 51, 96)


def test_every_other_repeat_has_the_reverse_order() -> None:
    order = [[one.name for one in in_turn((STOCK, SHARED), repeat)] for repeat in (1, 2, 3)]
    assert order == [["stock", "shared"], ["shared", "stock"], ["stock", "shared"]]


# -- bursts


def bursts() -> Results:
    """A hundred servers in one request, and the same writes without a scheduler, which took half of the time."""
    hosts = [f"host-{number % 50}" for number in range(100)]
    ours = burst_of({**tally([2.0], hosts), "wall_s": 2.0}, used(1.0), 100, 1, 0.5)
    alone = burst_of({**tally([0.1] * 100, hosts), "wall_s": 1.0}, used(0.0), 100, 100, 0.5)
    rounds = [Round("shared", 1000, 1, bursts=[ours]), Round("write alone", 1000, 1, bursts=[alone])]
    return Results(MACHINE, {}, rounds)


def test_a_burst_is_reported_beside_the_same_writes_without_a_scheduler() -> None:
    (first, _) = report.bursts(bursts()).rows
    assert first[:8] == ["1,000 hosts: shared #1", "100", "1", "100", "0", "0", "2", "2x"]
    assert first[-2:] == ["50", "0.5"]


def test_bursts_are_read_back_and_older_files_have_no_bursts() -> None:
    saved = json.loads(json.dumps(bursts().as_json()))
    assert from_json(saved) == bursts()
    for one in saved["rounds"]:
        del one["bursts"]
    assert [one.bursts for one in from_json(saved).rounds] == [[], []]


def test_a_burst_that_ends_at_its_limit_tells_how_many_requests_had_not_begun() -> None:
    hosts = ["host-1"] * 28
    slow = burst_of({**tally([50.0] * 28, hosts), "wall_s": 900.0, "failures": 2}, used(1.0), 100, 100, 0.5)
    (first,) = report.bursts(Results(MACHINE, {}, [Round("stock", 1000, 1, bursts=[slow])])).rows
    assert first[3:6] == ["28", "2", "70"]


def test_a_burst_that_failed_fails_the_run() -> None:
    found = bursts()
    assert not report.report_of(found).wrong
    found.rounds[0].bursts[0].failures = 1
    assert report.report_of(found).wrong


def test_several_schedulers_are_contestants_of_their_own() -> None:
    chosen = contestants(None, "with", True, (1, 4))
    assert [one.name for one in chosen] == ["stock", "shared", "stock x4", "shared x4", "write alone"]
    assert [one.workers for one in chosen] == [1, 1, 4, 4, 1]


def test_what_host_keys_cost_is_shown_by_a_contestant_with_them() -> None:
    chosen = contestants("shared", "with", False, (1,), host_keys=True)

    assert [(one.name, one.host_keys, one.agents) for one in chosen] == [
        ("shared", False, True), ("shared, host keys", True, True),
    ]  # fmt: skip


def test_what_records_cost_is_shown_by_a_contestant_without_them() -> None:
    chosen = contestants("shared", "with", False, (1,), without_records=True)

    assert [(one.name, one.records, one.agents) for one in chosen] == [
        ("shared", True, True), ("shared, no records", False, True),
    ]  # fmt: skip


# -- plots, and what became of claims


def of_schedulers(rates: dict[str, dict[int, float]]) -> Results:
    """Contestant -> callers -> requests a second, at 1,000 hosts."""
    rounds = []
    for name, by_callers in rates.items():
        made = [dataclasses.replace(measurement(rate), callers=callers) for callers, rate in by_callers.items()]
        rounds.append(Round(name, 1000, 1, measurements=made))
    return Results(MACHINE, {}, rounds)


def test_plots_have_a_line_for_each_contestant_over_what_was_varied() -> None:
    found = dict(plots.plots([of_schedulers({
        "stock": {1: 2.0, 8: 3.0}, "shared": {1: 20.0, 8: 60.0}, "shared x4": {1: 20.0, 8: 90.0},
    })]))  # fmt: skip
    assert sorted(found) == [
        "cpu-over-callers.svg", "cpu-over-schedulers.svg", "requests-over-callers.svg", "requests-over-schedulers.svg",
    ]  # fmt: skip
    over_callers = found["requests-over-callers.svg"]
    assert over_callers.startswith("<svg") and over_callers.count("<polyline") == 3
    assert "shared, 1,000 hosts, 4 schedulers" in over_callers
    # one scheduler of stock was measured, which is no line
    assert found["requests-over-schedulers.svg"].count("<polyline") == 2
    assert "stock" not in found["requests-over-schedulers.svg"]


def test_runs_of_several_sizes_are_plotted_together() -> None:
    small, large = of_schedulers({"shared": {8: 60.0}}), of_schedulers({"shared": {8: 50.0}})
    large.rounds[0].hosts = 10_000
    found = dict(plots.plots([small, large]))
    assert list(found) == ["requests-over-hosts.svg", "cpu-over-hosts.svg"]


def test_claims_that_were_refused_or_overtaken_are_counted_in_a_hundred() -> None:
    assert in_a_hundred({"answered": 98, "refused": 1, "conflicts": 1}) == 2.0
    assert in_a_hundred({}) == 0.0


# -- messages


def test_the_messages_of_a_request_are_shown_beside_the_formula() -> None:
    # given 4 servers, placed by two schedulers; one claim was refused
    one = Round("shared x2", 456, 1, schedulers=2, measurements=[measurement()])
    # when they are shown
    rows = {row[0]: row[1:] for row in report.messages_of(Results(MACHINE, {}, [one]), 456).rows}
    # then each number is beside that of the formula, by which an end of a build goes to one scheduler
    named = "shared x2 #1, 8 callers: "
    assert rows[f"{named}claim a request"] == ["1.25", "1", "1.25", "1"]
    assert rows[f"{named}increment a request"] == ["2", "2", "4", "4"]
    assert rows[f"{named}buildresult a request"] == ["2", "1", "3", "1"]
    assert rows[f"{named}all of these a request"] == ["6.75", "4", "9.75", "6"]
    # and the heartbeats of 456 hosts, each every 45.6 s
    assert rows[f"{named}heartbeats a second"] == ["3", "10", "6", "20"]
    assert rows[f"{named}all others, in 10 s"] == ["4", "", "4", ""]


def test_results_without_messages_have_no_table_of_them() -> None:
    saved = json.loads(json.dumps(results({"shared": [60.0]}).as_json()))
    for one in saved["rounds"]:
        del one["idle_messages"], one["schedulers"]
        for part in one["measurements"]:
            del part["messages"]

    older = from_json(saved)

    assert older.rounds[0].measurements[0].messages == Messages()
    assert "messages of the state channel" not in report.report_of(older).text("text")


def test_the_wait_until_all_builds_have_ended_costs_no_cpu_time() -> None:
    found = used(3.0).without_idle({"scheduler": 0.5, "agents": 1.0}, {}, 4.0)

    assert found.cpu_s == {"scheduler": 1.0, "placement": 0.5}

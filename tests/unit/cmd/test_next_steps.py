# SPDX-License-Identifier: Apache-2.0
"""What ``why`` tells an operator to do after a refusal, and what the hosts lacked."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.decision.record import DecisionCounts
from shared_scheduler.records import entries
from shared_scheduler.records.json_lines import JsonLines
from tests.unit.records.test_entries import record


def refused_by(reasons: dict[str, int], *details: dict[str, Any], group: list[str] | None = None) -> dict[str, Any]:
    """The record of a server that found no host for one reason."""
    [code] = reasons
    near = entries.Near(
        [ExplainedHost(f"n{n}", f"c{n}", code, one) for n, one in enumerate(details)], {code: (500, 900)}
    )
    counts = (DecisionCounts(0, sum(reasons.values()), 0, reasons),)
    found = record(("server-1",), failure="no_valid_host", text="none", answer=(), attempts=(), decisions=counts)
    entry = entries.entry(found, "sched1", 1_760_000_000.0, near)
    return {**entry, "asked": {**entry["asked"], "group": group}}


EMPTY = {"asked": 1000, "used": 0, "max_unit": 100}
LATER = "  next      fit --flavor m1{} --number 1 shows whether such a server would fit now"


@pytest.mark.parametrize(("refused", "lacking", "fit"), [
    (refused_by({"no_room:MEMORY_MB": 2}, EMPTY, {"asked": 1000, "used": 5, "max_unit": 120}),
     ["asked 1000 MB of MEMORY_MB; one server gets at most 120 MB on these 2 hosts, even if they are empty"], []),
    (refused_by({"no_room:VCPU": 1}, {"asked": 9, "used": 0, "capacity": 8}),
     ["asked 9 of VCPU; one server gets at most 8 on this host, even if it is empty"], []),
    (refused_by({"no_room:MEMORY_MB": 2}, EMPTY, {"asked": 1000, "used": 900, "capacity": 1200}),
     ["asked 1000 MB of MEMORY_MB; one server gets at most 100 MB on c0, even if it is empty",
      "c1 is short of MEMORY_MB by 700 MB"], [LATER.format("")]),
    (refused_by({"no_room:MEMORY_MB": 9}, EMPTY),  # the others may be larger
     ["9 hosts are short of MEMORY_MB by 500 MB to 900 MB"], [LATER.format("")]),
    (refused_by({"no_room:VCPU": 1}, {"asked": 2, "used": 8, "capacity": 8}, group=["group-1", "anti-affinity"]),
     ["1 host is short of VCPU by 500 VCPU to 900 VCPU"], [LATER.format(" --group group-1")]),
])  # fmt: skip
def test_a_server_that_is_too_large_for_empty_hosts_is_not_to_be_asked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: dict[str, Any], lacking: list[str], fit: list[str]
) -> None:
    JsonLines(tmp_path / "r").write([refused])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[12:] for line in lines if line.startswith("  lacking ")] == lacking
    assert [line for line in lines if " fit --flavor" in line] == fit


@pytest.mark.parametrize(("asked", "told"), [
    ({"instances": [f"server-{n}" for n in range(6)]}, "--number 6 shows whether such servers would fit now"),
    ({"availability_zone": "west; 'far'"}, "--zone 'west; '\"'\"'far'\"'\"'' --number 1 shows whether such a server"),
    ({"ignore_hosts": ["c1", "c2"]}, "--ignore-host c1 --ignore-host c2 --number 1"),
    ({"destination": {"host": "c7", "node": ""}}, "--host c7 --number 1"),
    ({"force_hosts": ["c8"]}, "--host c8 --number 1"),
])  # fmt: skip
def test_what_limits_a_request_limits_the_question_whether_it_would_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: dict[str, Any], told: str
) -> None:
    found = refused_by({"no_room:VCPU": 9}, {"asked": 2, "used": 8, "capacity": 8})
    JsonLines(tmp_path / "r").write([{**found, "asked": {**found["asked"], **asked}}])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    (step,) = [line for line in capsys.readouterr().out.splitlines() if " fit --flavor" in line]
    assert f" fit --flavor m1 {told}" in step


def test_each_next_step_of_a_refusal_names_the_same_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_text(f"[shared_scheduler]\nrecords_file = {tmp_path / 'r'}\n")
    JsonLines(tmp_path / "r").write([refused_by({"no_room:VCPU": 9}, {"asked": 2, "used": 8, "capacity": 8})])

    assert manage.main(["why", "server-1", "--config-file", str(conf)]) == 0
    steps = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  next ")]
    assert len(steps) == 2 and all(f" --config-file {conf} shows " in step for step in steps)


def test_the_name_of_a_flavor_is_quoted_in_the_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = refused_by({"no_room:VCPU": 9}, {"asked": 2, "used": 8, "capacity": 8})
    JsonLines(tmp_path / "r").write([{**found, "asked": {**found["asked"], "flavor": "two CPUs; 'big'"}}])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    (step,) = [line for line in capsys.readouterr().out.splitlines() if " fit --flavor" in line]
    assert shlex.split(step.partition(" shows ")[0])[1:4] == ["fit", "--flavor", "two CPUs; 'big'"]


def test_nothing_is_said_of_a_later_time_if_all_hosts_lack_a_trait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    JsonLines(tmp_path / "r").write([{**refused_by({"traits": 1}, {"missing": ["HW_X"]}), "missing": {}}])

    assert manage.main(["why", "server-1", "--records", str(tmp_path / "r")]) == 0
    assert "fit --flavor" not in capsys.readouterr().out

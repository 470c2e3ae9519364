# SPDX-License-Identifier: Apache-2.0
"""``fit`` explains each word of a refusal, and names the arguments that are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import fit, manage

REFUSED = {"host": "c3", "code": "filter", "detail": {"filter": "PickyFilter"}}
DOWN = {"host": "c5", "code": "ComputeFilter", "detail": {"disabled": False, "disabled_reason": "", "up": False}}


def answer(**after: Any) -> dict[str, Any]:
    told = {"host": "", "text": "", "reasons": {}, "missing": {}, "near": [], "refused": [], **after}
    return {"fit": 0, "number": 1, "scheduler": "sched1", "table_hosts": 2, "hosts": [], "unknown": "", "next": told}


def test_a_filter_of_nova_stands_under_its_name() -> None:
    lines = fit.lines(answer(refused=[REFUSED]))

    assert "  c3: PickyFilter" in lines
    assert any(line.startswith("  PickyFilter  A filter of Nova") for line in lines)


def test_the_reasons_that_are_only_counted_are_explained_too() -> None:
    lines = fit.lines(answer(reasons={"first_instance": 1}, near=[DOWN]))

    assert any(line.startswith("  first_instance  A filter that runs once per request") for line in lines)


def test_what_is_empty_is_left_out_and_the_filter_of_services_is_explained() -> None:
    lines = fit.lines(answer(near=[DOWN]))

    assert "  c5: ComputeFilter (disabled False, up False)" in lines
    assert any(line.startswith("  ComputeFilter  nova-compute of the host is down or disabled") for line in lines)


@pytest.mark.parametrize("given", [[], ["--vcpus", "1"], ["--ram", "400"]])
def test_without_a_size_the_missing_arguments_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str]
) -> None:
    assert manage.main(["fit", "--socket-dir", str(tmp_path), *given]) == 2
    assert capsys.readouterr().err == "fit: the size is missing: give --flavor, or --vcpus and --ram\n"

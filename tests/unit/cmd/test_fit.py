# SPDX-License-Identifier: Apache-2.0
"""``fit`` explains each word of a refusal, and names the arguments that are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import fit, manage
from shared_scheduler.daemon.admin import SUFFIX, AdminServer

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


@pytest.mark.parametrize(("detail", "told"), [
    ({"forbidden": ["COMPUTE_STATUS_DISABLED"], "disabled_reason": "disk"}, "disabled (disk)"),
    ({"forbidden": ["COMPUTE_STATUS_DISABLED"]}, "disabled"),
    ({"missing": ["A"], "forbidden": ["B", "COMPUTE_STATUS_DISABLED"]},
     "root_traits (missing A, forbidden B; its service is disabled)"),
    ({"forbidden": "COMPUTE_STATUS_DISABLED"}, "root_traits (forbidden COMPUTE_STATUS_DISABLED)"),  # no record of ours
])  # fmt: skip
def test_a_disabled_service_is_said_to_be_disabled(detail: dict[str, Any], told: str) -> None:
    lines = fit.lines(
        answer(reasons={"root_traits": 1}, near=[{"host": "c1", "code": "root_traits", "detail": detail}])
    )

    assert f"  c1: {told}" in lines


@pytest.mark.parametrize("given", [[], ["--vcpus", "1"], ["--ram", "400"]])
def test_without_a_size_the_missing_arguments_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str]
) -> None:
    assert manage.main(["fit", "--socket-dir", str(tmp_path), *given]) == 2
    assert capsys.readouterr().err == "fit: the size is missing: give --flavor, or --vcpus and --ram\n"


def near(host: str, code: str = "no_room:VCPU", **detail: Any) -> dict[str, Any]:
    return {"host": host, "code": code, "detail": detail}


FULL = {"asked": 4, "used": 14, "capacity": 16}


def test_the_hosts_that_are_not_listed_are_counted_for_each_reason() -> None:
    # given two reasons, of which one has more hosts than are listed
    listed = [near("c1", **FULL), near("c9", "no_room:DISK_GB", asked=9, used=0, capacity=8), near("c2", **FULL)]
    lines = fit.lines(answer(reasons={"no_room:VCPU": 9, "no_room:DISK_GB": 1}, near=listed))

    # then the hosts of a reason stand together, with the number of the others behind them, the most frequent one first
    assert [line.split(":")[0].strip() for line in lines if line.startswith("  c")] == ["c1", "c2", "c9"]
    at = lines.index("  and 7 more hosts: no_room:VCPU")
    assert [line.split(":")[0].strip() for line in lines[at - 2 : at]] == ["c1", "c2"]
    assert sum("more host" in line for line in lines) == 1, "the one host of the other reason is listed"


def test_the_hosts_that_filters_of_nova_refused_are_counted_as_well() -> None:
    lines = fit.lines(answer(reasons={"tried": 5}, refused=[REFUSED]))
    assert "  and 4 more hosts: tried" in lines


def test_a_server_that_is_too_large_for_any_host_is_told_so() -> None:
    small = {"asked": 64, "used": 3, "max_unit": 16}
    some = fit.lines(answer(reasons={"no_room:VCPU": 9}, missing={"no_room:VCPU": [48, 50]},
                            near=[near("c1", **small), near("c2", **small)]))  # fmt: skip
    both = fit.lines(answer(reasons={"no_room:VCPU": 2}, missing={"no_room:VCPU": [48, 50]},
                            near=[near("c1", **small), near("c2", **small)]))  # fmt: skip
    mixed = fit.lines(answer(reasons={"no_room:VCPU": 2}, missing={"no_room:VCPU": [2, 50]},
                             near=[near("c1", **FULL), near("c2", **small)]))  # fmt: skip

    assert "  asked 64 of VCPU; one server gets at most 16 on c1 and c2, even if they are empty" in some
    assert "  9 hosts are short of VCPU by 48 VCPU to 50 VCPU" in some, "of the others that is what is known"
    assert "  asked 64 of VCPU; one server gets at most 16 on these 2 hosts, even if they are empty" in both
    assert [line for line in both if "short of" in line] == []
    assert [line for line in mixed if "at most" in line] == [], "one of them may take it later"


def test_the_hosts_that_host_excludes_are_one_line() -> None:
    others = [near(f"c{number}", "in_tree", in_tree="uuid-of-c1") for number in (2, 3, 4)]
    given = answer(reasons={"in_tree": 11, "no_room:VCPU": 1}, near=[*others, near("c1", **FULL)])

    lines = fit.lines({**given, "asked": {"destination": {"host": "c1"}}})
    without = fit.lines({**given, "asked": {"destination": None}})

    assert "  11 hosts are not c1, which --host names" in lines
    assert [line for line in lines if line.startswith("  c")] == [
        "  c1: no_room:VCPU (asked 4, used 14, capacity 16; short by 2 VCPU)"
    ]
    assert "  c2: in_tree (in_tree uuid-of-c1)" in without and "  and 8 more hosts: in_tree" in without


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_image_is_said_not_to_be_looked_up(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    # given a scheduler, which does not ask Glance
    fits = {**answer(host="c3"), "fit": 1, "result": "fits"}
    scheduler = AdminServer(tmp_path / f"sched1-1{SUFFIX}", {"fit": lambda _: fits})
    scheduler.start()
    size, image = ["--vcpus", "1", "--ram", "1"], "8a0e0a7e-0000-4f0f-8b0a-3b1d6f1a2c3d"
    # when somebody asks with an image, which may not exist
    try:
        codes = [manage.main(["fit", "--socket-dir", str(tmp_path), "--format", form, *size, *more])
                 for more in (["--image", image], [])]  # fmt: skip
    finally:
        scheduler.stop()
    # then the answer is that of the scheduler, and one line says what it does not mean
    told = f"fit: note: whether there is an image {image} is not known, because Glance is not asked; its properties "
    assert codes == [0, 0]
    assert capsys.readouterr().err == f"{told}count only as --image-property names them\n"

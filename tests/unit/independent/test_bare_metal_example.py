# SPDX-License-Identifier: Apache-2.0
"""The example of the page on the independent scheduler: two schedulers of bare metal."""

from __future__ import annotations

from random import Random

import pytest

from shared_scheduler.independent import Ask
from tools.examples.bare_metal import Machines, Shop, machine_class, main, run


@pytest.mark.parametrize("seed", range(5))
def test_two_schedulers_use_all_machines_and_assign_none_twice(seed: int) -> None:
    found = run(60, seed)

    assert found.refused > 0, "both have selected the same machine at times"
    assert found.served > 10 and found.failed > 0
    assert found.taken == found.machines, "no machine was given twice, and none is left from a gang that failed"
    assert "no_room:CUSTOM_BAREMETAL" in found.explanation or "aggregates" in found.explanation


def test_the_second_of_two_takes_another_machine_within_the_same_call() -> None:
    machines = Machines(40, Random(1))
    first, second = Shop(machines, Random(1)), Shop(machines, Random(1))
    for shop in (first, second):
        shop.read()

    ask = {"resources": {machine_class("large"): 1}}
    [one] = first.scheduler.claim(Ask(consumers=("a",), **ask)).claims
    [other] = second.scheduler.claim(Ask(consumers=("b",), **ask)).claims

    assert one.node != other.node
    assert (first.refused, second.refused) == (0, 1)
    assert sorted(row.job for row in machines.rows() if row.job) == ["a", "b"]


def test_a_gang_that_does_not_fit_frees_its_machines() -> None:
    machines = Machines(8, Random(1))
    shop = Shop(machines, Random(1))
    shop.read()
    free = [row for row in machines.rows() if row.kind == "small" and not row.broken]

    with pytest.raises(Exception, match="no node of 8"):
        shop.scheduler.claim(
            Ask(consumers=tuple(map(str, range(len(free) + 1))), resources={machine_class("small"): 1})
        )

    assert not any(row.job for row in machines.rows())


def test_the_command_prints_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--machines", "40"]) == 0
    assert "times the inventory refused" in capsys.readouterr().out

# SPDX-License-Identifier: Apache-2.0
"""The oracle detects mistakes: each of our filters and weighers is broken once, and the oracle must fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from shared_scheduler.decision.filters import NATIVE_FILTERS
from shared_scheduler.decision.weighers import NATIVE_WEIGHERS
from tests.oracle.test_decisions import cases, compare

pytestmark = pytest.mark.timeout(1800)

FILTERS = sorted(NATIVE_FILTERS.keys() - {"AllHostsFilter"})
TRIES = settings(
    max_examples=400, derandomize=True, database=None, deadline=None, phases=(Phase.generate,),
    report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
)  # fmt: skip


def compared(**options: Any) -> Callable[[], None]:
    """The oracle of the normal run, with these options in all of its cases."""

    @TRIES
    @given(cases())
    def compare_all(case: Any) -> None:
        cloud, its, drawn = case
        compare(cloud, its, drawn | options)

    return compare_all


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_that_passes_every_host_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NATIVE_FILTERS[name], "mask", lambda self, context: None)
    with pytest.raises(AssertionError):
        compared(enabled_filters=[name])()


@pytest.mark.parametrize("name", sorted(NATIVE_WEIGHERS))
def test_a_weigher_to_which_all_hosts_are_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weigher = NATIVE_WEIGHERS[name]
    monkeypatch.setattr(weigher, "raw", lambda self, context, slots: None)
    with pytest.raises(AssertionError):
        compared(enabled_filters=["AllHostsFilter"])()


@pytest.mark.parametrize("name", sorted(NATIVE_WEIGHERS))
def test_a_weigher_without_aggregate_overrides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weigher = NATIVE_WEIGHERS[name]
    monkeypatch.setattr(weigher, "multiplier", lambda self, context, slots: self.sign * self.configured(context))
    with pytest.raises(AssertionError):
        compared(enabled_filters=["AllHostsFilter"])()

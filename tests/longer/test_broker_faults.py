# SPDX-License-Identifier: Apache-2.0
"""The faults of a real broker that ``tests/functional/test_broker_faults.py`` leaves out, at the same size."""

from __future__ import annotations

import pytest

from tests.functional.test_broker_faults import LONGER, assert_recovered, drill, environment
from tools.laboratory.fire.drill import Drill
from tools.laboratory.fire.faults import Fault, faults
from tools.laboratory.fire.pace import HURRIED

__all__ = ["drill", "environment"]

pytestmark = pytest.mark.timeout(900)

HERE = [fault for fault in faults(HURRIED) if fault.name in LONGER]


def test_each_of_them_exists() -> None:
    assert {fault.name for fault in HERE} == LONGER


@pytest.mark.parametrize("fault", HERE, ids=lambda fault: fault.name)
def test_every_fault_of_a_broker_is_detected_and_recovered(drill: Drill, fault: Fault) -> None:
    assert_recovered(drill, fault)

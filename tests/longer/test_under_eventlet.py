# SPDX-License-Identifier: Apache-2.0
"""The unit tests of everything with threads pass under eventlet too."""

from __future__ import annotations

import pytest

from tests.under_eventlet import assert_pass

TIMEOUT_S = 1800

#: what is pure knows no threads and is the same under any backend
EDGES = ("compute_agent", "daemon", "nova", "novalib", "placement", "records", "service", "sync", "transport")


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("edge", EDGES)
def test_the_unit_tests_pass_under_eventlet(edge: str) -> None:
    assert_pass([f"tests/unit/{edge}"], TIMEOUT_S)

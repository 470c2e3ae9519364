# SPDX-License-Identifier: Apache-2.0
"""Several of Nova's own functional tests for every flow, in native threads and under eventlet."""

from __future__ import annotations

import pytest

from tests.functional.novas_flows import FLOWS
from tests.functional.novas_tests import BROKEN, NO_END, NotGreen, not_green

pytestmark = pytest.mark.timeout(7200)


@pytest.fixture(scope="module", params=[False, True], ids=["threads", "eventlet"])
def found(request: pytest.FixtureRequest) -> NotGreen:
    here = [item for item in request.session.items if item.path == request.path]
    flows = {item.callspec.params["flow"] for item in here if hasattr(item, "callspec")}
    return not_green((test for flow in FLOWS if flow in flows for test in FLOWS[flow]), eventlet=request.param)


@pytest.mark.parametrize("flow", FLOWS)
def test_the_flow_ends_as_novas_own_tests_want(found: NotGreen, flow: str) -> None:
    assert {test: found[test] for test in FLOWS[flow] if found[test]} == {}


def test_a_broken_scheduler_turns_every_flow_red() -> None:
    told = not_green((test for tests in FLOWS.values() for test in tests), BROKEN, tries=1)
    red = {test for test, why in told.items() if why and not why.startswith(NO_END)}
    assert [flow for flow, tests in FLOWS.items() if red.isdisjoint(tests)] == []

# SPDX-License-Identifier: Apache-2.0
"""Flows of Nova's, judged by Nova's own functional tests: API, conductor, computes and Placement are Nova's, the
manager of nova-scheduler is ours, with agents embedded in the computes.

``tests/longer/test_novas_own.py`` runs all flows, several tests of each, in native threads and under eventlet.
"""

from __future__ import annotations

import pytest

from tests.functional.novas_flows import EVERY_RUN, FLOWS
from tests.functional.novas_tests import NotGreen, not_green

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> NotGreen:
    """Of the flows that were asked for, all in one process: most of a single one is importing Nova."""
    here = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    return not_green(FLOWS[str(item.callspec.params["flow"])][0] for item in here)


@pytest.mark.parametrize("flow", EVERY_RUN)
def test_the_flow_ends_as_novas_own_test_wants(found: NotGreen, flow: str) -> None:
    assert found[FLOWS[flow][0]] == ""

# SPDX-License-Identifier: Apache-2.0
"""The records of a server whose first build failed, as ``tests/functional/test_records.py`` asks those of others."""

from __future__ import annotations

import pytest

from tests.functional import cloud_state
from tests.functional.test_records import NO_ADDRESS, Case, assert_why, begin, builds, end, places, sent_with
from tools.laboratory.cloud.cloud import Cloud

NAME = "alternate"


@pytest.fixture(scope="module")
def alternate(cloud: Cloud) -> Case:
    """A server that was built on an alternate; no scheduler runs any more."""
    begin(cloud, compute_slots=(9, 3, 3), hardware_of={"c1": {"refuses_builds": NO_ADDRESS}})
    cloud_state.wait_most_free(cloud, "c1")
    server, _ = cloud_state.boot_undisturbed(cloud, headers=sent_with(NAME))
    host = cloud.server(server)["host"]
    case = Case(server, f"became active on {host} (the build on c1 failed before)")
    return end(cloud, {NAME: case})[NAME]


@pytest.mark.parametrize("store", [0, 1], ids=["file", "database"])
def test_why_reports_the_result_and_each_build(cloud: Cloud, alternate: Case, store: int) -> None:
    place = places(cloud)[store]

    assert_why(cloud, place, NAME, alternate)

    (first, failed), (last, active) = builds(cloud, place, alternate)
    assert (first, failed, active) == ("c1", "failed", "active") and last in ("c2", "c3")

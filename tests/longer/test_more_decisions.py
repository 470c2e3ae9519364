# SPDX-License-Identifier: Apache-2.0
"""The oracle of decisions with many more clouds than each run has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.oracle.test_decisions import CHECKED, cases, cases_of_images, compare

CLOUDS = 5_000
CLOUDS_OF_IMAGES = 500

pytestmark = pytest.mark.timeout(7200)


@settings(CHECKED, max_examples=CLOUDS)
@given(cases())
def test_survivors_weights_and_order_are_novas(case: Any) -> None:
    compare(*case)


@settings(CHECKED, max_examples=CLOUDS_OF_IMAGES)
@given(cases_of_images())
def test_hosts_with_servers_of_like_images_weigh_what_they_weigh_to_nova(case: Any) -> None:
    compare(*case)

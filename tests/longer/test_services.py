# SPDX-License-Identifier: Apache-2.0
"""A compute that was forced down or is dead, as ``tests/functional/test_services.py`` has a disabled one."""

from __future__ import annotations

import pytest

from tests.functional.test_services import (
    assert_out_and_in_again,
    assert_placed_elsewhere_at_once,
    one_scheduler,
    whole,
)
from tools.laboratory.cloud.cloud import Cloud

__all__ = ["one_scheduler", "whole"]


@pytest.mark.parametrize("way", ["forced_down", "dead"])
def test_out_and_in_again(cloud: Cloud, way: str) -> None:
    assert_out_and_in_again(cloud, way)


def test_a_request_after_a_compute_was_forced_down_is_placed_elsewhere(cloud: Cloud) -> None:
    assert_placed_elsewhere_at_once(cloud, "forced_down")

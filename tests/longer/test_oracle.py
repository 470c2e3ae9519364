# SPDX-License-Identifier: Apache-2.0
"""The comparisons of ``tests/oracle`` that ``tools/test`` shortens, in their full number."""

from __future__ import annotations

from tests.oracle.test_candidates import app, test_the_hosts_that_qualify_are_placements
from tests.oracle.test_decisions import (
    test_hosts_with_servers_of_like_images_weigh_what_they_weigh_to_nova,
    test_survivors_weights_and_order_are_novas,
)
from tests.oracle.test_exact_fit import test_cells_and_devices_together_are_novas_to_the_bit

__all__ = [
    "app",
    "test_cells_and_devices_together_are_novas_to_the_bit",
    "test_hosts_with_servers_of_like_images_weigh_what_they_weigh_to_nova",
    "test_survivors_weights_and_order_are_novas",
    "test_the_hosts_that_qualify_are_placements",
]

# SPDX-License-Identifier: Apache-2.0
"""Each kind of ``tools/lab rounds``; ``tests/functional/test_numa.py`` plays the one that binds the most."""

from __future__ import annotations

import pytest

from tests.functional.test_numa import assert_filled_without_a_reschedule
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.rounds import rounds

pytestmark = pytest.mark.timeout(900)  # three rounds, each with a build on every slot


def test_each_kind_of_request_fills_the_cloud_without_a_reschedule(cloud: Cloud) -> None:
    assert_filled_without_a_reschedule(cloud, range(len(rounds.KINDS)))

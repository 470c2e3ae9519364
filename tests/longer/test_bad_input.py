# SPDX-License-Identifier: Apache-2.0
"""More mistakes in a configuration, and more malformed messages, than ``tests/functional/test_bad_input.py`` has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.test_bad_input import (
    MALFORMED,
    MORE_MALFORMED,
    MORE_MISTAKES,
    assert_a_scheduler_logs_the_reason,
    assert_rejected_and_counted,
    cloud_is_up,
    extra,
)
from tools.laboratory.cloud.cloud import Cloud

__all__ = ["cloud_is_up", "extra"]


@pytest.mark.parametrize("mistake", MORE_MISTAKES)
def test_a_scheduler_that_cannot_start_logs_the_reason(cloud: Cloud, extra: Path, mistake: str) -> None:
    assert_a_scheduler_logs_the_reason(cloud, extra, mistake)


@pytest.mark.parametrize("what", MORE_MALFORMED)
def test_a_malformed_message_is_rejected_and_counted_without_other_effects(cloud: Cloud, what: str) -> None:
    assert_rejected_and_counted(cloud, MALFORMED[what])

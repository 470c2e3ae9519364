# SPDX-License-Identifier: Apache-2.0
"""The identity of a scheduler."""

from __future__ import annotations

from shared_scheduler.core.scheduler_settings import Identity


def test_two_workers_of_one_host_that_begin_at_one_moment_give_different_claim_ids() -> None:
    one, other = Identity("host", 7, {}, "101-ab"), Identity("host", 7, {}, "102-cd")
    assert one.digest() != other.digest()
    assert one.digest() == Identity("host", 7, {}, "101-ab").digest()

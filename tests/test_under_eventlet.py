# SPDX-License-Identifier: Apache-2.0
"""A smoke test under eventlet: code that waits, locks and forks.

``tests/longer/test_under_eventlet.py`` and ``tox -e eventlet`` run all the other tests.
"""

from __future__ import annotations

from tests.under_eventlet import assert_pass

#: threads that wait for one another or for a broker, and processes that fork: where a patched interpreter differs
RISKY = [
    "tests/unit/compute_agent/test_service.py",
    "tests/unit/daemon/test_admin.py",
    "tests/unit/service/test_cell_channel.py",
    "tests/unit/service/test_engine.py",
    "tests/unit/service/test_fair_lock.py",
    "tests/unit/service/test_runner.py",
    "tests/unit/transport/test_channel.py",
    "tests/unit/transport/test_kombu_memory.py",
]
TIMEOUT_S = 1700


def test_code_that_waits_locks_and_forks_passes_under_eventlet() -> None:
    assert_pass(RISKY, TIMEOUT_S)

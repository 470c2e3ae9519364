# SPDX-License-Identifier: Apache-2.0
"""The unit tests of everything with threads, once more, in an interpreter that eventlet has patched.

``concurrency_backend = eventlet`` is supported as long as Nova has it.  Patching cannot be undone, so
this needs a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 900

#: what is pure knows no threads and is the same under any backend
EDGES = [f"tests/unit/{name}" for name in ("compute_agent", "nova", "placement", "records", "service", "transport")]


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_the_unit_tests_pass_under_eventlet() -> None:
    environment = {**os.environ, "SHARED_SCHEDULER_TEST_BACKEND": "eventlet"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *EDGES],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout

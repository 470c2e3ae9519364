# SPDX-License-Identifier: Apache-2.0
"""Unit tests once more, in an interpreter that eventlet has patched.

``concurrency_backend = eventlet`` is supported as long as Nova has it.  Patching cannot be undone, so
this needs a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def assert_pass(tests: list[str], timeout_s: float) -> None:
    """Run these files or folders under eventlet, and show what pytest printed if one fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        env={**os.environ, "SHARED_SCHEDULER_TEST_BACKEND": "eventlet"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout

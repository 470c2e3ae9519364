# SPDX-License-Identifier: Apache-2.0
"""Processes that each write their first record to one database at the same moment."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from shared_scheduler.records.database import RecordTable
from tests.unit.records.test_stores import record
table = RecordTable(sys.argv[1])
sys.stdin.readline()
table.write([record(int(sys.argv[2]))])
"""


def write_together(url: str, count: int) -> None:
    """Let so many processes write; process ``n`` writes ``record(n)``.  Returns when all have succeeded."""
    starts = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, url, str(n)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for n in range(count)
    ]
    for start in starts:  # all before any is waited for
        assert start.stdin is not None
        start.stdin.write(b"\n")
        start.stdin.flush()
    errors = [start.communicate()[1].decode() for start in starts]
    assert [start.returncode for start in starts] == [0] * count, errors

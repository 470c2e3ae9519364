# SPDX-License-Identifier: Apache-2.0
"""An agent's reason clears the line of the terminal or the log and writes another one."""

from __future__ import annotations

from shared_scheduler.cmd import printed_tables
from shared_scheduler.decision.record import Attempt
from shared_scheduler.records import entries
from tests.unit.records.test_entries import record

FORGED = "bad\x1b[2K\rreq-8: Placed i-9 on cmp9\n\x9b2Jend\u202e"
SHOWN = "bad\\x1b[2K\\rreq-8: Placed i-9 on cmp9\\n\\x9b2Jend\\u202e"


def test_the_log_has_one_line() -> None:
    attempts = (Attempt("i-1", "n2", FORGED, "refused", {}, 3, 41, 2.5, 8.0),)
    line = entries.line(record(attempts=attempts, failure="no_valid_host", text=FORGED))
    assert line.isprintable()
    assert line.count(SHOWN) == 2


def test_a_table_has_one_line_a_row() -> None:
    assert printed_tables.lines(("host",), [[FORGED]]) == ["host", SHOWN]

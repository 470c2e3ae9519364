# SPDX-License-Identifier: Apache-2.0
"""Several database servers run on one machine, two clouds of the tests among them; none disturbs another."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.functional.private_placement import SETTINGS, PrivatePlacement
from tools.laboratory.cloud import configs, template
from tools.laboratory.cloud.databases import root_client

LEFT_BY_A_QUERY = "#sql-temptable-of-the-first.MAI"
"""Named as MariaDB names the file of a temporary table."""


def test_a_server_that_starts_removes_no_temporary_table_of_another() -> None:
    """MariaDB removes all files with such a name from its temporary directory when it starts."""
    # given a server with a temporary table on disk
    with _server() as first:
        table = Path(_ask(first, "select @@tmpdir")) / LEFT_BY_A_QUERY
        table.touch()
        try:
            # when a second one starts
            with _server() as second:
                assert _ask(second, "select 1") == "1"
                # then the table of the first is still there
                assert table.exists()
        finally:
            table.unlink(missing_ok=True)


@contextmanager
def _server() -> Iterator[PrivatePlacement]:
    """MariaDB alone, as a cloud starts it."""
    one = PrivatePlacement()
    try:
        configs.write_all(one.layout, SETTINGS)
        template.prepare(one.layout, print)
        one.start_one("mariadb")
        yield one
    finally:
        one.stop()


def _ask(one: PrivatePlacement, sql: str) -> str:
    command = [*root_client(one.layout), "--skip-column-names", "-e", sql]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

# SPDX-License-Identifier: Apache-2.0
"""MariaDB: a private server, and the data that are specific to one cloud.

A new cloud begins with a copy of the template (see `template`). The data that depend on the cloud (addresses in cell
mappings) are written at each start.
"""

import os
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.laboratory.cloud.cloud_settings import CloudSettings
from tools.laboratory.cloud.layout import Layout, cell_database, vhost
from tools.laboratory.cloud.ports import LOOPBACK
from tools.laboratory.cloud.probes import database
from tools.laboratory.errors import LabError
from tools.laboratory.processes.table import clean_environment

COMMAND_TIMEOUT_S = 600
OUTPUT_LINES_MAX = 200
"""Lines of the output of a failed command that are shown; the reason may precede a page of advice or a traceback."""
CELL0_UUID = "00000000-0000-0000-0000-000000000000"


def server_argv(layout: Layout, durable: bool = False) -> list[str]:
    """The command line of the private server. Its data survive a kill -9, and a power failure if they are `durable`.

    Its temporary directory is its own, because a server removes the temporary tables of others there when it starts.
    """
    return [
        "mariadbd", "--no-defaults", f"--datadir={layout.mysql}", f"--tmpdir={layout.mysql_tmp}",
        f"--port={layout.ports['mariadb']}",
        f"--bind-address={LOOPBACK}", f"--socket={layout.run / 'mysql.sock'}",
        f"--pid-file={layout.run / 'mariadbd.pid'}",
        "--skip-name-resolve", "--max-connections=1000", "--innodb-buffer-pool-size=256M",
        f"--innodb-flush-log-at-trx-commit={1 if durable else 2}", *as_user(),
    ]  # fmt: skip


def as_user() -> list[str]:
    """The user option, because mariadbd refuses to run as root without it."""
    return ["--user=root"] if os.geteuid() == 0 else []


def root_client(layout: Layout) -> list[str]:
    return ["mariadb", "--no-defaults", "-uroot", f"--socket={layout.run / 'mysql.sock'}"]


def database_answers_as_root(layout: Layout) -> bool:
    return subprocess.run([*root_client(layout), "-e", "select 1"], capture_output=True).returncode == 0


def run(argv: Sequence[str], layout: Layout, name: str) -> None:
    """Run a command to its end, with its output in a log.

    :raises LabError: when it fails or takes too long; the text contains the command and its output
    """
    log = layout.log_of(name)
    told = f"{' '.join(map(str, argv[:4]))} ..."
    with log.open("ab") as output:
        begin = output.tell()
        try:
            code = subprocess.run(
                argv, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=COMMAND_TIMEOUT_S,
                env=clean_environment(),
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LabError(f"{told} did not end within {COMMAND_TIMEOUT_S} s:\n{_said(log, begin)}") from None
    if code:
        raise LabError(f"{told} ended with {code}:\n{_said(log, begin)}")


def _said(log: Path, begin: int) -> str:
    """The content of a log from this byte on."""
    with log.open(errors="replace") as output:
        output.seek(begin)
        lines = output.read().strip().splitlines()
    return "\n".join(lines[-OUTPUT_LINES_MAX:]) or "(no output)"


def ensure_cells(layout: Layout, settings: CloudSettings) -> None:
    """Map all cells to their present addresses (as `nova-manage cell_v2 create_cell` does)."""
    with database(layout, "nova_api") as connection, connection.cursor() as cursor:
        _map_cell(cursor, 0, CELL0_UUID, "none:///", layout.database_url(cell_database(0)))
        for cell in range(1, settings.cells + 1):
            own = str(uuid.uuid5(uuid.UUID(CELL0_UUID), vhost(cell)))
            _map_cell(cursor, cell, own, layout.transport_url(cell), layout.database_url(cell_database(cell)))
        names = [f"cell{cell}" for cell in range(settings.cells + 1)]
        cursor.execute("UPDATE cell_mappings SET disabled = name NOT IN %s", (names,))


def _map_cell(cursor: Any, cell: int, own: str, transport_url: str, database_url: str) -> None:
    cursor.execute("SELECT id FROM cell_mappings WHERE uuid = %s", (own,))
    sql = (
        "UPDATE cell_mappings SET transport_url = %s, database_connection = %s WHERE uuid = %s"
        if cursor.fetchone()
        else "INSERT INTO cell_mappings (transport_url, database_connection, uuid, name, disabled, created_at)"
        f" VALUES (%s, %s, %s, 'cell{cell}', 0, utc_timestamp())"
    )
    cursor.execute(sql, (transport_url, database_url, own))


def map_hosts(layout: Layout, settings: CloudSettings) -> None:
    """Map each compute host to its cell before it starts (`discover_hosts` does that afterwards)."""
    with database(layout, "nova_api") as connection, connection.cursor() as cursor:
        for number in range(1, settings.computes + 1):
            cursor.execute(
                "INSERT IGNORE INTO host_mappings (cell_id, host, created_at)"
                " SELECT id, %s, utc_timestamp() FROM cell_mappings WHERE name = %s",
                (f"c{number}", f"cell{settings.cell_of(number)}"),
            )

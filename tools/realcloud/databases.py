# SPDX-License-Identifier: Apache-2.0
"""MariaDB: a private server, and its databases ready migrated from a cache.

Migrating five OpenStack projects from empty takes most of a minute, and the outcome depends on nothing but
their versions. So it is done once, in a template directory whose name is a hash of those versions; a new cloud
starts from a copy of it. What depends on the cloud (addresses in cell mappings) is written at each start.
"""

import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from . import configs
from .errors import CloudError
from .layout import DATABASE_USER, LOOPBACK, PASSWORD, REGION, Layout, cache, cell_database, vhost
from .probes import database, wait_for
from .processes import ProcessTable, clean_environment
from .settings import MAX_CELLS, Settings

TEMPLATE_FORMAT = "2"
PACKAGES = ("nova", "openstack_placement", "keystone", "glance", "neutron", "sqlalchemy", "alembic")
DATABASES = (
    "nova_api", "placement", "keystone", "glance", "neutron",
    *(cell_database(cell) for cell in range(MAX_CELLS + 1)),
)  # fmt: skip
CHARACTER_SET = "utf8mb3"
COMMAND_TIMEOUT_S = 600
START_TIMEOUT_S = 60
CELL0_UUID = "00000000-0000-0000-0000-000000000000"
Say = Callable[[str], None]


def server_argv(layout: Layout) -> list[str]:
    """Command line of the private server. Durable enough for a kill -9, not for a power cut."""
    return [
        "mariadbd", "--no-defaults", f"--datadir={layout.mysql}", f"--port={layout.ports['mariadb']}",
        f"--bind-address={LOOPBACK}", f"--socket={layout.run / 'mysql.sock'}",
        f"--pid-file={layout.run / 'mariadbd.pid'}",
        "--skip-name-resolve", "--max-connections=1000", "--innodb-buffer-pool-size=256M",
        "--innodb-flush-log-at-trx-commit=2", *_as_user(),
    ]  # fmt: skip


def _as_user() -> list[str]:
    """mariadbd refuses to run as root unless it is told so."""
    return ["--user=root"] if os.geteuid() == 0 else []


def prepare(layout: Layout, say: Say) -> None:
    """Give a new cloud its databases: a copy of the template, which is made first if there is none."""
    if (layout.data / "migrated").exists():
        return
    template = cache() / f"databases-{template_key(layout)}"
    if not template.exists():
        build_template(layout, template, say)
    for part, target in (("mysql", layout.mysql), ("fernet", layout.etc / "keystone" / "fernet"),
                         ("credential", layout.etc / "keystone" / "credential")):  # fmt: skip
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(template / part, target)
    (layout.data / "migrated").write_text(template.name + "\n")


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", source, target], check=True)


def template_key(layout: Layout) -> str:
    """Hash of everything that the migrated databases depend on."""
    versions = [TEMPLATE_FORMAT]
    for venv in (layout.nova, layout.openstack):
        for site in venv.glob("lib/python3*/site-packages"):
            versions += sorted(
                path.name for path in site.glob("*.dist-info") if path.name.partition("-")[0].lower() in PACKAGES
            )
    versions.append(subprocess.run(["mariadbd", "--version"], capture_output=True, text=True, check=True).stdout)
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]


def build_template(layout: Layout, template: Path, say: Say) -> None:
    """Migrate from empty in a scratch cloud of its own, then move what is needed into the cache."""
    say("migrating empty databases (once for these versions, about a minute)")
    template.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ssc-", dir="/tmp") as scratch:
        own = Layout(Path(scratch))
        own.prepare()
        configs.write_all(own, Settings(computes=0))
        processes = ProcessTable(own.run, own.mark)
        try:
            _install_empty(own)
            processes.spawn("mariadb", server_argv(own), {}, own.log_of("mariadb"), "mariadb", "")
            wait_for("mariadb", lambda: database_answers_as_root(own), START_TIMEOUT_S,
                     lambda: processes.alive("mariadb") is None)  # fmt: skip
            _create_user(own)
            _migrate(own, say)
            _clone_cell_databases(own)
        finally:
            processes.stop(["mariadb"], 60)
        _keep(own, template)


def _keep(scratch: Layout, template: Path) -> None:
    """Put what a new cloud needs into the cache, whole or not at all."""
    unfinished = Path(tempfile.mkdtemp(prefix="building-", dir=template.parent))
    for part in (scratch.mysql, scratch.etc / "keystone" / "fernet", scratch.etc / "keystone" / "credential"):
        _copy(part, unfinished / part.name)
    try:
        unfinished.rename(template)
    except OSError:  # somebody else was faster
        shutil.rmtree(unfinished)


def _install_empty(layout: Layout) -> None:
    run(["mariadb-install-db", "--no-defaults", f"--datadir={layout.mysql}", "--skip-test-db",
         "--auth-root-authentication-method=normal", *_as_user()], layout, "mariadb-install")  # fmt: skip


def root_client(layout: Layout) -> list[str]:
    return ["mariadb", "--no-defaults", "-uroot", f"--socket={layout.run / 'mysql.sock'}"]


def database_answers_as_root(layout: Layout) -> bool:
    return subprocess.run([*root_client(layout), "-e", "select 1"], capture_output=True).returncode == 0


def _create_user(layout: Layout) -> None:
    user = f"'{DATABASE_USER}'@'%'"
    sql = f"CREATE USER {user} IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO {user} WITH GRANT OPTION;"
    names = " ".join(f"CREATE DATABASE {name} CHARACTER SET {CHARACTER_SET};" for name in DATABASES)
    run([*root_client(layout), "-e", sql + names], layout, "mariadb-create")


def _migrate(layout: Layout, say: Say) -> None:
    """Run all migrations, side by side where they do not touch one another."""
    chains = _migrations(layout)

    def migrate(name: str) -> None:
        for argv in chains[name]:
            run(argv, layout, f"migrate-{name}")
        say(f"migrated {name}")

    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        list(pool.map(migrate, chains))


def _migrations(layout: Layout) -> dict[str, list[list[str]]]:
    """Commands by project, the longest first."""
    cell0 = layout.run / "cell0.conf"
    cell0.write_text(layout.nova_conf().read_text().replace(cell_database(1), cell_database(0)))

    def tool(venv: Path, program: str, conf: Path) -> list[str]:
        return [str(venv / "bin" / program), "--config-file", str(conf)]

    keystone = tool(layout.openstack, "keystone-manage", layout.etc / "keystone" / "keystone.conf")
    own_user = ["--keystone-user", str(os.geteuid()), "--keystone-group", str(os.getegid())]
    nova = partial(tool, layout.nova)
    neutron = tool(layout.openstack, "neutron-db-manage", layout.etc / "neutron" / "neutron.conf")
    glance = tool(layout.openstack, "glance-manage", layout.etc / "glance" / "glance-api.conf")
    return {
        "neutron": [[*neutron, "upgrade", "heads"]],
        "nova-cell": [[*nova("nova-manage", cell0), "db", "sync", "--local_cell"]],
        "nova-api": [[*nova("nova-manage", layout.nova_conf()), "api_db", "sync"]],
        "keystone": [
            [*keystone, "db_sync"],
            [*keystone, "fernet_setup", *own_user],
            [*keystone, "credential_setup", *own_user],
            [*keystone, "bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION],
        ],
        "glance": [[*glance, "db_sync"]],
        "placement": [[*nova("placement-manage", layout.etc / "placement" / "placement.conf"), "db", "sync"]],
    }


def run(argv: Sequence[str], layout: Layout, name: str) -> None:
    """Run a command to its end, its output in a log; an error says which and its last line."""
    log = layout.log_of(name)
    with log.open("ab") as output:
        code = subprocess.run(
            argv, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=COMMAND_TIMEOUT_S,
            env=clean_environment(),
        ).returncode  # fmt: skip
    if code:
        lines = log.read_text(errors="replace").strip().splitlines() or ["(no output)"]
        raise CloudError(f"{' '.join(map(str, argv[:4]))} ... ended with {code}: {lines[-1]}")


def ensure_cells(layout: Layout, settings: Settings) -> None:
    """Map all cells to the addresses of today (what `nova-manage cell_v2 create_cell` writes)."""
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


def _clone_cell_databases(layout: Layout) -> None:
    """Every cell's database has the schema of cell 0's."""
    socket_option = f"--socket={layout.run / 'mysql.sock'}"
    dump = subprocess.run(
        ["mariadb-dump", "--no-defaults", "-uroot", socket_option, cell_database(0)], capture_output=True, check=True
    ).stdout
    for cell in range(1, MAX_CELLS + 1):
        subprocess.run([*root_client(layout), cell_database(cell)], input=dump, check=True)


def map_hosts(layout: Layout, settings: Settings) -> None:
    """Tell Nova in which cell each compute host is, before it starts (what `discover_hosts` finds out after)."""
    with database(layout, "nova_api") as connection, connection.cursor() as cursor:
        for number in range(1, settings.computes + 1):
            cursor.execute(
                "INSERT IGNORE INTO host_mappings (cell_id, host, created_at)"
                " SELECT id, %s, utc_timestamp() FROM cell_mappings WHERE name = %s",
                (f"c{number}", f"cell{settings.cell_of(number)}"),
            )

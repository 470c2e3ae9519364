# SPDX-License-Identifier: Apache-2.0
"""Migrated databases, created once; every new cloud gets a copy.

The migration of five OpenStack projects from empty databases takes most of a minute, and the result depends only on
their versions. So it is done once, in a template directory whose name is a hash of these versions. A process that needs
it while another one creates it waits.
"""

import concurrent.futures
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from shared_scheduler.daemon.endings import ended_by_signals
from tools.laboratory.cloud import configs
from tools.laboratory.cloud.cloud_settings import MAX_CELLS, CloudSettings
from tools.laboratory.cloud.databases import as_user, database_answers_as_root, root_client, run, server_argv
from tools.laboratory.cloud.layout import DATABASE_USER, PASSWORD, REGION, Layout, cache, cell_database
from tools.laboratory.errors import LabError
from tools.laboratory.processes.guard import Guard
from tools.laboratory.processes.startup import wait_for
from tools.laboratory.processes.table import ProcessTable

TEMPLATE_FORMAT = "2"
PACKAGES = ("nova", "openstack_placement", "keystone", "glance", "neutron", "sqlalchemy", "alembic")
DATABASES = (
    "nova_api", "placement", "keystone", "glance", "neutron",
    *(cell_database(cell) for cell in range(MAX_CELLS + 1)),
)  # fmt: skip
CHARACTER_SET = "utf8mb3"
START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60
TRIES = 2
"""Attempts: a busy machine may fail once; a second failure has another reason."""
SERVER_LOG_BYTES = 4000
Say = Callable[[str], None]


def prepare(layout: Layout, say: Say) -> None:
    """Create the databases of a new cloud as a copy of the template, which is created first if it does not exist.

    :raises LabError: when they cannot be created
    """
    if (layout.data / "migrated").exists():
        return
    template = ensure(layout, say)
    for part, target in (("mysql", layout.mysql), ("fernet", layout.etc / "keystone" / "fernet"),
                         ("credential", layout.etc / "keystone" / "credential")):  # fmt: skip
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(template / part, target)
    (layout.data / "migrated").write_text(template.name + "\n")


def ensure(layout: Layout, say: Say) -> Path:
    """The directory of the template for the versions of this layout; created if it does not exist.

    :raises LabError: when it cannot be created; the text contains the output of the failed command
    """
    template = cache() / f"databases-{key(layout)}"
    if template.exists():
        return template
    with _only_one(template.parent, say):
        if not template.exists():
            _build(template, say)
    return template


@contextlib.contextmanager
def _only_one(directory: Path, say: Say) -> Iterator[None]:
    """One process at a time; the kernel releases the lock when its holder dies."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process migrates the databases; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def key(layout: Layout) -> str:
    """A hash of everything that the migrated databases depend on."""
    versions = [TEMPLATE_FORMAT]
    for venv in (layout.nova, layout.openstack):
        for site in venv.glob("lib/python3*/site-packages"):
            versions += sorted(
                path.name for path in site.glob("*.dist-info") if path.name.partition("-")[0].lower() in PACKAGES
            )
    versions.append(subprocess.run(["mariadbd", "--version"], capture_output=True, text=True, check=True).stdout)
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]


def _build(template: Path, say: Say) -> None:
    for left in template.parent.glob("building-*"):  # of a process that was killed
        shutil.rmtree(left)
    for more in reversed(range(TRIES)):
        try:
            _build_once(template, say)
            return
        except LabError as error:
            if not more:
                raise
            say(f"{error}\nthe migration failed, see above; it is repeated once")


def _build_once(template: Path, say: Say) -> None:
    """Migrate in a temporary cloud, then move the files into the cache."""
    say("migrating empty databases (once for these versions, about a minute)")
    with tempfile.TemporaryDirectory(prefix="ssc-", dir="/tmp") as scratch:
        own = Layout(Path(scratch))
        own.prepare()
        configs.write_all(own, CloudSettings(computes=0))
        run(["mariadb-install-db", "--no-defaults", f"--datadir={own.mysql}", f"--tmpdir={own.mysql_tmp}",
             "--skip-test-db", "--auth-root-authentication-method=normal", *as_user()],
            own, "mariadb-install")  # fmt: skip
        with _server(own):
            _create_user(own)
            _migrate(own, say)
            _clone_cell_databases(own)
        _keep(own, template)


@contextlib.contextmanager
def _server(own: Layout) -> Iterator[None]:
    """MariaDB of the temporary cloud; an error contains the server's log."""
    processes, log = ProcessTable(own.run, own.mark), own.log_of("mariadb")
    guard = Guard(processes, own.data)
    try:
        processes.spawn("mariadb", server_argv(own), {}, log, "mariadb", "")
        wait_for("mariadb", lambda: database_answers_as_root(own), START_TIMEOUT_S,
                 lambda: processes.alive("mariadb") is None)  # fmt: skip
        yield
    except LabError as error:
        raise LabError(f"{error}\nThe server's log ends with:\n{_end_of(log)}") from None
    finally:
        processes.stop(["mariadb"], STOP_TIMEOUT_S)
        guard.release()


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-SERVER_LOG_BYTES:].strip() or "(nothing)"


def _keep(scratch: Layout, template: Path) -> None:
    """Move the files that a new cloud needs into the cache, atomically."""
    unfinished = Path(tempfile.mkdtemp(prefix="building-", dir=template.parent))
    for part in (scratch.mysql, scratch.etc / "keystone" / "fernet", scratch.etc / "keystone" / "credential"):
        _copy(part, unfinished / part.name)
    unfinished.rename(template)


def _copy(source: Path, target: Path) -> None:
    copied = subprocess.run(["cp", "-a", "--reflink=auto", source, target], stderr=subprocess.PIPE, text=True)
    if copied.returncode:
        raise LabError(copied.stderr)


def _create_user(layout: Layout) -> None:
    user = f"'{DATABASE_USER}'@'%'"
    sql = f"CREATE USER {user} IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO {user} WITH GRANT OPTION;"
    names = " ".join(f"CREATE DATABASE {name} CHARACTER SET {CHARACTER_SET};" for name in DATABASES)
    run([*root_client(layout), "-e", sql + names], layout, "mariadb-create")


def _migrate(layout: Layout, say: Say) -> None:
    """Run all migrations, in parallel if they are independent."""
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


def _clone_cell_databases(layout: Layout) -> None:
    """Create the databases of the other cells with the schema of cell 0."""
    dump = layout.run / "cell0.sql"
    run(["mariadb-dump", "--no-defaults", "-uroot", f"--socket={layout.run / 'mysql.sock'}",
         f"--result-file={dump}", cell_database(0)], layout, "mariadb-dump")  # fmt: skip
    for cell in range(1, MAX_CELLS + 1):
        run([*root_client(layout), cell_database(cell), "-e", f"source {dump}"], layout, "mariadb-clone")


def main() -> int:
    """Create the template if necessary; returns the exit code."""
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"databases: {line}", flush=True)

    try:
        with tempfile.TemporaryDirectory(prefix="ssc-", dir="/tmp") as data:
            ensure(Layout(Path(data)), say)
    except LabError as error:
        print(f"databases: no cloud can start: {error}", file=sys.stderr)
        return 1
    say(f"ready after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    with ended_by_signals():
        sys.exit(main())

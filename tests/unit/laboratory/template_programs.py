# SPDX-License-Identifier: Apache-2.0
"""Programs in the place of MariaDB's and OpenStack's: each records its arguments, and creates the files to copy.

``INSTALL_FAILS`` in their environment is how often ``mariadb-install-db`` fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WHY = "InnoDB: the disk says no"
PROGRAMS = {
    "bin/mariadb-install-db": f"""
        echo install >>"$CALLS"
        if [ "$(grep -c install "$CALLS")" -le "${{INSTALL_FAILS:-0}}" ]; then
          echo "{WHY}"
          for line in $(seq 30); do echo "advice, line $line"; done
          echo "at https://mariadb.org/jira"
          exit 1
        fi
        sleep 0.3
        for argument in "$@"; do case $argument in --datadir=*) mkdir -p "${{argument#*=}}" ;; esac; done
    """,
    "bin/mariadbd": """
        case $* in *--version*) echo "mariadbd of this test"; exit ;; esac
        exec sleep 600
    """,
    "bin/mariadb": "cat >/dev/null",
    "bin/mariadb-dump": "echo schema",
    "venvs/nova/bin/nova-manage": "",
    "venvs/nova/bin/placement-manage": "",
    "venvs/openstack/bin/neutron-db-manage": "",
    "venvs/openstack/bin/glance-manage": "",
    "venvs/openstack/bin/keystone-manage": 'mkdir -p "$(dirname "$2")/fernet" "$(dirname "$2")/credential"',
}
PREPARE = """
import sys
from pathlib import Path
from tools.laboratory.cloud import template
from tools.laboratory.errors import LabError
from tools.laboratory.cloud.layout import Layout
layout = Layout(Path(sys.argv[1]))
layout.prepare()
try:
    template.prepare(layout, lambda line: print(line, flush=True))
except LabError as error:
    sys.exit(str(error))
"""


class Machine:
    """A machine with these programs and no template; ``home`` is where all of it is."""

    def __init__(self, home: Path, install_fails: int = 0) -> None:
        self._home = home
        for name, script in PROGRAMS.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/bash\n{script}\n")
            path.chmod(0o755)
        paste = home / "venvs/nova/etc/nova/api-paste.ini"
        paste.parent.mkdir(parents=True)
        paste.touch()
        self._environment = os.environ | {
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "CALLS": str(home / "calls"),
            "SHARED_SCHEDULER_VENVS": str(home / "venvs"), "SHARED_SCHEDULER_CLOUD_CACHE": str(home / "cache"),
            "INSTALL_FAILS": str(install_fails),
        }  # fmt: skip

    def new_cloud(self, name: str) -> subprocess.Popen[str]:
        """A process that gives a new cloud its databases."""
        command = [sys.executable, "-c", PREPARE, str(self._home / name)]
        return subprocess.Popen(
            command, env=self._environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def has_databases(self, name: str) -> bool:
        return (self._home / name / "mysql").is_dir() and (self._home / name / "migrated").is_file()

    def templates(self) -> list[str]:
        """What is in the cache, but for locks."""
        return [path.name for path in (self._home / "cache").iterdir() if path.is_dir()]

    def installs(self) -> int:
        """How often empty databases were made."""
        calls = self._home / "calls"
        return calls.read_text().count("install") if calls.exists() else 0

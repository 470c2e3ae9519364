# SPDX-License-Identifier: Apache-2.0
"""The commands of README.rst to install, switch over and switch back are carried out as they stand there.

They run in bash, in the directory of the project.  systemd does not run here, so ``systemctl`` is played: it knows
Nova's units and those that were copied, and starts a unit only if its command is one that ``pip`` installs.  What would
be written to /etc goes to a directory of the test.  The commands that ask a cloud are run with ``--help``, which also
fails for a command or a subcommand that does not exist.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOVAS = ("nova-scheduler", "nova-compute")

SYSTEMCTL = r"""#!/bin/bash
set -euo pipefail
verb=$1; shift
echo "$verb $*" >> "$HOME/said"
[ "$verb" = daemon-reload ] && exit
now=no
for unit in "$@"; do
    case $unit in
        --now) now=yes; continue ;;
        nova-scheduler|nova-compute) ;;
        *) file=$HOME/etc/systemd/system/$unit.service
           test -f "$file"
           command=$(sed -n 's#^ExecStart=/usr/bin/\([^ ]*\).*#\1#p' "$file")
           type "$command" > /dev/null ;;
    esac
    case $verb in
        enable|start|restart) touch "$HOME/run/$unit" ;;
        disable|stop) rm "$HOME/run/$unit" ;;
        *) exit 1 ;;
    esac
done
"""
INSTALL = r"""#!/bin/bash
set -euo pipefail
exec /usr/bin/install "${@/#\/etc\//$HOME/etc/}"
"""
#: of what pip would install, the names; pip itself is tested by test_package.py
PIP = """#!/bin/bash
set -euo pipefail
[ "$1" = install ]
extra=$(expr "$2" : '\\.\\[\\(.*\\)\\]$')
grep -q "^$extra =" setup.cfg
"""
OURS = """#!/bin/bash
words=()
for word in "$@"; do
    case $word in --config-file|/etc/*) ;; *) words+=("$word") ;; esac
done
exec {python} -m {module} "${{words[@]}}" --help
"""


def commands(section: str) -> list[str]:
    """The lines of the literal blocks of a section that are not configuration."""
    text = (ROOT / "README.rst").read_text()
    [body] = re.findall(rf"^{section}\n=+\n(.*?)(?=^[^\n]+\n===+$|\Z)", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", body)
    lines = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    return [line for line in lines if not line.startswith("[") and " = " not in line]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A machine on which Nova runs."""
    for directory in ("bin", "run", "etc/systemd/system"):
        (tmp_path / directory).mkdir(parents=True)
    for unit in NOVAS:
        (tmp_path / "run" / unit).touch()
    shims = {"systemctl": SYSTEMCTL, "install": INSTALL, "pip": PIP}
    entry_points = re.findall(r"^    ([\w-]+) = ([\w.]+):main$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    shims |= {name: OURS.format(python=sys.executable, module=module) for name, module in entry_points}
    for name, text in shims.items():
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def carry_out(host: Path, lines: list[str]) -> None:
    env = {**os.environ, "HOME": str(host), "PATH": f"{host / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for line in lines:
        done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def running(host: Path) -> set[str]:
    return {path.name for path in (host / "run").iterdir()}


def test_install_switch_over_and_switch_back_can_be_followed_literally(host: Path) -> None:
    carry_out(host, commands("Install beside Nova"))
    assert running(host) == {*NOVAS, "compute-agent"}

    carry_out(host, commands("Switch over"))
    assert running(host) == {"shared-scheduler", "nova-compute", "compute-agent"}

    carry_out(host, commands("Switch back"))
    assert running(host) == {*NOVAS, "compute-agent"}


def test_the_sections_name_the_commands_that_matter() -> None:
    there = {line.split()[0] for section in ("Install beside Nova", "Switch over") for line in commands(section)}

    assert {"pip", "install", "systemctl", "shared-scheduler-status", "compute-agent-status"} <= there


def test_a_command_that_does_not_exist_is_noticed(host: Path) -> None:
    for line in ("shared-scheduler-manage no-such-command", "systemctl enable --now no-such-unit"):
        with pytest.raises(AssertionError):
            carry_out(host, [line])

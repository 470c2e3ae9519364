# SPDX-License-Identifier: Apache-2.0
"""``tools/install`` makes environments, here with a Python and a pip that only leave traces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.unit.cmd.waiting import eventually

TOOLS = Path(__file__).parents[3] / "tools"
WAIT_S = 20.0
#: A package is there for pip when it has its metadata; its programs come last.  ``slow`` and ``failing`` name
#: environments.
PYTHON = """\
#!/bin/bash
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/pip" ;;
  "-m pip install "*)
    venv=$(dirname "$(dirname "$0")")
    if [ -e "$STUBS/failing-$(basename "$venv")" ]; then echo "no route to host" >&2; exit 1; fi
    if [ -e "$venv/metadata" ]; then exit 0; fi
    trap 'kill $!; exit 1' INT
    touch "$venv/metadata"
    if [ -e "$STUBS/slow-$(basename "$venv")" ]; then sleep 60 2> /dev/null 9>&- & wait $!; fi
    touch "$venv/programs" ;;
  -VV) echo Python 3.11 ;;
esac
"""


@pytest.fixture
def install(tmp_path: Path) -> Path:
    """The tool in a project of its own."""
    for directory in ("tools", "stubs", "bin"):
        (tmp_path / directory).mkdir()
    shutil.copy(TOOLS / "install", tmp_path / "tools" / "install")
    for name in ("tools/constraints.txt", "setup.cfg", "bindep.txt"):
        (tmp_path / name).touch()
    programs = {"bin/python": PYTHON, "bin/dpkg-query": "#!/bin/sh\n", "tools/install-rabbitmq-4": "#!/bin/sh\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path / "tools" / "install"


def started(install: Path, *words: str) -> subprocess.Popen[str]:
    root = install.parents[1]
    environment = {
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}", "PYTHON": str(root / "bin" / "python"),
        "STUBS": str(root / "stubs"),
    }  # fmt: skip
    return subprocess.Popen(
        [install, *words], env=environment, text=True, stderr=subprocess.PIPE, start_new_session=True
    )


def ended(tool: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = tool.communicate(timeout=WAIT_S)
    return tool.returncode, said


def whole(install: Path) -> set[str]:
    """The environments that have all they need."""
    return {path.parent.name for path in (install.parents[1] / ".venv").glob("*/programs")}


@pytest.mark.parametrize("words", [(), ("--quick",)])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_environment_that_was_interrupted_is_made_anew(
    install: Path, words: tuple[str, ...], end: signal.Signals
) -> None:
    names = {"quick"} if words else {"nova", "openstack"}
    slow = [install.parents[1] / "stubs" / f"slow-{name}" for name in names]
    for path in slow:
        path.touch()
    tool = started(install, *words)
    eventually(lambda: len(list((install.parents[1] / ".venv").glob("*/metadata"))) == len(names))

    # when Control-C or a shutdown ends it
    os.killpg(tool.pid, end)
    assert ended(tool)[0] != 0
    for path in slow:
        path.unlink()

    # then the next run does not take what is half for whole
    assert ended(started(install, *words))[0] == 0
    assert whole(install) == names


@pytest.mark.parametrize("failing", ["nova", "openstack"])
def test_of_two_environments_one_that_fails_leaves_the_other_whole(install: Path, failing: str) -> None:
    (reason := install.parents[1] / "stubs" / f"failing-{failing}").touch()

    code, said = ended(started(install))

    assert code == 1
    assert "no route to host" in said and f"pip could not install into {install.parents[1]}/.venv/{failing}" in said
    assert whole(install) == {"nova", "openstack"} - {failing}
    reason.unlink()
    assert ended(started(install))[0] == 0
    assert whole(install) == {"nova", "openstack"}


def test_two_at_the_same_time_make_each_environment_once(install: Path) -> None:
    assert [ended(tool)[0] for tool in [started(install), started(install)]] == [0, 0]
    assert whole(install) == {"nova", "openstack"}

# SPDX-License-Identifier: Apache-2.0
"""The lowest versions that setup.cfg allows (``tox -e lowest`` installs them and runs the quick tests)."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import pytest

from tools import lowest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("scheduler", "agent", "placement_app", "quick")


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_dependency_has_a_lower_bound(extra: str) -> None:
    found = list(lowest.constraints([extra]))

    assert "numpy==1.26" in found
    assert len(found) == len({line.partition("==")[0] for line in found})


def test_a_dependency_without_a_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "setup.cfg").write_text("[options]\ninstall_requires =\n    numpy\n[options.extras_require]\nquick =\n")
    monkeypatch.setattr(lowest, "ROOT", tmp_path)

    with pytest.raises(ValueError, match="'numpy' has no lower bound"):
        list(lowest.constraints(["quick"]))


def test_the_command_prints_constraints_for_pip(capsys: pytest.CaptureFixture[str]) -> None:
    assert lowest.main(["quick"]) == 0
    assert "oslo.service==4.5.0\n" in capsys.readouterr().out, "without its extras"


def test_tox_has_an_environment_for_them() -> None:
    tox = ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")

    commands = tox["testenv:lowest"]["commands_pre"]
    assert f"tools.lowest {' '.join(EXTRAS)} > {{envtmpdir}}/lowest.txt" in commands
    names = ",".join(EXTRAS).replace("_", "-")  # as setuptools writes them; older releases of pip find no others
    assert f"-c {{envtmpdir}}/lowest.txt -e .[{names}]" in commands


def test_all_extras_of_the_programs_are_among_them() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    # eventlet is an alternative to threads, with an environment of its own; the others are tools
    assert setup["options.extras_require"].keys() - {"docs", "test", "eventlet"} == {*EXTRAS}

# SPDX-License-Identifier: Apache-2.0
"""An operator derives host keys as root into a directory in which a local user has placed files of the same names.

``derive`` gave the new file to the owner of the old one, so the user could read the secret of that host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared_scheduler.cmd import manage

HOST = "compute-1"


@pytest.fixture
def master(tmp_path: Path) -> Path:
    file = tmp_path / "master"
    assert manage.main(["keys", "new", str(file)]) == 0
    return file


@pytest.fixture
def given_away(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Owners and groups that root gives files to."""
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda number, user, group: given.append((user, group)))
    return given


def derive(master: Path, to: Path) -> int:
    return manage.main(["keys", "derive", str(master), "--host", HOST, "--to", str(to)])


@pytest.mark.parametrize("is_link", [False, True])
def test_a_file_that_is_there_does_not_own_the_secret(
    master: Path, given_away: list[tuple[int, int]], is_link: bool, tmp_path: Path
) -> None:
    to, own = tmp_path / "hosts", tmp_path / "own"
    to.mkdir(0o700)
    own.write_text("")
    if is_link:
        (to / f"{HOST}.keys").symlink_to(own)
    else:
        (to / f"{HOST}.keys").write_text("")

    assert derive(master, to) == 0

    assert given_away == []
    assert own.read_text() == ""
    assert (to / f"{HOST}.keys").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_directory_that_others_may_write_is_refused(
    master: Path, mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "hosts"
    to.mkdir()
    to.chmod(mode)

    assert derive(master, to) == 2

    assert list(to.iterdir()) == []
    assert "may write" in capsys.readouterr().err


def test_the_master_keeps_its_owner(master: Path, given_away: list[tuple[int, int]]) -> None:
    owner = master.stat()

    assert manage.main(["keys", "rotate", str(master), "add"]) == 0

    assert given_away == [(owner.st_uid, owner.st_gid)]


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o604])
@pytest.mark.parametrize("command", [["derive", "--host", HOST, "--to"], ["rotate"], ["show"]])
def test_a_master_of_others_is_not_used(master: Path, mode: int, command: list[str], tmp_path: Path) -> None:
    """Who may write it knows the secrets of all hosts that are derived from it; so does who may read it."""
    master.chmod(mode)
    name, *more = command
    more += {"derive": [str(tmp_path / "hosts")], "rotate": ["add"], "show": []}[name]

    assert manage.main(["keys", name, str(master), *more]) == 2
    assert not (tmp_path / "hosts").exists()

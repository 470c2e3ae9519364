# SPDX-License-Identifier: Apache-2.0
"""``admin_socket_dir`` is a directory that every user may write, for example ``/tmp``.

A local user places a socket there that answers operators in the name of a scheduler, or exchanges that of a scheduler
for a link while its mode is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.daemon import admin

MODES = [0o777, 0o1777]


@pytest.fixture(params=MODES, ids=oct)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = tmp_path / "sockets"
    made.mkdir()
    made.chmod(request.param)
    return made


@pytest.fixture
def false_scheduler(directory: Path) -> Iterator[Path]:
    """The socket of a local user, who has bound it himself."""
    server = admin.AdminServer(directory / "controller-1-17.sock", {"status": lambda _: {"scheduler": "forged"}})
    directory.chmod(0o755)
    mode = directory.stat().st_mode
    server.start()
    directory.chmod(mode | 0o022)
    yield directory
    server.stop()


def test_a_scheduler_places_no_socket_there(directory: Path) -> None:
    server = admin.AdminServer(directory / "controller-1-17.sock", {})

    with pytest.raises(admin.AdminError, match=r"every user may write .*admin_socket_dir"):
        server.start()

    assert list(directory.iterdir()) == []


def test_operators_do_not_ask_there(false_scheduler: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["status", "--socket-dir", str(false_scheduler)]) == 2

    told = capsys.readouterr()
    assert "forged" not in told.out
    assert "every user may write" in told.err

# SPDX-License-Identifier: Apache-2.0
"""The option of a socket names a file, by mistake or because of an attacker."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent.tap.tap_channel import bind
from shared_scheduler.daemon.admin import AdminError, AdminServer


def test_the_tap_keeps_the_file(tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"
    file.write_text("[DEFAULT]")
    with pytest.raises(OSError, match="is not a socket"):
        bind(str(file))
    assert file.read_text() == "[DEFAULT]"


def test_the_admin_socket_keeps_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sched1-17.sock"
    file.write_text("precious")
    with pytest.raises(AdminError, match=r"is not a socket.*; remove it, or set .* admin_socket_dir"):
        AdminServer(file, {}).start()
    assert file.read_text() == "precious"

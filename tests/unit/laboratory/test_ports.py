# SPDX-License-Identifier: Apache-2.0
"""Ports are leased to one owner at a time, also before a process listens on them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tools.laboratory.cloud import ports
from tools.laboratory.cloud.layout import LOOPBACK
from tools.laboratory.cloud.ports import lease

LEASE = """
import sys
from pathlib import Path
from tools.laboratory.cloud import ports
ports.RECORD = Path(sys.argv[1])
owner = Path(sys.argv[2])
owner.mkdir()
print(*ports.lease(owner, 3))
"""


@pytest.fixture(autouse=True)
def few_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks of ports, leased from the record of the machine first, because clouds run beside this test."""
    mine = lease(owner(tmp_path, "machine"), ports.BLOCK)
    monkeypatch.setattr(ports, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(ports, "FIRST", mine[0])
    monkeypatch.setattr(ports, "BLOCK", ports.BLOCK // 2)
    monkeypatch.setattr(ports, "BLOCKS", 2)


def owner(home: Path, name: str) -> Path:
    directory = home / name
    directory.mkdir()
    return directory


def test_a_leased_port_is_not_leased_again(tmp_path: Path) -> None:
    one, two = (lease(owner(tmp_path, name), 9) for name in ("one", "two"))

    assert len(one) == len(two) == 9
    assert not set(one) & set(two)


def test_the_ports_of_a_removed_owner_are_leased_again(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        directory = owner(tmp_path, name)
        assert lease(directory, 9)
        directory.rmdir()


def test_a_port_on_which_a_process_listens_is_not_leased(tmp_path: Path) -> None:
    first = lease(owner(tmp_path, "one"), 9)
    with socket.socket() as stranger:
        other = next(port for port in ports.firsts() if port not in first)
        stranger.bind((LOOPBACK, other))
        stranger.listen()
        with pytest.raises(ports.NoPorts, match="no 9 free ports"):
            lease(owner(tmp_path, "two"), 9)


def test_a_record_that_cannot_be_read_is_begun_anew(tmp_path: Path) -> None:
    ports.RECORD.write_text('{"half')

    assert lease(owner(tmp_path, "one"), 9)


def test_processes_that_choose_at_the_same_moment_choose_differently(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", LEASE, str(ports.RECORD), str(tmp_path / str(n))] for n in range(6)]
    choosing = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE) for command in commands]
    chosen = [process.communicate()[0].split() for process in choosing]

    assert len({port for some in chosen for port in some}) == 3 * len(commands)

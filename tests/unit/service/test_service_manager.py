# SPDX-License-Identifier: Apache-2.0
"""systemd knows when a service is ready, reloads and stops, and restarts one that hangs."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_scheduler.service.service_manager import ALIVE, READY, STOPPING, Watchdog, notify, watchdog_s
from tests.unit.service.test_runner import program

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "etc" / "systemd").glob("*.service"))
PATIENCE_S = 30.0


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket that systemd listens on."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield listener


def heard(systemd: socket.socket) -> str:
    return systemd.recv(4096).decode()


def test_a_service_notifies_systemd_of_its_state(systemd: socket.socket) -> None:
    with subprocess.Popen([sys.executable, "-c", program()], cwd=ROOT, stdout=subprocess.DEVNULL) as child:
        assert heard(systemd) == READY

        child.send_signal(signal.SIGHUP)
        assert heard(systemd).startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert heard(systemd) == READY

        child.send_signal(signal.SIGTERM)
        assert heard(systemd) == STOPPING


def test_pings_end_when_the_service_hangs(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a service that is alive
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    asked, hangs = threading.Event(), threading.Event()

    def alive() -> None:
        asked.set()
        if hangs.is_set():
            raise TimeoutError

    watchdog = Watchdog(alive)
    watchdog.start()
    assert heard(systemd) == ALIVE

    # when it hangs
    hangs.set()
    asked.clear()
    assert asked.wait(PATIENCE_S)

    # then no ping follows those that were on their way
    systemd.settimeout(0.3)
    with pytest.raises(TimeoutError):
        for _ in range(5):
            heard(systemd)
    watchdog.stop()


def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "often")

    notify(READY)

    assert watchdog_s() is None


def test_a_socket_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))

    notify(READY)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    # the programs are looked for where they are installed
    text = unit.read_text().replace("/usr/bin/", f"{Path(sys.executable).parent}/")
    copy = tmp_path / unit.name
    copy.write_text(text)

    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_there_is_a_unit_for_each_program() -> None:
    assert [unit.stem for unit in UNITS] == ["compute-agent", "shared-scheduler-stock", "shared-scheduler"]

# SPDX-License-Identifier: Apache-2.0
"""systemd knows when a service is ready, reloads and stops, and restarts one that hangs."""

from __future__ import annotations

import configparser
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from shared_scheduler.cmd import serve
from shared_scheduler.conf import opts
from shared_scheduler.daemon.service_manager import ALIVE, READY, STOPPING, Watchdog, notify, watchdog_s
from shared_scheduler.service.runner import REFUSED_TO_START
from tests.unit.service.test_runner import program

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "etc" / "systemd").glob("*.service"))
PATIENCE_S = 300.0


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
    asked, lives = threading.Semaphore(0), queue.Queue[bool]()

    def alive() -> None:
        asked.release()
        if not lives.get():
            raise TimeoutError

    watchdog = Watchdog(alive)
    watchdog.start()
    lives.put(True)
    assert heard(systemd) == ALIVE

    # when it hangs, twice
    lives.put(False)
    lives.put(False)
    assert all(asked.acquire(timeout=PATIENCE_S) for _ in range(4)), "it is asked again and again"

    # then no ping was sent
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        heard(systemd)
    watchdog.stop()
    lives.put(False)


def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "often")

    notify(READY)

    assert watchdog_s() is None


def test_a_socket_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))

    notify(READY)


def test_a_unit_does_not_restart_what_cannot_start() -> None:
    status = {unit.stem: settings(unit).get("RestartPreventExitStatus") for unit in UNITS}

    assert status["shared-scheduler"] == status["compute-agent"] == str(os.EX_CONFIG)
    assert REFUSED_TO_START == os.EX_CONFIG


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_tries_for_ever(unit: Path) -> None:
    """A database may be away for hours; nobody should have to start the services after that."""
    assert settings(unit)["Restart"] == "on-failure"
    assert settings(unit, "Unit").get("StartLimitIntervalSec") == "0"


def test_systemd_waits_longer_than_the_options_allow_a_scheduler_to_take() -> None:
    # given the unit, and the defaults of the options that it names
    unit = settings(ROOT / "etc" / "systemd" / "shared-scheduler.service")
    defaults = {option.name: option.default for option in opts.ALL}

    # then a start and an orderly stop end before systemd kills the process
    assert int(unit["TimeoutStartSec"]) > defaults["startup_wait_s"]
    assert int(unit["TimeoutStopSec"]) > defaults["drain_timeout_s"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_only_a_program_that_notifies_systemd_is_waited_for(unit: Path) -> None:
    found = settings(unit)

    assert (
        (found["Type"] == "notify") == ("WatchdogSec" in found) == (unit.stem in ("compute-agent", "shared-scheduler"))
    )


def test_the_sockets_of_a_killed_scheduler_stay_until_somebody_asks() -> None:
    """Otherwise status could not name it."""
    assert settings(ROOT / "etc/systemd/shared-scheduler.service").get("RuntimeDirectoryPreserve") == "yes"


def test_the_page_is_served_from_a_directory_of_its_own() -> None:
    # given its unit, and where pages and the help tell that it is served
    unit = settings(ROOT / "etc/systemd/shared-scheduler-page.service")
    directory, path = unit["RuntimeDirectory"], unit["ExecStart"].split()[-1]
    told = [(ROOT / "doc/source/admin/page.rst").read_text(), str(serve.__doc__)]

    assert path == f"/run/{directory}/page.sock"
    assert directory not in (settings(ROOT / "etc/systemd/shared-scheduler.service")["RuntimeDirectory"], "")
    assert all(path in text and "shared-scheduler/page.sock" not in text for text in told)
    # serve ends as shells do after a signal
    assert unit["SuccessExitStatus"] == str(128 + signal.SIGTERM)


def settings(unit: Path, section: str = "Service") -> Mapping[str, str]:
    """What the unit says of its service, or in another section.

    ``tests/functional/test_delivery.py`` lets systemd itself judge the units.
    """
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(unit)
    return parser[section]


def test_there_is_a_unit_for_each_program() -> None:
    assert [unit.stem for unit in UNITS] == [
        "compute-agent", "shared-scheduler-page", "shared-scheduler-stock", "shared-scheduler",
    ]  # fmt: skip

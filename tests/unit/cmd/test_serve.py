# SPDX-License-Identifier: Apache-2.0
"""``serve`` gives the page to this machine only, and many clients do not hold one another up."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.cmd import manage
from shared_scheduler.daemon import http_server
from shared_scheduler.daemon.telemetry_address import TelemetryAddress
from shared_scheduler.records.json_lines import JsonLines
from tests.support.unix_http import OverUnixSocket, get
from tests.unit.cmd.test_questions_to_records import stored
from tests.unit.cmd.waiting import WAIT_S

#: clouds take thousands of ports of 127.0.0.1 while a command begins
OWN_LOOPBACK = "127.8.78.1"
MANAGE = [sys.executable, "-m", "shared_scheduler.cmd.manage"]


@contextmanager
def serving(directory: Path, listen: str, *more: str) -> Iterator[str]:
    """A process of the command; yields where it serves."""
    JsonLines(directory / "records").write(stored())
    with started(listen, "--records", str(directory / "records"), *more) as where:
        yield where


@contextmanager
def started(listen: str | Path, *more: str) -> Iterator[str]:
    """The same with the records that the arguments or the configuration name."""
    command = [*MANAGE, "serve", "--listen", str(listen), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 128 + signal.SIGTERM


def test_the_same_answer_over_a_socket_that_only_the_group_may_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.sock"
    with serving(tmp_path, str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        status, text = get(OverUnixSocket(path), "/api/why?id=server-1")
    assert not path.exists()

    assert manage.main(["why", "server-1", "--format", "json", "--records", str(tmp_path / "records")]) == 0
    assert (status, json.loads(text)) == (200, json.loads(capsys.readouterr().out))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory in which Nova finds a configuration with records and with the sockets of schedulers."""
    JsonLines(tmp_path / "records").write(stored())
    (tmp_path / ".nova").mkdir()
    (tmp_path / ".nova" / "nova.conf").write_text(
        f"[shared_scheduler]\nadmin_socket_dir = {tmp_path}\nrecords_file = {tmp_path}/records\n"
    )
    return tmp_path


@pytest.mark.parametrize(("arguments", "told"), [
    ((), "no scheduler of this machine has a socket in {home}"),
    (("--records", "{home}/records"), "no scheduler is asked: serve was started with --records and without"),
    (("--records", "{home}/records", "--socket-dir", "{home}"), "no scheduler of this machine has a socket in {home}"),
])  # fmt: skip
def test_schedulers_are_those_of_the_configuration_that_names_the_records(
    home: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.setenv("HOME", str(home))
    with started(home / "page.sock", *(word.format(home=home) for word in arguments)):
        status, text = get(OverUnixSocket(home / "page.sock"), "/api/fleet")

    assert status == 503
    assert json.loads(text)["error"].startswith(told.format(home=home))


def test_silent_clients_do_not_keep_others_from_the_page(tmp_path: Path) -> None:
    # given a port of an address of this machine that nobody else uses
    with socket.create_server((OWN_LOOPBACK, 0)) as free:
        port = free.getsockname()[1]
    with serving(tmp_path, f"{OWN_LOOPBACK}:{port}", "--host-name", OWN_LOOPBACK) as where:
        silent = [socket.create_connection((OWN_LOOPBACK, port)) for _ in range(20)]
        try:
            assert where == f"http://{OWN_LOOPBACK}:{port}/"
            assert get(http.client.HTTPConnection(OWN_LOOPBACK, port, timeout=WAIT_S), "/records")[0] == 200
        finally:
            for each in silent:
                each.close()


def test_an_answer_that_takes_long_is_given_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given an answer that takes longer than a client of the metrics may take
    monkeypatch.setattr(http_server, "CLIENT_TIMEOUT_S", 0.05)

    def slow(_: Any, start_response: Any) -> list[bytes]:
        time.sleep(0.3)
        start_response("200 OK", [("Content-Length", "5")])
        return [b"found"]

    server = http_server.serve_at(TelemetryAddress(path=str(tmp_path / "slow.sock")), threads=True)
    server.set_app(slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert get(OverUnixSocket(tmp_path / "slow.sock"), "/") == (200, "found")
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("arguments", "told"), [
    (["--listen", "0.0.0.0:8780"], "no authentication"), (["--listen", "[::]:8780"], "no authentication"),
    (["--listen", "/no/such/directory/page.sock"], "No such file"),
])  # fmt: skip
def test_other_machines_are_not_served_by_chance(
    tmp_path: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert manage.main(["serve", "--records", str(tmp_path / "records"), *arguments]) == 2

    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert told in shown.err


def test_records_that_are_not_there_yet_are_told_and_do_not_keep_the_fleet_from_being_shown(tmp_path: Path) -> None:
    command = [*MANAGE, "serve", "--records", str(tmp_path / "typo"), "--listen", str(tmp_path / "page.sock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        served = process.stdout.readline()
        status, text = get(OverUnixSocket(tmp_path / "page.sock"), "/")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_S)

    assert served.startswith("The page is served at ")
    assert (status, errors.count("\n")) == (200, 1)
    assert f"there is no file {tmp_path}/typo" in text and f"there is no file {tmp_path}/typo" in errors

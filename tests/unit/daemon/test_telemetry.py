# SPDX-License-Identifier: Apache-2.0
"""Prometheus and health probes ask over HTTP, on an address or a Unix socket."""

from __future__ import annotations

import http.client
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client import Counter

from shared_scheduler.daemon import http_server
from shared_scheduler.daemon.telemetry import Telemetry
from shared_scheduler.daemon.telemetry_address import TelemetryAddress, TelemetryError, telemetry_address
from tests.support.unix_http import OverUnixSocket, get


class World:
    """A process with one metric, whose health the test sets."""

    def __init__(self, address: TelemetryAddress) -> None:
        self.wrong: list[str] = []
        self.server = Telemetry(address, lambda: (), lambda: self.wrong)
        Counter("decisions", "Decisions.", registry=self.server.registry).inc(3)
        self.server.start()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.sock"


@pytest.fixture
def world(path: Path) -> Iterator[World]:
    made = World(TelemetryAddress(path=str(path)))
    yield made
    made.server.stop()
    made.server.stop()  # idempotent
    assert not path.exists()


def test_metrics_are_served_on_a_unix_socket_for_user_and_group(world: World, path: Path) -> None:
    status, text = get(OverUnixSocket(path), "/metrics")

    assert status == 200
    assert "decisions_total 3.0" in text
    assert "process_resident_memory_bytes" in text and "process_start_time_seconds" in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_health_is_ok_or_has_the_error(world: World, path: Path) -> None:
    assert get(OverUnixSocket(path), "/ready") == (200, "ok\n")

    world.wrong = ["cell c1 is not connected", "cell c2 is not connected"]

    assert get(OverUnixSocket(path), "/ready") == (503, "cell c1 is not connected\ncell c2 is not connected\n")
    assert get(OverUnixSocket(path), "/live") == (200, "ok\n")
    assert get(OverUnixSocket(path), "/etc/passwd")[0] == 404


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_is_served_too(host: str) -> None:
    world = World(TelemetryAddress(host, 0))
    try:
        assert get(http.client.HTTPConnection(host, world.server.port, timeout=60), "/live") == (200, "ok\n")
    finally:
        world.server.stop()


def test_a_silent_client_does_not_block_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a client that says nothing
    patient_s = http_server.TimedHandler.timeout
    monkeypatch.setattr(http_server.TimedHandler, "timeout", 0.1)
    world = World(TelemetryAddress(path=str(path)))
    try:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(str(path))
            # when its time is over
            assert silent.recv(1) == b""
            # then the next one is answered, however slowly it asks
            monkeypatch.setattr(http_server.TimedHandler, "timeout", patient_s)
            assert get(OverUnixSocket(path), "/live")[0] == 200
    finally:
        world.server.stop()


def test_a_stop_keeps_the_socket_that_another_process_has_bound_meanwhile(path: Path) -> None:
    before, after = World(TelemetryAddress(path=str(path))), World(TelemetryAddress(path=str(path)))

    before.server.stop()

    assert get(OverUnixSocket(path), "/live") == (200, "ok\n")
    after.server.stop()
    assert not path.exists()


def test_a_stop_keeps_a_directory_of_that_name(path: Path) -> None:
    """And it ends: what is stopped afterwards is stopped too."""
    world = World(TelemetryAddress(path=str(path)))
    path.unlink()
    path.mkdir()

    world.server.stop()

    assert path.is_dir()


def test_a_client_that_sends_byte_by_byte_does_not_block_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server.TimedHandler, "timeout", 0.3)
    monkeypatch.setattr(http_server, "CLIENT_TIMEOUT_S", 0.3)
    server = World(TelemetryAddress(path=str(path))).server
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    client.settimeout(0.05)

    def is_disconnected() -> bool:
        with suppress(TimeoutError):
            client.send(b"G")
            return client.recv(1) == b""
        return False

    try:
        assert any(is_disconnected() for _ in range(2000))
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        client.close()
        server.stop()


def test_an_unknown_health_is_not_ready(path: Path) -> None:
    def broken() -> list[str]:
        raise RuntimeError("the table is on fire")

    server = Telemetry(TelemetryAddress(path=str(path)), broken, broken)
    server.start()
    try:
        assert get(OverUnixSocket(path), "/ready") == (503, "RuntimeError: the table is on fire\n")
    finally:
        server.stop()


def test_a_file_that_an_option_names_by_mistake_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"
    file.write_text("[DEFAULT]\n")

    with pytest.raises(TelemetryError, match="is not a socket"):
        Telemetry(TelemetryAddress(path=str(file)), tuple, tuple).start()

    assert file.read_text() == "[DEFAULT]\n"


def test_an_address_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = TelemetryAddress("127.0.0.1", other.getsockname()[1])
        with pytest.raises(TelemetryError, match=r"metrics_listen = 127.0.0.1:\d+: Address already in use"):
            Telemetry(address, tuple, tuple).start()


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("", None),
        ("127.0.0.1:9190", TelemetryAddress("127.0.0.1", 9190)),
        ("[::1]:9190", TelemetryAddress("::1", 9190)),
        ("/run/nova/metrics.sock", TelemetryAddress(path="/run/nova/metrics.sock")),
    ],
)
def test_the_option_names_an_address_or_a_path(given: str, address: TelemetryAddress | None) -> None:
    assert telemetry_address(given, "shared_scheduler") == address


@pytest.mark.parametrize("given", ["9190", "localhost", "localhost:http", ":9190", "h:0", "h:70000", "metrics.sock"])
def test_another_value_is_refused_with_its_option(given: str) -> None:
    with pytest.raises(TelemetryError, match=r"\[compute_agent\] metrics_listen"):
        telemetry_address(given, "compute_agent")


def test_workers_do_not_share_an_address() -> None:
    assert str(TelemetryAddress("::1", 9190).of_worker("2")) == "[::1]:9192"
    assert str(TelemetryAddress(path="/run/m.sock").of_worker("2")) == "/run/m.sock.worker2"
    assert str(TelemetryAddress("h", 9190).of_worker(None)) == "h:9190"


def test_a_worker_for_whom_no_port_is_left_is_told_so() -> None:
    # given the metrics of the first of two workers at the last port
    address = TelemetryAddress("127.0.0.1", 65535).of_worker("1")
    # then the second one does not end with a traceback
    with pytest.raises(TelemetryError, match="65536"):
        Telemetry(address, tuple, tuple).start()

# SPDX-License-Identifier: Apache-2.0
"""An error that ends the start is reported in one line, with the exit status of a service that cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import amqp
import oslo_messaging
import pytest
from oslo_config import cfg
from oslo_db import exception as db_exception
from sqlalchemy import exc as sa_exc

from shared_scheduler.cmd import scheduler
from shared_scheduler.daemon.telemetry import Telemetry
from shared_scheduler.daemon.telemetry_address import TelemetryAddress, TelemetryError
from shared_scheduler.nova import process
from shared_scheduler.nova.host_manager import PluginError
from shared_scheduler.nova.stock import StockAwayError
from shared_scheduler.release import release
from shared_scheduler.service import preflight
from shared_scheduler.service.runner import REFUSED_TO_START
from shared_scheduler.sync.databases import DatabaseError


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the log."""
    lines: list[str] = []
    monkeypatch.setattr(process, "prepare", lambda argv: None)
    monkeypatch.setattr(process, "check_dependencies", lambda: None)
    monkeypatch.setattr(process, "warn_of_missing_stock", lambda: None)
    monkeypatch.setattr(process.LOG, "error", lambda line, *values: lines.append(line % values if values else line))
    return lines


def test_a_broker_that_fails_after_the_preflight_check(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ends_with(oslo_messaging.MessageDeliveryFailure("Unable to connect to 192.0.2.7:5672"), monkeypatch)

    status = process.main(["nova-scheduler"])

    assert status == os.EX_TEMPFAIL
    assert len(said) == 1
    assert "192.0.2.7:5672" in said[0]


#: as Nova's own queries raise it, which oslo.db does not translate
WRONG_PASSWORD = sa_exc.OperationalError(
    "SELECT cell_mappings.id FROM cell_mappings", {}, Exception(1045, "Access denied for user 'nova'@'192.0.2.7'")
)

#: as oslo.messaging lets it through
REFUSED_LOGIN = amqp.AccessRefused("Login was refused", (0, 0))


def test_a_broker_that_refuses_is_told_in_one_line_with_the_option(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(REFUSED_LOGIN, monkeypatch)

    process.main(["nova-scheduler"])

    [line] = said
    assert "Login was refused" in line and "[DEFAULT] transport_url" in line


def test_a_database_that_refuses_is_told_in_one_line_with_the_remedy(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(WRONG_PASSWORD, monkeypatch)

    process.main(["nova-scheduler"])

    [line] = said
    assert "user or password are wrong (Access denied for user 'nova'@'192.0.2.7')" in line
    assert "[api_database]" in line and "SELECT" not in line


#: an address of a network for documentation, which no machine has
NO_ADDRESS_OF_THIS_MACHINE = TelemetryAddress("192.0.2.7", 9190)


def bind() -> Any:
    Telemetry(NO_ADDRESS_OF_THIS_MACHINE, tuple, tuple).start()


@pytest.mark.parametrize("error", [
    preflight.ServerUnreachableError("Placement does not answer"),
    DatabaseError("[api_database] connection: the database cannot be read"),
    db_exception.DBConnectionError(OSError("connection refused")),
    StockAwayError("mode shadow needs a nova-scheduler"),
    WRONG_PASSWORD,
    REFUSED_LOGIN,
    bind,
], ids=["server", "database", "query", "nova-scheduler", "password", "login", "address of metrics"])  # fmt: skip
def test_what_is_away_at_present_lets_systemd_start_the_scheduler_again(
    said: list[str], monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    """After a power failure, a database may need minutes until it answers."""
    ends_with(error, monkeypatch)

    assert process.main(["nova-scheduler"]) == os.EX_TEMPFAIL
    assert len(said) == 1


@pytest.mark.parametrize("error", [
    PluginError("[filter_scheduler] weight_classes = NoSuch cannot be loaded"),
    TelemetryError("[shared_scheduler] metrics_listen = here: write address:port"),
    oslo_messaging.DriverLoadFailure("carrier-pigeon", ImportError("no such driver")),
    oslo_messaging.InvalidTransportURL("nonsense", "no scheme"),
    lambda: preflight.database("the database", "[database] connection", ""),
], ids=["class", "metrics", "driver", "URL", "no database"])  # fmt: skip
def test_a_wrong_option_does_not(said: list[str], monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    ends_with(error, monkeypatch)

    assert process.main(["nova-scheduler"]) == REFUSED_TO_START
    assert len(said) == 1


def ends_with(error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the start end with an error, or with that of a function."""

    def run() -> Any:
        if isinstance(error, Exception):
            raise error
        error()

    monkeypatch.setattr(process, "_run", run)


def test_an_error_is_not_reported_twice(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """oslo.log adds the error under way to each line of this level."""
    under_way: list[object] = []
    monkeypatch.setattr(process.LOG, "error", lambda *_: under_way.append(sys.exc_info()[1]))

    def broken(*_: Any) -> Any:
        raise PluginError("[filter_scheduler] weight_classes = NoSuch cannot be loaded")

    monkeypatch.setattr(process, "_run", broken)
    monkeypatch.setattr(process.configuration, "check_files", broken)

    process.main(["nova-scheduler"])
    process.reload(None)

    assert under_way == [None, None]


class Served:
    """A service whose databases refuse."""

    def enter(self, mode: Any) -> None:
        """It is in this mode."""

    def reset(self) -> None:
        raise DatabaseError("[api_database] connection: the database cannot be read")


def test_a_reload_that_fails_half_way_does_not_say_that_nothing_has_changed(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options of the files are in use by then."""
    monkeypatch.setattr(process.configuration, "check_files", lambda: None)
    monkeypatch.setattr(process.CONF, "mutate_config_files", lambda: None)

    process.reload(Served())

    [line] = said
    assert "the database cannot be read" in line
    assert "nothing has changed" not in line and "previous configuration" not in line


def test_a_reload_of_wrong_files_changes_nothing_and_says_so(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise cfg.ConfigFileValueError("Value for option request_timeout_s is not valid")

    monkeypatch.setattr(process.configuration, "check_files", refuse)

    process.reload(Served())

    [line] = said
    assert "nothing has changed" in line and "request_timeout_s" in line


def test_the_version_is_ours_and_that_of_nova(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["shared-scheduler", "--version"])

    assert scheduler.main() == 0

    assert capsys.readouterr().out == f"shared-scheduler {release()} with nova {version('nova')}\n"


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_names_the_command_and_not_novas(option: str) -> None:
    command = [sys.executable, "-m", "shared_scheduler.cmd.scheduler", option]

    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: shared-scheduler ")


def test_a_start_in_shadow_does_not_wait_for_nova_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Away:
        def problem(self) -> str:
            return "no reply"

    monkeypatch.setattr(process, "StockScheduler", Away)
    monkeypatch.setattr(process.LOG, "warning", lambda line, *values: lines.append(line % values))

    process.warn_of_missing_stock()
    assert lines == []

    process.CONF.set_override("mode", "shadow", group="shared_scheduler")
    process.warn_of_missing_stock()
    assert len(lines) == 1
    assert "scheduler_stock (no reply)" in lines[0] and "Start shared-scheduler-stock" in lines[0]


def refused(file: Path) -> str:
    """What a scheduler with this configuration says, which an operator has to correct."""
    done = subprocess.run(
        [sys.executable, "-m", "shared_scheduler.cmd.scheduler", "--config-file", str(file)],
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode == REFUSED_TO_START, output
    return output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("", "auth_type is not set"),
        ("auth_type = pasword", "pasword"),
        ("auth_type = password\nusername = nova", "auth_url"),
    ],
    ids=["none", "unknown", "half"],
)
def test_options_of_placement_that_cannot_work_end_in_one_line(tmp_path: Path, options: str, named: str) -> None:
    # given databases and a message queue that need no check
    file = tmp_path / "nova.conf"
    file.write_text(
        f"[DEFAULT]\ntransport_url = fake://\n[api_database]\nconnection = sqlite://\n"
        f"[database]\nconnection = sqlite://\n[shared_scheduler]\nstartup_wait_s = 0\n[placement]\n{options}\n"
    )

    output = refused(file)
    line = next(line for line in output.splitlines() if "cannot start" in line)
    assert "[placement]" in line and named in line
    assert "does not answer" not in output and "Traceback" not in output


@pytest.mark.parametrize("wrong", ["alternates = three", "merged_moves = resizes", "records_rows_max = many"])
def test_a_wrong_value_ends_the_start_also_if_the_option_is_read_later(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "nova.conf"
    file.write_text(f"[DEFAULT]\ntransport_url = fake://\n[shared_scheduler]\n{wrong}\n")

    [line] = refused(file).splitlines()

    name, _, value = wrong.partition(" = ")
    assert f"[shared_scheduler] Value for option {name} from {file} is not valid" in line and value in line


def test_a_report_that_is_asked_for_too_early_does_not_end_the_start(tmp_path: Path) -> None:
    """A supervisor asks all of its workers, also one that it has just started again."""
    # given a scheduler that waits for its message queue
    file = tmp_path / "nova.conf"
    file.write_text(
        "[DEFAULT]\ntransport_url = rabbit://nova:nova@127.0.0.1:9/\n[api_database]\nconnection = sqlite://\n"
        "[database]\nconnection = sqlite://\n[placement]\nauth_type = none\n"
        "[shared_scheduler]\nstartup_wait_s = 1200\n"
    )
    command = [sys.executable, "-m", "shared_scheduler.cmd.scheduler", "--config-file", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as starting:
        assert starting.stdout is not None
        assert any("Waiting for the message queue" in line for line in starting.stdout)
        # when it is asked for a report, and then ended
        for number in (signal.SIGUSR2, signal.SIGTERM):
            starting.send_signal(number)
        # then the second signal has ended it
        assert starting.wait(600) == -signal.SIGTERM


PASSWORD_WITH_A_SLASH = """
[DEFAULT]
transport_url = rabbit://nova:s3cret/more@controller:5672/
"""


def test_a_url_that_cannot_be_used_ends_in_one_line_without_the_password(tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"
    file.write_text(PASSWORD_WITH_A_SLASH)

    output = refused(file)
    assert "percent-encode" in output
    assert "s3c" not in output
    assert "Traceback" not in output


class StoppingServer:
    """A Service whose last requests take their time, and what is called of its manager."""

    rpcserver: Any

    def __init__(self, requests_take_s: float) -> None:
        self.now, self.called = 1000.0, list[tuple[Any, ...]]()
        self.manager = self.rpcserver = self
        self._requests_take_s = requests_take_s

    def wait(self, timeout_s: float) -> None:
        self.now += min(self._requests_take_s, timeout_s)

    def drain(self, timeout_s: float) -> None:
        self.called.append(("drain", timeout_s))

    def stop_within(self, timeout_s: float) -> None:
        self.called.append(("stop within", timeout_s))

    def cleanup_host(self) -> None:
        self.called.append(("clean up",))

    def set_shutdown_in_progress(self) -> None: ...
    def stop(self) -> None: ...


@pytest.mark.parametrize(("requests_take_s", "left_s"), [(4.0, 50.0), (48.0, 6.0), (70.0, 0.0)])
def test_a_stop_leaves_what_the_requests_did_not_use_to_the_deletes(requests_take_s: float, left_s: float) -> None:
    server = StoppingServer(requests_take_s)

    process.LosslessStop(server, 60.0, lambda: server.now).stop()

    assert server.called == [("stop within", 48.0), ("drain", left_s), ("clean up",)]
    assert server.now <= 1054.0

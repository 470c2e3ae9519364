# SPDX-License-Identifier: Apache-2.0
"""An error that ends the start is reported in one line, with the exit status of a service that cannot start."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest

from shared_scheduler.cmd import scheduler
from shared_scheduler.nova import process
from shared_scheduler.nova.host_manager import PluginError
from shared_scheduler.release import release
from shared_scheduler.service.runner import REFUSED_TO_START


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the log."""
    lines: list[str] = []
    monkeypatch.setattr(process, "prepare", lambda argv: None)
    monkeypatch.setattr(process, "check_dependencies", lambda: None)
    monkeypatch.setattr(process, "warn_of_missing_stock", lambda: None)
    monkeypatch.setattr(process.LOG, "error", lines.append)
    return lines


def test_a_broker_that_fails_after_the_preflight_check(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    error = oslo_messaging.MessageDeliveryFailure("Unable to connect to 192.0.2.7:5672")

    def run() -> Any:
        raise error

    monkeypatch.setattr(process, "_run", run)

    status = process.main(["nova-scheduler"])

    assert status == REFUSED_TO_START
    assert len(said) == 1
    assert "192.0.2.7:5672" in said[0]


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


PASSWORD_WITH_A_SLASH = """
[DEFAULT]
transport_url = rabbit://nova:s3cret/more@controller:5672/
"""


def test_a_url_that_cannot_be_used_ends_in_one_line_without_the_password(tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"
    file.write_text(PASSWORD_WITH_A_SLASH)

    done = subprocess.run(
        [sys.executable, "-m", "shared_scheduler.cmd.scheduler", "--config-file", str(file)],
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip

    output = done.stdout + done.stderr
    assert done.returncode == REFUSED_TO_START, output
    assert "percent-encode" in output
    assert "s3c" not in output
    assert "Traceback" not in output

# SPDX-License-Identifier: Apache-2.0
"""The warning at start about a Placement that lets racing writers over-commit hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_scheduler.nova import process
from shared_scheduler.nova.placement_file import over_commit_warning
from shared_scheduler.service.runner import WORKER_NUMBER


def conf(directory: Path, text: str) -> Path:
    file = directory / "placement.conf"
    file.write_text(text)
    return file


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings of the log."""
    lines: list[str] = []
    monkeypatch.setattr(process, "prepare", lambda argv: None)
    monkeypatch.setattr(process, "check_dependencies", lambda: None)
    monkeypatch.setattr(process, "_run", lambda: 0)
    monkeypatch.setattr(process, "CONF", _OneWorker())
    monkeypatch.setattr(process.LOG, "warning", lines.append)
    return lines


class _OneWorker:
    class shared_scheduler:
        mode = "active"
        workers = 1


def test_the_start_warns_once_and_names_option_value_file_and_remedy(
    warned: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = conf(tmp_path, "[placement]\nrandomize_allocation_candidates = true\n")
    monkeypatch.setattr(process, "USUAL_FILE", file)

    assert process.main(["shared-scheduler"]) == 0

    (line,) = warned
    assert f"[placement] allocation_conflict_retry_count is 10 in {file}" in line
    assert "Set it to 1 and restart Placement" in line


def test_a_worker_does_not_repeat_it(warned: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "USUAL_FILE", conf(tmp_path, "[placement]\n"))
    monkeypatch.setenv(WORKER_NUMBER, "2")
    assert process.main(["shared-scheduler"]) == 0
    assert warned == []


@pytest.mark.parametrize("text", ["[placement]\nallocation_conflict_retry_count = 1\n", "no configuration file at all"])
def test_a_right_value_and_a_file_that_cannot_be_used_are_no_warning(tmp_path: Path, text: str) -> None:
    assert over_commit_warning(conf(tmp_path, text)) == ""


def test_without_the_file_nothing_is_known(tmp_path: Path) -> None:
    assert over_commit_warning(tmp_path / "placement.conf") == ""

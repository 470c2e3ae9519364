# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-status upgrade check`` reports errors and remedies before the scheduler is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nova.conf import paths
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from shared_scheduler.conf import opts
from shared_scheduler.nova import upgrade_checks
from shared_scheduler.nova.upgrade_checks import (
    WITHOUT_EFFECT,
    UpgradeChecks,
    channels_result,
    computes_result,
    nova_result,
    options_result,
    placement_result,
    releases_result,
    retries_result,
    senders_result,
    values_result,
)
from tests.unit.nova.conftest import CONF


def test_another_nova_is_a_failure() -> None:
    assert nova_result("34.1.2").code is Code.SUCCESS
    result = nova_result("33.0.0")
    assert (result.code, "needs nova 34" in str(result.details)) == (Code.FAILURE, True)


@pytest.mark.parametrize(
    ("oldest", "code"), [(70, Code.SUCCESS), (71, Code.SUCCESS), (69, Code.WARNING), (0, Code.WARNING)]
)
def test_an_older_nova_compute_is_a_warning(oldest: int, code: Code) -> None:
    assert computes_result(oldest, ours=70).code is code


@pytest.mark.parametrize(("newest", "code"), [("1.36", Code.SUCCESS), ("1.100", Code.SUCCESS), ("1.9", Code.FAILURE)])
def test_microversions_are_compared_as_numbers(newest: str, code: Code) -> None:
    assert placement_result(newest).code is code


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("[placement]\nallocation_conflict_retry_count = 1\n", Code.SUCCESS, "= 1"),
        ("[placement]\nallocation_conflict_retry_count = 3\n", Code.WARNING, "is 3"),
        ("[placement]\n", Code.WARNING, "is 10"),  # its default
        ("[placement]\nallocation_conflict_retry_count = many\n", Code.FAILURE, "many"),
    ],
)
def test_retries_are_read_from_the_file_of_placement(tmp_path: Path, text: str, code: Code, says: str) -> None:
    file = tmp_path / "placement.conf"
    file.write_text(text)

    result = retries_result(file)

    assert (result.code, says in str(result.details)) == (code, True)


def test_a_file_that_is_on_another_machine_is_a_warning_with_the_remedy(tmp_path: Path) -> None:
    result = retries_result(tmp_path / "placement.conf")

    assert result.code is Code.WARNING
    assert "--placement-config-file" in str(result.details)


def test_a_broker_that_refuses_is_named_with_its_cell_and_the_permissions() -> None:
    result = channels_result({"cell1": {}, "cell2": {"mq2:5672": "ACCESS_REFUSED - configure access"}})

    assert result.code is Code.FAILURE
    assert "cell cell2: mq2:5672: ACCESS_REFUSED" in str(result.details)
    assert r"configure ^ssched\..*" in str(result.details)


def test_a_cell_without_rabbitmq_is_a_warning() -> None:
    result = channels_result({"cell1": {}, "cell2": None})

    assert (result.code, "cell2" in str(result.details)) == (Code.WARNING, True)


def test_peers_of_another_release_are_a_warning() -> None:
    same = {"schedulers": {"1.1.0": 2}, "agents": {"1.1.0": 9}}
    assert releases_result("1.1.0", [same]).code is Code.SUCCESS
    assert releases_result("1.1.0", []).code is Code.SUCCESS

    result = releases_result("1.1.0", [same, {"schedulers": {"1.1.0": 2}, "agents": {"1.0.2": 3, "1.1.0": 6}}])

    assert (result.code, "3 agents 1.0.2" in str(result.details)) == (Code.WARNING, True)


@pytest.mark.parametrize(
    ("mode", "problem", "keeps_records", "code", "says"),
    [
        ("active", "", True, Code.SUCCESS, "mode active"),
        ("shadow", "", True, Code.SUCCESS, "mode shadow"),
        ("shadow", "timed out", True, Code.FAILURE, "start shared-scheduler-stock"),
        ("shadow", "", False, Code.WARNING, "records_file"),
    ],
)
def test_shadow_needs_a_nova_scheduler_and_records(
    mode: str, problem: str, keeps_records: bool, code: Code, says: str
) -> None:
    result = upgrade_checks.mode_result(mode, problem, keeps_records)

    assert (result.code, says in result.details) == (code, True)


def test_a_set_option_without_effect_is_named(tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"
    file.write_text("[scheduler]\nworkers = 4\n")

    def read(*files: str) -> Any:
        conf = cfg.ConfigOpts()
        for group, name in WITHOUT_EFFECT:
            conf.register_opt(cfg.IntOpt(name), group=group)
        conf([], default_config_files=list(files), default_config_dirs=[])
        return conf

    result = options_result(read(str(file)))
    assert (result.code, "[scheduler] workers" in str(result.details)) == (Code.WARNING, True)
    assert "max_placement_results" not in str(result.details)
    assert options_result(read()).code is Code.SUCCESS


def test_a_wrong_value_is_a_failure_also_if_no_check_needs_the_option(tmp_path: Path) -> None:
    file = tmp_path / "nova.conf"

    def checked(text: str) -> Any:
        file.write_text(f"[shared_scheduler]\n{text}\n")
        conf = cfg.ConfigOpts()
        opts.register(conf)
        paths.register_opts(conf)
        conf([], default_config_files=[str(file)], default_config_dirs=[])
        return values_result(conf.shared_scheduler)

    assert checked("alternates = 3").code is Code.SUCCESS
    result = checked("alternates = three")
    assert (result.code, f"alternates from {file}" in str(result.details)) == (Code.FAILURE, True)


@pytest.mark.parametrize(("mode", "code"), [("off", Code.WARNING), ("accept", Code.WARNING), ("require", Code.SUCCESS)])
def test_senders_without_enforced_keys_are_reported(tmp_path: Path, mode: str, code: Code) -> None:
    file = tmp_path / "master"
    file.write_text("one:" + "ab" * 32)
    file.chmod(0o600)

    result = senders_result(SimpleNamespace(host_keys=mode, host_keys_file=str(file)))

    assert (result.code, f"host_keys = {mode}" in str(result.details)) == (code, True)


def test_unusable_keys_are_reported(tmp_path: Path) -> None:
    result = senders_result(SimpleNamespace(host_keys="require", host_keys_file=str(tmp_path / "none")))

    assert (result.code, "none: cannot be read" in str(result.details)) == (Code.FAILURE, True)


def test_each_option_without_effect_is_one_of_nova() -> None:
    for group, name in WITHOUT_EFFECT:
        assert name in CONF[group]


def test_a_database_that_cannot_be_read_is_a_failure_of_its_check(databases: None, tmp_path: Path) -> None:
    (tmp_path / "api.sqlite").write_bytes(b"not a database" * 1000)

    assert UpgradeChecks()._check_channels().code is Code.FAILURE
    assert UpgradeChecks()._check_computes().code is Code.FAILURE


def test_cells_are_checked_one_by_one(databases: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuses(url: Any, rng: Any) -> dict[str, str]:
        asked.append(str(url))
        return {"mq:5672": "refused"}

    monkeypatch.setattr(upgrade_checks, "broker_problems", refuses)
    assert UpgradeChecks()._check_channels().code is Code.WARNING  # none:/// of the fixture
    assert asked == []

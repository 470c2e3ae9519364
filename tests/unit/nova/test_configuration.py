# SPDX-License-Identifier: Apache-2.0
"""Configuration becomes plain values, and a reload applies only a valid one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nova import config
from oslo_config import cfg

from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.nova import configuration
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.cells import Channels
from shared_scheduler.nova.host_manager import HostManager
from shared_scheduler.protocol.signing import Signing
from shared_scheduler.sync.read_registry import SOURCES
from shared_scheduler.table.numbers import DefaultRatios


def names(plugins: list[Any]) -> list[str]:
    return [type(each).__name__ for each in plugins]


def test_novas_defaults_are_the_pure_packages_defaults() -> None:
    manager = HostManager(AggregateCache())

    made = configuration.decision_settings(names(manager.enabled_filters), names(manager.weighers))

    plain = DecisionSettings()
    assert sorted(made.weighers) == sorted(plain.weighers)
    assert made == DecisionSettings(weighers=made.weighers)
    assert made.enabled_filters == plain.enabled_filters


def test_our_defaults_are_the_cores_defaults() -> None:
    assert configuration.core_settings() == SchedulerSettings(last_words_max=configuration.LAST_WORDS_MAX)
    assert configuration.sources() == SOURCES
    assert configuration.default_ratios() == DefaultRatios()


def test_options_arrive(conf: Any) -> None:
    for name, value in {
        "ram_weight_multiplier": -1.0,
        "host_subset_size": 3,
        "isolated_hosts": ["a", "b"],
        "image_props_weight_setting": ["os_distro=2"],
    }.items():
        conf.set_override(name, value, group="filter_scheduler")
    conf.set_override("spread_over_schedulers", False, group="shared_scheduler")
    conf.set_override("nodes_max", 7, group="shared_scheduler")
    conf.set_override("spread_keys", ["rack"], group="shared_scheduler")

    made = configuration.decision_settings([], [])

    assert (made.ram_weight_multiplier, made.host_subset_size) == (-1.0, 3)
    assert made.isolated_hosts == {"a", "b"}
    assert made.image_props_weight_setting == (("os_distro", 2.0),)
    assert (made.near_tie, made.spread_keys) == (None, ("rack",))
    assert configuration.core_settings().nodes_max == 7


@pytest.fixture
def nova_conf(conf: Any, nova_ready: Path) -> Iterator[Path]:
    """The file that CONF was read from; put back afterwards."""
    path = nova_ready
    if conf.config_file != [str(path)]:  # tests of another package have parsed a command line since
        conf.clear()
        config.parse_args(["nova-scheduler"], default_config_files=[str(path)], configure_db=False, init_rpc=False)
    before = path.read_text()
    configuration.make_reloadable()
    yield path
    path.write_text(before)
    conf.mutate_config_files()


def test_a_changed_file_is_taken_over(conf: Any, nova_conf: Path) -> None:
    nova_conf.write_text(
        nova_conf.read_text() + "[filter_scheduler]\nenabled_filters = ComputeFilter\n"
        "[shared_scheduler]\nnear_tie = 1.5\n"
    )

    configuration.check_files()
    conf.mutate_config_files()

    assert conf.filter_scheduler.enabled_filters == ["ComputeFilter"]
    assert configuration.decision_settings([], []).near_tie == 1.5


def test_signing_is_taken_over_as_the_agents_do(conf: Any, nova_conf: Path, tmp_path: Path) -> None:
    # given a fleet that goes from off to enforce, its services told by SIGHUP
    keys = tmp_path / "keys"
    keys.write_text("k1:" + "ab" * 32)
    nova_conf.write_text(nova_conf.read_text() + f"[shared_scheduler]\nsigning = enforce\nsigning_keys_file = {keys}\n")

    configuration.check_files()
    conf.mutate_config_files()

    (mode, keyring), _ = Channels.read_keys()
    assert mode is Signing.ENFORCE
    assert keyring is not None and keyring.primary == "k1"


@pytest.mark.parametrize(
    "bad",
    [
        "[filter_scheduler]\nmax_instances_per_host = 0\n",
        "[shared_scheduler]\nsigning = maybe\n",
        "[filter_scheduler\n",
    ],
    ids=["out of bounds", "no such choice", "no such syntax"],
)
def test_a_file_that_cannot_be_used_is_found_before_anything_changes(nova_conf: Path, bad: str) -> None:
    nova_conf.write_text(nova_conf.read_text() + bad)

    with pytest.raises((cfg.Error, ValueError)):
        configuration.check_files()


def test_a_reload_of_a_file_in_latin_1_is_refused_with_its_name(nova_conf: Path) -> None:
    nova_conf.write_bytes(nova_conf.read_bytes() + "# Schlüssel\n".encode("latin-1"))

    with pytest.raises(cfg.Error, match=f"{nova_conf}: 'utf-8' codec"):
        configuration.check_files()

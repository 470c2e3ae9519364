# SPDX-License-Identifier: Apache-2.0
"""The lines of weights that nova-scheduler writes at debug, of native weighers and a site's."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nova import weights
from nova.scheduler.weights import HostWeightHandler

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.nova import weight_lines
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.plugins import SiteWeigher
from shared_scheduler.nova.weight_lines import LoggingDecider
from tests.unit.core.scheduler_driver import SchedulerDriver, request

NODES = ("node-1", "node-2")
HOSTS = (("host-1", "host-1"), ("host-2", "host-2"))
WEIGHERS = ("RAMWeigher", "ServerGroupSoftAffinityWeigher", "RackWeigher")


class RackWeigher:
    """A site's own: the second rack is better."""

    minval = maxval = None

    def weight_multiplier(self, state: Any) -> float:
        return 2.0

    def weigh_objects(self, hosts: list[Any], spec: Any) -> list[float]:
        return [float(each.obj.rack) for each in hosts]


class States:
    def make(self, view: Any) -> Any:
        return SimpleNamespace(rack=view.node[-1])


def decide(level: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is said while two hosts are weighed, which are alike but for their racks."""
    driver = SchedulerDriver().with_agents(*NODES)
    decider = LoggingDecider(driver.core.table)
    rack = SiteWeigher(RackWeigher(), cast(HostStates, States()))
    settings = DecisionSettings(enabled_filters=(), weighers=WEIGHERS, ram_weight_multiplier=3.0)
    decider.configure(settings, {}, {rack.name: rack})
    with caplog.at_level(level, logger=weights.LOG.logger.name):
        decider.decide(request(spec=SimpleNamespace()))
    return [each for each in caplog.messages if "weight" in each]


def test_a_sites_weigher_is_logged_with_novas_text(caplog: pytest.LogCaptureFixture) -> None:
    said = [line for line in decide(logging.DEBUG, caplog) if line.startswith("RackWeigher")]
    caplog.clear()
    states = [SimpleNamespace(host=host, nodename=node, rack=node[-1]) for host, node in HOSTS]
    with caplog.at_level(logging.DEBUG, logger=weights.LOG.logger.name):
        HostWeightHandler().get_weighed_objects([RackWeigher()], states, {})
    assert len(said) == 3
    assert said == [line for line in caplog.messages if line.startswith("RackWeigher")]


def test_every_native_weigher_logs_each_host(caplog: pytest.LogCaptureFixture) -> None:
    said = decide(logging.DEBUG, caplog)
    assert len(said) == 3 * len(WEIGHERS)
    assert f"RAMWeigher: raw weights {dict.fromkeys(HOSTS, 8192.0)}" in said
    assert f"RAMWeigher: normalized weights {dict.fromkeys(HOSTS, 1.0)}" in said
    assert f"RAMWeigher: score (multiplier * weight) {dict.fromkeys(HOSTS, '3.0 * 1.0')}" in said
    # nobody asked for a group: nothing to say, as in Nova
    assert f"ServerGroupSoftAffinityWeigher: raw weights {dict.fromkeys(HOSTS, 0.0)}" in said


def test_nothing_is_logged_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    assert decide(logging.INFO, caplog) == []


def test_nothing_is_logged_for_too_many_hosts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_lines, "HOSTS_MAX", 1)
    assert decide(logging.DEBUG, caplog) == []

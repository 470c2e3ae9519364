# SPDX-License-Identifier: Apache-2.0
"""The agent inside nova-compute, created from nova-compute's configuration, with its state on disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nova.conf import paths
from nova.scheduler.client.report import SchedulerReportClient
from oslo_config import cfg
from oslo_messaging import opts as messaging_opts

from compute_agent.cmd.status import STATUS
from compute_agent.conf import register_opts, status_socket_path
from compute_agent.service.state_directory import StateDirectory, StateError
from compute_agent.tap import embedded
from shared_scheduler.daemon import admin
from shared_scheduler.protocol.messages import Leave
from tests.support.local_bus import LocalBus
from tests.unit.compute_agent.fake_placement import FakePlacement
from tests.unit.compute_agent.node_facts import HOST
from tests.unit.compute_agent.real_tracker import CONTEXT, Placement, Tracker, guest
from tests.unit.compute_agent.test_embedded import GUEST, LIMITS, Scheduler, eventually


@pytest.fixture
def nova_conf(tmp_path: Path) -> Any:
    """As nova-compute has it when its first audit begins."""
    made = cfg.ConfigOpts()
    register_opts(made)
    paths.register_opts(made)
    made.register_opt(cfg.StrOpt("host", default=HOST))
    for group, options in messaging_opts.list_opts():
        if group in (None, "oslo_messaging_rabbit"):
            made.register_opts(options, group=group)
    made([], default_config_files=[])
    made.set_override("transport_url", "rabbit://nova:secret@127.0.0.1:9/")
    made.set_override("state_path", str(tmp_path))
    return made


class ReportClient(SchedulerReportClient):  # type: ignore[misc]
    """Nova's own client of Placement, which reads another one than it writes."""

    def __init__(self) -> None:
        super().__init__(adapter=Placement())
        self.placement = FakePlacement(vcpus=4)

    def get(self, path: str, version: str, global_request_id: str | None = None) -> Any:
        reply = self.placement.call("GET", path)
        return SimpleNamespace(status_code=reply.status, content=b"some", headers={}, json=lambda: reply.body)


def test_it_is_made_from_the_configuration_of_nova_compute(nova_conf: Any, tmp_path: Path) -> None:
    agent = embedded.agent_from(Tracker(), nova_conf)

    assert agent.host == HOST
    assert sorted(each.name for each in (tmp_path / "compute-agent").iterdir()) == ["agent.lock", "epoch"]


def test_it_answers_the_status_command_until_it_ends(nova_conf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "KombuBus", lambda *_: LocalBus())
    tracker = Tracker()
    tracker.reportclient = ReportClient()
    embedded.embed(tracker, nova_conf)
    path = status_socket_path(nova_conf)

    for _ in range(2):  # nova-compute stops, and starts again
        tracker.update_available_resource(CONTEXT, HOST, startup=True)
        eventually(lambda: admin.ask(path, STATUS)["problems"] == [])
        assert admin.ask(path, STATUS)["host"] == HOST

        tracker.driver.cleanup_host(host=HOST)
        with pytest.raises(admin.AdminError):
            admin.ask(path, STATUS)


def test_a_build_that_ends_after_nova_computes_last_step_is_reported_by_a_new_agent(
    nova_conf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a nova-compute whose manager has cleaned up, while a build is still under way
    bus = LocalBus()
    scheduler = Scheduler(bus)
    monkeypatch.setattr(embedded, "KombuBus", lambda *_: bus)
    tracker = Tracker()
    tracker.reportclient = ReportClient()
    embedded.embed(tracker, nova_conf)
    tracker.update_available_resource(CONTEXT, HOST, startup=True)
    eventually(lambda: scheduler.leaf("agent.ready") is True)
    tracker.driver.cleanup_host(host=HOST)
    first = scheduler.heard[-1]
    assert isinstance(first, Leave)

    # when the build takes its place
    tracker.instance_claim(CONTEXT, guest(tracker, GUEST), HOST, {}, LIMITS)

    # then schedulers hear of it in a newer epoch
    eventually(lambda: scheduler.leaf("cn.vcpus_used") == 1)
    tracker.driver.cleanup_host(host=HOST)
    second = scheduler.heard[-1]
    assert isinstance(second, Leave) and second.epoch > first.epoch


def test_a_start_that_fails_keeps_no_state_from_the_next_one(nova_conf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise StateError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(StateDirectory, "next_epoch", full)
        with pytest.raises(StateError, match="no space left"):
            embedded.agent_from(Tracker(), nova_conf)

    assert embedded.agent_from(Tracker(), nova_conf).host == HOST

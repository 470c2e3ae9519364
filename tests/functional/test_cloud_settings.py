# SPDX-License-Identifier: Apache-2.0
"""The settings of ``tools/lab cloud``, before any process runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.laboratory import command
from tools.laboratory.cloud import access_log, cloud_settings, configs, services
from tools.laboratory.cloud import command as cloud_command
from tools.laboratory.cloud.cloud_settings import CloudSettings, changed
from tools.laboratory.cloud.layout import Layout
from tools.laboratory.errors import LabError


def test_options_that_are_not_given_keep_their_values(tmp_path: Path) -> None:
    first = changed(CloudSettings(), {"computes": 5, "numa_cells": 2, "compute_slots": (11, 10)})
    cloud_settings.save(tmp_path / "cloud.json", first)

    second = changed(cloud_settings.load(tmp_path / "cloud.json"), {"schedulers": 4})

    assert (second.computes, second.schedulers, second.hardware.numa_cells) == (5, 4, 2)
    assert [second.hardware_for(n).memory_mb for n in (1, 2, 3)] == [4400, 4000, 4000]


def test_one_compute_may_differ_from_the_rest() -> None:
    mixed = changed(CloudSettings(), {"hardware_of": {"c2": {"numa_cells": 1, "vfs": 8}}})

    assert [mixed.hardware_for(n).numa_cells for n in (1, 2, 3)] == [0, 1, 0]
    assert mixed.hardware_for(2).vfs == 8


@pytest.mark.parametrize(
    ("scheduler", "agents", "count"),
    [
        ("shared", "auto", 3),
        ("nova", "auto", 0),
        ("both", "auto", 3),
        ("nova", "all", 3),
        ("shared", "2", 2),
        ("shared", "embedded", 3),
    ],
)
def test_how_many_agents(scheduler: str, agents: str, count: int) -> None:
    assert CloudSettings(scheduler=scheduler, agents=agents).agent_count() == count


def test_both_kinds_of_scheduler_have_names_of_one_sequence() -> None:
    both = CloudSettings(scheduler="both", schedulers=2)

    assert [both.scheduler_kind(n) for n in range(1, both.scheduler_total() + 1)] == [
        "shared",
        "shared",
        "nova",
        "nova",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"computes": -1}, "--computes -1: must be between"),
        ({"cells": 9}, "--cells 9: must be between 1 and 4"),
        ({"agents": "some"}, "--agents some: give all, none, embedded or a number"),
        ({"compute_slots": (0,)}, "every number must be at least 1"),
        ({"colour": "red"}, "unknown setting colour"),
        ({"hardware_of": {"c1": {"wheels": 4}}}, "hardware of c1: unknown wheels"),
    ],
)
def test_nonsense_is_refused_with_the_option_s_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(LabError, match=message):
        changed(CloudSettings(), change)


def test_a_path_too_long_for_unix_sockets_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="too long for Unix sockets"):
        Layout(tmp_path / ("x" * 90)).prepare()


def test_two_clouds_have_different_ports_and_each_keeps_its_own(tmp_path: Path) -> None:
    one, two = Layout(tmp_path / "one"), Layout(tmp_path / "two")
    one.prepare()
    two.prepare()

    assert Layout(tmp_path / "one").ports == one.ports
    assert not set(one.ports.values()) & set(two.ports.values())


def test_computes_never_see_a_database_and_only_those_with_agents_a_tap(tmp_path: Path) -> None:
    layout, wanted = Layout(tmp_path), CloudSettings(computes=2, agents="1")
    layout.prepare()

    first, second = (configs.compute(layout, wanted, number) for number in (1, 2))

    assert "mysql" not in first + second
    assert f"tap_socket = {tmp_path}/run/tap-c1.sock" in first
    assert "compute_agent" not in second


def test_what_computes_and_agents_alone_read_leaves_the_configuration_of_all_others_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.prepare()
    often = changed(
        CloudSettings(), {"update_resources_interval_s": 3, "nova_options": {"compute_agent": {"poll": "9"}}}
    )

    assert configs.nova(layout, often, 1) == configs.nova(layout, CloudSettings(), 1)
    text = configs.compute(layout, often, 1)
    assert "update_resources_interval = 3" in text and "poll = 9" in text


def test_what_schedulers_alone_read_restarts_no_other_service(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.prepare()

    def fingerprints(options: dict[str, dict[str, str]]) -> dict[str, str]:
        settings = changed(CloudSettings(), {"computes": 1, "nova_options": options})
        configs.write_all(layout, settings)
        return {name: service.fingerprint() for name, service in services.plan(layout, settings).items()}

    before = fingerprints({"shared_scheduler": {"a": "1", "b": "2"}})
    after = fingerprints({"shared_scheduler": {"a": "1", "b": "3"}})

    assert {name for name in before if before[name] != after[name]} == {"sched1"}
    assert fingerprints({"shared_scheduler": {"b": "2", "a": "1"}}) == before, "their order says nothing"
    assert fingerprints({"conductor": {"a": "1"}})["conductor1"] != before["conductor1"]


@pytest.mark.parametrize("agents", ["none", "1", "embedded"])
def test_the_first_option_that_schedulers_alone_read_restarts_no_other_service(tmp_path: Path, agents: str) -> None:
    layout = Layout(tmp_path)
    layout.prepare()

    def fingerprints(options: dict[str, dict[str, str]]) -> dict[str, str]:
        settings = changed(CloudSettings(), {"computes": 2, "agents": agents, "nova_options": options})
        configs.write_all(layout, settings)
        return {name: service.fingerprint() for name, service in services.plan(layout, settings).items()}

    before = fingerprints({})
    after = fingerprints({"shared_scheduler": {"a": "1"}})
    moved = fingerprints({"DEFAULT": {"a": "1"}})

    assert {name for name in before if before[name] != after[name]} == {"sched1"}
    assert {"nova-api", "conductor1", "sched1", "c1", "c2"} <= {name for name in before if moved[name] != after[name]}


@pytest.mark.parametrize(
    ("change", "forked"),
    [
        ({}, {"c1"}),
        ({"forked": True}, {"c1", "sched1", "agent-c1"}),
        ({"forked": True, "backend": "eventlet"}, {"c1"}),
        ({"forked": True, "scheduler_workers": 2}, {"c1"}),
        ({"forked": True, "scheduler": "nova", "agents": "all"}, {"c1", "agent-c1"}),
    ],
)
def test_which_services_are_forked_by_the_launcher(tmp_path: Path, change: dict[str, object], forked: set[str]) -> None:
    layout = Layout(tmp_path)
    layout.prepare()

    planned = services.plan(layout, changed(CloudSettings(computes=1), change))

    assert {name for name, service in planned.items() if service.forked_by} == forked
    assert all("launcher" in planned[name].needs for name in forked)


def test_an_embedded_agent_has_neither_process_nor_socket(tmp_path: Path) -> None:
    layout, wanted = Layout(tmp_path), CloudSettings(computes=2, agents="embedded")
    layout.prepare()

    text = configs.compute(layout, wanted, 2)

    assert "embedded = true" in text and "tap_" not in text
    assert [s.name for s in services.plan(layout, wanted).values() if s.kind in ("agent", "compute")] == ["c1", "c2"]


@pytest.mark.parametrize(("durable", "when"), [(False, 2), (True, 1)])
def test_the_commits_of_mariadb_wait_for_the_disk_only_where_asked(tmp_path: Path, durable: bool, when: int) -> None:
    layout = Layout(tmp_path)
    layout.prepare()

    mariadb = services.plan(layout, CloudSettings(durable=durable))["mariadb"]

    assert [one for one in mariadb.argv if "flush-log" in one] == [f"--innodb-flush-log-at-trx-commit={when}"]


def test_a_broker_of_another_directory_with_a_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path)
    layout.prepare()
    monkeypatch.setenv("SHARED_SCHEDULER_RABBITMQ", "/opt/rabbit")
    monkeypatch.setenv("PATH", "/somewhere")

    one, other = (services.plan(layout, CloudSettings(rabbitmq=where))["rabbitmq"] for where in ("", "/opt/rabbit"))

    assert CloudSettings().rabbitmq == "/opt/rabbit"
    assert one.argv == ("/usr/lib/rabbitmq/bin/rabbitmq-server",) and "PATH" not in one.env
    assert other.argv == ("/opt/rabbit/usr/lib/rabbitmq/bin/rabbitmq-server",)
    assert other.env["PATH"].startswith("/opt/rabbit/usr/lib/erlang/bin:") and "/somewhere" not in other.env["PATH"]
    assert one.env["RABBITMQ_MNESIA_BASE"] != other.env["RABBITMQ_MNESIA_BASE"]


def test_a_missing_broker_is_reported_in_one_line_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["cloud", "up", "--data", str(tmp_path / "cloud"), "--rabbitmq", str(tmp_path)]) == 1

    error = capsys.readouterr().err.strip()
    assert "rabbitmq-server does not exist; tools/install-rabbitmq-4 unpacks one" in error
    assert not (tmp_path / "cloud").exists()


def test_a_line_of_the_access_log() -> None:
    agent = "nova-scheduler keystoneauth1/5.18.1 python"
    line = f"1790000000123 77 PUT /allocations/9364dcdf?x=1 409 21500 310 req-1 {agent}\n"

    request = access_log.parse(line)

    assert request is not None
    assert (request.method, request.path, request.status) == ("PUT", "/allocations/9364dcdf", 409)
    assert request.writes_one_allocation() and request.writes_allocations()
    assert request.ended_at_s == pytest.approx(1790000000.1445)
    assert request.agent == agent
    assert access_log.parse("*** Operational MODE: preforking+threaded ***\n") is None


def test_the_command_line_fails_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["cloud", "start", "c1", "--data", str(tmp_path)]) == 1

    error = capsys.readouterr().err.strip()
    assert error == f"tools/lab cloud: start: there is no cloud in {tmp_path}; `tools/lab cloud up` makes one"


def test_the_command_line_in_terms_of_settings() -> None:
    arguments = cloud_command.parser().parse_args([
        "up", "--scheduler", "both", "--compute-slots", "11,10,10", "--numa", "2", "--numa-pages", "2048:64",
        "--nova-option", "filter_scheduler.host_subset_size=3", "--rabbitmq-option", "channel_max=100",
    ])  # fmt: skip

    assert cloud_command.changes_of(arguments) == {
        "scheduler": "both", "compute_slots": (11, 10, 10), "numa_cells": 2, "pages": {"2048": 64},
        "nova_options": {"filter_scheduler": {"host_subset_size": "3"}}, "rabbitmq_options": {"channel_max": "100"},
    }  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""``fit`` asks a running scheduler whether servers would fit: real filters, request filters and Placement."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from nova import objects

from shared_scheduler.answers.schema import schemas
from shared_scheduler.cmd import manage
from shared_scheduler.daemon import admin
from shared_scheduler.service import fit as fit_questions
from tests.unit.nova.conftest import admin as admin_context
from tests.unit.nova.conftest import flavor
from tests.unit.nova.test_manager import (
    WAIT_S,
    Cloud,
    ask,
    cloud,
    placement_app,
    placement_is_away,
    small,
    start,
    uuids,
    world,
)
from tests.unit.nova.test_request_filters import add_aggregate

__all__ = ["cloud", "placement_app", "start", "world"]  # fixtures


@pytest.fixture
def sockets(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


@pytest.fixture
def begin(start: Any, conf: Any, sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts the scheduler with a control socket."""
    monkeypatch.setattr(fit_questions, "TIME_MAX_S", WAIT_S)
    monkeypatch.setattr(fit_questions, "WAIT_MAX_S", WAIT_S)

    def started() -> Any:
        conf.set_override("admin_socket_dir", str(sockets), group="shared_scheduler")
        return start()

    yield started


def fit(sockets: Path, **request: Any) -> Any:
    return admin.ask_first(sockets, "fit", request={"vcpus": 2, "memory_mb": 512, "root_gb": 1, **request})


def servers(answer: Any) -> dict[str, int]:
    return {one["host"]: one["servers"] for one in answer["hosts"]}


def test_servers_fit_until_the_last_cpu_and_the_next_one_is_explained(begin: Any, cloud: Cloud, sockets: Path) -> None:
    cloud.compute("cmp1", 8)
    cloud.compute("cmp2", 4)
    begin()

    answer = fit(sockets, number=40)

    assert (answer["result"], answer["fit"], answer["number"]) == ("does_not_fit", 6, 40)
    assert servers(answer) == {"cmp1": 4, "cmp2": 2}
    assert answer["next"]["reasons"] == {"no_room:VCPU": 2}
    assert answer["next"]["missing"] == {"no_room:VCPU": [2, 2]}
    near = {one["host"]: one["detail"] for one in answer["next"]["near"]}
    assert (near["cmp1"]["asked"], near["cmp1"]["used"], near["cmp1"]["capacity"]) == (2, 8, 8)


def test_fit_claims_nothing_and_names_the_host_of_the_next_request(begin: Any, cloud: Cloud, sockets: Path) -> None:
    cloud.compute("cmp1", 8)
    cloud.compute("cmp2", 4)
    begin()

    foretold = fit(sockets, number=6)

    assert (foretold["result"], foretold["next"]["host"]) == ("fits", "")
    assert (cloud.used("cmp1"), cloud.used("cmp2")) == (0, 0)
    real = [each[0].service_host for each in ask(small(), uuids(6))]
    assert servers(foretold) == {host: real.count(host) for host in real}
    assert fit(sockets)["result"] == "does_not_fit"  # the real ones count now


def test_a_server_more_than_asked_for_is_tried_as_well(begin: Any, cloud: Cloud, sockets: Path) -> None:
    cloud.compute("cmp1", 8)
    begin()

    answer = fit(sockets, number=3)

    assert (answer["result"], answer["fit"], servers(answer)) == ("fits", 3, {"cmp1": 3})
    assert answer["next"]["host"] == "cmp1"


def test_the_flavor_is_found_by_its_name_with_its_extra_specs(begin: Any, cloud: Cloud, sockets: Path) -> None:
    stored = flavor(vcpus=3, memory_mb=512, root_gb=1, extra_specs={"trait:CUSTOM_FAST": "required"})
    fields = {name: getattr(stored, name) for name in stored.fields if name in stored and name != "id"}
    objects.Flavor(admin_context(), **fields).create()
    cloud.compute("cmp1", 8)
    begin()

    answer = admin.ask_first(sockets, "fit", request={"flavor": "m1.small"})

    assert answer["asked"]["flavor"] == "m1.small"
    assert answer["asked"]["forms"][0]["resources"]["VCPU"] == 3
    assert answer["next"]["reasons"] == {"traits": 1}
    assert answer["next"]["near"][0]["detail"]["missing"] == ["CUSTOM_FAST"]


def test_a_zone_and_an_aggregate_restrict_the_hosts(begin: Any, cloud: Cloud, sockets: Path) -> None:
    made = add_aggregate("fast", "cmp2", availability_zone="zone-b")
    cloud.compute("cmp1", 8)
    cloud.compute("cmp2", 8, aggregates=(made.uuid,))
    begin()

    for answer in (fit(sockets, number=9, availability_zone="zone-b"), fit(sockets, number=9, aggregates=["fast"])):
        assert servers(answer) == {"cmp2": 4}
        assert answer["next"]["reasons"] == {"aggregates": 1, "no_room:VCPU": 1}


def test_a_new_group_counts_its_members(begin: Any, cloud: Cloud, sockets: Path) -> None:
    cloud.compute("cmp1", 8)
    cloud.compute("cmp2", 8)
    begin()

    apart = fit(sockets, number=5, group_policy="anti-affinity")
    pairs = fit(sockets, number=5, group_policy="anti-affinity", max_server_per_host=2)
    together = fit(sockets, number=5, group_policy="affinity")

    assert servers(apart) == {"cmp1": 1, "cmp2": 1}
    assert apart["next"]["reasons"] == {"ServerGroupAntiAffinityFilter": 2}
    assert servers(pairs) == {"cmp1": 2, "cmp2": 2}
    assert together["fit"] == 4 and len(together["hosts"]) == 1


def test_placement_names_the_candidates_of_a_numbered_group(begin: Any, cloud: Cloud, sockets: Path) -> None:
    cloud.compute("cmp1", 4)
    cloud.compute("cmp2", 8)
    begin()

    answer = fit(sockets, number=9, extra_specs={"resources1:VCPU": "2", "resources:VCPU": "0"})

    assert servers(answer) == {"cmp1": 2, "cmp2": 4}
    assert {one["code"] for one in answer["next"]["refused"]} | answer["next"]["reasons"].keys() == {"no_room:VCPU"}


def test_fit_reports_unknown_if_placement_does_not_name_candidates(
    begin: Any, cloud: Cloud, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.compute("cmp1", 8)
    begin()
    monkeypatch.setattr(cloud.placement.transport, "call", placement_is_away)

    answer = fit(sockets, extra_specs={"resources1:VCPU": "2", "resources:VCPU": "0"})

    assert answer["result"] == "unknown"
    assert answer["unknown"].startswith("Placement must name the candidates of this request")


def test_a_filter_of_nova_refuses_a_host_with_its_name(begin: Any, cloud: Cloud, sockets: Path) -> None:
    cloud.compute("cmp1", 8)
    begin()

    answer = fit(sockets, extra_specs={"capabilities:hypervisor_type": "VMware"})

    assert answer["result"] == "does_not_fit"
    assert answer["next"]["reasons"] == {"ComputeCapabilitiesFilter": 1}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"flavor": "m9.none", "vcpus": None}, "there is no flavor 'm9.none'"),
        ({"vcpus": None}, "name a flavor, or give vcpus and memory_mb"),
        ({"number": 10**9}, "number: 1000000000 is not a whole number from 1 to 10000"),
        ({"vcpus": -1}, "vcpus: -1 is not a whole number"),
        ({"vcpus": "many"}, "vcpus: 'many' is not a whole number"),
        ({"extra_specs": ["a"]}, "extra_specs: ['a'] is not an object"),
        ({"extra_specs": {"hw:cpu_policy": "sometimes"}}, "Nova refuses this request"),
        ({"image_properties": {"hw_cpu_polici": "x"}}, "Nova does not know hw_cpu_polici"),
        ({"availability_zone": "moon"}, "no host aggregate has the zone 'moon'"),
        ({"aggregates": ["moon"]}, "there is no host aggregate 'moon'"),
        ({"traits": ["CUSTOM_MOON"]}, "Placement has no trait CUSTOM_MOON"),
        ({"image": "ubuntu"}, "'ubuntu' is not the uuid of an image"),
        ({"group": str(uuid.uuid4())}, "could not be found"),
        ({"group_policy": "apart"}, "group_policy: 'apart' is not one of affinity"),
        ({"colour": "red"}, "colour: not known; the fields are flavor"),
    ],
)
def test_a_request_that_cannot_be_made_gets_a_clear_error(
    begin: Any, cloud: Cloud, sockets: Path, request_: dict[str, Any], text: str
) -> None:
    cloud.compute("cmp1", 8)
    begin()

    with pytest.raises(admin.AdminError) as caught:
        fit(sockets, **request_)

    assert text in str(caught.value)


def test_absurd_sizes_do_not_fit_and_say_by_how_much(begin: Any, cloud: Cloud, sockets: Path) -> None:
    cloud.compute("cmp1", 8)
    begin()

    answer = fit(sockets, memory_mb=2**31 - 1)

    assert answer["result"] == "does_not_fit"
    assert answer["next"]["missing"] == {"no_room:MEMORY_MB": [2**31 - 1 - 65536] * 2}


def test_a_scheduler_without_hosts_answers_that_nothing_fits(begin: Any, cloud: Cloud, sockets: Path) -> None:
    begin()

    answer = fit(sockets)

    assert (answer["result"], answer["fit"], answer["table_hosts"]) == ("does_not_fit", 0, 0)


def test_ten_questions_at_once_are_all_answered_alike(begin: Any, cloud: Cloud, sockets: Path) -> None:
    cloud.compute("cmp1", 8)
    begin()

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: fit(sockets, number=9), range(10)))

    assert [(one["fit"], servers(one)) for one in answers] == [(4, {"cmp1": 4})] * 10
    assert cloud.used("cmp1") == 0


@pytest.mark.parametrize(("number", "code"), [(4, 0), (5, 1)])
def test_the_command_prints_the_hosts_and_exits_0_if_all_fit(
    begin: Any, cloud: Cloud, sockets: Path, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    cloud.compute("cmp1", 8)
    begin()
    arguments = ["fit", "--vcpus", "2", "--ram", "512", "--number", str(number), "--socket-dir", str(sockets)]

    assert manage.main(arguments) == code
    shown = capsys.readouterr().out.splitlines()
    assert manage.main([*arguments, "--format", "json"]) == code

    assert shown[0] == f"4 of {number} servers fit (scheduler sched1, 1 hosts)"
    assert ["cmp1", "4"] in [line.split() for line in shown]
    assert "server 5 would have no host after the 4 that fit: 0 of 1 hosts pass; rejected: 1 no_room:VCPU" in shown
    answer = json.loads(capsys.readouterr().out)
    Draft202012Validator(schemas()["fit"]).validate(answer)
    assert answer["fit"] == 4


def test_the_command_fails_without_a_scheduler(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(["fit", "--flavor", "m1.small", "--socket-dir", str(sockets)]) == 2

    assert "no scheduler of this machine answers" in capsys.readouterr().err


def test_a_size_of_zero_replaces_that_of_the_flavor() -> None:
    parser = manage.parser_of("fit", manage.command_of("fit"))
    given = parser.parse_args(["--flavor", "m1.small", "--disk", "0", "--socket-dir", "/run"])

    assert manage.command_of("fit").request_of(given) == {"flavor": "m1.small", "number": 1, "root_gb": 0}

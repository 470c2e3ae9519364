# SPDX-License-Identifier: Apache-2.0
"""The whole scheduler with servers whose images ask for spreading, as nova-api and the conductor store them.

Nova's own objects write the databases.  ``tests/functional/test_image_spreading.py`` has the moves, in a real cloud.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nova import context, exception, objects, utils

from shared_scheduler.core.effects import Answer, Fail, FailureCode
from shared_scheduler.nova.request_spec import make_request
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.sync.databases import ApiDatabase, CellDatabase, DatabaseError
from tests.unit.nova.conftest import PROJECT, NoNodes, admin, user_context
from tests.unit.nova.test_manager import Cloud, ask, cloud, small, start
from tests.unit.nova.test_request_filters import add_aggregate, cell1
from tests.unit.placement.conftest import placement_app, world

__all__ = ["cloud", "placement_app", "start", "world"]  # fixtures

WEB = {"shared_scheduler:spread": "key=rack", "shared_scheduler_label": "web"}


@pytest.fixture
def racks(cloud: Cloud, conf: Any, start: Any) -> Callable[..., Any]:
    """Starts a scheduler that spreads over two racks: r1 has cmp1, which is preferred, and r2 the small cmp2."""

    def begin(images: str = "required", **options: Any) -> Any:
        cloud.compute("cmp1", 32)
        cloud.compute("cmp2", 4)
        add_aggregate("one", "cmp1", rack="r1")
        add_aggregate("two", "cmp2", rack="r2")
        given = {"spread_keys": ["rack"], "spread_image_properties": images, "request_timeout_s": 60, **options}
        for name, value in given.items():
            conf.set_override(name, value, group="shared_scheduler")
        conf.set_override("weight_classes", ["nova.scheduler.weights.cpu.CPUWeigher"], group="filter_scheduler")
        return start()

    return begin


def stored(properties: dict[str, str], **changes: Any) -> tuple[Any, str]:
    """What nova-api stores of a new server with an image of these properties: its spec, and its uuid."""
    server = str(uuid.uuid4())
    spec = small(instance_uuid=server, **changes)
    spec._context = admin()
    spec.create()
    objects.InstanceMapping(admin(), instance_uuid=server, cell_mapping=None, project_id=PROJECT).create()
    objects.BuildRequest(
        admin(), instance_uuid=server, project_id=PROJECT, instance=instance(server, properties),
        block_device_mappings=objects.BlockDeviceMappingList(), tags=objects.TagList(),
    ).create()  # fmt: skip
    spec.obj_reset_changes(recursive=True)
    return spec, server


def instance(server: str, properties: dict[str, str]) -> Any:
    metadata = utils.get_system_metadata_from_image({"properties": {"hw_disk_bus": "scsi", **properties}})
    return objects.Instance(uuid=server, project_id=PROJECT, user_id="u", system_metadata=metadata)


def conductor_stores(server: str, properties: dict[str, str]) -> None:
    """The conductor stores a server that was placed in its cell, and deletes the build request."""
    with context.target_cell(admin(), cell1()) as target:
        made = instance(server, properties)
        made._context = target
        made.create()
    mapping = objects.InstanceMapping.get_by_instance_uuid(admin(), server)
    mapping.cell_mapping = cell1()
    mapping.save()
    objects.BuildRequest.get_by_instance_uuid(admin(), server).destroy()


def boot(properties: dict[str, str], **changes: Any) -> str:
    """The host of a new server, which the conductor has stored."""
    spec, server = stored(properties, **changes)
    [[chosen, *_]] = ask(spec, [server])
    conductor_stores(server, properties)
    return str(chosen.service_host)


def test_servers_of_an_image_are_spread_although_no_request_names_a_property(racks: Any) -> None:
    racks()
    hosts = [boot(WEB) for _ in range(4)]
    # then both racks have as many, with one server of difference at most on the way
    assert {frozenset(hosts[:2]), frozenset(hosts[2:])} == {frozenset({"cmp1", "cmp2"})}
    # and the small host is full: another one would be the second too many in the other rack
    assert boot(WEB) == "cmp1"
    with pytest.raises(exception.NoValidHost):
        boot(WEB)
    assert boot({}) == "cmp1"


def test_a_label_counts_the_servers_of_all_images_flavors_and_hints_that_have_it(racks: Any) -> None:
    racks()
    of_image, hints = {"shared_scheduler:label": "web"}, {"shared_scheduler:label": ["web"]}
    # given two servers with the label, which are not spread themselves: one by its image, and one by a hint
    hosts = [boot(of_image), boot({}, scheduler_hints=hints)]
    assert hosts == ["cmp1", "cmp1"]
    # then two that are spread go to the other rack
    assert [boot(WEB), boot({}, scheduler_hints={**hints, "shared_scheduler:spread": ["key=rack"]})] == ["cmp2"] * 2


def test_the_servers_of_one_request_are_spread_with_one_read(racks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    racks()
    read = counted(monkeypatch)
    (spec, first), (_, second) = stored(WEB), stored(WEB)
    hosts = {chosen.service_host for chosen, *_ in ask(spec, [first, second])}
    assert hosts == {"cmp1", "cmp2"} and read == [[first, second]]


def test_a_legacy_caller_names_its_server_in_the_spec_only(racks: Any) -> None:
    manager = racks().manager
    taken = boot(WEB)
    spec, _ = stored(WEB)
    [found] = manager.select_destinations(user_context(), spec_obj=spec)
    assert {found["host"], taken} == {"cmp1", "cmp2"}


@pytest.mark.parametrize("options", [{"images": "ignored"}, {"spread_keys": []}])
def test_by_default_nothing_is_read_and_the_properties_mean_nothing(
    racks: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    racks(**options)
    read = counted(monkeypatch)
    assert [boot(WEB) for _ in range(3)] == ["cmp1"] * 3 and read == []


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The servers of each read of an image from now on."""
    reads: list[Any] = []
    image_of = ApiDatabase.image_of

    def counting(self: ApiDatabase, servers: Any) -> Any:
        reads.append(list(servers))
        return image_of(self, servers)

    monkeypatch.setattr(ApiDatabase, "image_of", counting)
    return reads


def away(*_: Any) -> Any:
    raise DatabaseError("[api_database] connection: the database cannot be read: no server answers")


def test_while_the_database_is_away_a_required_image_fails_its_request_and_the_record_says_why(
    racks: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    records = tmp_path / "records.jsonl"
    started = racks(records_file=str(records))
    spec, server = stored(WEB)
    with monkeypatch.context() as patch:
        patch.setattr(ApiDatabase, "image_of", away)
        with pytest.raises(exception.NoValidHost):
            ask(spec, [server])
    assert cloud.used("cmp1") == cloud.used("cmp2") == 0
    # then the same request has a host as soon as the database is back
    ask(spec, [server])
    started.stop()
    failed, placed = JsonLines(records).find(server)
    assert (failed["result"], placed["result"]) == ("image_unread", "placed")
    assert "no server answers" in failed["reason"]
    assert [one["source"] for one in placed["asked"]["spread"]] == ["image"]


def test_if_the_operator_prefers_that_a_request_goes_on_with_its_hints_and_the_record_says_so(
    racks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    records = tmp_path / "records.jsonl"
    started = racks(images="if_readable", records_file=str(records))
    monkeypatch.setattr(ApiDatabase, "image_of", away)
    spec, server = stored(WEB)
    [[chosen, *_]] = ask(spec, [server])
    started.stop()
    [record] = JsonLines(records).find(server)
    assert chosen.service_host == "cmp1" and record["asked"]["spread"] == []
    assert "no server answers" in record["asked"]["image_unread"]


def test_a_label_whose_servers_cannot_be_read_fails_the_request_in_either_case(
    racks: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server with the label in a cell that does not answer any more
    racks(images="if_readable")
    boot(WEB)
    used = cloud.used("cmp1"), cloud.used("cmp2")
    monkeypatch.setattr(CellDatabase, "with_image_label", away)
    with pytest.raises(exception.NoValidHost):
        boot(WEB)
    assert (cloud.used("cmp1"), cloud.used("cmp2")) == used


def test_a_dry_run_reads_the_image_and_claims_nothing(racks: Any, cloud: Cloud) -> None:
    running = racks().manager._running
    taken = boot(WEB)
    used = cloud.used("cmp1"), cloud.used("cmp2")
    spec, server = stored(WEB)
    request = replace(make_request(user_context(), spec, [server], 0, NoNodes()), dry_run=True)
    outcome = running.preview(request, 60.0)
    assert isinstance(outcome, Answer) and {outcome.choices[0][0].host, taken} == {"cmp1", "cmp2"}
    # then it sees the same after the conductor has stored the server of the answer of nova-scheduler
    conductor_stores(server, WEB)
    later = running.preview(request, 60.0)
    assert isinstance(later, Answer) and later.choices[0][0].host == outcome.choices[0][0].host
    assert (cloud.used("cmp1"), cloud.used("cmp2")) == used


def test_a_database_that_hangs_costs_no_more_than_the_time_of_the_request(
    racks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = racks()
    monkeypatch.setattr(started.manager._running._sync.image_reads._reads, "_within_s", 0.2)
    answered = threading.Event()
    image_of = ApiDatabase.image_of
    monkeypatch.setattr(ApiDatabase, "image_of", lambda *given: (answered.wait(60), image_of(*given))[1])
    spec, server = stored(WEB)
    request = make_request(user_context(), spec, [server], 0, NoNodes())
    outcome = started.manager._running.decide(request)
    answered.set()
    assert isinstance(outcome, Fail) and outcome.code is FailureCode.IMAGE_UNREAD
    assert "the API database has not answered" in outcome.text


def test_a_reload_lets_images_ask(racks: Any, conf: Any) -> None:
    started = racks(images="ignored")
    assert [boot(WEB), boot(WEB)] == ["cmp1", "cmp1"]
    conf.set_override("spread_image_properties", "required", group="shared_scheduler")
    started.manager._running._apply_decision_settings()
    # then those of before count, because Nova has the properties of their image
    assert [boot(WEB), boot(WEB)] == ["cmp2", "cmp2"]

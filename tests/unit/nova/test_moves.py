# SPDX-License-Identifier: Apache-2.0
"""A request is named as the move that it is, as far as what Nova's callers pass shows it."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nova import objects
from nova.scheduler import rpcapi

from shared_scheduler.decision.request import Destination, Request
from shared_scheduler.model.moves import Move
from shared_scheduler.nova.moves import move_of
from shared_scheduler.nova.request_spec import make_request
from tests.unit.nova.conftest import NoNodes, request_spec, user_context
from tests.unit.nova.test_evacuation import INSTANCE, SOURCE, cell, record
from tests.unit.nova.test_manager import Cloud, cloud, placement_app, small, start, uuids, world

__all__ = ["cell", "cloud", "placement_app", "start", "world"]  # fixtures


def converted(servers: tuple[str, ...] = (INSTANCE,), **asked: Any) -> Request:
    return make_request(user_context(), request_spec(**asked), servers, 0, NoNodes())


def to(cell: Any, **more: Any) -> Any:
    return objects.Destination(cell=cell, **more)


def test_a_live_migration_avoids_its_hosts_and_wants_no_alternates(cell: Any) -> None:
    record(cell, "live-migration")
    request = converted(ignore_hosts=[SOURCE], requested_destination=to(cell))

    assert move_of(request, alternates=False) is Move.LIVE_MIGRATION


def test_an_evacuation_differs_by_its_record(cell: Any) -> None:
    record(cell, "evacuation")
    request = converted(ignore_hosts=[SOURCE], requested_destination=to(cell))

    assert move_of(request, alternates=False) is Move.EVACUATION


def test_without_that_record_only_a_resize_is_told(cell: Any, tmp_path: Path) -> None:
    cell.database_connection = f"sqlite:///{tmp_path}/no/such/directory/cell1.sqlite"
    cell.uuid = str(uuid.uuid4())
    request = converted(ignore_hosts=[SOURCE], requested_destination=to(cell))

    assert request.merge_with_existing
    assert move_of(request, alternates=False) is None
    assert move_of(request, alternates=True) is Move.RESIZE


@pytest.mark.parametrize("avoided", [[SOURCE], []], ids=["another host", "the same host is allowed"])
def test_a_resize_or_cold_migration_wants_alternates(cell: Any, avoided: list[str]) -> None:
    request = converted(ignore_hosts=avoided, requested_destination=to(cell))

    assert move_of(request, alternates=True) is Move.RESIZE


@pytest.mark.parametrize("avoided", [[SOURCE], []], ids=["another host", "the same host is allowed"])
def test_a_resize_to_a_host_that_may_be_of_another_cell_has_no_cell(avoided: list[str]) -> None:
    to_host = Destination("cmp9", allow_cross_cell_move=True)
    request = replace(converted(ignore_hosts=avoided), destination=to_host)

    assert move_of(request, alternates=True) is Move.RESIZE
    assert move_of(request, alternates=False) is None


def test_an_unshelve_stays_in_its_cell_and_avoids_no_host(cell: Any) -> None:
    assert move_of(converted(requested_destination=to(cell)), alternates=False) is Move.UNSHELVE


def test_a_rebuild_has_a_hint() -> None:
    request = converted(scheduler_hints={"_nova_check_type": ["rebuild"]}, force_hosts=[SOURCE])

    assert move_of(request, alternates=False) is Move.REBUILD


@pytest.mark.parametrize("alternates", [True, False])
def test_a_new_server_is_no_move(alternates: bool) -> None:
    assert move_of(converted(), alternates) is None
    assert move_of(replace(converted(), destination=Destination(host="cmp2")), alternates) is None
    assert move_of(converted(tuple(uuids(2)), num_instances=2), alternates) is None


def test_the_record_of_a_request_names_its_move(cell: Any, cloud: Cloud, start: Any, conf: Any, tmp_path: Path) -> None:
    cloud.compute("cmp1", 4)
    conf.set_override("records_file", str(tmp_path / "records.jsonl"), group="shared_scheduler")
    begun = start()
    [moved, new] = uuids(2)

    for server, asked in ((moved, {"requested_destination": to(cell)}), (new, {})):
        rpcapi.SchedulerAPI().select_destinations(
            user_context(), small(**asked), [server], return_objects=True, return_alternates=not asked
        )
    begun.manager._running.recorder.stop()

    records = map(json.loads, (tmp_path / "records.jsonl").read_text().splitlines())
    assert [one["asked"]["move"] for one in records if one["kind"] == "decision"] == ["unshelve", None]

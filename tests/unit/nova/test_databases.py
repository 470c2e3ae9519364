# SPDX-License-Identifier: Apache-2.0
"""The bulk reads over Nova's own engines."""

from __future__ import annotations

import datetime

import pytest
from nova import context, objects
from oslo_db.exception import CantStartEngineError
from oslo_utils import timeutils

from shared_scheduler.nova.databases import NovaApiDatabase, NovaCellDatabase
from shared_scheduler.service.databases import DatabaseError
from tests.unit.nova.conftest import admin
from tests.unit.nova.test_request_filters import cell1


def test_a_heartbeat_is_old_or_new_by_the_clock_that_nova_writes_it_with(databases: None) -> None:
    # given a Nova whose clock is set, as its tests do, and a compute that has just been heard of
    timeutils.set_time_override(datetime.datetime(2021, 7, 1))
    try:
        with context.target_cell(admin(), cell1()) as target:
            record = objects.Service(
                target, host="cmp1", binary="nova-compute", topic="compute", report_count=1
            )
            record.create()
            record.last_seen_up = timeutils.utcnow()
            record.save()
        [cell] = [each for each in NovaApiDatabase().cells() if each.schedulable]
        # then it is up, and is not any more when its time is over
        assert [each.up for each in NovaCellDatabase(cell).services()] == [True]
        timeutils.advance_time_seconds(61)
        assert [each.up for each in NovaCellDatabase(cell).services()] == [False]
    finally:
        timeutils.clear_time_override()


def test_a_connection_that_is_not_set_names_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_connection(*_: object) -> None:
        raise CantStartEngineError("No sql_connection parameter is established")

    monkeypatch.setattr(objects.CellMappingList, "get_all", without_connection)
    with pytest.raises(DatabaseError, match=r"\[api_database\] connection"):
        NovaApiDatabase().cells()

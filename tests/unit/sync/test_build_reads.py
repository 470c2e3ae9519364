# SPDX-License-Identifier: Apache-2.0
"""How builds stand that no agent has told of is read from the database of their cell."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa
from nova.db.main import models

from shared_scheduler.core.events import BuildFailure, BuildRead, BuildsRead, BuildState
from shared_scheduler.records.store import NO_REASON
from shared_scheduler.sync.cell_reads import BUILDS_MAX, CellReads
from shared_scheduler.sync.databases import BUILD_EVENT, DatabaseError
from tests.unit.sync.nova_databases import NovaDatabases, naive

AGE_S = 30.0
FULL = "Insufficient compute resources: Free memory 10 MB < requested 64 MB."


@pytest.fixture
def nova(tmp_path: Path) -> NovaDatabases:
    found = NovaDatabases(tmp_path)
    found.compute("cmp1")
    found.compute("cmp2")
    return found


@pytest.fixture
def cell(nova: NovaDatabases) -> CellReads:
    found = CellReads(nova.cell(), lambda node: False)
    list(found.node_list(0.0))
    return found


def fault(nova: NovaDatabases, server: str, host: str, ago_s: float, message: str = FULL, deleted: int = 0) -> None:
    nova.cell_row(models.InstanceFault, instance_uuid=server, code=500, message=message, host=host, deleted=deleted,
                  created_at=naive(nova.now - timedelta(seconds=ago_s)))  # fmt: skip


ACTION_IDS = count(1)


def begun(nova: NovaDatabases, server: str, *hosts: str, ago_s: float = 20.0) -> None:
    """Nova has begun to build the server on these hosts, a second apart."""
    action = next(ACTION_IDS)
    nova.cell_row(models.InstanceAction, id=action, instance_uuid=server, action="create")
    for number, host in enumerate(hosts):
        at = naive(nova.now - timedelta(seconds=ago_s - number))
        nova.cell_row(models.InstanceActionEvent, action_id=action, event=BUILD_EVENT, host=host, start_time=at)


def read(cell: CellReads, *servers: str) -> list[BuildRead]:
    for server in servers:
        cell.want_build(server, AGE_S)
    [event] = cell.builds()
    assert isinstance(event, BuildsRead)
    return list(event.builds)


def test_a_server_that_is_built_is_active_since_its_launch(nova: NovaDatabases, cell: CellReads) -> None:
    launched_at = nova.now - timedelta(seconds=20)
    server = nova.instance("cmp1", vm_state="active", launched_at=naive(launched_at))

    assert read(cell, server) == [BuildRead(server, BuildState.ACTIVE, "cmp1", launched_at.timestamp())]


def test_a_row_without_a_time_does_not_keep_other_servers_from_being_read(nova: NovaDatabases, cell: CellReads) -> None:
    # given a server whose fault and whose build have lost their times
    broken = nova.instance(None, vm_state="error")
    nova.cell_row(models.InstanceFault, instance_uuid=broken, code=500, message=FULL, host="cmp1", deleted=0)
    nova.cell_row(models.InstanceAction, id=next(ACTION_IDS), instance_uuid=broken, action="create")
    nova.cell_row(models.InstanceActionEvent, action_id=next(ACTION_IDS) - 1, event=BUILD_EVENT, host="cmp1")
    nova.change(models.InstanceFault, "cmp1", created_at=None)
    other = nova.instance("cmp2", vm_state="building")
    # then
    assert [one.state for one in read(cell, broken, other)] == [BuildState.FAILED, BuildState.UNDER_WAY]


def test_faults_tell_on_which_node_a_build_failed_and_which_are_the_conductors(
    nova: NovaDatabases, cell: CellReads
) -> None:
    server = nova.instance(None, vm_state="error")
    fault(nova, server, "cmp2", ago_s=20)
    fault(nova, server, "controller", ago_s=10, message="Exceeded maximum number of retries.")

    at_s = nova.now.timestamp()
    assert read(cell, server) == [BuildRead(server, BuildState.FAILED, failures=(
        BuildFailure("cmp2", FULL, at_s - 20, on_node=True),
        BuildFailure("controller", "Exceeded maximum number of retries.", at_s - 10, on_node=False),
    ))]  # fmt: skip


@pytest.mark.parametrize("vm_state", ["building", "shelved_offloaded"])
def test_a_server_without_a_host_yet_is_under_way(nova: NovaDatabases, cell: CellReads, vm_state: str) -> None:
    server = nova.instance(None, vm_state=vm_state)
    fault(nova, server, "cmp1", ago_s=5)
    fault(nova, server, "cmp1", ago_s=AGE_S + 60, message="of an earlier request")

    [found] = read(cell, server)
    assert (found.state, [one.reason for one in found.failures]) == (BuildState.UNDER_WAY, [FULL])


def test_a_server_that_was_moved_or_deleted_was_not_built(nova: NovaDatabases, cell: CellReads) -> None:
    moved = nova.instance("cmp2", vm_state="active", launched_at=naive(nova.now - timedelta(days=9)))
    deleted = nova.instance("cmp2", vm_state="active", deleted=7, launched_at=naive(nova.now))

    assert {one.state for one in read(cell, moved, deleted, "unknown")} == {BuildState.GONE}


def test_why_a_build_failed_is_read_although_its_user_has_deleted_the_server(
    nova: NovaDatabases, cell: CellReads
) -> None:
    server = nova.instance(None, vm_state="error", deleted=7)
    fault(nova, server, "cmp1", ago_s=20, deleted=3)

    [found] = read(cell, server)
    assert (found.state, [one.host for one in found.failures]) == (BuildState.GONE, ["cmp1"])


def test_a_build_that_ended_during_a_long_outage_is_active(nova: NovaDatabases, cell: CellReads) -> None:
    # given a server whose build is to be read while the database does not answer
    launched_at = nova.now - timedelta(seconds=20)
    server = nova.instance("cmp1", vm_state="active", launched_at=naive(launched_at))
    with nova.cell_engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE instances RENAME TO away"))
    with pytest.raises(DatabaseError):
        read(cell, server)
    # when it answers ten minutes later
    with nova.cell_engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE away RENAME TO instances"))
    nova.now += timedelta(minutes=10)
    # then the server was still launched after it was placed
    [event] = cell.builds()
    assert list(event.builds) == [BuildRead(server, BuildState.ACTIVE, "cmp1", launched_at.timestamp())]


def test_each_wish_is_read_once_and_their_number_is_bounded(nova: NovaDatabases, cell: CellReads) -> None:
    assert list(cell.builds()) == [], "nobody has asked"
    assert len(read(cell, *(f"server-{n}" for n in range(BUILDS_MAX + 1)))) == BUILDS_MAX
    assert list(cell.builds()) == []


GAVE_UP = f"Exceeded maximum number of retries. Exceeded max scheduling attempts 3 for x. Last exception: {FULL}"


@pytest.mark.parametrize("conductor", ["controller", "cmp2"], ids=["its own host", "the host of a nova-compute"])
def test_of_builds_that_were_handed_back_the_hosts_and_the_last_reason_are_known(
    nova: NovaDatabases, cell: CellReads, conductor: str
) -> None:
    server = nova.instance(None, vm_state="error")
    begun(nova, server, "cmp2", "cmp1")
    fault(nova, server, conductor, ago_s=10, message=GAVE_UP)

    [found] = read(cell, server)
    assert [(one.host, one.reason, one.on_node) for one in found.failures] == [
        ("cmp2", NO_REASON, True), ("cmp1", FULL, True), (conductor, GAVE_UP, False),
    ]  # fmt: skip


def test_the_reason_that_a_node_has_kept_goes_before_all_others(nova: NovaDatabases, cell: CellReads) -> None:
    server = nova.instance(None, vm_state="error")
    begun(nova, server, "cmp2", "cmp1")
    fault(nova, server, "cmp1", ago_s=15, message="Build aborted")

    [found] = read(cell, server)
    assert [(one.host, one.reason) for one in found.failures] == [("cmp2", NO_REASON), ("cmp1", "Build aborted")]


@pytest.mark.parametrize("vm_state", ["building", "active"])
def test_the_host_on_which_the_server_is_built_has_not_failed(
    nova: NovaDatabases, cell: CellReads, vm_state: str
) -> None:
    server = nova.instance("cmp1", vm_state=vm_state, launched_at=naive(nova.now))
    begun(nova, server, "cmp1", ago_s=AGE_S + 60)  # of an earlier request
    begun(nova, server, "cmp2", "cmp1")

    [found] = read(cell, server)
    assert [(one.host, one.reason) for one in found.failures] == [("cmp2", NO_REASON)]


def test_a_build_that_failed_without_any_fault_is_told_without_its_reason(nova: NovaDatabases, cell: CellReads) -> None:
    server = nova.instance(None, vm_state="error")
    begun(nova, server, "cmp2")

    [found] = read(cell, server)
    assert [(one.host, one.reason) for one in found.failures] == [("cmp2", NO_REASON)]

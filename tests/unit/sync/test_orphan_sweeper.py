# SPDX-License-Identifier: Apache-2.0
"""A scheduler stopped between Placement's answer and its own: its allocations are deleted."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import requests

from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.sync import orphan_search, orphan_sweeper
from shared_scheduler.sync.databases import DatabaseError
from shared_scheduler.sync.orphan_search import (
    AGAIN_S,
    CHECKS,
    LAG_S,
    SWEEP_BACK,
    OrphanSearch,
    Share,
    Suspect,
    share_of,
)
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import carried_out, in_trouble, lost_reply, never_sent
from tests.unit.sync.orphan_site import CHECKS_A_SWEEP, FIRST_OF_TWO, OTHER_OF_TWO, SWEEP_S, Site, site


def test_allocations_of_a_server_in_cell_0_are_deleted_and_its_agent_reads(site: Site) -> None:
    # given a server whose allocation was written, but not answered: nova-conductor gave it up
    node = site.world.provider()
    server = site.server("cell0")
    site.take(server, node)
    # when
    site.sweep()
    # then
    assert not site.holds(server)
    assert [event.node for event in site.told] == [node]


def holds_after_a_sweep(site: Site, server: str, answer: threading.Event) -> bool:
    """Whether Placement has the allocations of a server after sweeps that end when the database has answered."""

    def sweep() -> None:
        for _ in range(2):
            with contextlib.suppress(DatabaseError):
                site.sweep()
            site.wait(LAG_S)

    sweeping = threading.Thread(target=sweep, daemon=True)
    sweeping.start()
    sweeping.join(30.0)
    held = site.holds(server)
    answer.set()
    return held


def test_a_cell_that_hangs_does_not_keep_the_servers_of_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a server that nova-conductor gave up, and a cell that accepts queries and does not answer them
    server, answer = site.server("cell0"), threading.Event()
    site.take(server, site.world.provider())
    monkeypatch.setattr(site.cells[0], "offloaded", lambda *_: answer.wait() and ())
    # then a sweep takes them back nevertheless
    assert not holds_after_a_sweep(site, server, answer)


def test_an_api_database_that_hangs_does_not_keep_the_servers_of_cells(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a shelved server whose unshelve was given up, and an API database that accepts queries and does not answer
    monkeypatch.setattr(orphan_sweeper, "READ_WITHIN_S", 0.1)
    server, answer, api = site.shelved(), threading.Event(), site.nova.api()
    site.take(server, site.world.provider())
    monkeypatch.setattr(api, "buried", lambda *_: answer.wait() and ())
    monkeypatch.setattr(site.nova, "api", lambda: api)
    site.sut = site.scheduler()
    # then a sweep takes them back nevertheless
    assert not holds_after_a_sweep(site, server, answer)


def test_servers_that_were_checked_are_not_checked_again_after_an_outage(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server in cell 0 that was checked twice
    server, api = site.server("cell0"), site.nova.api()
    monkeypatch.setattr(site.nova, "api", lambda: api)
    site.sut = site.scheduler()
    for _ in range(CHECKS):
        site.sweep()
        site.wait(AGAIN_S)
    asked = site.asked(server)

    def away(*_: object) -> None:
        raise DatabaseError("the API database is away")

    # when the API database cannot be read for a while
    with monkeypatch.context() as outage:
        outage.setattr(api, "buried", away)
        with pytest.raises(DatabaseError):
            site.sweep()
    site.sweep()
    # then Placement is not asked about the server again
    assert site.asked(server) == asked


def test_shelved_servers_that_were_checked_are_not_checked_again_after_an_outage_of_their_cell(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a shelved server that was checked twice
    server = site.shelved()
    for _ in range(20):
        site.sweep()
        site.wait(2 * SWEEP_S)
    asked = site.asked(server)
    assert asked == CHECKS

    def away(*_: object) -> None:
        raise DatabaseError("the cell is away")

    # when its cell cannot be read for a while
    with monkeypatch.context() as outage:
        outage.setattr(site.cells[0], "offloaded", away)
        with pytest.raises(DatabaseError):
            site.sweep()
    for _ in range(20):
        site.sweep()
        site.wait(2 * SWEEP_S)
    # then Placement is not asked about the server again
    assert site.asked(server) == asked


def test_a_clock_that_was_fast_when_a_server_was_given_up_does_not_hide_other_servers(site: Site) -> None:
    # given a server that a nova-conductor has mapped whose clock was two hours ahead
    site.wait(7200.0)
    site.server("cell0")
    site.wait(-7200.0)
    # when another one is given up
    node, server = site.world.provider(), site.server("cell0")
    site.take(server, node)
    site.sweep()
    # then
    assert not site.holds(server)


def test_a_leak_is_found_although_users_delete_many_servers_that_had_failed_before(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given many servers that failed yesterday, and a leak
    monkeypatch.setattr(orphan_sweeper, "LISTED_MAX", CHECKS_A_SWEEP)
    old = [site.server("cell0") for _ in range(CHECKS_A_SWEEP)]
    site.wait(24 * 3600.0)
    node, server = site.world.provider(), site.server("cell0")
    site.take(server, node)
    # when their users delete them: Nova takes back what they hold, and writes to their mappings
    site.wait(1.0)
    for each in old:
        site.nova.delete_server(each)
    site.sweep()
    # then
    assert not site.holds(server)


def test_what_a_deleted_server_holds_is_deleted_after_that_of_others(site: Site) -> None:
    # given a server whose user has deleted it before a slow scheduler has written its allocation, and others
    node, deleted = site.world.provider(), site.server("cell0")
    site.nova.delete_server(deleted)
    site.take(deleted, node)
    site.wait(1.0)
    others = [site.server("cell0") for _ in range(CHECKS_A_SWEEP)]
    # then it comes after these
    site.sweep()
    assert site.asked(*others) == CHECKS_A_SWEEP
    assert site.holds(deleted)
    site.sweep()
    assert not site.holds(deleted)


def test_servers_under_way_and_in_service_keep_what_they_hold(site: Site) -> None:
    node = site.world.provider()
    under_way, in_service = site.server(None), site.server("cell1")
    for server in (under_way, in_service):
        site.take(server, node)
    site.sweep()
    assert site.holds(under_way) and site.holds(in_service)
    assert site.told == []


def test_the_node_of_an_allocation_on_a_nested_provider_is_reported(site: Site) -> None:
    root = site.world.provider()
    child = site.world.provider(parent=root)
    server = site.server("cell0")
    site.take(server, child)
    site.sweep()
    assert [event.node for event in site.told] == [root]


def test_a_write_after_the_first_check_is_found_by_the_second(site: Site) -> None:
    # given a scheduler that was slow: its write came when the server was buried already
    node, server = site.world.provider(), site.server("cell0")
    site.sweep()
    site.take(server, node)
    site.sweep()
    assert site.holds(server)  # checked a moment ago
    # when
    site.wait(AGAIN_S)
    site.sweep()
    # then
    assert not site.holds(server)
    asked = site.asked(server)
    site.wait(AGAIN_S)
    site.sweep()
    assert site.asked(server) == asked


@pytest.mark.parametrize("kind", ["buried", "shelved"])
def test_a_delete_that_failed_is_tried_again(site: Site, kind: str) -> None:
    # given an orphaned allocation, and a Placement that can be read, and does not write
    server = site.server("cell0") if kind == "buried" else site.shelved()
    site.take(server, site.world.provider())
    site.world.http.every_write = never_sent
    for _ in range(CHECKS):
        site.sweep()
        site.wait(AGAIN_S)
    assert site.holds(server)
    # when it writes again
    site.world.http.every_write = None
    site.sweep()
    # then
    assert not site.holds(server)


def test_deletes_that_failed_do_not_come_before_first_checks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # given as many deletes that failed as a sweep checks servers, and a leak that came later
    monkeypatch.setattr(orphan_search, "CHECKS_A_SWEEP", 2)
    node = site.world.provider()
    for _ in range(2):
        site.take(site.server("cell0"), node)
    site.world.http.every_write = never_sent
    site.sweep()
    site.world.http.every_write = None
    site.wait(AGAIN_S)
    late = site.server("cell0")
    site.take(late, node)
    # when all are due
    site.sweep()
    # then
    assert not site.holds(late)


def test_a_server_whose_allocations_cannot_be_read_does_not_keep_those_of_others(site: Site) -> None:
    # given a server with allocations of which Placement makes an error, and a leak that came later
    node, broken = site.world.provider(), site.server("cell0")
    site.wait(1.0)
    server = site.server("cell0")
    site.take(server, node)

    def fails(method: str, path: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        return in_trouble(method, path, carry_out) if path.endswith(broken) else carry_out()

    site.world.http.every_read = fails
    # when a sweep has ended with that error
    with pytest.raises(PlacementError):
        site.sweep()
    # then the next one goes on with the others
    site.sweep()
    assert not site.holds(server)
    # and the first one is tried again
    site.world.http.every_read = None
    site.take(broken, node)
    site.wait(AGAIN_S)
    site.sweep()
    assert not site.holds(broken)


def test_a_cell_that_is_lost_during_a_sweep_does_not_keep_the_servers_of_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a shelved server, and one in cell 0 that is checked after it
    shelved, node = site.shelved(), site.world.provider()
    site.server("cell0")
    site.wait(1.0)
    buried = site.server("cell0")
    for server in (shelved, buried):
        site.take(server, node)
    listed = site.cells[0].offloaded

    def lists(within: timedelta, limit: int, server: str | None = None) -> Any:
        if server is not None:
            raise DatabaseError("the cell is away")
        return listed(within, limit)

    # when the cell answers once
    monkeypatch.setattr(site.cells[0], "offloaded", lists)
    with pytest.raises(DatabaseError, match="the cell is away"):
        site.sweep()
    # then the other one is checked
    assert site.holds(shelved) and not site.holds(buried)


def test_the_agent_is_told_of_a_delete_although_placement_is_away_for_a_while(site: Site) -> None:
    # given a Placement that is away after two answers
    node, server = site.world.provider(), site.server("cell0")
    site.take(server, node)
    site.world.http.faults = [carried_out, carried_out, never_sent]
    with contextlib.suppress(PlacementError):
        site.sweep()
    # when it is back
    site.wait(AGAIN_S)
    site.sweep()
    # then
    assert not site.holds(server)
    assert [event.node for event in site.told] == [node]


def test_the_agent_is_told_of_a_delete_whose_answer_was_lost(site: Site) -> None:
    # given a Placement that carries out a delete, and whose answer is lost
    node, server = site.world.provider(), site.server("cell0")
    site.take(server, node)
    site.world.http.every_write = lost_reply
    site.sweep()
    assert not site.holds(server)
    # when the server is checked again
    for _ in range(CHECKS):
        site.wait(AGAIN_S)
        site.sweep()
    # then
    assert [event.node for event in site.told] == [node]


def test_a_cloud_in_which_much_fails_is_asked_a_bounded_number_at_a_time(site: Site) -> None:
    servers = [site.server("cell0") for _ in range(CHECKS_A_SWEEP + 3)]
    site.sweep()
    assert site.asked(*servers) == CHECKS_A_SWEEP
    site.sweep()
    assert site.asked(*servers) == len(servers)


def test_a_sweep_ends_soon_although_placement_is_slow(site: Site) -> None:
    # given a Placement that takes four seconds for an answer
    def slow(method: str, path: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        site.wait(4.0)
        return carry_out()

    servers = [site.server("cell0") for _ in range(CHECKS_A_SWEEP)]
    site.world.http.every_read = slow
    # when
    site.sweep()
    # then what is not checked in time is left
    assert site.asked(*servers) == 3
    # to the next sweeps, which do not begin with the same servers
    site.sweep()
    site.sweep()
    assert {site.asked(server) for server in servers} == {1}


def test_a_leak_is_found_although_many_builds_fail_after_it(site: Site) -> None:
    # given a leak, and builds that fail as fast as they are checked
    node, server = site.world.provider(), site.server("cell0")
    site.take(server, node)
    for _ in range(3):
        site.wait(1.0)
        for _ in range(CHECKS_A_SWEEP):
            site.server("cell0")
    # when
    site.sweep()
    # then
    assert not site.holds(server)


def test_a_shelved_server_is_checked_although_many_builds_fail(site: Site) -> None:
    node, server = site.world.provider(), site.shelved()
    site.take(server, node)
    for _ in range(3 * CHECKS_A_SWEEP):
        site.server("cell0")
    site.sweep_in_turn()
    assert not site.holds(server)


def test_a_shelved_server_is_checked_by_the_one_whose_turn_it_is_although_many_builds_fail(site: Site) -> None:
    # given a shelved server, and a scheduler that has its turn, while new servers of its share fill a sweep
    node, server = site.world.provider(), site.shelved()
    site.take(server, node)
    share = OTHER_OF_TWO if FIRST_OF_TWO.rank(server) == 0 else FIRST_OF_TWO
    sweeper = site.scheduler(share=share)
    for _ in range(2):
        buried_in(site, CHECKS_A_SWEEP, share)
        list(sweeper.sweep())
        site.wait(LAG_S)
    # then it does not come after all of these
    assert not site.holds(server)


def test_first_checks_do_not_wait_for_second_ones(site: Site) -> None:
    # given servers that were checked once, and a leak that came later
    old = [site.server("cell0") for _ in range(CHECKS_A_SWEEP)]
    site.sweep()
    site.wait(AGAIN_S)
    node, late = site.world.provider(), site.server("cell0")
    site.take(late, node)
    # when both are due
    site.sweep()
    # then
    assert not site.holds(late)
    assert site.asked(*old) == 2 * CHECKS_A_SWEEP - 1


def test_each_scheduler_begins_with_a_share_of_its_own(site: Site) -> None:
    # given more than one scheduler can check, but not more than two can
    servers = [site.server("cell0") for _ in range(2 * CHECKS_A_SWEEP)]
    # when each of two has swept as often as both together need
    for before, share in enumerate((FIRST_OF_TWO, OTHER_OF_TWO)):
        sweeper = site.scheduler(share=share)
        for _ in range(2):
            assert list(sweeper.sweep()) == []
        mine = [server for server in servers if share.rank(server) == 0]
        assert 0 < len(mine) < len(servers)
        assert {site.asked(server) for server in mine} >= {before + 1}
    # then nobody was left out, although each may be the only one that is right about the shares
    assert all(site.asked(server) >= 1 for server in servers)


def test_only_the_share_of_a_scheduler_that_has_gone_moves() -> None:
    # given servers, each of which is in the share of one scheduler
    names, servers = ("a", "b", "c"), [str(uuid.uuid4()) for _ in range(600)]
    shares = {name: {each for each in servers if share_of(name, names).rank(each) == 0} for name in names}
    assert sum(map(len, shares.values())) == len(set().union(*shares.values())) == len(servers)
    assert min(map(len, shares.values())) > 120  # of 200 in the mean
    # when one of them has gone
    left = {name: {each for each in servers if share_of(name, ("a", "c")).rank(each) == 0} for name in ("a", "c")}
    # then the others have what they had, and a part of the share of that one
    assert left["a"] > shares["a"] and left["c"] > shares["c"]
    assert left["a"] | left["c"] == set(servers)


def buried_in(site: Site, count: int, share: Share) -> list[str]:
    """So many new servers in cell 0 that belong to this share."""
    servers: list[str] = []
    while len(servers) < count:
        server = str(uuid.uuid4())
        if share.rank(server) == 0:
            servers.append(site.nova.map_server("cell0", server))
    return servers


def test_second_checks_of_its_own_share_come_before_first_ones_of_others(site: Site) -> None:
    # given a scheduler that has checked a server of its share, for which a write came late
    sweeper = site.scheduler(share=FIRST_OF_TWO)
    [server] = buried_in(site, 1, FIRST_OF_TWO)
    assert list(sweeper.sweep()) == []
    site.take(server, site.world.provider())
    site.wait(AGAIN_S)
    # when as many servers of the other scheduler are new as a sweep checks
    buried_in(site, CHECKS_A_SWEEP, OTHER_OF_TWO)
    list(sweeper.sweep())
    # then
    assert not site.holds(server)


def test_late_writes_are_found_of_servers_of_a_scheduler_that_does_not_sweep(site: Site) -> None:
    # given a scheduler that only observes, and servers of its share, for which writes came after their first checks
    sweeper = site.scheduler(share=FIRST_OF_TWO)
    node, late = site.world.provider(), buried_in(site, CHECKS_A_SWEEP // 2, OTHER_OF_TWO)
    assert list(sweeper.sweep()) == []
    for server in late:
        site.take(server, node)
    site.wait(AGAIN_S)
    # when as many new ones of its share as a sweep checks are there as well
    buried_in(site, CHECKS_A_SWEEP, OTHER_OF_TWO)
    list(sweeper.sweep())
    # then half of the checks are second ones
    assert not any(map(site.holds, late))


def test_the_servers_of_a_scheduler_that_does_not_sweep_are_shared_by_the_others() -> None:
    # given more servers than a sweep checks, of three schedulers, one of which only observes
    names = ("a", "b", "c")
    suspects: list[Suspect[None]] = [Suspect(str(uuid.uuid4())) for _ in range(6 * orphan_search.CHECKS_A_SWEEP)]
    left = {each.server for each in suspects if share_of("c", names).rank(each.server) == 0}
    checked: dict[str, set[str]] = {}
    # when each of the others has checked what is its own, and sweeps once more
    for name in ("a", "b"):
        search: OrphanSearch[None] = OrphanSearch()
        share = share_of(name, names)
        search.list({each: place for place, each in enumerate(suspects)}, lambda _: False)
        for each in suspects:
            search.of(each).times = CHECKS if share.rank(each.server) == 0 else 0
        checked[name] = {each.server for each in search.due(0.0, share, lambda _: True)}
    # then they do not check the same servers
    assert checked["a"] & left and checked["b"] & left
    assert not checked["a"] & checked["b"]


def test_second_checks_are_a_part_of_each_sweep_although_its_own_share_is_too_large(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given as many second checks as a sweep has, and as many first ones, all of the own share
    monkeypatch.setattr(orphan_search, "CHECKS_A_SWEEP", 4)
    old = [site.server("cell0") for _ in range(4)]
    site.sweep()
    site.wait(AGAIN_S)
    new = [site.server("cell0") for _ in range(4)]
    # when both are due
    site.sweep()
    # then it has as many of both
    assert site.asked(*old) == 4 + 2
    assert site.asked(*new) == 2


def test_an_allocation_of_an_abandoned_unshelve_is_deleted(site: Site) -> None:
    # given an unshelve whose answer was lost: nova-conductor has given it up, its allocation stands
    node, server = site.world.provider(), site.shelved()
    site.take(server, node)
    # when
    site.sweep_in_turn()
    # then it can be unshelved again
    assert not site.holds(server)
    assert [event.node for event in site.told] == [node]


@pytest.mark.parametrize(
    "state",
    [
        {"task_state": "unshelving"},
        {"vm_state": "active", "host": "cmp-1"},
        {"host": "cmp-1"},  # nova-compute is not done with offloading it
        {"deleted": 1},
    ],
)
def test_a_shelved_server_of_which_something_is_under_way_keeps_what_it_holds(
    site: Site, state: dict[str, Any]
) -> None:
    server = site.shelved()
    site.nova.change_instance(server, **state)
    site.take(server, site.world.provider())
    site.sweep()
    assert site.holds(server)


def test_an_unshelve_that_a_late_copy_of_the_database_does_not_show_keeps_its_place(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a member of a database cluster that applies changes late, and the placed unshelve of a server
    node, server = site.world.provider(), site.shelved()
    [cell] = site.cells
    late = cell.offloaded(SWEEP_BACK, 1)
    site.nova.change_instance(server, task_state="unshelving")
    site.take(server, node)

    # when sweeps read the late copy, and after a while the present one
    monkeypatch.setattr(cell, "offloaded", lambda *_: late)
    site.sweep()
    site.wait(SWEEP_S)
    site.sweep()
    monkeypatch.undo()
    site.wait(SWEEP_S)
    site.sweep()

    # then
    assert site.holds(server)


def test_an_unshelve_that_begins_during_the_check_keeps_its_place(site: Site) -> None:
    # given a shelved server that is seen to be idle ...
    node, server = site.world.provider(), site.shelved()

    def unshelved(_: str, __: str, carry_out: Callable[[], requests.Response]) -> requests.Response:
        """... and is unshelved before Placement is asked what it holds."""
        site.world.http.every_read = None
        site.nova.change_instance(server, task_state="unshelving")
        site.take(server, node)
        return carry_out()

    site.world.http.every_read = unshelved
    site.sweep()
    assert site.holds(server)


def test_each_time_that_a_server_is_given_up_it_is_checked(site: Site) -> None:
    node, server = site.world.provider(), site.shelved()
    for _ in range(2):
        site.wait(3.0)
        site.nova.change_instance(server, task_state="unshelving")
        site.take(server, node)
        site.give_up(server)
        site.sweep_in_turn()
        assert not site.holds(server)


def test_a_cell_that_is_away_does_not_hold_up_the_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise DatabaseError("cell2 is away")

    lost, node = site.nova.cell(), site.world.provider()
    monkeypatch.setattr(lost, "offloaded", away)
    site.cells.insert(0, lost)
    buried, shelved = site.server("cell0"), site.shelved()
    for server in (buried, shelved):
        site.take(server, node)

    for _ in range(2):
        with pytest.raises(DatabaseError, match="cell2 is away"):
            site.sweep()
        site.wait(LAG_S)
    assert not site.holds(buried)
    assert not site.holds(shelved)

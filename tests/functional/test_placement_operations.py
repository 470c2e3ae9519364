# SPDX-License-Identifier: Apache-2.0
"""Each operation with each kind of failure: a complete scheduler core, a real Placement, and a second writer that
interferes.  The expected result is read from the table of operations.

The writes of others (the conductor with an alternate, nova-compute at a confirm or a revert) are made with Nova's own
client, so that those rows of the table are verified too.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from nova import context as nova_context
from nova import exception
from nova.scheduler.client import report

from shared_scheduler.core.effects import Answer, DeleteAllocation, Fail, FailureCode
from shared_scheduler.decision.request import Request
from shared_scheduler.nova.selection import allocation_request
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import CONCURRENT_UPDATE, Reply, Transport
from shared_scheduler.placement.reconciler import without_nova
from tests.functional.placement_driver import PlacementDriver, after, before, lose_reply, vcpus_for
from tests.functional.private_placement import SETTINGS, PrivatePlacement
from tests.support.operations import OURS, Operation, Then, Writer, operation

RACERS = 4
ROUNDS_MAX = 20

ours = pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)


@pytest.fixture(scope="module")
def placement() -> Iterator[PrivatePlacement]:
    # without retries of its own, so that lost races are seen
    with PrivatePlacement.running(replace(SETTINGS, allocation_conflict_retry_count=1)) as one:
        yield one


@pytest.fixture
def driver(placement: PrivatePlacement) -> Iterator[PlacementDriver]:
    one = PlacementDriver(placement.transport)
    yield one
    one.stop()


@dataclass
class Scene:
    """Two hosts, the first one better, and one operation about to ask for a place on one of them."""

    placement: PrivatePlacement
    one: Operation
    request: Request
    source: str
    best: str
    other: str
    servers: tuple[str, ...]

    def held(self, server: str) -> dict[str, dict[str, int]]:
        return {rp: dict(part) for rp, part in self.placement.client.consumer(server).allocations.items()}

    def expected(self, *nodes: str) -> list[dict[str, dict[str, int]]]:
        """What the servers hold when they are on these nodes: an evacuated one its source, too."""
        left = {self.source: {"VCPU": 2}} if self.one.name == "evacuate" else {}
        return [{node: {"VCPU": 2}} | left for node in nodes]

    def all_held(self) -> list[dict[str, dict[str, int]]]:
        return [self.held(server) for server in self.servers]


def begin(placement: PrivatePlacement, driver: PlacementDriver, one: Operation) -> Scene:
    """The world as Nova leaves it when it asks."""
    source, best, other = (placement.provider() for _ in range(3))
    servers = tuple(str(uuid.uuid4()) for _ in range(3 if one.name == "multi-create" else 1))
    changes: dict[str, Any] = {}
    if one.name in ("cold migrate", "live migrate"):
        placement.take(str(uuid.uuid4()), {source: {"VCPU": 2}})  # under the migration's uuid
        changes["ignore_hosts"] = frozenset([source])
    elif one.name == "resize":  # the same host may be chosen
        placement.take(str(uuid.uuid4()), {best: {"VCPU": 2}})
    elif one.name == "evacuate":
        placement.take(servers[0], {source: {"VCPU": 2}})
        changes |= {"ignore_hosts": frozenset([source]), "merge_with_existing": True}
    driver.knows(best, other)
    return Scene(placement, one, vcpus_for(*servers, **changes), source, best, other, servers)


def chosen(outcome: Answer | Fail) -> list[str]:
    assert isinstance(outcome, Answer), outcome
    return [inner[0].node for inner in outcome.choices]


# -- what we write -------------------------------------------------------------------------------


@ours
def test_no_capacity(placement: PrivatePlacement, driver: PlacementDriver, one: Operation) -> None:
    """Somebody takes the best host's room while our write is on its way."""
    scene = begin(placement, driver, one)

    def fill() -> None:
        free = 8 - placement.used(scene.best)
        placement.take(str(uuid.uuid4()), {scene.best: {"VCPU": free}})

    driver.http.at("PUT", "/allocations/", before(fill))
    outcome = driver.select(scene.request)
    assert one.no_capacity is Then.NEXT_HOST
    assert set(chosen(outcome)) == {scene.other}
    assert scene.all_held() == scene.expected(*chosen(outcome))
    assert CONCURRENT_UPDATE not in driver.http.codes and driver.http.codes


@ours
def test_provider_conflict(placement: PrivatePlacement, driver: PlacementDriver, one: Operation) -> None:
    """Others write to the best host all the time: we get in between, or go to the next one."""
    assert one.provider_conflict is Then.RACE
    met, known = 0, set[str]()
    for _ in range(ROUNDS_MAX):
        scene = begin(placement, driver, one)
        known |= {scene.best, scene.other}  # where nobody was met, the hosts of earlier rounds are there still
        with racing(placement, scene.best):
            outcome = driver.select(scene.request)
        nodes = chosen(outcome)
        assert set(nodes) <= known
        assert scene.all_held() == scene.expected(*nodes)
        met += driver.http.codes.count(CONCURRENT_UPDATE)
        if met:
            break
    assert met, "nobody got in our way"


@ours
def test_consumer_conflict(placement: PrivatePlacement, driver: PlacementDriver, one: Operation) -> None:
    """A second writer of the same server: the operation fails, and all stays as that one wrote it."""
    scene = begin(placement, driver, one)
    theirs = {placement.provider(): {"VCPU": 3}}
    victim = scene.servers[-1]
    generation = 1 if one.name == "evacuate" else None

    def interfere() -> None:
        placement.take(victim, theirs, generation)

    if one.name == "evacuate":  # between our read and our write
        driver.http.at("GET", f"/allocations/{victim}", after(interfere))
    else:
        interfere()
    outcome = driver.select(scene.request)
    assert one.consumer_conflict is Then.FAILS
    assert isinstance(outcome, Fail) and outcome.code is FailureCode.CONSUMER_CONFLICT
    assert scene.held(victim) == theirs
    assert [scene.held(server) for server in scene.servers[:-1]] == [{}] * (len(scene.servers) - 1)
    held = {"resize": 2}.get(one.name, 0)
    assert (placement.used(scene.best), placement.used(scene.other)) == (held, 0)
    assert set(driver.http.codes) == {CONCURRENT_UPDATE}


@ours
def test_own_attempt(placement: PrivatePlacement, driver: PlacementDriver, one: Operation) -> None:
    """Our write arrives, its answer does not: it is found again, and counts once."""
    scene = begin(placement, driver, one)
    driver.http.at("PUT", "/allocations/", lose_reply)
    outcome = driver.select(scene.request)
    assert one.own_attempt is Then.WRITTEN
    assert chosen(outcome)[0] == scene.best
    assert scene.all_held() == scene.expected(*chosen(outcome))
    assert CONCURRENT_UPDATE not in driver.http.codes, "written, and not written again"


class racing:
    """Other writers allocate from a provider and free it, as fast as they can, during this context."""

    def __init__(self, placement: PrivatePlacement, provider: str) -> None:
        self._placement, self._provider = placement, provider
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(RACERS)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        call = self._placement.transport.call
        body = {
            "allocations": {self._provider: {"resources": {"VCPU": 1}}},
            "consumer_generation": None, "project_id": "other", "user_id": "other",
        }  # fmt: skip
        while not self._over.is_set():
            path = f"/allocations/{uuid.uuid4()}"
            call("PUT", path, body)
            call("DELETE", path)


# -- what others write ---------------------------------------------------------------------------


class LostRace:
    """Placement's answer when it has used up its retries for a provider."""

    status_code = 409
    text = "resource provider generation conflict"

    def json(self) -> dict[str, Any]:
        return {"errors": [{"code": CONCURRENT_UPDATE, "detail": self.text}]}


class NovasClient:
    """Nova's own report client, with something that happens before its next write."""

    def __init__(self, placement: PrivatePlacement) -> None:
        self._adapter = placement.adapter()
        self.client = report.SchedulerReportClient(adapter=self)
        self.context = nova_context.get_admin_context()
        self._before: list[Callable[[], None]] = []
        self._races = 0

    def before_write(self, action: Callable[[], None]) -> None:
        self._before.append(action)

    def lose_races(self, count: int) -> None:
        """Placement answers the next writes as after a lost race for a provider."""
        self._races = count

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._adapter, name)

        def carried(*args: Any, **kwargs: Any) -> Any:
            writes = name in ("put", "post")
            while writes and self._before:
                self._before.pop()()
            if writes and self._races:
                self._races -= 1
                return LostRace()
            return method(*args, **kwargs)

        return carried if callable(method) else method


@pytest.fixture
def novas(placement: PrivatePlacement) -> NovasClient:
    return NovasClient(placement)


def claim_alternate(novas: NovasClient, scene: Scene, outcome: Answer) -> Any:
    """As the conductor does with the second host of our answer."""
    candidate = outcome.choices[0][1].candidate
    assert candidate is not None
    return novas.client.claim_resources(
        novas.context, scene.servers[0], allocation_request(candidate), "project", "user", "1.36"
    )


@pytest.fixture
def build_failed(placement: PrivatePlacement, driver: PlacementDriver) -> tuple[Scene, Answer]:
    """A server was built on the best host, and nova-compute gave it up."""
    scene = begin(placement, driver, operation("build"))
    outcome = driver.select(vcpus_for(*scene.servers, num_alternates=1))
    assert isinstance(outcome, Answer)
    placement.ok("DELETE", f"/allocations/{scene.servers[0]}")
    return scene, outcome


def test_the_conductor_builds_on_our_alternate(novas: NovasClient, build_failed: tuple[Scene, Answer]) -> None:
    scene, outcome = build_failed
    row = operation("build on alternate")
    assert (row.writer, row.own_attempt) == (Writer.CONDUCTOR, Then.WRITTEN)
    assert claim_alternate(novas, scene, outcome)
    assert claim_alternate(novas, scene, outcome), "its own attempt, once more"
    assert scene.held(scene.servers[0]) == {scene.other: {"VCPU": 2}}


def test_our_alternate_has_no_room_any_more(
    placement: PrivatePlacement, novas: NovasClient, build_failed: tuple[Scene, Answer]
) -> None:
    scene, outcome = build_failed
    placement.take(str(uuid.uuid4()), {scene.other: {"VCPU": 7}})
    assert operation("build on alternate").no_capacity is Then.NEXT_HOST
    assert not claim_alternate(novas, scene, outcome)
    assert scene.held(scene.servers[0]) == {}


def test_another_writer_writes_while_the_conductor_builds_on_our_alternate(
    placement: PrivatePlacement, novas: NovasClient, build_failed: tuple[Scene, Answer]
) -> None:
    scene, outcome = build_failed
    theirs = {placement.provider(): {"VCPU": 3}}
    novas.before_write(lambda: placement.take(scene.servers[0], theirs))
    assert operation("build on alternate").consumer_conflict is Then.FAILS
    with pytest.raises(exception.AllocationUpdateFailed):
        claim_alternate(novas, scene, outcome)
    assert scene.held(scene.servers[0]) == theirs


@pytest.fixture
def migrated(placement: PrivatePlacement, driver: PlacementDriver) -> tuple[Scene, str]:
    """A server was migrated to the best host; its source is held by the migration."""
    scene = begin(placement, driver, operation("build"))
    migration = str(uuid.uuid4())
    placement.take(migration, {scene.source: {"VCPU": 2}})
    assert chosen(driver.select(scene.request)) == [scene.best]
    return scene, migration


def test_a_confirm_frees_the_source(
    placement: PrivatePlacement, novas: NovasClient, migrated: tuple[Scene, str]
) -> None:
    scene, migration = migrated
    assert confirm(novas, migration)
    assert placement.used(scene.source) == 0
    assert scene.all_held() == [{scene.best: {"VCPU": 2}}]


def test_a_confirm_that_meets_another_writer_fails(
    placement: PrivatePlacement, novas: NovasClient, migrated: tuple[Scene, str]
) -> None:
    scene, migration = migrated
    theirs = {scene.source: {"VCPU": 1}}
    novas.before_write(lambda: placement.take(migration, theirs, 1))
    assert operation("confirm").consumer_conflict is Then.FAILS
    with pytest.raises(exception.AllocationDeleteFailed):
        confirm(novas, migration)
    assert scene.held(migration) == theirs


def confirm(novas: NovasClient, migration: str) -> Any:
    return novas.client.delete_allocation_for_instance(novas.context, migration, consumer_type="migration", force=False)


def test_a_revert_frees_our_host(placement: PrivatePlacement, novas: NovasClient, migrated: tuple[Scene, str]) -> None:
    scene, migration = migrated
    for _ in range(2):  # its own attempt, once more
        assert novas.client.move_allocations(novas.context, migration, scene.servers[0])
    assert operation("revert").own_attempt is Then.WRITTEN
    assert scene.all_held() == [{scene.source: {"VCPU": 2}}]
    assert placement.used(scene.best) == 0


def test_a_revert_that_meets_another_writer_fails(
    placement: PrivatePlacement, novas: NovasClient, migrated: tuple[Scene, str]
) -> None:
    scene, migration = migrated
    theirs = {scene.best: {"VCPU": 3}}
    novas.before_write(lambda: placement.take(scene.servers[0], theirs, 1))
    assert operation("revert").consumer_conflict is Then.FAILS
    with pytest.raises(exception.AllocationMoveFailed):
        novas.client.move_allocations(novas.context, migration, scene.servers[0])
    assert scene.all_held() == [theirs]
    assert scene.held(migration) == {scene.source: {"VCPU": 2}}


def test_a_revert_to_a_source_that_excludes_the_server_fails(
    placement: PrivatePlacement, novas: NovasClient, migrated: tuple[Scene, str]
) -> None:
    scene, migration = migrated
    placement.set(scene.source, "inventories", {"VCPU": {"total": 8, "max_unit": 1}})
    assert operation("revert").no_capacity is Then.FAILS
    assert not novas.client.move_allocations(novas.context, migration, scene.servers[0])
    assert scene.all_held() == [{scene.best: {"VCPU": 2}}]


@pytest.fixture
def at_home(placement: PrivatePlacement, driver: PlacementDriver) -> tuple[Scene, str]:
    """A server that is on its source, and the uuid of a migration that begins."""
    scene = begin(placement, driver, operation("build"))
    placement.take(scene.servers[0], {scene.source: {"VCPU": 2}})
    return scene, str(uuid.uuid4())


@pytest.fixture
def leaving(placement: PrivatePlacement, novas: NovasClient, at_home: tuple[Scene, str]) -> tuple[Scene, str]:
    """A server whose migration holds its source, when the scheduler has found no host."""
    scene, migration = at_home
    assert novas.client.move_allocations(novas.context, scene.servers[0], migration)
    return at_home


def test_the_start_of_a_move_gives_the_source_to_the_migration(
    placement: PrivatePlacement, novas: NovasClient, at_home: tuple[Scene, str]
) -> None:
    scene, migration = at_home
    for _ in range(2):  # its own attempt, once more
        assert novas.client.move_allocations(novas.context, scene.servers[0], migration)
    row = operation("start of a move")
    assert (row.writer, row.own_attempt) == (Writer.CONDUCTOR, Then.WRITTEN)
    assert scene.all_held() == [{}]
    assert scene.held(migration) == {scene.source: {"VCPU": 2}}
    assert placement.client.consumer(migration).generation == 1


@pytest.mark.parametrize("whose", ["the server's", "the migration's"])
def test_the_start_of_a_move_that_meets_another_writer_fails(
    placement: PrivatePlacement, novas: NovasClient, at_home: tuple[Scene, str], whose: str
) -> None:
    # given a second writer, between the reads of both consumers and the write
    scene, migration = at_home
    server, theirs = scene.servers[0], {scene.other: {"VCPU": 3}}
    changed, generation = (server, 1) if whose == "the server's" else (migration, None)
    novas.before_write(lambda: placement.take(changed, theirs, generation))
    # when the conductor begins the move
    row = operation("start of a move")
    assert (row.sends, row.consumer_conflict) == ("as read", Then.FAILS)
    with pytest.raises(exception.AllocationMoveFailed):
        novas.client.move_allocations(novas.context, server, migration)
    # then all is as the second writer left it
    before = {server: {scene.source: {"VCPU": 2}}, migration: {}}
    assert {name: scene.held(name) for name in (server, migration)} == before | {changed: theirs}


def test_the_start_of_a_move_from_a_source_that_excludes_the_server_fails(
    placement: PrivatePlacement, novas: NovasClient, at_home: tuple[Scene, str]
) -> None:
    scene, migration = at_home
    placement.set(scene.source, "inventories", {"VCPU": {"total": 8, "max_unit": 1}})
    assert operation("start of a move").no_capacity is Then.FAILS
    assert not novas.client.move_allocations(novas.context, scene.servers[0], migration)
    assert (scene.all_held(), scene.held(migration)) == ([{scene.source: {"VCPU": 2}}], {})


@pytest.mark.parametrize("left", [False, True], ids=["no host was found", "a scheduler has left its write"])
def test_the_end_of_a_failed_move_gives_the_source_back(
    placement: PrivatePlacement, novas: NovasClient, leaving: tuple[Scene, str], left: bool
) -> None:
    scene, migration = leaving
    if left:
        placement.take(scene.servers[0], {scene.best: {"VCPU": 2}})
    for _ in range(2):  # its own attempt, once more
        assert novas.client.move_allocations(novas.context, migration, scene.servers[0])
    row = operation("end of a failed move")
    assert (row.writer, row.own_attempt) == (Writer.CONDUCTOR, Then.WRITTEN)
    assert (scene.all_held(), scene.held(migration)) == ([{scene.source: {"VCPU": 2}}], {})
    assert placement.used(scene.best) == 0


@pytest.mark.parametrize("whose", ["the server's", "the migration's"])
def test_the_end_of_a_failed_move_that_meets_another_writer_fails(
    placement: PrivatePlacement, novas: NovasClient, leaving: tuple[Scene, str], whose: str
) -> None:
    # given a second writer, such as a scheduler whose write comes late
    scene, migration = leaving
    server, theirs = scene.servers[0], {scene.best: {"VCPU": 2}}
    changed, generation = (server, None) if whose == "the server's" else (migration, 1)
    novas.before_write(lambda: placement.take(changed, theirs, generation))
    # when the conductor ends the move
    row = operation("end of a failed move")
    assert (row.sends, row.consumer_conflict) == ("as read", Then.FAILS)
    with pytest.raises(exception.AllocationMoveFailed):
        novas.client.move_allocations(novas.context, migration, server)
    # then all is as the second writer left it
    before = {server: {}, migration: {scene.source: {"VCPU": 2}}}
    assert {name: scene.held(name) for name in (server, migration)} == before | {changed: theirs}


def test_the_end_of_a_failed_move_to_a_source_that_excludes_the_server_fails(
    placement: PrivatePlacement, novas: NovasClient, leaving: tuple[Scene, str]
) -> None:
    scene, migration = leaving
    placement.set(scene.source, "inventories", {"VCPU": {"total": 8, "max_unit": 1}})
    assert operation("end of a failed move").no_capacity is Then.FAILS
    assert not novas.client.move_allocations(novas.context, migration, scene.servers[0])
    assert (scene.all_held(), scene.held(migration)) == ([{}], {scene.source: {"VCPU": 2}})


def test_a_write_of_a_scheduler_that_comes_after_the_end_of_a_failed_move_is_refused(
    placement: PrivatePlacement, driver: PlacementDriver, novas: NovasClient, leaving: tuple[Scene, str]
) -> None:
    scene, migration = leaving
    assert novas.client.move_allocations(novas.context, migration, scene.servers[0])
    outcome = driver.select(scene.request)
    assert isinstance(outcome, Fail) and outcome.code is FailureCode.CONSUMER_CONFLICT
    assert scene.all_held() == [{scene.source: {"VCPU": 2}}]


@pytest.mark.parametrize("name", ["start of a move", "end of a failed move"])
def test_a_race_for_the_source_of_a_move_is_tried_again(
    novas: NovasClient, at_home: tuple[Scene, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "random", SimpleNamespace(uniform=lambda *_: 0.0))  # its pauses
    # given a Placement that has lost a race for the source, as with ``allocation_conflict_retry_count`` 1
    scene, migration = at_home
    consumers = (scene.servers[0], migration)
    if name == "end of a failed move":
        assert novas.client.move_allocations(novas.context, *consumers)
        consumers = consumers[::-1]
    novas.lose_races(1)
    # then Nova's client reads and writes once more
    assert operation(name).provider_conflict is Then.AGAIN
    assert novas.client.move_allocations(novas.context, *consumers)
    assert (scene.held(consumers[0]), scene.held(consumers[1])) == ({}, {scene.source: {"VCPU": 2}})
    # and gives up after four times
    novas.lose_races(4)
    assert not novas.client.move_allocations(novas.context, *consumers[::-1])


def test_a_shelve_offload_deletes_all_allocations(
    placement: PrivatePlacement, novas: NovasClient, migrated: tuple[Scene, str]
) -> None:
    scene, _ = migrated
    placement.take(scene.servers[0], {scene.other: {"VCPU": 3}}, 1)
    assert operation("shelve-offload").sends == "none"
    assert novas.client.delete_allocation_for_instance(novas.context, scene.servers[0], force=True)
    assert scene.all_held() == [{}]


# -- deletes -------------------------------------------------------------------------------------


@pytest.fixture
def built(placement: PrivatePlacement, driver: PlacementDriver) -> Scene:
    """A server was built on the best host."""
    scene = begin(placement, driver, operation("build"))
    assert chosen(driver.select(scene.request)) == [scene.best]
    return scene


@pytest.mark.parametrize("name", ["delete", "forced delete", "local delete", "delete in a build"])
def test_a_delete_of_nova_deletes_what_another_writer_wrote_too(
    placement: PrivatePlacement, novas: NovasClient, built: Scene, name: str
) -> None:
    placement.take(built.servers[0], {built.best: {"VCPU": 2}, built.other: {"VCPU": 1}}, 1)
    assert operation(name).sends == "none"
    assert novas.client.delete_allocation_for_instance(novas.context, built.servers[0], force=True)
    assert built.all_held() == [{}]


def test_a_reclaiming_delete_that_meets_another_writer_fails(
    placement: PrivatePlacement, novas: NovasClient, built: Scene
) -> None:
    theirs = {built.best: {"VCPU": 1}}
    novas.before_write(lambda: placement.take(built.servers[0], theirs, 1))
    row = operation("delete, reclaimed")
    assert (row.sends, row.consumer_conflict) == ("as read", Then.FAILS)
    with pytest.raises(exception.AllocationDeleteFailed):
        novas.client.delete_allocation_for_instance(novas.context, built.servers[0], force=False)
    assert built.all_held() == [theirs]


def test_a_server_that_is_deleted_in_its_build_leaves_nothing(
    placement: PrivatePlacement, driver: PlacementDriver, novas: NovasClient
) -> None:
    """nova-api deletes while the scheduler writes; the conductor deletes when it has the answer."""
    for _ in range(ROUNDS_MAX):
        scene = begin(placement, driver, operation("build"))
        path = f"/allocations/{scene.servers[0]}"
        user = threading.Thread(target=placement.transport.call, args=("DELETE", path))
        driver.http.at("PUT", "/allocations/", before(user.start))
        outcome = driver.select(scene.request)
        user.join()
        if isinstance(outcome, Answer):
            novas.client.delete_allocation_for_instance(novas.context, scene.servers[0], force=True)
        assert scene.all_held() == [{}]
        assert (placement.used(scene.best), placement.used(scene.other)) == (0, 0)


class Interrupted:
    """A transport with a second writer, who comes between our read and our write."""

    def __init__(self, transport: Transport, action: Callable[[], None]) -> None:
        self._transport = transport
        self._actions = [action]

    def call(self, method: str, *args: Any, **kwargs: Any) -> Reply:
        if method == "PUT" and self._actions:
            self._actions.pop()()
        return self._transport.call(method, *args, **kwargs)


@pytest.mark.parametrize("amount", [2, 3], ids=["the same amounts", "other amounts"])
def test_a_clean_up_that_meets_another_writer_leaves_what_that_one_wrote(
    placement: PrivatePlacement, built: Scene, amount: int
) -> None:
    server, ours, theirs = built.servers[0], {built.best: {"VCPU": 2}}, {built.best: {"VCPU": amount}}
    transport = Interrupted(placement.transport, lambda: placement.take(server, theirs, 1))
    writer = AllocationWriter(
        PlacementClient(transport), time.monotonic, lambda _: False, random.Random(1), without_nova
    )
    answer = writer.delete(DeleteAllocation("claim", server, ours, "req", {}, float("inf"), 1))
    row = operation("clean-up")
    assert (row.sends, row.consumer_conflict) == ("as made", Then.LEFT_ALONE)
    assert not answer.gone or theirs != ours
    assert built.held(server) == theirs

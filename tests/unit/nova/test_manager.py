# SPDX-License-Identifier: Apache-2.0
"""The whole scheduler behind Nova's Service: called as the conductor calls it, over RPC.

Real Nova objects, databases in SQLite, Placement's own application in this process, oslo.messaging on its
in-process driver.  The hosts have no agents.
"""

from __future__ import annotations

import json
import threading
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import oslo_messaging as messaging
import pytest
from nova import baserpc, context, exception, objects, service
from nova.scheduler import rpcapi
from oslo_utils import timeutils

from shared_scheduler.answers.host_facts import facts
from shared_scheduler.core.effects import Fail, FailureCode
from shared_scheduler.daemon import admin as admin_socket
from shared_scheduler.nova import configuration, errors, running
from shared_scheduler.nova.manager import SharedSchedulerManager
from shared_scheduler.nova.request_spec import make_request
from shared_scheduler.nova.running import REJECTED_MAX
from shared_scheduler.placement.connection import no_reply
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.signing import Signing
from shared_scheduler.records import recorder
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.sync import service_checks, state_sync
from shared_scheduler.sync.read_registry import SOURCES
from shared_scheduler.sync.revalidator import Revalidator
from tests.unit.nova.conftest import NoNodes, admin, flavor, request_spec, user_context
from tests.unit.nova.test_host_state import compute_node
from tests.unit.nova.test_request_filters import add_aggregate, cell1, set_version
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import World

__all__ = ["placement_app", "world"]  # fixtures

WAIT_S = 60.0
MANAGER = "shared_scheduler.nova.manager.SharedSchedulerManager"


class Cloud:
    """Computes, each a service record, a compute node and a provider."""

    def __init__(self, placement: World) -> None:
        self.placement = placement
        self.nodes: dict[str, str] = {}

    def compute(self, host: str, vcpus: int = 4, aggregates: tuple[str, ...] = ()) -> None:
        node = self.placement.provider(
            inventories={
                "VCPU": {"total": vcpus}, "MEMORY_MB": {"total": 65536}, "DISK_GB": {"total": 500},
            },
            traits=("OWNER_NOVA",), aggregates=aggregates,
        )  # fmt: skip
        with context.target_cell(admin(), cell1()) as target:
            record = objects.Service(target, host=host, binary="nova-compute", topic="compute", report_count=1)
            record.create()
            record.last_seen_up = timeutils.utcnow()
            record.save()
            made = compute_node(
                uuid=node,
                host=host,
                hypervisor_hostname=f"{host}.example",
                numa_topology=None,
                pci_device_pools=None,
                stats={},
                vcpus=vcpus,
                vcpus_used=0,
            )
            made._context = target
            made.create()
        set_version(record.id, 74)
        self.nodes[host] = node

    def used(self, host: str) -> int:
        return self.placement.used(self.nodes[host])


@pytest.fixture
def cloud(databases: None, world: World, conf: Any, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.setattr(running, "ReportClientTransport", lambda: world.transport)
    be_patient(conf, monkeypatch)
    return Cloud(world)


def be_patient(conf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine makes nothing late: no compute, no read that a decision waits for, no record and no answer."""
    conf.set_override("service_down_time", 1_000_000)
    monkeypatch.setattr(state_sync, "Revalidator", partial(Revalidator, max_wait_s=WAIT_S))
    monkeypatch.setattr(service_checks, "MAX_WAIT_S", WAIT_S)
    monkeypatch.setattr(recorder, "STOP_WAIT_S", WAIT_S)
    monkeypatch.setattr(admin_socket, "ANSWER_TIMEOUT_S", 3 * WAIT_S)
    monkeypatch.setattr(admin_socket, "CLIENT_TIMEOUT_S", WAIT_S)


@pytest.fixture
def start(cloud: Cloud, conf: Any) -> Iterator[Any]:
    conf.set_override("admin_socket_dir", "", group="shared_scheduler")
    conf.set_override("records_file", "", group="shared_scheduler")
    conf.set_override("recheck_interval_s", 0.0, group="shared_scheduler")
    objects.Service.clear_min_version_cache()
    begun: list[Any] = []

    def begin() -> Any:
        made = service.Service.create(
            host="sched1",
            binary="nova-scheduler",
            topic="scheduler",
            manager=MANAGER,
            periodic_enable=False,
        )
        made.start()
        begun.append(made)
        return made

    yield begin
    for each in begun:
        each.stop()


def ask(spec: Any, uuids: list[str], **more: Any) -> Any:
    return rpcapi.SchedulerAPI().select_destinations(
        user_context(), spec, uuids, return_objects=True, return_alternates=True, **more
    )


def small(**changes: Any) -> Any:
    return request_spec(flavor=flavor(vcpus=2, memory_mb=512, root_gb=1), **changes)


NOT_ENOUGH_HOSTS = "No valid host was found. There are not enough hosts available."


def texts_for_users(error: BaseException) -> str:
    """The message of a fault, after a look at the traceback that Nova stores in the actions of a server."""
    stored = "".join(traceback.format_exception(error))
    for secret in ("a bug after the commit", "RuntimeError", "http://", "EngineBroken", "ConnectFailure"):
        assert secret not in stored
    return str(error).split("\n")[0]


def placement_is_away(method: str, path: str, *_: Any, **__: Any) -> Any:
    return no_reply(f"http://placement.example{path}: ConnectFailure")


def uuids(count: int) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


def test_a_server_gets_a_host_and_its_allocation(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1", 16)
    cloud.compute("cmp2", 4)
    start()
    [server] = uuids(1)

    [[chosen, *alternates]] = ask(small(), [server])

    assert (chosen.service_host, chosen.nodename) == ("cmp1", "cmp1.example")
    assert chosen.cell_uuid == cell1().uuid
    assert chosen.availability_zone == "nova"
    standing = cloud.placement.client.consumer(server)
    asked = json.loads(chosen.allocation_request)
    assert standing.allocations == {provider: part["resources"] for provider, part in asked["allocations"].items()}
    assert [each.service_host for each in alternates] == ["cmp2"]
    assert json.loads(alternates[0].allocation_request)["mappings"] == {"": [cloud.nodes["cmp2"]]}


def test_many_servers_are_all_placed_or_none(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1")
    cloud.compute("cmp2")
    start()

    found = ask(small(), uuids(4))

    assert sorted(each[0].service_host for each in found) == ["cmp1", "cmp1", "cmp2", "cmp2"]
    assert (cloud.used("cmp1"), cloud.used("cmp2")) == (4, 4)

    with pytest.raises(exception.NoValidHost):
        ask(small(), uuids(1))
    assert (cloud.used("cmp1"), cloud.used("cmp2")) == (4, 4)


def test_each_request_is_recorded_when_the_service_has_stopped(
    start: Any, cloud: Cloud, conf: Any, tmp_path: Path
) -> None:
    cloud.compute("cmp1", 2)
    path = tmp_path / "records.jsonl"
    conf.set_override("records_file", str(path), group="shared_scheduler")
    started = start()
    first, second = uuids(2)
    ask(small(), [first])
    with pytest.raises(exception.NoValidHost):
        ask(small(), [second])

    started.stop()

    [placed], [refused] = JsonLines(path).find(first), JsonLines(path).find(second)
    assert (placed["result"], placed["answer"], placed["near"]) == ("placed", [["cmp1"]], [])
    assert refused["result"] in ("no_valid_host", "no_candidates")
    [near] = refused["near"]
    assert (near["host"], near["code"]) == ("cmp1", "no_room:VCPU")
    assert (near["detail"]["asked"], near["detail"]["used"]) == (2, 2)
    assert [one["server"] for one in near["held"]["largest"]] == [first]


def recorded(path: Path, server: str) -> Any:
    [found] = JsonLines(path).find(server)
    return found


def test_a_placed_server_is_recorded_with_the_few_hosts_that_were_rejected(
    start: Any, cloud: Cloud, conf: Any, tmp_path: Path
) -> None:
    cloud.compute("cmp1", 1)
    cloud.compute("cmp2", 2)
    cloud.compute("cmp3", 4)
    path = tmp_path / "records.jsonl"
    conf.set_override("records_file", str(path), group="shared_scheduler")
    started = start()
    servers = uuids(3)
    for server in servers:
        ask(small(), [server])
    started.stop()

    records = [recorded(path, server) for server in servers]

    for record in records:
        counted = sum(record["reasons"].values())
        assert len(record["rejected"]) == counted, "the selected host is none of them, though its room is taken"
        assert all(one["host"] != record["answer"][0][0] for one in record["rejected"])
        assert record["near"] == []
    first = {one["host"]: one["code"] for one in records[0]["rejected"]}
    assert first == {"cmp1": "no_room:VCPU"}
    assert next(facts(records[0], "cmp1")).text.startswith("rejected: no_room:VCPU (asked 2")


def test_a_placed_server_of_a_larger_cloud_is_recorded_without_them(
    start: Any, cloud: Cloud, conf: Any, tmp_path: Path
) -> None:
    for number in range(REJECTED_MAX + 1):
        cloud.compute(f"small{number}", 1)
    cloud.compute("cmp1", 4)
    path = tmp_path / "records.jsonl"
    conf.set_override("records_file", str(path), group="shared_scheduler")
    started = start()
    [server] = uuids(1)
    ask(small(), [server])
    started.stop()

    assert recorded(path, server)["rejected"] == []


def fails(*_: Any) -> Any:
    raise RuntimeError("a bug after the commit")


@pytest.mark.parametrize(
    "place", ["shared_scheduler.records.entries.line",
              "shared_scheduler.nova.notifications.Notifications.end"],
)  # fmt: skip
def test_an_error_after_the_commit_does_not_fail_the_request(
    start: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    cloud.compute("cmp1")
    start()
    monkeypatch.setattr(place, fails)

    [[chosen]] = ask(small(), uuids(1))

    assert chosen.service_host == "cmp1"
    assert cloud.used("cmp1") == 2


def test_an_answer_that_cannot_be_made_is_taken_back(start: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.compute("cmp1")
    started = start()
    monkeypatch.setattr("shared_scheduler.nova.selection.selections", fails)

    with pytest.raises(exception.NoValidHost) as raised:
        ask(small(), uuids(1))

    assert texts_for_users(raised.value) == NOT_ENOUGH_HOSTS
    started.stop()  # ends with every write that was handed over
    assert cloud.used("cmp1") == 0


def test_without_any_candidate_of_placement_the_reason_is_empty_as_novas(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1", vcpus=1)
    start()

    with pytest.raises(exception.NoValidHost) as raised:
        ask(small(), uuids(1))

    assert texts_for_users(raised.value) == "No valid host was found. "


def test_a_candidate_that_a_filter_rejects_gives_novas_reason(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1")
    start()

    with pytest.raises(exception.NoValidHost) as raised:
        ask(small(ignore_hosts=["cmp1"]), uuids(1))

    assert texts_for_users(raised.value) == NOT_ENOUGH_HOSTS


def test_while_placement_does_not_answer_users_read_neither_its_address_nor_a_node(
    start: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, conf: Any
) -> None:
    conf.set_override("request_timeout_s", 2.0, group="shared_scheduler")
    conf.set_override("drain_timeout_s", 1, group="shared_scheduler")  # a stop waits for what cannot be deleted
    cloud.compute("cmp1")
    start()
    monkeypatch.setattr(cloud.placement.transport, "call", placement_is_away)

    with pytest.raises(exception.NoValidHost) as raised:
        ask(small(), uuids(1))

    assert texts_for_users(raised.value) in {NOT_ENOUGH_HOSTS, "No valid host was found. "}


@pytest.mark.parametrize("place", [
    "service.engine.Engine.decide", "service.engine.Engine.handle", "nova.manager.make_request",
    "nova.manager.RequestFilters.__call__", "nova.notifications.Notifications.start",
    "nova.manager.utils.request_is_rebuild",
])  # fmt: skip
def test_users_do_not_read_of_internal_errors(
    start: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    cloud.compute("cmp1")
    start()
    with monkeypatch.context() as broken:
        broken.setattr(f"shared_scheduler.{place}", fails)
        with pytest.raises(exception.NoValidHost) as raised:
            ask(small(), uuids(1))

    assert texts_for_users(raised.value) == NOT_ENOUGH_HOSTS


SERVER = "11111111-1111-4111-8111-111111111111"
#: what Nova's scheduler raises in the same case
NOVAS_TEXT = {
    FailureCode.NO_VALID_HOST: NOT_ENOUGH_HOSTS,
    FailureCode.TIMED_OUT: NOT_ENOUGH_HOSTS,
    FailureCode.DRAINING: NOT_ENOUGH_HOSTS,
    FailureCode.OVERLOADED: NOT_ENOUGH_HOSTS,
    FailureCode.BAD_REQUEST: NOT_ENOUGH_HOSTS,
    FailureCode.NO_TIME: NOT_ENOUGH_HOSTS,
    FailureCode.GROUP_UNSETTLED: NOT_ENOUGH_HOSTS,
    FailureCode.IMAGE_UNREAD: NOT_ENOUGH_HOSTS,
    FailureCode.NO_CANDIDATES: "No valid host was found. ",
    FailureCode.PLACEMENT_UNREACHABLE: "No valid host was found. ",
    FailureCode.CONSUMER_CONFLICT: (
        f"Failed to update allocations for consumer {SERVER}. Error: another process changed the consumer {SERVER} "
        "after the report client read the consumer state during the claim "
    ),
}


@pytest.mark.parametrize("code", FailureCode)
def test_each_failure_reaches_the_caller_with_novas_text(code: FailureCode) -> None:
    # given a failure whose text, for operators, names a node and an address
    request = make_request(user_context(), small(), (SERVER,), 0, NoNodes())
    failure = Fail(request, code, "node cmp1: http://placement.example: ConnectFailure", None)
    # when the caller gets it
    with pytest.raises(exception.NovaException) as raised, errors.internal_errors_hidden():
        raise errors.exception_of(failure)
    # then it reads what Nova's scheduler says
    assert texts_for_users(raised.value) == NOVAS_TEXT[code]


def test_a_request_that_does_not_fit_completely_leaves_nothing(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1")
    start()
    servers = uuids(3)

    with pytest.raises(exception.NoValidHost, match="There are not enough hosts"):
        ask(small(), servers)

    assert cloud.used("cmp1") == 0
    assert all(not cloud.placement.client.consumer(each).allocations for each in servers)


def test_a_rebuild_stays_where_it_is_and_claims_nothing(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1")
    cloud.compute("cmp2")
    start()
    spec = small(
        scheduler_hints={"_nova_check_type": ["rebuild"]},
        force_hosts=["cmp2"],
        force_nodes=["cmp2.example"],
    )

    [[chosen]] = ask(spec, uuids(1))

    assert chosen.service_host == "cmp2"
    assert chosen.allocation_request == "null"
    assert cloud.used("cmp2") == 0


def test_a_target_host_is_kept_to(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1", 32)
    cloud.compute("cmp2")
    start()

    [[chosen]] = ask(small(requested_destination=objects.Destination(host="cmp2", node=None)), uuids(1))

    assert chosen.service_host == "cmp2"
    with pytest.raises(exception.NoValidHost, match="No such host - host: cmp9"):
        ask(small(requested_destination=objects.Destination(host="cmp9", node=None)), uuids(1))


def test_the_number_of_alternates_can_be_asked_for(start: Any, cloud: Cloud) -> None:
    for number in range(5):
        cloud.compute(f"cmp{number}")
    manager = start().manager

    found = manager.select_destinations(
        user_context(),
        spec_obj=small(),
        instance_uuids=uuids(1),
        return_objects=True,
        return_alternates=True,
        num_alternates=4,
    )

    assert len(found[0]) == 5


def test_a_request_is_answered_if_servers_may_be_spread(start: Any, cloud: Cloud, conf: Any) -> None:
    cloud.compute("cmp1", 32)
    conf.set_override("spread_keys", ["rack"], group="shared_scheduler")
    conf.set_override("request_timeout_s", 30, group="shared_scheduler")
    start()

    [[chosen, *_]] = ask(small(), uuids(1))

    assert chosen.service_host == "cmp1"
    with pytest.raises(exception.NoValidHost):
        ask(request_spec(flavor=flavor(vcpus=1000)), uuids(1))


@pytest.mark.parametrize("number", [-1, 101])
def test_an_absurd_number_of_alternates_is_refused(number: int, start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1")
    manager = start().manager

    with pytest.raises(messaging.ExpectedException) as refused:
        manager.select_destinations(
            user_context(),
            spec_obj=small(),
            instance_uuids=uuids(1),
            return_objects=True,
            return_alternates=True,
            num_alternates=number,
        )

    assert isinstance(refused.value.exc_info[1], exception.NoValidHost)
    assert cloud.used("cmp1") == 0


def test_a_flavor_and_the_deployment_set_the_number_of_alternates(start: Any, cloud: Cloud, conf: Any) -> None:
    for number in range(6):
        cloud.compute(f"cmp{number}", 32)
    start()
    four = flavor(vcpus=2, memory_mb=512, root_gb=1, extra_specs={"shared_scheduler:alternates": "4"})
    nonsense = flavor(vcpus=2, memory_mb=512, root_gb=1, extra_specs={"shared_scheduler:alternates": "-1"})

    assert [len(each) for each in ask(small(), uuids(1))] == [3], "Nova's max_attempts"
    assert [len(each) for each in ask(request_spec(flavor=four), uuids(1))] == [5]
    assert [len(each) for each in ask(request_spec(flavor=four, num_instances=2), uuids(2))] == [1, 1]
    with pytest.raises(exception.NoValidHost):
        ask(request_spec(flavor=nonsense), uuids(1))

    conf.set_override("alternates", 1, group="shared_scheduler")
    assert [len(each) for each in ask(small(), uuids(1))] == [2]
    assert [len(each) for each in ask(small(num_instances=2), uuids(2))] == [1, 1]
    assert [len(each) for each in ask(request_spec(flavor=four), uuids(1))] == [5]


def test_old_conductors_get_dicts_and_no_claim(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1")
    manager = start().manager

    [answer] = manager.select_destinations(user_context(), spec_obj=small())

    assert (answer["host"], answer["nodename"]) == ("cmp1", "cmp1.example")
    assert cloud.used("cmp1") == 0


def test_a_cast_of_an_aggregate_counts_at_once(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1", 32)
    made = add_aggregate("zone", "cmp2", availability_zone="zone-b")
    cloud.compute("cmp2", aggregates=(made.uuid,))
    running_service = start()
    gone = add_aggregate("elsewhere", availability_zone="zone-c")

    rpcapi.SchedulerAPI().update_aggregates(admin(), [gone])
    [[chosen, *_]] = ask(small(availability_zone="zone-b"), uuids(1))

    assert (chosen.service_host, chosen.availability_zone) == ("cmp2", "zone-b")
    with pytest.raises(exception.NoValidHost):
        ask(small(availability_zone="zone-c"), uuids(1))
    assert made.id in running_service.manager.host_manager.aggs_by_id


def test_a_new_compute_is_found_without_a_message(start: Any, cloud: Cloud) -> None:
    start()
    cloud.compute("late")

    [[chosen]] = ask(small(), uuids(1))

    assert chosen.service_host == "late"


def test_the_service_record_and_the_ping_are_nova_schedulers(start: Any, cloud: Cloud) -> None:
    start()

    record = objects.Service.get_by_host_and_binary(admin(), "sched1", "nova-scheduler")

    assert (record.topic, record.version) == ("scheduler", 74)
    pinged = baserpc.BaseAPI(topic="scheduler").ping(admin(), "hello")
    assert pinged == {"service": "scheduler", "arg": "hello"}


def test_a_reload_keeps_the_table(start: Any, cloud: Cloud, conf: Any) -> None:
    cloud.compute("cmp1")
    running_service = start()
    ask(small(), uuids(1))
    conf.set_override("enabled_filters", ["ComputeFilter"], group="filter_scheduler")

    running_service.reset()

    assert [type(each).__name__ for each in running_service.manager.host_manager.enabled_filters] == ["ComputeFilter"]
    assert ask(small(), uuids(1))[0][0].service_host == "cmp1"
    with pytest.raises(exception.NoValidHost):
        ask(small(), uuids(1))


def test_an_aggregate_that_changes_during_a_reload_stays_changed(
    start: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a reload that takes some time, because it waits for the reads of a cell that was removed
    made = add_aggregate("zone", "cmp1", availability_zone="zone-b")
    cloud.compute("cmp1", aggregates=(made.uuid,))
    manager = start().manager
    use = manager._running._sync.use

    def use_slowly(cells: Any) -> None:
        use(cells)
        made.update_metadata({"availability_zone": "zone-c"})
        manager.update_aggregates(admin(), [made])

    # when nova-api changes an aggregate meanwhile
    monkeypatch.setattr(manager._running._sync, "use", use_slowly)
    manager.reset()

    # then it stays changed
    zones = [one.metadata["availability_zone"] for one in manager._running.core.table.aggregates.all()]
    assert zones == ["zone-c"]
    assert ask(small(availability_zone="zone-c"), uuids(1))[0][0].service_host == "cmp1"


def test_a_reload_that_cannot_read_the_keys_changes_nothing(start: Any, cloud: Cloud, conf: Any) -> None:
    cloud.compute("cmp1")
    started = start()
    running_one = started.manager._running
    filters = list(running_one._host_manager.enabled_filters)
    conf.set_override("enabled_filters", ["ComputeFilter"], group="filter_scheduler")
    conf.set_override("signing", "enforce", group="shared_scheduler")
    conf.set_override("signing_keys_file", "/no/such/keys", group="shared_scheduler")

    with pytest.raises(KeyringError):
        started.reset()

    assert running_one._host_manager.enabled_filters == filters
    assert running_one.channels.signer.mode is Signing.OFF


def test_a_deleted_cell_is_left_at_a_reload(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1")
    started = start()
    cell1().destroy()

    started.reset()

    with pytest.raises(exception.NoValidHost):
        ask(small(), uuids(1))
    assert len(started.manager._running.core.table) == 0


def test_an_unknown_filter_refuses_the_start(cloud: Cloud, conf: Any) -> None:
    conf.set_override("enabled_filters", ["NoSuchFilter"], group="filter_scheduler")

    with pytest.raises(exception.SchedulerHostFilterNotFound, match="NoSuchFilter"):
        SharedSchedulerManager()


def test_when_it_stops_every_thread_of_ours_ends(start: Any, cloud: Cloud) -> None:
    before = set(threading.enumerate())
    cloud.compute("cmp1")
    running_service = start()
    ask(small(), uuids(1))

    running_service.stop()

    left = {each.name for each in set(threading.enumerate()) - before if not each.daemon}
    assert not [name for name in left if "engine" in name or "placement" in name]
    assert running_service.manager._running is None


def test_no_read_outlives_the_stop_of_a_service_that_does_not_wait_for_its_manager(
    start: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a scheduler whose polls are quick, in Nova's tests: there a Service does not wait for graceful_shutdown
    quick = [replace(each, poll_s=each.poll_s and 0.01) for each in SOURCES]
    monkeypatch.setattr(configuration, "sources", lambda: quick)
    scheduler, shutting_down, may_go_on = start(), threading.Event(), threading.Event()
    graceful_shutdown = scheduler.manager.graceful_shutdown

    def slow(timeout: float) -> None:
        shutting_down.set()
        assert may_go_on.wait(WAIT_S)
        graceful_shutdown(timeout)

    monkeypatch.setattr(scheduler.manager, "graceful_shutdown", slow)
    monkeypatch.setattr(scheduler, "_get_manager_shutdown_timeout", lambda: 0)

    scheduler.stop()

    # then nobody reads, although the manager is still busy; questions are for requests under way
    assert shutting_down.wait(WAIT_S)
    readers = {each.name for each in threading.enumerate() if each.name.startswith("read-")}
    assert {each for each in readers if not each.startswith(("read-questions-", "read-fitting-"))} == set()
    may_go_on.set()


def test_while_it_stops_periodic_tasks_are_passed_over(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, discovered = start().manager, list[Any]()
    monkeypatch.setattr(manager._discovery, "discover", discovered.append)
    manager._shutdown_in_progress.set()
    # the loop that calls this sleeps for as long as it is told
    assert manager.periodic_tasks(None) > 0
    assert discovered == []


def test_a_read_of_a_cell_leaves_the_context_of_others_alone(
    start: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a nova-compute that starts in this process, in another cell: in Nova's tests its context is everybody's
    scheduler = start().manager._running
    others = admin()
    monkeypatch.setattr(context, "get_admin_context", lambda *_: others)

    own = scheduler._cell_context(cell1().uuid)

    assert own.cell_uuid == cell1().uuid
    assert others.cell_uuid is None


def test_a_restarted_scheduler_knows_the_allocations_of_the_first(start: Any, cloud: Cloud) -> None:
    cloud.compute("cmp1")
    first = start()
    ask(small(), uuids(2))
    first.stop()

    start()

    with pytest.raises(exception.NoValidHost):
        ask(small(), uuids(1))


def test_a_site_plugin_sees_host_states(start: Any, cloud: Cloud, conf: Any) -> None:
    conf.set_override(
        "available_filters",
        ["nova.scheduler.filters.all_filters", f"{__name__}.OnlyExample2"],
        group="filter_scheduler",
    )
    conf.set_override("enabled_filters", ["OnlyExample2"], group="filter_scheduler")
    conf.set_override("weight_classes", [f"{__name__}.ByName"], group="filter_scheduler")
    for number in range(4):
        cloud.compute(f"cmp{number}")
    start()

    [[chosen, *alternates]] = ask(small(), uuids(1))

    assert [chosen.service_host, *(each.service_host for each in alternates)] == ["cmp3", "cmp2"]


from nova.scheduler import filters, weights  # noqa: E402


class OnlyExample2(filters.BaseHostFilter):
    """Lets pass whose number is two or more."""

    def host_passes(self, host_state: Any, spec: Any) -> bool:
        return int(host_state.nodename[3]) >= 2 and host_state.free_ram_mb > spec.memory_mb


class ByName(weights.BaseHostWeigher):
    """The last one is the best."""

    def _weigh_object(self, host_state: Any, weight_properties: Any) -> float:
        return float(host_state.host[3])

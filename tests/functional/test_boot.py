# SPDX-License-Identifier: Apache-2.0
"""A server's way through a real cloud that is scheduled by us."""

from __future__ import annotations

import json

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud import host_tables
from tools.laboratory.cloud.access_log import Request
from tools.laboratory.cloud.cloud import Cloud

#: In a second, each with the time that its answers take: a machine that delays the schedulers delays these too.
LOOKS_MAX = 10
#: It may delay an agent alone: the best of so many deletes has to be in time.
DELETES_MAX = 4


@pytest.fixture(scope="module", autouse=True)
def scheduled_by_us(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=2)


def test_a_server_becomes_active_where_we_chose_and_placement_knew_before_the_build(
    cloud: Cloud,
) -> None:
    placement_at = cloud.requests_size("placement")
    decided_before = cloud_state.counter(cloud, "requests_answered")

    [server] = cloud.boot(1)
    host = cloud.wait_active([server])[server]

    assert cloud_state.counter(cloud, "requests_answered") == decided_before + 1
    assert cloud.allocations(server) == {host: {"VCPU": 1, "MEMORY_MB": 400, "DISK_GB": 1}}
    # the first thing that nova-compute does about a build is to read the server's allocation
    path = f"/allocations/{server}"

    def build_reads() -> list[Request]:
        calls = cloud.requests("placement", placement_at)
        return [call for call in calls if (call.method, call.path) == ("GET", path) and "nova-compute" in call.agent]

    cloud.wait(lambda: bool(build_reads()), "nova-compute's read to be in Placement's log")
    calls, build_read = cloud.requests("placement", placement_at), build_reads()[0]
    assert [call for call in calls if call.path == "/allocation_candidates"] == []
    written_at_s = min(call.ended_at_s for call in calls if call.writes_allocations())
    assert written_at_s <= build_read.began_at_s
    assert build_read.size_bytes > len('{"allocations": {}}')
    cloud_state.assert_consistent(cloud)


def test_deleting_a_server_frees_the_node_in_every_scheduler_within_a_second(cloud: Cloud) -> None:
    looks = [looks_until_freed_everywhere(cloud)]
    while min(looks) > LOOKS_MAX and len(looks) < DELETES_MAX:
        looks.append(looks_until_freed_everywhere(cloud))

    assert min(looks) <= LOOKS_MAX, looks


def looks_until_freed_everywhere(cloud: Cloud) -> int:
    """Boot and delete a server.  Returns how often the tables are read until all have freed what Placement has freed.

    The reads are a tenth of a second apart.
    """
    [server] = cloud.boot(1)
    host = cloud.wait_active([server])[server]
    held = {name: table[host]["used"]["MEMORY_MB"] for name, table in cloud_state.tables(cloud).items()}
    assert all(amount >= 400 for amount in held.values())

    cloud.delete([server], wait=False)
    cloud.wait(lambda: not cloud.allocations(server), "Placement to have freed it")
    looks = 0

    def freed_everywhere() -> bool:
        nonlocal looks
        looks += 1
        return all(
            table[host]["used"].get("MEMORY_MB", 0) == held[name] - 400
            for name, table in cloud_state.tables(cloud).items()
        )

    cloud.wait(freed_everywhere, "the node to be freed in every scheduler")
    return looks


def test_a_build_that_the_compute_gives_back_goes_to_an_alternate(cloud: Cloud) -> None:
    # given a compute that is the best of all by free memory, and gives every build back
    cloud_state.begin(cloud, compute_slots=(9, 3, 3), hardware_of={"c1": {"refuses_builds": "no room"}})
    cloud_state.wait_most_free(cloud, "c1")
    forget_failed_builds(cloud, "c1")

    server, answered = cloud_state.boot_undisturbed(cloud)
    host = cloud.wait_active([server])[server]

    # then the conductor took it to an alternate that we had named, without asking again
    assert host in {"c2", "c3"}
    assert answered == 1
    attempts = cloud.sql(
        "nova_cell1",
        "SELECT e.host FROM instance_actions_events e JOIN instance_actions a ON a.id = e.action_id"
        " WHERE a.instance_uuid = %s AND e.event = 'compute__do_build_and_run_instance' ORDER BY e.id",
        [server],
    )
    assert attempts == [("c1",), (host,)]
    assert list(cloud.allocations(server)) == [host]
    cloud_state.assert_consistent(cloud)


def forget_failed_builds(cloud: Cloud, host: str) -> None:
    """In a cloud that was kept, an earlier run of the test may have left some, which weigh against a host."""
    rows = [row for table in host_tables.rows(cloud, "tables") for row in table if row["host"] == host]
    if any(row["leaves"].get("stats.failed_builds") for row in rows):
        cloud.restart(host)
        cloud_state.wait_fresh(cloud, set(cloud.hosts()))


def test_many_in_one_request_are_all_or_nothing(cloud: Cloud) -> None:
    # room for six; seven in one request end with none, and nothing is left behind
    cloud_state.begin(cloud, schedulers=2, compute_slots=(2,))
    boot_in_one_request(cloud, 7)
    cloud.wait(lambda: count_of(cloud, "ERROR") == 7, "seven servers in ERROR")
    cloud.wait(lambda: cloud.usages() == {}, "nothing to be left behind")
    cloud_state.assert_consistent(cloud)
    cloud.reset()

    boot_in_one_request(cloud, 6)
    cloud.wait(lambda: count_of(cloud, "ACTIVE") == 6, "six servers to be ACTIVE")
    assert {host: used["MEMORY_MB"] for host, used in cloud.usages().items()} == {"c1": 800, "c2": 800, "c3": 800}
    cloud_state.assert_consistent(cloud)
    assert_one_more_is_told_why(cloud)


def boot_in_one_request(cloud: Cloud, count: int) -> None:
    """Ask for all of them or none."""
    server = {
        "name": "gang", "imageRef": cloud.image_id(), "flavorRef": cloud.flavor_id("m400"), "networks": "none",
        "min_count": count, "max_count": count,
    }  # fmt: skip
    cloud.compute("POST", "/servers", {"server": server}).expect(202)


def count_of(cloud: Cloud, status: str) -> int:
    return sum(row["status"] == status for row in cloud.servers())


def assert_one_more_is_told_why(cloud: Cloud) -> None:
    """An operator asks with the uuid of the server that his user complains of."""
    [server] = cloud.boot(1)
    assert cloud.wait_built([server])[server]["status"] == "ERROR"

    done = cloud_state.manage(cloud, "why-now", server, "--host", "c2", "--format", "json")

    assert done.returncode == 0, done.stdout + done.stderr
    [story] = json.loads(done.stdout)
    assert story["result"] == "no_candidates"
    assert story["decisions"][-1]["survivors"] == 0
    [host] = story["now"]
    assert (host["host"], host["code"]) == ("c2", "no_room:MEMORY_MB")
    assert (host["detail"]["asked"], host["detail"]["used"]) == (400, 800)

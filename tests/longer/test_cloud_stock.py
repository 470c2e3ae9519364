# SPDX-License-Identifier: Apache-2.0
"""The real cloud with nova-scheduler, on which every other functional test relies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.laboratory import ROOT
from tools.laboratory.cloud.bursts import burst, capacity_for
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.ports import is_free
from tools.laboratory.cloud.provisioning import Flavor
from tools.laboratory.errors import LabError
from tools.laboratory.processes.table import ProcessTable

PLAIN: dict[str, object] = {
    "scheduler": "nova", "schedulers": 1, "computes": 3, "agents": "none", "cells": 1, "compute_slots": (3,),
    "compute_ram_mb": (), "numa_cells": 0, "gpus": 0, "vfs": 0, "hardware_of": {}, "nova_options": {},
}  # fmt: skip


@pytest.fixture(autouse=True)
def plain(cloud: Cloud) -> None:
    cloud.reset()
    cloud.up(**PLAIN)
    cloud.reset()


def boot_one_by_one(cloud: Cloud, count: int) -> dict[str, str]:
    """Server to host. Requests that race make stock Nova put more on a host than fits."""
    hosts: dict[str, str] = {}
    for _ in range(count):
        hosts |= cloud.wait_active(cloud.boot(1))
    return hosts


def test_servers_boot_hold_their_resources_and_free_them(cloud: Cloud) -> None:
    hosts = boot_one_by_one(cloud, 9)
    servers = list(hosts)

    assert sorted(hosts.values()) == ["c1"] * 3 + ["c2"] * 3 + ["c3"] * 3
    held = {"VCPU": 1, "MEMORY_MB": 400, "DISK_GB": 1}
    assert {server: cloud.allocations(server) for server in servers} == {s: {h: held} for s, h in hosts.items()}
    assert cloud.usages() == {host: {"VCPU": 3, "MEMORY_MB": 1200, "DISK_GB": 3} for host in ("c1", "c2", "c3")}

    cloud.delete(servers)
    cloud.wait(lambda: cloud.usages() == {}, "everything to be given back")


def test_the_tenth_server_fails_with_no_valid_host(cloud: Cloud) -> None:
    boot_one_by_one(cloud, 9)

    with pytest.raises(LabError, match="No valid host"):
        cloud.wait_active(cloud.boot(1))


def test_the_same_again_starts_nothing(cloud: Cloud) -> None:
    assert cloud.up() == []
    assert cloud.up(**PLAIN) == []


def test_other_numbers_add_and_remove(cloud: Cloud) -> None:
    assert sorted(cloud.up(schedulers=2, computes=4)) == ["c4", "sched2"]
    assert set(cloud.providers()) == {"c1", "c2", "c3", "c4"}

    assert cloud.up(schedulers=1, computes=2) == []
    assert not cloud.alive("sched2")
    assert set(cloud.providers()) == {"c1", "c2"}
    assert {row["host"] for row in cloud.services("nova-compute")} == {"c1", "c2"}

    # and what was removed comes back as a new node
    assert cloud.up(computes=3) == ["c3"]
    assert sorted(boot_one_by_one(cloud, 9).values()) == ["c1"] * 3 + ["c2"] * 3 + ["c3"] * 3


def test_a_compute_that_has_servers_is_not_removed(cloud: Cloud) -> None:
    boot_one_by_one(cloud, 9)

    with pytest.raises(LabError, match=r"c3 still has 3 servers"):
        cloud.up(computes=2)

    assert cloud.alive("c3")
    assert cloud.settings.computes == 3


def test_a_killed_compute_returns_as_the_same_node(cloud: Cloud) -> None:
    node = cloud.providers()["c1"]
    old = cloud.pid("c1")

    cloud.kill("c1")
    assert not cloud.alive("c1")
    assert cloud.start("c1") == ["c1"]

    assert cloud.pid("c1") != old
    assert cloud.providers()["c1"] == node
    assert sorted(boot_one_by_one(cloud, 9).values()).count("c1") == 3


def test_a_killed_scheduler_is_missed_until_it_is_started(cloud: Cloud) -> None:
    cloud.kill("sched1")
    [server] = cloud.boot(1)
    cloud.wait(lambda: not cloud.consumers("scheduler.sched1"), "the broker to notice")
    assert cloud.server(server)["status"] == "BUILD"

    cloud.start("sched1")

    # the conductor's request waited in the queue
    assert list(cloud.wait_active([server])) == [server]


def test_a_disabled_host_is_not_chosen(cloud: Cloud) -> None:
    cloud.disable("c2")
    assert set(boot_one_by_one(cloud, 6).values()) == {"c1", "c3"}

    cloud.enable("c2")
    assert set(boot_one_by_one(cloud, 3).values()) == {"c2"}


def test_a_burst_is_counted(cloud: Cloud) -> None:
    cloud.up(compute_slots=(4, 3, 2))
    assert capacity_for(cloud, "m400") == {"c1": 4, "c2": 3, "c3": 2}

    report = burst(cloud, count=9, group=9, freeze_conductor=True)

    # stock Nova puts them all somewhere, and sometimes one too many on a host: that is counted, not judged
    assert report.states == {"ACTIVE": 9}
    assert sum(report.per_host.values()) == 9
    assert report.over == sum(max(0, n - report.capacity[host]) for host, n in report.per_host.items())
    assert report.candidates == 9 and report.puts_204 == 9
    assert cloud.servers() == []


def test_the_burst_of_seed_001_is_counted(cloud: Cloud) -> None:
    """No verdict about stock Nova: its figures, to be read beside ours (``tests/functional/test_seeds.py``)."""
    cloud.up(compute_slots=(11, 10, 10))

    report = burst(cloud, count=31, group=31, freeze_conductor=True)

    print(f"seed 001, stock: {report.over} servers beyond capacity, {report.puts_409} conflicts: {report}")
    assert report.count == 31


def test_pinned_servers_and_devices_on_numa_computes(cloud: Cloud) -> None:
    numa: dict[str, object] = {"memory_mb": 4000, "numa_cells": 2, "cpus_per_cell": 1, "pcpus_per_cell": 2}
    numa |= {"pages": {"2048": 100}, "gpus": 1, "vfs": 2}
    cloud.up(hardware_of={"c2": numa})
    cloud.add_flavor(Flavor("huge", ram_mb=64, extra={"hw:mem_page_size": "2048"}))
    cloud.reset()

    pinned = cloud.wait_active(cloud.boot(2, "pinned"))

    assert set(pinned.values()) == {"c2"}
    assert cloud.usages()["c2"]["PCPU"] == 2
    [[topology]] = cloud.sql("nova_cell1", "SELECT numa_topology FROM compute_nodes WHERE host = 'c2' AND deleted = 0")
    cells = [cell["nova_object.data"] for cell in json.loads(topology)["nova_object.data"]["cells"]]
    assert sum(len(cell["pinned_cpus"]) for cell in cells) == 2
    assert [cell["pcpuset"] for cell in cells] == [[1, 2], [4, 5]]
    for flavor in ("gpu", "huge"):
        assert set(cloud.wait_active(cloud.boot(1, flavor)).values()) == {"c2"}
    # one GPU was all there is
    with pytest.raises(LabError, match="No valid host"):
        cloud.wait_active(cloud.boot(1, "gpu"))


def test_two_cells_share_one_scheduler(cloud: Cloud) -> None:
    with pytest.raises(LabError, match="can only change while there are no computes"):
        cloud.up(cells=2)
    cloud.up(computes=0)
    try:
        cloud.up(cells=2, computes=3)

        hosts = boot_one_by_one(cloud, 9)

        assert sorted(hosts.values()) == ["c1"] * 3 + ["c2"] * 3 + ["c3"] * 3
        assert {row[0] for row in cloud.sql("nova_cell2", "SELECT host FROM instances WHERE deleted = 0")} == {"c2"}
    finally:
        cloud.reset()
        cloud.up(computes=0)


def test_an_up_that_was_killed_leaves_nothing_that_down_does_not_find(tmp_path: Path) -> None:
    own = Cloud(tmp_path / "own")
    command = [sys.executable, str(ROOT / "tools" / "cloud"), "up", "--data", str(own.layout.data),
               "--schedulers", "0", "--computes", "0"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tool:
        assert tool.stderr is not None
        # two services are there, the others are on their way
        assert "ready" in tool.stderr.readline() and "ready" in tool.stderr.readline()
        tool.kill()

    own = Cloud(own.layout.data)
    processes = ProcessTable(own.layout.run, own.layout.mark)
    assert processes.strays() != []
    own.down()

    assert processes.strays() == []
    assert all(is_free(port) for port in own.layout.ports.values())


def test_down_ends_all_and_up_finds_everything_again(cloud: Cloud) -> None:
    [server] = cloud.boot(1)
    host = cloud.wait_active([server])[server]
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            print(f"killed, because they did not end in time: {cloud.down()}")  # a busy machine may be too slow
            assert [row["name"] for row in cloud.status() if row["state"] == "up"] == []
            assert stranger.poll() is None
        finally:
            stranger.terminate()

    cloud.up()

    assert cloud.server(server)["host"] == host
    assert cloud.usages()[host]["MEMORY_MB"] == 400
    assert len(cloud.wait_active(cloud.boot(2))) == 2

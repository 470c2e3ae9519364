# SPDX-License-Identifier: Apache-2.0
"""The calls that Nova's own unit tests make of its filters and weighers, made of ours.

``record_vectors.py`` runs those tests (as shipped in the nova package) in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.filters import NATIVE_FILTERS
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Flavor, Group, Request
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.model.topology import numa_leaves, pool_leaves
from shared_scheduler.protocol.messages import Consumer
from shared_scheduler.table.host_table import HostTable
from tests.unit.decision.small_clouds import small_request

ROOT = Path(__file__).resolve().parents[2]
#: fewer rows than this, and the recording is broken
ROWS_MIN = 230

LEAF_OF = {
    "total_usable_ram_mb": "cn.memory_mb",
    "free_ram_mb": "cn.free_ram_mb",
    "total_usable_disk_gb": "cn.local_gb",
    "vcpus_total": "cn.vcpus",
    "vcpus_used": "cn.vcpus_used",
    "cpu_allocation_ratio": "cn.cpu_allocation_ratio",
    "ram_allocation_ratio": "cn.ram_allocation_ratio",
    "host_ip": "cn.host_ip",
    "hypervisor_type": "cn.hypervisor_type",
    "hypervisor_version": "cn.hypervisor_version",
    "cpu_info": "cn.cpu_info",
    "supported_instances": "cn.supported_hv_specs",
    "num_instances": "stats.num_instances",
    "num_io_ops": "stats.io_workload",
    "failed_builds": "stats.failed_builds",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("vectors") / "rows.json"
    command = [sys.executable, "-W", "ignore", "-m", "tests.oracle.record_vectors", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def table_of(hosts: list[dict[str, Any]]) -> HostTable:
    table = HostTable()
    aggregates = []
    for number, facts in enumerate(hosts):
        node, host = f"node-{number}", facts["host"]
        service = facts["service"]
        table.set_service(
            ServiceFacts(
                host, bool(service.get("disabled")), bool(service.get("forced_down")),
                facts.get("up", True),
            )
        )  # fmt: skip
        table.upsert(node, facts["cell_uuid"] or "cell", host, facts["nodename"])
        members = {uuid: Consumer({}, True) for uuid in facts["instances"]}
        table.load(node, leaves_of(facts), members)
        for metadata in facts["aggregates"]:
            key = len(aggregates) + 1
            aggregates.append(AggregateFacts(key, str(key), "", frozenset({host}), metadata))
    table.set_aggregates(aggregates)
    return table


def leaves_of(facts: dict[str, Any]) -> dict[str, Any]:
    leaves = {leaf: facts[name] for name, leaf in LEAF_OF.items()}
    leaves |= {f"stats.{key}": value for key, value in facts["stats"].items() if value is not None}
    disk_mb = facts["free_disk_mb"] or 0
    leaves["cn.free_disk_gb"] = disk_mb / 1024 if disk_mb % 1024 else disk_mb // 1024
    if facts["metrics"] is not None:
        # the recorded values are read ones; percents are written as parts of 1
        leaves["cn.metrics"] = json.dumps(facts["metrics"])
    if facts["pools"] is not None:
        leaves |= pool_leaves(facts["pools"])
    if facts["numa"]:
        leaves |= numa_leaves(json.dumps(facts["numa"]))
    return leaves


def request_of(asked: dict[str, Any]) -> Request:
    group = asked.get("group")
    return replace(
        small_request(forms=()),
        project_id=asked.get("project_id", ""),
        instance_uuids=(asked.get("instance_uuid", ""),),
        flavor=Flavor(asked.get("flavor", ""), extra_specs=asked.get("extra_specs", {})),
        image_id=asked.get("image_id", ""),
        image_properties=asked.get("image", {}),
        hints={
            key: (value,) if isinstance(value, str) else tuple(value)
            for key, value in asked.get("scheduler_hints", {}).items()
            if value is not None
        },
        group=group
        and Group("g", group["policy"], frozenset(group["members"]), frozenset(group["hosts"]),
                  group["most"]),
        preferred_cell=asked.get("preferred_cell"),
        has_numa="numa" in asked,
        has_pci=bool(asked.get("pci")),
        topology=json.dumps({"numa": asked.get("numa"), "pci": asked.get("pci", [])}),
    )  # fmt: skip


def settings_of(row: dict[str, Any]) -> DecisionSettings:
    values = dict(row["options"])
    for name in ("isolated_images", "isolated_hosts"):
        values[name] = frozenset(values[name])
    for name in ("image_props_weight_setting", "metrics_weight_setting"):
        values[name] = tuple((key, ratio) for key, ratio in values[name])
    values["enabled_filters"] = (row["name"],) if row["kind"] == "filter" else ()
    values["weighers"] = (row["name"],) if row["kind"] == "weigher" else ()
    return DecisionSettings(**values)


def difference(row: dict[str, Any]) -> str:
    """Empty if ours is Nova's answer."""
    table = table_of(row["hosts"])
    try:
        decision = Decider(table, settings_of(row)).decide(request_of(row["request"]))
    except DecisionError as error:
        return f"refused: {error}"
    if row["kind"] == "filter":
        passes = decision.survivors == 1
        screened = NATIVE_FILTERS[row["name"]].screens and passes
        return "" if passes == row["answer"] or screened else f"we say {passes}"
    names = {f"node-{n}": [one["host"], one["nodename"]] for n, one in enumerate(row["hosts"])}
    weights = decision.weights()
    ours = [[*names[node], weights[node]] for node in decision.nodes()]
    return "" if ours == row["answer"] else f"we say {ours}"


def test_ours_answer_novas_unit_tests_as_novas_do(recorded):
    rows = recorded["rows"]
    assert len(rows) >= ROWS_MIN, recorded["left_out"]
    found = [(row, difference(row)) for row in rows]
    differing = [f"{row['name']}: {said}\n{row}" for row, said in found if said]
    counts = Counter(row["name"] for row in rows)
    print(f"{len(rows)} rows, {dict(counts)}; left out: {recorded['left_out']}")
    assert not differing, "\n\n".join(differing)

# SPDX-License-Identifier: Apache-2.0
"""What an idle agent has in memory: neither Nova's objects nor its configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nova.conf
import pytest
from oslo_config import cfg

from compute_agent.sources import novas_options
from shared_scheduler.novalib.topology_later import TopologyFitLater, needs_topology
from shared_scheduler.protocol.messages import Reason

#: of Nova, only what selects native threads
ALLOWED = {"nova", "nova.monkey_patch"}
#: anonymous memory after the imports; the pages of libraries are shared with nova-compute
ANONYMOUS_MAX_MB = 40.0

SCRIPT = """
import json, sys
from compute_agent.cmd import agent
from shared_scheduler.novalib.threading_backend import choose_threads
choose_threads()
from compute_agent.service.process import AgentProcess
from compute_agent.sources import nova_conf
rollup = open("/proc/self/smaps_rollup").read()
[size] = [line.split()[1] for line in rollup.splitlines() if line.startswith("Anonymous:")]
print(json.dumps({"modules": sorted(sys.modules), "anonymous_mb": int(size) / 1024}))
"""


@pytest.fixture(scope="module")
def idle() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_agent_starts_without_novas_objects_databases_and_numbers(idle: dict[str, Any]) -> None:
    tops = {name.partition(".")[0] for name in idle["modules"]}

    assert {name for name in idle["modules"] if name.partition(".")[0] == "nova"} <= ALLOWED
    assert tops.isdisjoint({"sqlalchemy", "oslo_db", "numpy", "eventlet", "prometheus_client", "oslo_versionedobjects"})


def test_the_imports_of_an_agent_are_small(idle: dict[str, Any]) -> None:
    assert idle["anonymous_mb"] < ANONYMOUS_MAX_MB


def test_novas_options_have_novas_names_and_defaults(tmp_path: Path) -> None:
    ours, novas = cfg.ConfigOpts(), nova.conf.CONF
    novas_options.register(ours)
    ours([], default_config_files=[], default_config_dirs=[])

    for option in novas_options.default_options():
        assert type(option) is type(novas._opts[option.dest]["opt"]), option.name
        assert ours[option.dest] == novas._opts[option.dest]["opt"].default or option.dest == "state_path"
    assert ours.state_path == ours.pybasedir
    placements = novas._groups["placement"]._opts
    version_options = {"version", "min_version", "max_version"}
    for name, known in ours._groups["placement"]._opts.items():
        if name not in version_options:
            assert known["opt"].default == placements[name]["opt"].default, name


@pytest.mark.parametrize(
    ("leaves", "needed"),
    [
        ({"cn.vcpus": 8}, False),
        ({"numa.static": [{"id": 0, "pcpuset": []}], "numa.0": [0, 0, "0", {}]}, False),
        ({"numa.static": [{"id": 0, "pcpuset": [2, 3]}]}, True),
        ({"numa.0": [2, 512, "0", {}]}, True),
        ({"pci.static.p1": {"vendor_id": "8086"}}, True),
        ({"pci.static.p1": None, "numa.static": None, "numa.0": None}, False),
    ],
)
def test_a_node_that_uses_topology_is_known_by_its_leaves(leaves: dict[str, Any], needed: bool) -> None:
    assert needs_topology(leaves) is needed


def test_the_first_claim_with_a_topology_is_judged_by_nova() -> None:
    configured: list[bool] = []
    fit = TopologyFitLater(lambda: configured.append(True))

    fit.prepare({"cn.vcpus": 8})
    assert configured == []
    found = fit.consume({}, "not a topology")

    assert isinstance(found, Reason) and found.detail["field"] == "topology"
    assert configured == [True]

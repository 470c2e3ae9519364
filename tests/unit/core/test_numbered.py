# SPDX-License-Identifier: Apache-2.0
"""Numbered groups: the few hosts with the requested resources are found among many without them."""

from __future__ import annotations

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.request import NumberedGroup, PlacementForm
from tests.unit.core.scheduler_driver import SchedulerDriver, only, only_claim, request

FORM = PlacementForm(
    {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 10}, numbered=(NumberedGroup({"VGPU": 1}), NumberedGroup({"VGPU": 2}))
)
MANY = 60  # more than a request tries


def gpu(node: str, vgpus: int) -> dict[str, object]:
    return {
        "name": f"{node}-gpu", "parent": node, "generation": 1, "traits": [], "aggregates": [],
        "inventories": {"VGPU": [vgpus, 0, 1, vgpus, 1, 1.0]},
    }  # fmt: skip


def test_the_one_host_with_devices_is_found_among_many_better_ones() -> None:
    driver = SchedulerDriver().with_agents(*(f"node-{number}" for number in range(MANY)))
    driver.with_agents("node-small", **{"rp.gpu-1": gpu("node-small", 1)})
    driver.with_agents("node-gpu", free_mb=2048, **{"rp.gpu-2": gpu("node-gpu", 2)})
    ask = only(ef.AskCandidates, driver.ask(request(root_only=False, forms=(FORM,))))
    assert ask.node == "node-gpu", "the one with so many on one device"
    found = ev.Candidate({"node-gpu": {"VCPU": 1}, "gpu-2": {"VGPU": 3}}, {"": ("node-gpu",)})
    assert only_claim(driver.give(ev.CandidatesAnswered(ask.ask_id, (found,), cause=ask.cause))).node == "node-gpu"


def test_without_such_a_host_the_class_is_named() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    only(ef.AskFitting, driver.ask(request(root_only=False, forms=(FORM,))))  # "no" is checked
    fail = only(ef.Fail, driver.give(ev.FittingAnswered("fitting.1", frozenset(), cause="req-1")))
    assert fail.record.decisions[-1].reasons == {"no_room:VGPU": 2}

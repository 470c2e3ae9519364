# SPDX-License-Identifier: Apache-2.0
"""How many servers of a flavor fit, where, and what stops the next one: decided on a copy of the table."""

from __future__ import annotations

from collections import Counter

import pytest

from shared_scheduler.core.events import Candidate
from shared_scheduler.core.planner import CandidatesWanted, HostJudge, Refusal, Selected
from shared_scheduler.core.trial import FitUnknownError, Trial
from shared_scheduler.decision.request import Group, Request
from shared_scheduler.protocol.messages import Consumer, GroupPolicy, Reason
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.table_copy import TableCopy
from tests.unit.core.scheduler_driver import AcceptAll, Picky, SchedulerDriver, request, taken


def copy_of(table: HostTable) -> HostTable:
    copying = TableCopy(table)
    while copying.copy_part():
        pass
    return copying.finish()


def trial(cloud: SchedulerDriver, asked: Request, judge: HostJudge | None = None, last_words_max: int = 0) -> Trial:
    table = copy_of(cloud.table)
    decider = cloud.core.planner._decider.__class__(table)
    return Trial(table, decider, judge or AcceptAll(), asked, last_words_max)


def servers(count: int) -> Request:
    return request(*(f"server-{number}" for number in range(count)))


def placed(running: Trial, most: int) -> tuple[Counter[str], object]:
    """The servers of each host, and the plan of the first server without one."""
    hosts: Counter[str] = Counter()
    for _ in range(most):
        plan = running.step()
        if not isinstance(plan, Selected):
            return hosts, plan
        hosts[plan.choice.host] += 1
    return hosts, None


def test_servers_are_placed_until_no_host_fits_and_the_failure_is_explained() -> None:
    cloud = SchedulerDriver().with_agents("node-1", "node-2")
    others = {"other": Consumer({"node-3": {"MEMORY_MB": 7680}}, True)}
    cloud.with_agents("node-3", consumers=others)
    running = trial(cloud, servers(40))

    hosts, end = placed(running, 40)

    assert hosts == {"host-1": 4, "host-2": 4}  # four CPUs each
    assert isinstance(end, Refusal)
    stop = running.stopped(each_max=5)
    assert stop.counts is not None
    assert stop.counts.reasons == {"no_room:VCPU": 2, "no_room:MEMORY_MB": 1}
    assert +Counter(stop.hosts.counts) == Counter(stop.counts.reasons)
    assert stop.hosts.missing == {"no_room:VCPU": (1, 1), "no_room:MEMORY_MB": (512, 512)}


def test_the_table_of_the_running_scheduler_does_not_change() -> None:
    cloud = SchedulerDriver().with_agents("node-1", "node-2")
    before = [cloud.table.describe(node) for node in cloud.table.nodes()]
    generation = cloud.table.generation

    placed(trial(cloud, servers(8)), 8)

    assert [cloud.table.describe(node) for node in cloud.table.nodes()] == before
    assert cloud.table.generation == generation


def test_the_members_of_an_anti_affinity_group_are_counted_as_they_are_placed() -> None:
    cloud = SchedulerDriver().with_agents("node-1", "node-2", "node-3")
    asked = request(*(f"server-{n}" for n in range(5)), group=Group("group-1", GroupPolicy.ANTI_AFFINITY.value))

    running = trial(cloud, asked)
    hosts, end = placed(running, 5)

    assert hosts == {"host-1": 1, "host-2": 1, "host-3": 1}
    assert isinstance(end, Refusal)
    stop = running.stopped(1)
    assert stop.counts is not None
    assert stop.counts.reasons == {"ServerGroupAntiAffinityFilter": 3}


def test_hosts_that_novas_own_filters_refuse_are_named() -> None:
    cloud = SchedulerDriver().with_agents("node-1", "node-2")

    running = trial(cloud, servers(9), Picky("node-2"))
    hosts, end = placed(running, 9)

    assert hosts == {"host-1": 4}
    assert isinstance(end, Refusal)
    assert running.stopped(1).refused == {"node-2": Reason("filter", {"filter": "PickyFilter"})}


def complex_request(count: int) -> Request:
    return request(*(f"server-{number}" for number in range(count)), root_only=False)


def test_placement_names_the_candidates_of_a_complex_request_and_the_trial_counts_its_own_servers() -> None:
    cloud = SchedulerDriver().with_agents("node-1", vcpus=2)
    running = trial(cloud, complex_request(4))
    candidate = Candidate(taken("node-1"), {"": ("node-1",)})

    found = []
    for _ in range(3):
        plan = running.step()
        if isinstance(plan, CandidatesWanted):
            found.append(type(running.answered(plan.node, [candidate])).__name__)

    assert found == ["Selected", "Selected"]  # Placement would name the candidate again, but both CPUs are taken
    assert isinstance(running.step(), Refusal)


def test_a_provider_that_shares_with_other_hosts_cannot_be_counted_twice() -> None:
    cloud = SchedulerDriver().with_agents("node-1")
    running = trial(cloud, complex_request(3))
    shared = Candidate(taken("node-1") | {"pool": {"DISK_GB": 10}}, {"": ("node-1",)})

    running.step()
    assert isinstance(running.answered("node-1", [shared]), Selected)
    running.step()

    with pytest.raises(FitUnknownError, match="pool"):
        running.answered("node-1", [shared])


def test_claims_of_running_requests_count_in_the_copy() -> None:
    cloud = SchedulerDriver().with_agents("node-1", consumers={"other": Consumer(taken("node-1"), True)})
    cloud.ask(request("server-under-way"))

    hosts, _ = placed(trial(cloud, servers(5)), 5)

    assert hosts == {"host-1": 2}

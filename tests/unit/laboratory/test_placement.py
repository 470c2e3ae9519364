# SPDX-License-Identifier: Apache-2.0
"""The stand-in for Placement answers the requests of schedulers and agents like the real one."""

from __future__ import annotations

from typing import Any

import pytest

from tools.laboratory.fleet.hosts import SMALL, hosts
from tools.laboratory.placement import StandIn

FLEET = hosts(2, SMALL)
NODE, OTHER = (host.node for host in FLEET)
QUARTER = {"VCPU": 4, "MEMORY_MB": 16_384, "DISK_GB": 80}
CANDIDATES = "/allocation_candidates?resources=VCPU%3A4%2CMEMORY_MB%3A16384%2CDISK_GB%3A80&limit=1000"


@pytest.fixture
def placement() -> StandIn:
    return StandIn(FLEET)


def wants(node: str = NODE, generation: int | None = None) -> dict[str, Any]:
    return {"allocations": {node: {"resources": QUARTER}}, "consumer_generation": generation}


def fill(placement: StandIn, node: str) -> None:
    for number in range(4):
        assert placement.call("PUT", f"/allocations/{node}-{number}", wants(node)) == (204, None)


def code_of(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["errors"][0]["code"]


def test_a_write_can_be_read_by_consumer_and_by_provider(placement: StandIn) -> None:
    assert placement.call("PUT", "/allocations/one", wants()) == (204, None)

    held = {"allocations": {NODE: {"resources": QUARTER}}, "consumer_generation": 1}
    assert placement.call("GET", "/allocations/one", None) == (200, held)
    status, body = placement.call("GET", f"/resource_providers/{NODE}/allocations", None)
    assert (status, body) == (200, {"allocations": {"one": {"resources": QUARTER}}})
    assert placement.call("GET", f"/resource_providers/{NODE}/usages", None) == (200, {"usages": QUARTER})
    assert placement.consumers() == {"one": NODE}


def test_a_consumer_of_another_generation_is_a_conflict(placement: StandIn) -> None:
    placement.call("PUT", "/allocations/one", wants())

    again = placement.call("PUT", "/allocations/one", wants())

    assert code_of(again) == (409, "placement.concurrent_update")
    assert placement.call("PUT", "/allocations/one", wants(OTHER, generation=1)) == (204, None)
    assert placement.consumers() == {"one": OTHER}


def test_several_consumers_are_written_together_or_not_at_all(placement: StandIn) -> None:
    fill(placement, NODE)

    refused = placement.call("POST", "/allocations", {"fits": wants(OTHER), "one too many": wants(NODE)})

    assert code_of(refused) == (409, "placement.undefined_code")
    assert placement.refused_for_capacity == 1
    assert set(placement.consumers().values()) == {NODE} and len(placement.consumers()) == 4


def test_a_move_that_does_not_fit_changes_no_allocation(placement: StandIn) -> None:
    fill(placement, NODE)
    placement.call("PUT", "/allocations/mover", wants(OTHER))

    assert placement.call("PUT", "/allocations/mover", wants(NODE, generation=1))[0] == 409

    assert placement.consumers()["mover"] == OTHER


def test_candidates_are_the_hosts_with_room(placement: StandIn) -> None:
    fill(placement, NODE)

    status, body = placement.call("GET", CANDIDATES, None)

    assert status == 200 and list(body["provider_summaries"]) == [OTHER]
    assert body["allocation_requests"] == [{"allocations": {OTHER: {"resources": QUARTER}}, "mappings": {"": [OTHER]}}]
    assert placement.call("GET", f"{CANDIDATES}&in_tree={NODE}", None)[1]["allocation_requests"] == []


def test_freed_resources_can_be_allocated_again(placement: StandIn) -> None:
    fill(placement, NODE)

    placement.free(f"{NODE}-0")

    assert placement.call("PUT", "/allocations/new", wants()) == (204, None)


def test_other_requests_are_refused(placement: StandIn) -> None:
    assert placement.call("GET", f"/resource_providers/{NODE}/traits", None)[0] == 404
    assert placement.call("GET", "/resource_providers/unknown/usages", None)[0] == 404
    assert placement.call("PUT", "/allocations/one", wants("unknown"))[0] == 400

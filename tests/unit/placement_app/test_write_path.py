# SPDX-License-Identifier: Apache-2.0
"""The write path compared with Placement's own handler: equal answers, equal tables, and the writer of each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.placement_pair import Asked, PlacementPair

Amounts = Mapping[str, Mapping[str, Any]]


@pytest.fixture(autouse=True)
def equal_tables(pair: PlacementPair) -> Iterator[None]:
    yield
    pair.compare_tables()


@pytest.fixture(autouse=True)
def known_names(pair: PlacementPair) -> None:
    """Placement has the names that the tests use; the write path creates none."""
    assert (
        put(pair, consumer({provider(pair): {"VCPU": 1}}, consumer_type="INSTANCE"), version="1.39").status_code == 204
    )


def provider(pair: PlacementPair, **inventories: Any) -> str:
    name = str(uuid.uuid4())
    pair.ok("POST", "/resource_providers", {"name": name, "uuid": name})
    held = inventories or {"VCPU": {"total": 8}}
    pair.ok("PUT", f"/resource_providers/{name}/inventories", {"resource_provider_generation": 0, "inventories": held})
    return name


def consumer(amounts: Amounts, **changes: Any) -> dict[str, Any]:
    allocations = {name: {"resources": dict(resources)} for name, resources in amounts.items()}
    usual = {"allocations": allocations, "consumer_generation": None, "project_id": "project", "user_id": "user"}
    return usual | changes


def put(pair: PlacementPair, body: Any, name: str | None = None, **more: Any) -> Any:
    return pair.ask(Asked("PUT", f"/allocations/{name or uuid.uuid4()}", body, **more))


def post(pair: PlacementPair, *bodies: Any, **more: Any) -> Any:
    return pair.ask(Asked("POST", "/allocations", {str(uuid.uuid4()): body for body in bodies}, **more))


def taken(pair: PlacementPair, status: int, ask: Any, *args: Any, **more: Any) -> bool:
    """Whether the write path gave the answer, which has this status."""
    before = pair.left_to_placement
    answer = ask(pair, *args, **more)
    assert answer.status_code == status, answer.text
    return pair.left_to_placement == before


@pytest.mark.parametrize("version", ["1.28", "1.33", "1.34", "1.36", "1.37"])
def test_a_new_consumer_uses_the_write_path(pair: PlacementPair, version: str) -> None:
    compute = provider(pair, VCPU={"total": 8}, MEMORY_MB={"total": 512})
    disk = provider(pair, DISK_GB={"total": 100})
    body = consumer({compute: {"VCPU": 2, "MEMORY_MB": 256}, disk: {"DISK_GB": 10}})

    assert taken(pair, 204, put, body, version=version)

    assert pair.ok("GET", f"/resource_providers/{compute}")["generation"] == 2
    assert pair.ok("GET", f"/resource_providers/{disk}/usages")["usages"] == {"DISK_GB": 10}


def test_its_allocations_have_all_fields_of_the_request(pair: PlacementPair) -> None:
    compute, name = provider(pair), str(uuid.uuid4())
    body = consumer({compute: {"VCPU": 2}}, consumer_type="INSTANCE", mappings={"": [compute]})
    assert taken(pair, 204, put, body, name, version="1.38")

    shown = pair.ok("GET", f"/allocations/{name}", version="1.38")

    assert shown == {
        "allocations": {compute: {"resources": {"VCPU": 2}, "generation": 2}}, "consumer_generation": 1,
        "consumer_type": "INSTANCE", "project_id": "project", "user_id": "user",
    }  # fmt: skip


def test_new_consumers_together_bump_each_provider_once(pair: PlacementPair) -> None:
    first, second = provider(pair), provider(pair)

    assert taken(pair, 204, post, *(consumer({first: {"VCPU": 2}, second: {"VCPU": 1}}) for _ in range(4)))

    assert pair.ok("GET", f"/resource_providers/{first}")["generation"] == 2
    assert pair.ok("GET", f"/resource_providers/{first}/usages")["usages"] == {"VCPU": 8}


@pytest.mark.parametrize("amount", [1, 3, 5, 6, 9, 2**40])
def test_units_and_capacity_are_refused_in_placements_words(pair: PlacementPair, amount: int) -> None:
    held = {"total": 10, "reserved": 1, "min_unit": 2, "max_unit": 8, "step_size": 2, "allocation_ratio": 0.5}
    compute = provider(pair, VCPU=held)
    status = 204 if amount == 4 else 409
    assert taken(pair, status, put, consumer({compute: {"VCPU": amount}}))


def test_the_amount_that_makes_it_too_much_is_named(pair: PlacementPair) -> None:
    first, second = provider(pair), provider(pair)
    bodies = [consumer({one: {"VCPU": 3}}) for one in (first, second, first, second, second, first)]
    assert taken(pair, 409, post, *bodies)
    assert pair.ok("GET", f"/resource_providers/{first}/usages")["usages"] == {"VCPU": 0}


def test_a_consumer_that_exists_is_a_conflict_also_where_its_amount_does_not_fit(pair: PlacementPair) -> None:
    """A client that has not heard the answer to its first attempt recognises its own allocations by that."""
    compute, name = provider(pair), str(uuid.uuid4())
    assert taken(pair, 204, put, consumer({compute: {"VCPU": 5}}), name)
    answer = put(pair, consumer({compute: {"VCPU": 5}}), name)
    assert answer.json["errors"][0]["code"] == "placement.concurrent_update"


@pytest.mark.parametrize("new", ["project_id", "user_id", "consumer_type"])
def test_a_new_name_is_left_to_placement_once(pair: PlacementPair, new: str) -> None:
    compute = provider(pair)
    body = consumer({compute: {"VCPU": 1}}, **({"consumer_type": "INSTANCE"} | {new: "NEW"}))
    assert not taken(pair, 204, put, body, version="1.39")
    assert taken(pair, 204, put, body, version="1.39")


def test_no_name_is_created_for_a_write_that_placement_refuses_before(pair: PlacementPair) -> None:
    # given a consumer that exists
    compute, known, new = provider(pair), str(uuid.uuid4()), str(uuid.uuid4())
    one = consumer({compute: {"VCPU": 1}})
    assert put(pair, one, known).status_code == 204
    # when a write of it and of one with a new user is refused, then the tables of users are equal, see above
    two = consumer({compute: {"VCPU": 1}}, user_id="nobody")
    assert pair.ask(Asked("POST", "/allocations", {known: one, new: two})).status_code == 409


def test_requests_outside_the_write_path_are_placements(pair: PlacementPair) -> None:
    compute, name = provider(pair), str(uuid.uuid4())
    one = consumer({compute: {"VCPU": 1}})
    assert taken(pair, 204, put, one, name)
    odd = {"project_id": 1}
    for status, ask, body, more in (
        (409, put, one, {"name": name}),  # exists
        (204, put, one | {"consumer_generation": 1}, {"name": name}),
        (204, put, one | {"consumer_generation": 2, "allocations": {}}, {"name": name}),
        (204, put, {k: v for k, v in one.items() if k != "consumer_generation"}, {"version": "1.12"}),
        (204, put, one, {"name": str(uuid.uuid4()).upper()}),
        (204, put, consumer({compute: {"VCPU": 1.0}}), {}),
        (400, put, consumer({str(uuid.uuid4()): {"VCPU": 1}}), {}),  # no provider
        (400, put, consumer({compute: {"CUSTOM_NONE": 1}}), {}),
        (409, put, consumer({compute: {"DISK_GB": 1}}), {}),  # no inventory
        (400, put, one | odd, {}),
        (400, put, b"{", {}),
        (415, put, one, {"headers": {"content-type": "text/plain"}}),
        (403, put, one, {"headers": {"x-roles": "reader"}}),
        (400, put, one, {"name": "malformed"}),
        (400, post, one | odd, {}),
        (204, post, consumer({}), {}),  # leaves a consumer without allocations
    ):  # fmt: skip
        assert not taken(pair, status, ask, body, **more), (body, more)


def test_requests_that_placement_refuses_early_do_not_arrive(pair: PlacementPair) -> None:
    one = consumer({provider(pair): {"VCPU": 1}})
    assert taken(pair, 406, put, one, version="1.99")
    assert taken(pair, 400, put, one, headers={"content-type": ""})


def test_a_content_type_with_parameters_is_json_too(pair: PlacementPair) -> None:
    one = consumer({provider(pair): {"VCPU": 1}})
    assert taken(pair, 204, post, one, headers={"content-type": "application/json; charset=utf-8"})


def test_one_consumer_that_exists_gives_all_of_them_to_placement(pair: PlacementPair) -> None:
    compute, name = provider(pair), str(uuid.uuid4())
    one = consumer({compute: {"VCPU": 1}})
    assert taken(pair, 204, put, one, name)
    both = {str(uuid.uuid4()): one, name: consumer({compute: {"VCPU": 2}}, consumer_generation=1)}
    before = pair.left_to_placement
    assert pair.ask(Asked("POST", "/allocations", both)).status_code == 204
    assert pair.left_to_placement == before + 1


def test_a_provider_that_was_deleted_and_created_again_is_found_again(pair: PlacementPair) -> None:
    compute = provider(pair)
    name = str(uuid.uuid4())
    one = consumer({compute: {"VCPU": 1}})
    assert taken(pair, 204, put, one, name)
    pair.ok("DELETE", f"/allocations/{name}")
    pair.ok("DELETE", f"/resource_providers/{compute}")
    assert not taken(pair, 400, put, one)
    provider(pair)  # takes the id of the one that is gone, on this database
    pair.ok("POST", "/resource_providers", {"name": compute, "uuid": compute})
    held = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
    pair.ok("PUT", f"/resource_providers/{compute}/inventories", held)
    assert taken(pair, 204, put, one)

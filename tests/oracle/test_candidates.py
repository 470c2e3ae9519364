# SPDX-License-Identifier: Apache-2.0
"""Which hosts qualify: a real Placement, and ours, on random flat inventories and requests.

``ORACLE_CLOUDS`` sets the number of clouds; each is asked 25 times.  A seed reproduces a cloud and its
questions.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest
import webob

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import PlacementForm
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Consumer
from shared_scheduler.table.host_table import HostTable
from tests.unit.decision.small_clouds import small_request
from tests.unit.placement.real_placement import World, load_app

CLOUDS = int(os.environ.get("ORACLE_CLOUDS", "24"))
QUERIES = 25
CLASSES = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")
TRAITS = ("HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE", "COMPUTE_STATUS_DISABLED")
AGGREGATES = tuple(f"00000000-0000-0000-0005-{n:012d}" for n in range(4))


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made, put_back = load_app(tmp_path_factory.mktemp("placement"))
    yield made
    put_back()


def random_inventory(rng: Random) -> dict[str, Any]:
    total = rng.choice((1, 4, 10, 30, 100))
    return {
        "total": total,
        "reserved": rng.choice((0, 0, 0, 1, total)),
        "min_unit": rng.choice((1, 1, 1, 2)),
        "max_unit": rng.choice((total, total, 2147483647, 2)),
        "step_size": rng.choice((1, 1, 1, 2, 3)),
        "allocation_ratio": rng.choice((1.0, 1.0, 0.7, 0.9, 1.5, 16.0)),
    }


def random_provider(world: World, rng: Random) -> tuple[str, dict[str, int]]:
    """A provider, and what is used of it; now and then it shrinks below that."""
    wide = {"min_unit": 1, "step_size": 1, "max_unit": 2147483647, "total": 100}
    classes = [rc for rc in CLASSES if rng.random() < 0.8] or ["VCPU"]
    provider = world.provider(
        inventories={rc: wide for rc in classes},
        traits=tuple(t for t in TRAITS if rng.random() < 0.4),
        aggregates=tuple(a for a in AGGREGATES if rng.random() < 0.4),
    )
    used = {rc: rng.choice((1, 3, 9, 20)) for rc in classes if rng.random() < 0.5}
    if used:
        world.take(str(uuid.UUID(int=rng.getrandbits(128))), {provider: used})
    inventories = {rc: random_inventory(rng) for rc in classes}
    for rc, taken in used.items():  # Placement keeps an inventory that is in use
        inventories[rc]["total"] = max(inventories[rc]["total"], taken if rng.random() < 0.5 else 1)
        inventories[rc]["reserved"] = min(inventories[rc]["reserved"], inventories[rc]["total"])
    world.set(provider, "inventories", inventories)
    return provider, used


def mirrored(world: World, providers: dict[str, dict[str, int]]) -> HostTable:
    """Our table of what Placement's own API shows."""
    table = HostTable()
    for provider, used in providers.items():
        path = f"/resource_providers/{provider}"
        inventories = world.ok("GET", f"{path}/inventories")["inventories"]
        leaf = {
            "name": provider,
            "parent": None,
            "generation": 1,
            "inventories": {
                rc: [
                    row["total"],
                    row["reserved"],
                    row["min_unit"],
                    row["max_unit"],
                    row["step_size"],
                    row["allocation_ratio"],
                ]
                for rc, row in inventories.items()
            },
            "traits": sorted(world.ok("GET", f"{path}/traits")["traits"]),
            "aggregates": sorted(world.ok("GET", f"{path}/aggregates")["aggregates"]),
        }
        table.upsert(provider, "cell", provider, provider)
        table.set_service(ServiceFacts(provider))
        leaves = {f"rp.{provider}": leaf, "cn.free_disk_gb": 10}
        table.load(provider, leaves, {"consumer": Consumer({provider: used})} if used else {})
    return table


def some(rng: Random, names: tuple[str, ...], chance: float) -> frozenset[str]:
    return frozenset(name for name in names if rng.random() < chance)


def random_form(rng: Random, providers: list[str]) -> PlacementForm:
    classes = rng.sample(CLASSES, rng.choice((1, 2, 3)))
    required, root_required = some(rng, TRAITS, 0.15), some(rng, TRAITS, 0.1)
    any_of = some(rng, TRAITS, 0.5) if rng.random() < 0.25 else frozenset()
    forbidden = some(rng, TRAITS, 0.15) - required - any_of
    groups = tuple(some(rng, AGGREGATES, 0.5) or frozenset(AGGREGATES[:1]) for _ in range(rng.choice((0, 0, 1, 2))))
    return PlacementForm(
        {rc: rng.choice((1, 1, 2, 3, 6, 10)) for rc in classes},
        required=required,
        forbidden=forbidden,
        required_any=(any_of,) if any_of else (),
        root_required=root_required,
        root_forbidden=some(rng, TRAITS, 0.15) - root_required,
        member_of=groups,
        forbidden_aggregates=some(rng, AGGREGATES, 0.1),
        in_tree=rng.choice(providers) if rng.random() < 0.1 else None,
    )


def query_of(form: PlacementForm) -> str:
    """The query string that asks Placement the same."""
    parts = [("resources", ",".join(f"{rc}:{n}" for rc, n in form.resources.items()))]
    named = [*sorted(form.required), *(f"!{trait}" for trait in sorted(form.forbidden))]
    parts += [("required", ",".join(named))] if named else []
    parts += [("required", f"in:{','.join(sorted(any_of))}") for any_of in form.required_any]
    rooted = [*sorted(form.root_required), *(f"!{trait}" for trait in sorted(form.root_forbidden))]
    parts += [("root_required", ",".join(rooted))] if rooted else []
    parts += [("member_of", f"in:{','.join(sorted(any_of))}") for any_of in form.member_of]
    if form.forbidden_aggregates:
        parts.append(("member_of", f"!in:{','.join(sorted(form.forbidden_aggregates))}"))
    parts += [("in_tree", form.in_tree)] if form.in_tree else []
    return urlencode(parts)


def placements_answer(app: Any, form: PlacementForm) -> set[str]:
    """Providers that Placement names."""
    asked = webob.Request.blank(f"/allocation_candidates?{query_of(form)}")
    asked.headers["x-auth-token"] = "admin"
    asked.headers["openstack-api-version"] = "placement 1.39"
    answer = asked.get_response(app)
    assert answer.status_code == 200, answer.text
    requests = json.loads(answer.body)["allocation_requests"]
    return {provider for one in requests for provider in one["allocations"]}


@pytest.mark.timeout(1800)
def test_the_hosts_that_qualify_are_placements(app):
    world, nonempty = World(app), 0
    for seed in range(CLOUDS):
        rng = Random(seed)
        providers = dict(random_provider(world, rng) for _ in range(rng.choice((3, 6))))
        table = mirrored(world, providers)
        decider = Decider(table, DecisionSettings(enabled_filters=(), weighers=()))
        for _ in range(QUERIES):
            form = random_form(rng, list(providers))
            novas = placements_answer(app, form) & providers.keys()
            decision = decider.decide(small_request(forms=(form,)))
            ours = set(decision.nodes())
            assert ours == novas, (seed, form)
            assert all(decision.form(node) == form for node in ours), (seed, form)
            nonempty += bool(novas)
        close(world, providers)
    assert nonempty > CLOUDS, "most questions had no answer: this proves little"


def close(world: World, providers: dict[str, dict[str, int]]) -> None:
    """Later clouds have Placement to themselves."""
    for provider in providers:
        for consumer in world.ok("GET", f"/resource_providers/{provider}/allocations")["allocations"]:
            world.ok("DELETE", f"/allocations/{consumer}")
        world.ok("DELETE", f"/resource_providers/{provider}")

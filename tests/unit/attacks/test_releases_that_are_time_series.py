# SPDX-License-Identifier: Apache-2.0
"""A peer names another release each time that Prometheus asks: each of them would be a time series for ever."""

from __future__ import annotations

from shared_scheduler.protocol.messages import Hello, Increment, Role
from shared_scheduler.release import release
from tests.unit.core.scheduler_driver import SchedulerDriver
from tests.unit.service.test_metrics import World

#: more than are ever installed at the same time
SERIES_MAX = 20
SCRAPES = 100
EVIL, FLEET = "node-0", tuple(f"node-{n}" for n in range(1, 6))
NEXT = "1.1.0"


def scraped(world: World) -> dict[tuple[str, str], float]:
    """Role and release -> number of peers."""
    return {
        (one.labels["role"], one.labels["release"]): one.value
        for family in world.registry.collect() for one in family.samples if one.name == "shared_scheduler_peers"
    }  # fmt: skip


def lie(driver: SchedulerDriver, number: int) -> None:
    """An agent changes its release, and a sender without keys says Hello as a scheduler that nobody runs."""
    invented = f"0.0.{number}"
    driver.hear(Increment(EVIL, 1, number + 2, {"agent.release": invented}))
    driver.hear(Hello(Role.SCHEDULER, f"ssched.scheduler.{number}", 1, release=invented))


def test_its_series_are_few_and_everybody_is_counted() -> None:
    world, seen = World(), set[tuple[str, str]]()
    world.driver.with_agents(EVIL, *FLEET, agent__release=release())

    for number in range(SCRAPES):
        lie(world.driver, number)
        found = scraped(world)
        seen |= found.keys()
        assert sum(count for (role, _), count in found.items() if role == "agents") == 1 + len(FLEET)

    assert len({told for _, told in seen}) <= SERIES_MAX
    assert found["agents", release()] == len(FLEET)


def test_the_release_of_many_has_a_name_beside_those_that_are_invented() -> None:
    world = World()
    world.driver.with_agents(EVIL, *FLEET, agent__release=NEXT)

    for number in range(SCRAPES):
        lie(world.driver, number)

    assert scraped(world)["agents", NEXT] == len(FLEET)

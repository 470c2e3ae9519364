# SPDX-License-Identifier: Apache-2.0
"""A machine of the simulated world gets its ticks when it wants them, and none while it is stopped."""

from __future__ import annotations

from shared_scheduler.sim.agenda import Agenda
from shared_scheduler.sim.network import NetworkFaults
from shared_scheduler.sim.ticking import Ticking
from shared_scheduler.sim.workload import Workload
from shared_scheduler.sim.world import Sizes, World

FROZEN_S = 10.0


class Machine:
    """Wants a tick at ``wants_s``, and notes when it got one."""

    def __init__(self, agenda: Agenda, wants_s: float | None) -> None:
        self.wants_s = wants_s
        self.got_s: list[float] = []
        self._agenda = agenda
        self.ticking = Ticking(agenda, lambda: self.wants_s, self._tick)

    def _tick(self) -> None:
        self.got_s.append(self._agenda.now)
        self.wants_s = None


def test_a_machine_gets_one_tick_at_its_deadline() -> None:
    agenda = Agenda()
    machine = Machine(agenda, 2.0)
    machine.ticking.reschedule()
    machine.ticking.reschedule()
    agenda.run_until(10.0)
    assert machine.got_s == [2.0]


def test_a_suspended_machine_gets_no_ticks_until_it_resumes() -> None:
    # given a machine that wants a tick at 2 s, and is stopped from 1 to 5 s
    agenda = Agenda()
    machine = Machine(agenda, 2.0)
    machine.ticking.reschedule()
    agenda.run_until(1.0)
    machine.ticking.suspend()
    agenda.run_until(5.0)
    assert machine.got_s == []
    # when it goes on
    machine.ticking.resume()
    agenda.run_until(10.0)
    # then its tick comes at once
    assert [round(at_s, 2) for at_s in machine.got_s] == [5.0]


def world_with(frozen: bool) -> World:
    world = World(1, Sizes(nodes=3, schedulers=2), Workload(rate_per_s=1.0), NetworkFaults())
    machines = [next(iter(world.nodes.values())), world.schedulers[0]] if frozen else []
    world.run(3.0)
    for machine in machines:
        machine.freeze()
    world.run(FROZEN_S)
    for machine in machines:
        machine.thaw()
    world.run(3.0)
    return world


def test_a_frozen_process_costs_no_more_than_one_that_runs() -> None:
    # when they go on, they have some messages more to exchange
    assert world_with(frozen=True).agenda.done <= 1.1 * world_with(frozen=False).agenda.done

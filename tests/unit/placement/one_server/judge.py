# SPDX-License-Identifier: Apache-2.0
"""The laws of these worlds."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from shared_scheduler.core.change_kinds import ChangeKind
from shared_scheduler.model.resources import same_allocations
from shared_scheduler.placement.allocation_writer import AllocationWriter
from shared_scheduler.placement.consumer_conflicts import contains
from shared_scheduler.placement.foreign_changes import ForeignChange
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.agenda import Agenda
from tests.unit.core.scheduler_driver import SchedulerDriver, taken
from tests.unit.placement.one_server.callers import Callers
from tests.unit.placement.one_server.plan import SERVER, SOURCE, Kind, Plan
from tests.unit.placement.one_server.story import Story
from tests.unit.placement.one_server.unsure_placement import UnsurePlacement

#: what Nova explains: the user has deleted the server, or an operation of it is under way
EXPLAINED = (ChangeKind.DELETED, ChangeKind.OPERATION)


class Law(StrEnum):
    """The first two hold after each change of Placement, the third for all that is told, the others in the end."""

    HEARD_STANDS = "what a caller has heard stands whole until the user deletes the server"
    LIVING_STANDS = "nothing of a living server is deleted"
    NO_CHANGE_BY_OTHERS = "no own write or delete is told as a change by others"
    UNHEARD_IS_TAKEN_BACK = "what nobody has heard is taken back"
    NOTHING_IS_LEFT = "beside what was heard, nothing is left for good"
    NOTHING_IS_OPEN = "no request, claim, assumed share or doubt stays open"


class Judge:
    """``broken``: the laws that are broken, and by what."""

    def __init__(self, plan: Plan, placement: UnsurePlacement, callers: Callers, beside: Agenda, story: Story) -> None:
        self._plan, self._placement, self._callers = plan, placement, callers
        self._beside, self._story = beside, story
        self.broken: list[str] = []

    def look(self) -> None:
        """Placement has changed."""
        standing = self._placement.stands(SERVER).allocations
        heard = self._callers.heard
        if heard is not None and not contains(standing, taken(heard)):
            self._is_broken(Law.HEARD_STANDS, f"{heard} was heard, {_named(standing)} stands")
        if not contains(standing, self._lives_on):
            self._is_broken(Law.LIVING_STANDS, f"{SOURCE} is missing, {_named(standing)} stands")

    def hear(self, change: ForeignChange) -> None:
        """A change by others is told."""
        if change.consumer == SERVER and change.kind not in EXPLAINED:
            told = f"{change.kind}, seen by {change.seen_by}: {_named(change.before)} -> {_named(change.after)}"
            self._is_broken(Law.NO_CHANGE_BY_OTHERS, told)

    def judge(self, driver: SchedulerDriver, writer: AllocationWriter) -> None:
        """The world has ended."""
        self._judge_what_stands()
        for left in (*_left_open(driver, writer), *self._left_in_the_table(driver)):
            self._is_broken(Law.NOTHING_IS_OPEN, left)

    def _judge_what_stands(self) -> None:
        heard, standing = self._callers.heard, self._placement.stands(SERVER).allocations
        wanted = self._lives_on if heard is None else {**self._lives_on, **taken(heard)}
        if not same_allocations(standing, wanted):
            law = Law.UNHEARD_IS_TAKEN_BACK if heard is None else Law.NOTHING_IS_LEFT
            self._is_broken(law, f"{_named(standing)} stands, not {_named(wanted)}")

    @property
    def _lives_on(self) -> Allocations:
        """What stands in the name of the server beside the answer; the allocations of a move are in another name."""
        return taken(SOURCE) if self._plan.kind is Kind.EVACUATION and not self._callers.deleted else {}

    def _left_in_the_table(self, driver: SchedulerDriver) -> Iterator[str]:
        """Shares that are counted although they do not stand."""
        standing = self._placement.stands(SERVER).allocations
        for node in driver.table.nodes():
            for own in driver.table.outstanding(node):
                if not own.confirmed or (own.consumer == SERVER and node not in standing):
                    yield f"{own.claim_id} is counted on {node}"

    def _is_broken(self, law: Law, found: str) -> None:
        self.broken.append(f"{law}: {found}")
        self._story.add(self._beside.now, "BROKEN:", self.broken[-1])


def _named(allocations: Allocations) -> str:
    return " and ".join(sorted(allocations)) or "nothing"


def _left_open(driver: SchedulerDriver, writer: AllocationWriter) -> Iterator[str]:
    if len(driver.core.requests):
        yield f"{len(driver.core.requests)} requests"
    for claim in driver.core.claims.open():
        yield f"{claim.claim_id} is {claim.state}"
    if writer.in_doubt():
        yield f"{writer.in_doubt()} consumers in doubt"

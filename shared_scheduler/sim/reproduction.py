# SPDX-License-Identifier: Apache-2.0
"""The replay of a world: the command that runs it again, and the trace that this command writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

#: the program of the commands; the name of a sub-command and its arguments follow
PROGRAM = "shared-scheduler-manage"


class Plan(Protocol):
    """A dataclass with all parameters of a run."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def command(self) -> str:
        """The command that runs the same world again."""


def exact(number: float) -> str:
    """The shortest text that parses to the same number."""
    return repr(float(number)).removesuffix(".0")


def story(plan: Plan, world: World) -> Iterator[str]:
    """The trace as text: the plan, the violations and all events."""
    yield plan.command()
    yield from (f"{item.name}: {getattr(plan, item.name)}" for item in fields(plan))
    yield from (violation.line() for violation in world.checkers.violations)
    yield from world.trace.lines()

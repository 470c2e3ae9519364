# SPDX-License-Identifier: Apache-2.0
"""Counts with how many others a scheduler compares the server that Placement has told it of.

Steps take no time in the simulator, so a search through all claims looks as cheap as a look-up.  But whoever searches
compares names, and the name in the simulated answer counts that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared_scheduler.core.events import ConsumerAnswered
    from shared_scheduler.sim.schedulers import SimScheduler

#: A look-up compares a name once for each place where it is looked up, and a server has a few claims.
COMPARED_MAX = 8


class ComparedName(str):
    """The uuid of a server; ``compared``: how often it was compared with another text."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        self.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def check_comparisons(check: Callable[..., None], scheduler: SimScheduler, event: ConsumerAnswered) -> None:
    """Check the step of a scheduler that has handled this answer."""
    name = event.consumer
    assert isinstance(name, ComparedName)
    claims = len(scheduler.core.confirmed_claims)
    what = (name, "was compared", name.compared, "times beside", claims, "claims")
    check("few_comparisons", name.compared <= COMPARED_MAX, scheduler.name, *what)

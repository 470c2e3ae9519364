# SPDX-License-Identifier: Apache-2.0
"""Traits and aggregates of nodes that operators change, and requests that ask for one of them.

Placement checks neither at a write, and a change changes no agent's state: until the agent reads its tree again, rows
have the old ones.  So the scheduler asks Placement for the selected host of such a request.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.decision.request import Request
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.services import DISABLED_TRAIT

if TYPE_CHECKING:
    from shared_scheduler.sim.world import World

TRAIT = "CUSTOM_FAST"
AGGREGATE = "aggregate-of-some"
#: mean time between two changes
CHANGES_S = 1.0
#: part of the nodes that have each at the beginning
HAVE = 0.7


def selecting(request: Request, rng: Random) -> Request:
    """The request, for nodes with the trait or in the aggregate only."""
    (form,), (query,) = request.forms, request.queries
    if rng.random() < 0.5:
        form, query = replace(form, required=frozenset({TRAIT})), f"{query}&required={TRAIT}"
    else:
        form, query = replace(form, member_of=(frozenset({AGGREGATE}),)), f"{query}&member_of=in:{AGGREGATE}"
    return replace(request, root_only=False, forms=(form,), queries=(query,))


def is_selected(provider: Provider, query: str) -> bool:
    """Whether a provider has what a query asks for besides amounts."""
    has_trait = f"required={TRAIT}" not in query or TRAIT in provider.traits
    return has_trait and (f"member_of=in:{AGGREGATE}" not in query or AGGREGATE in provider.aggregates)


#: what a query asks for to get no disabled host
ENABLED = f"root_required=!{DISABLED_TRAIT}"


def of_enabled_hosts(request: Request) -> Request:
    """The request, for hosts that are enabled only, as Nova asks for them."""
    (form,), (query,) = request.forms, request.queries
    form = replace(form, root_forbidden=form.root_forbidden | {DISABLED_TRAIT})
    return replace(request, forms=(form,), queries=(f"{query}&{ENABLED}",))


def is_disabled(provider: Provider) -> bool:
    """Whether the provider of a node has the trait of a disabled service."""
    return DISABLED_TRAIT in provider.traits


class Operators:
    """Give traits and aggregates to nodes, and take them away."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        #: node -> its provider before each change, and when that was
        self._past: dict[str, list[tuple[float, Provider]]] = {}
        if world.users.workload.selections:
            for node in world.nodes:
                for flip in (_with_other_traits, _with_other_aggregates):
                    if rng.random() < HAVE:
                        self._change(node, flip(world.placement.providers[node]))
            world.agenda.after(rng.expovariate(1 / CHANGES_S), self._next)

    def had(self, node: str, query: str, since_s: float) -> bool:
        """Whether a node had at some time since then what a query asks for."""
        past = [provider for until_s, provider in self._past.get(node, ()) if until_s >= since_s]
        now_is = self._world.placement.providers.get(node)  # None: the node has gone
        return now_is is None or any(is_selected(one, query) for one in (*past, now_is))

    def _next(self) -> None:
        if not self._world.is_open:
            return
        node = self._rng.choice([*self._world.nodes])
        flip = self._rng.choice((_with_other_traits, _with_other_aggregates))
        self._change(node, flip(self._world.placement.providers[node]))
        self._world.counters["selections_changed"] += 1
        self._world.agenda.after(self._rng.expovariate(1 / CHANGES_S), self._next)

    def _change(self, node: str, now_is: Provider) -> None:
        providers = self._world.placement.providers
        self._past.setdefault(node, []).append((self._world.now, providers[node]))
        providers[node] = replace(now_is, generation=now_is.generation + 1)
        self._world.trace.note("operator", f"{node} has {sorted(now_is.traits | now_is.aggregates)}")


def _with_other_traits(provider: Provider) -> Provider:
    return replace(provider, traits=provider.traits ^ {TRAIT})


def _with_other_aggregates(provider: Provider) -> Provider:
    return replace(provider, aggregates=provider.aggregates ^ {AGGREGATE})

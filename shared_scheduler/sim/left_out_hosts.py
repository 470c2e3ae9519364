# SPDX-License-Identifier: Apache-2.0
"""Checks that no request fails for lack of a host while its scheduler's table shows one that was not tried for it.

What is special about a request may be a good reason to leave a host out.  So only plain requests are checked: for
amounts of the root provider, and for nothing else.  Neither filters nor columns of the product are asked: whether a
host is open, and what is left on it, is computed from its row.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from shared_scheduler.core import effects as ef
from shared_scheduler.decision.filtering import FIRST_INSTANCE
from shared_scheduler.decision.request import Destination, PlacementForm
from shared_scheduler.model.leaves import AGENT_READY
from shared_scheduler.table.row import Freshness

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared_scheduler.decision.pipeline import Decision
    from shared_scheduler.decision.request import Request
    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.workload import SentRequest
    from shared_scheduler.sim.world import World
    from shared_scheduler.table.host_table import HostTable
    from shared_scheduler.table.row import Row


class LeftOutHosts:
    """``check`` counts a check, and stores the violation if there is one (``Checkers.check``)."""

    def __init__(self, world: World, check: Callable[..., None]) -> None:
        self._world = world
        self._check = check
        #: (scheduler, server) -> the nodes that were claimed for it, by the request under way
        self._claimed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        #: (scheduler, server) -> the nodes that its last decision could have selected, if none was claimed since
        self._could_be: dict[tuple[str, str], list[str]] = {}

    def decided(self, scheduler: SimScheduler, request: Request, index: int, decision: Decision) -> None:
        """A scheduler has weighed the hosts for one instance.

        Decisions on an instance that has a host are about another one: an alternate, or one whose agent is not late.
        What a filter has rejected for the first instance of a request stays rejected for the others, as in Nova."""
        if not is_plain(request) or FIRST_INSTANCE in decision.reasons or self._is_there_twice(scheduler, request):
            return
        (state,) = (one for one in scheduler.core.requests.under_way() if one.request.request_id == request.request_id)
        instance = state.instances[index]
        if instance.choice is None:
            key = scheduler.name, instance.consumer
            tried = self._claimed[key] & instance.out.keys()
            self._could_be[key] = [node for node in selectable(scheduler.core.table, request) if node not in tried]

    def assumed(self, scheduler: SimScheduler, node: str, consumer: str) -> None:
        """A scheduler claims a node for an instance."""
        key = scheduler.name, consumer
        self._claimed[key].add(node)
        self._could_be.pop(key, None)

    def answered(self, scheduler: SimScheduler, asked: SentRequest, effect: ef.Answer | ef.Fail) -> None:
        """A scheduler ends a request."""
        where = scheduler.name
        left = [node for server in asked.servers for node in self._could_be.pop((where, server.uuid), ())]
        for server in asked.servers:
            self._claimed.pop((where, server.uuid), None)
        is_single = is_plain(asked.request) and not self._is_there_twice(scheduler, asked.request)
        if isinstance(effect, ef.Fail) and effect.code in ef.NO_HOST and is_single:
            request_id = asked.request.request_id
            self._check("none_left_out", not left, where, request_id, "finds no host beside", *left)

    def _is_there_twice(self, scheduler: SimScheduler, request: Request) -> bool:
        """Whether a scheduler may have two requests for a server, because one was delivered again: what was claimed for
        one is not for the other."""
        asked = self._world.users.asked[request.request_id]
        asked_again = any(server.tries > 1 and scheduler.name in server.twins for server in asked.servers)
        return asked_again or len(asked.deadlines_of(scheduler.name)) > 1


def is_plain(request: Request) -> bool:
    """Whether a request is for amounts of the root provider of any host, or of any other host of a cell."""
    (form,) = request.forms
    special = request.group or request.spread or request.hints or request.topology or not request.root_only
    cell = None if request.destination is None else request.destination.cell
    anywhere = request.destination in (None, Destination(cell=cell))
    return not special and anywhere and form == PlacementForm(form.resources)


def selectable(table: HostTable, request: Request) -> list[str]:
    """The nodes that a plain request may select, and that have room for one instance, as their rows show them."""
    return [
        row.node
        for row in table.rows()
        if is_open(table, row) and is_meant(request, row) and has_room(row, request.forms[0])
    ]


def is_open(table: HostTable, row: Row) -> bool:
    """Whether the host of a row takes servers."""
    service = table.service(row.host)
    reported = row.steady is not None and bool(row.nodename) and row.leaves.get(AGENT_READY) is not False
    enabled = service is not None and service.takes_servers
    return enabled and reported and row.freshness is not Freshness.STALE


def is_meant(request: Request, row: Row) -> bool:
    """Whether a row is in the cell of a plain request, and none that its server leaves."""
    cell = None if request.destination is None else request.destination.cell
    return cell in (None, row.cell) and row.host not in request.ignore_hosts


def has_room(row: Row, form: PlacementForm) -> bool:
    """Whether the amounts are left on the root provider beside its consumers and the scheduler's own claims."""
    used = dict.fromkeys(form.resources, 0)
    on_root = [dict(consumer.root or ()) for consumer in row.consumers.values()]
    claimed = [dict(own.allocations.get(row.node, {})) for own in row.claims.values() if own.counts_allocations]
    for amounts in (*on_root, *claimed):
        for name in form.resources:
            used[name] += amounts.get(name, 0)
    return all(_fits(row, name, used[name], amount) for name, amount in form.resources.items())


def _fits(row: Row, name: str, used: int, amount: int) -> bool:
    inventory = row.root.inventories.get(name)
    return inventory is not None and amount <= inventory.max_unit and used + amount <= inventory.capacity

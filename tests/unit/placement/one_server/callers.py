# SPDX-License-Identifier: Apache-2.0
"""Who asks for hosts, and what becomes of the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.request import Request
from shared_scheduler.sim.agenda import Agenda
from tests.unit.core.scheduler_driver import request
from tests.unit.placement.one_server import left_out
from tests.unit.placement.one_server.nova import DELETED, Nova
from tests.unit.placement.one_server.plan import OTHER, SERVER, Plan
from tests.unit.placement.one_server.story import Story

#: a caller waits a little longer than its request may take
GIVES_UP_AFTER_S = 0.1


@dataclass(eq=False)
class Caller:
    """nova-conductor, which hears the first reply and drops the others."""

    deadline_s: float
    request_id: str
    waits: bool = True


@dataclass(eq=False)
class Delivery:
    """A request as the broker delivers it."""

    request: Request
    caller: Caller


class Callers:
    """``heard``: the node of the answer that a caller has heard; ``deleted``: the user has deleted the server."""

    def __init__(
        self, plan: Plan, rng: Random, steps: Agenda, nova: Nova, story: Story, give: Callable[[ev.Event], None]
    ) -> None:
        self._plan, self._rng, self._steps, self._nova, self._story = plan, rng, steps, nova, story
        self._give = give
        self._callers: list[Caller] = []
        self._deliveries: list[Delivery] = []
        self.heard: str | None = None
        self.deleted = False
        self._copies_since = 0

    # -- requests

    def arrives(self) -> None:
        """The broker delivers the first request, a copy of it, or another one, if that may happen."""
        kind, now = self._plan.kind, self._steps.now
        if not self._callers or left_out.copies_of_moves(kind, now, self._callers[0].deadline_s):
            self._asks_on_its_own(now)
        elif not left_out.evacuations_with_nothing(kind, self.deleted, self._copies_since):
            self._copies_since += self.deleted
            self._deliver(self._callers[0])

    def _asks_on_its_own(self, now: float) -> None:
        """A first request, or one of a user who tries again after a failure."""
        if self._callers and (self._is_served or left_out.separate_operations_at_once(self._nova.found)):
            return
        caller = Caller(now + self._plan.patience_s, f"req-{len(self._callers) + 1}")
        self._callers.append(caller)
        self._nova.begins()
        self._steps.at(caller.deadline_s + GIVES_UP_AFTER_S, self._gives_up, caller)
        self._deliver(caller)

    @property
    def _is_served(self) -> bool:
        return self.heard is not None or self.deleted

    def _deliver(self, caller: Caller) -> None:
        servers = (SERVER, OTHER) if self._plan.other and self._rng.random() < 0.5 else (SERVER,)
        asked = request(*servers, request_id=caller.request_id, **self._plan.kind.facts)
        self._deliveries.append(Delivery(asked, caller))
        self._story.add(self._steps.now, "request", caller.request_id, servers)
        self._give(ev.RequestArrived(asked, self._steps.now + self._plan.patience_s))

    # -- replies

    def _caller_of(self, reply: ef.Answer | ef.Fail) -> Caller:
        arrived = reply.arrived or reply.request
        return next(one.caller for one in self._deliveries if one.request is arrived)

    def failed(self, reply: ef.Fail) -> None:
        """A request has failed."""
        caller = self._caller_of(reply)
        self._story.add(self._steps.now, "fails", caller.request_id, reply.code)
        self._gives_up(caller)

    def _gives_up(self, caller: Caller) -> None:
        if caller.waits:
            caller.waits = False
            self._nova.fails()

    def answered(self, answer: ef.Answer) -> None:
        """A request is answered: its caller hears it, drops it, or does not get it."""
        caller, node = self._caller_of(answer), answer.choices[0][0].node
        self._story.add(self._steps.now, "answer", caller.request_id, node, answer.claim_ids)
        if not caller.waits:
            if not (self._has_heard_the_same(node) and self._rng.random() < 0.5):
                self._is_unheard(answer)
        elif self._steps.now > caller.deadline_s or self._rng.random() < self._plan.unheard:
            self._is_unheard(answer)
            self._gives_up(caller)
        else:
            caller.waits = False
            self._hears(node)

    def _has_heard_the_same(self, node: str) -> bool:
        """A second reply with the same node is dropped, and the scheduler does not always learn that."""
        return node == self.heard and self._nova.found is not DELETED

    def _is_unheard(self, answer: ef.Answer) -> None:
        unheard = ev.AnswerUnheard(answer.claim_ids, cause=answer.cause)
        self._steps.after(self._rng.choice((0.0, 0.0, 0.01, 0.5, 2.0)), self._give, unheard)

    def _hears(self, node: str) -> None:
        self.heard = node
        self._story.add(self._steps.now, "the caller has heard it")
        self._nova.goes_on(node, self._steps.now)

    # -- the user

    def delete(self) -> None:
        """The user deletes the server, once it is built."""
        if self.heard is not None and self._nova.is_at_rest_on(self.heard):
            self.heard, self.deleted = None, True
            self._nova.deletes()

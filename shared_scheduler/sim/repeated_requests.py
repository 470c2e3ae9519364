# SPDX-License-Identifier: Apache-2.0
"""The broker delivers requests more than once.

A request comes to another scheduler too (``twice``), or again to the same one or to another (``again``): at once,
later, or shortly after it was answered.  Its caller hears the first reply.  The RPC client drops a later one by the id
of the message, and the scheduler does not learn that.  Of a request that comes ``again``, an answer may be unfit to be
sent: ``nova/manager.py`` takes it back then, after a while, and replies with a failure.  Or nova-conductor, which is
busy after a failover too, takes some seconds from an answer until the server is in a cell.

Not for members of groups: two claims of one server are one member, and the checks count them as two.  And not for
moves: the second scheduler of a move, or the first one again, may answer with another target, and nobody takes back
what a reply named that was dropped.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shared_scheduler.sim.workload import SentRequest, Server, ServerState

if TYPE_CHECKING:
    from shared_scheduler.sim.schedulers import SimScheduler
    from shared_scheduler.sim.world import World

#: an RPC or a cast over the API's message queue takes up to this long
RPC_S = 0.004
#: mean time from a request until it is delivered once more at once, and later; and from an answer
AT_ONCE_S, LATER_S, AFTER_ANSWER_S = 0.02, 1.0, 0.3
#: part of the requests that come again to the same scheduler
SAME = 0.7
#: part of the answers that are taken back, and the longest time until then
UNFIT, UNFIT_S = 0.25, 2.0
#: part of the answers that the conductor is slow to act on, and its longest time; less than ``MAPPED_WITHIN_S``
SLOW, SLOW_S = 0.5, 9.0
#: a copy of a request for such servers is not delivered
OVER = (ServerState.MOVES, ServerState.DELETED)


class RepeatedRequests:
    """``twice``, ``again``: while requests are repeated, the generator of when, and to whom."""

    def __init__(self, world: World) -> None:
        self.twice: Random | None = None
        self.again: Random | None = None
        self._world = world
        self._generators: dict[str, Random] = {}  # by the id of a request that comes again
        self._after_answer: dict[str, SimScheduler] = {}

    def sent(self, asked: SentRequest) -> None:
        """A user's request is on its way to its scheduler."""
        if asked.servers[0].group is not None:
            return
        if self.twice is not None:
            self._deliver_to_another(asked, self.twice)
        if self.again is not None:
            self._deliver_again(asked, self.again)

    def _others(self, asked: SentRequest) -> list[SimScheduler]:
        return [one for _, one in sorted(self._world.schedulers.items()) if one.name != asked.scheduler]

    def _deliver_to_another(self, asked: SentRequest, rng: Random) -> None:
        """Deliver a request to another scheduler too, soon after the first one has got it."""
        if others := self._others(asked):
            other, delay_s = rng.choice(others), RPC_S + rng.expovariate(1 / AT_ONCE_S)
            self._expect(asked, other)
            asked.copies.append((other.name, asked.deadline_s))
            self._world.agenda.work(delay_s, other.ask, asked.request, asked.deadline_s)

    def _deliver_again(self, asked: SentRequest, rng: Random) -> None:
        """Deliver a request again, to the same scheduler or another."""
        self._generators[asked.request.request_id] = rng
        (same,) = (one for one in self._world.schedulers.values() if one.name == asked.scheduler)
        others = self._others(asked)
        receiver = rng.choice(others) if others and rng.random() >= SAME else same
        self._expect(asked, receiver)
        mean_s = rng.choice((AT_ONCE_S, LATER_S, None))
        if mean_s is None:
            self._after_answer[asked.request.request_id] = receiver
        else:
            self._world.agenda.work(RPC_S + rng.expovariate(1 / mean_s), self._deliver, asked, receiver)

    def _expect(self, asked: SentRequest, receiver: SimScheduler) -> None:
        for server in asked.servers:
            server.twins |= {asked.scheduler, receiver.name}
        self._world.trace.note("broker", f"{asked.request.request_id} again to {receiver.name}")

    def _deliver(self, asked: SentRequest, receiver: SimScheduler) -> None:
        """The scheduler has as much time as for the first one, and does not know that its caller waits less long."""
        if not receiver.up or any(server.state in OVER for server in asked.servers):
            return
        self._world.counters["delivered_again"] += 1
        deadline_s = self._world.now + self._world.users.workload.patience_s
        asked.copies.append((receiver.name, deadline_s))
        receiver.ask(asked.request, deadline_s)

    def may_be_taken(self, server: Server) -> bool:
        """Whether a scheduler that got the request for a server may take it from Nova: two have written first, as far
        as they know, or the clock of one has jumped, and it does not wait until Nova knows of the other's answer."""
        world = self._world
        asked_s = world.users.asked[server.request_id].asked_s
        early = any(one.jumped_s > asked_s for one in world.schedulers.values() if one.name in server.twins)
        return early or (len(server.twins) > 1 and world.was_down_since(asked_s))

    # -- answers

    def ended(self, asked: SentRequest) -> None:
        """A scheduler has ended a request: perhaps it comes once more."""
        receiver = self._after_answer.pop(asked.request.request_id, None)
        if receiver is not None:
            rng = self._generators[asked.request.request_id]
            self._world.agenda.work(rng.expovariate(1 / AFTER_ANSWER_S), self._deliver, asked, receiver)

    def taken_back_after_s(self, asked: SentRequest) -> float | None:
        """The time until an answer is taken back, because it cannot be sent; None: it is sent."""
        rng = self._generators.get(asked.request.request_id)
        if rng is None or rng.random() >= UNFIT:
            return None
        self._world.counters["answers_unfit"] += 1
        return rng.random() * UNFIT_S

    def conductor_s(self, asked: SentRequest) -> float:
        """How much longer than usual the conductor takes from an answer until its servers are in a cell."""
        rng = self._generators.get(asked.request.request_id)
        return rng.random() * SLOW_S if rng is not None and rng.random() < SLOW else 0.0

    def swept_after_s(self, asked: SentRequest) -> float:
        """The time until the answer of a copy is taken back whose caller has heard a failure."""
        rng = self._generators.get(asked.request.request_id)
        return 0.0 if rng is None else rng.random() * UNFIT_S

# SPDX-License-Identifier: Apache-2.0
"""The calls of one simulated scheduler that write allocations: the way to Placement, the time there, the way back.

A call that is not answered in time is given up, although Placement carries it out later, unless it takes longer than a
proxy in front of it allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from shared_scheduler.core.events import WriteCode
from shared_scheduler.protocol.messages import Allocations
from shared_scheduler.sim.placement import Write
from shared_scheduler.sim.surroundings import Surroundings

#: part of the calls under way that Placement has not done when it stops; the answers of all are lost
LOST_BEFORE_WRITING = 0.5
#: least time for which an answer is awaited
CALL_MIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call writes for one consumer, and the generation that it expects (None: a new consumer)."""

    claim_id: str
    consumer: str
    allocations: Allocations
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class CallReply:
    """The answer to a call.  UNREACHABLE: there was none, and it ``may_arrive`` later, unless it was not ``sent``."""

    code: WriteCode
    detail: str = ""
    may_arrive: bool = False
    sent: bool = True


@dataclass(slots=True, eq=False)
class _Call:
    """``replied`` is called once."""

    wanted: Sequence[Wanted]
    replied: Callable[[CallReply], None]
    ends_s: float = float("inf")  # when the proxy ends it
    loses: bool = False
    is_awaited: bool = True
    writes: list[Write] = field(default_factory=list)


def _order(refusal: tuple[WriteCode, str]) -> int:
    """Placement compares the generations of all consumers, then looks for all providers, then for room."""
    last = (WriteCode.UNKNOWN_PROVIDER, WriteCode.NO_CAPACITY)
    return last.index(refusal[0]) + 1 if refusal[0] in last else 0


class WriteCalls:
    """The calls under way."""

    def __init__(self, around: Surroundings, rng: Random, writer: str) -> None:
        self._agenda = around.agenda
        self._placement = around.placement
        self._trace = around.trace
        self._delay_s = around.placement_delay_s
        self._rng = rng
        self._writer = writer

    def send(self, wanted: Sequence[Wanted], left_s: float, replied: Callable[[CallReply], None]) -> None:
        """Send a call, whose answer is awaited for ``left_s``."""
        call = _Call(wanted, replied)
        self._agenda.work(self._delay_s() / 2 + self._placement.held_s, self._arrive, call)
        self._agenda.after(max(CALL_MIN_S, left_s), self._give_up, call)

    def _arrive(self, call: _Call) -> None:
        """Placement begins: it makes the records, and checks the capacity."""
        placement = self._placement
        if not placement.up:
            self._reply(call, CallReply(WriteCode.UNREACHABLE, "nobody listens", sent=False))
            return
        call.ends_s, call.loses = self._agenda.now + placement.proxy_timeout_s, placement.loses_s > 0
        wanted = [(one.consumer, one.allocations, one.generation) for one in call.wanted]
        call.writes = placement.begin_writes(wanted, self._writer)
        takes_s = placement.loses_s + placement.takes_s(len(wanted))
        self._agenda.work(self._delay_s() / 2 + takes_s, self._end, call)

    def _end(self, call: _Call) -> None:
        """Placement commits: all writes of the call, or none.

        The records of a call that is lost stay, and those of one that names an unknown provider.
        """
        placement = self._placement
        if self._agenda.now > call.ends_s:
            return
        if not placement.up and self._rng.random() < LOST_BEFORE_WRITING:
            self._reply(call, CallReply(WriteCode.UNREACHABLE, "died before", True))
            return
        reply = self._carry_out(call)
        if not placement.answers:
            reply = CallReply(WriteCode.UNREACHABLE, "the answer is lost", True)
        self._reply(call, reply)

    def _carry_out(self, call: _Call) -> CallReply:
        placement = self._placement
        refusal = min(filter(None, map(placement.refusal, call.writes)), key=_order, default=None)
        if call.loses and (refusal is None or refusal[0] is WriteCode.NO_CAPACITY):
            refusal = WriteCode.PROVIDER_CONFLICT, "all retries have lost a race for a provider"
        for write in call.writes:
            if refusal is None:
                placement.end_write(write)
            elif refusal[0] is not WriteCode.UNKNOWN_PROVIDER:
                placement.fail(write)
        return CallReply(*(refusal or (WriteCode.WRITTEN, "")))

    def _give_up(self, call: _Call) -> None:
        """No answer came in time."""
        if call.is_awaited:
            self._reply(call, CallReply(WriteCode.UNREACHABLE, "Placement did not answer in time", True))

    def _reply(self, call: _Call, reply: CallReply) -> None:
        for one in call.wanted:
            self._trace.note("placement", f"{reply.code.value} {one.claim_id} {one.consumer}")
        if call.is_awaited:
            call.is_awaited = False
            call.replied(reply)

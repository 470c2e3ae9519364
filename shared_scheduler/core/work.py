# SPDX-License-Identifier: Apache-2.0
"""What is remembered of a request while it is under way (requests.py tells how it moves)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shared_scheduler.core.claims import OpenClaim
from shared_scheduler.core.effects import Choice, FailureCode
from shared_scheduler.core.journal import Journal
from shared_scheduler.decision.pipeline import Narrowing
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Reason

#: the reason of a host whose agent gave no verdict
NO_VERDICT = "no_verdict"


class Phase(StrEnum):
    """Where a request is."""

    PLACING = "placing"
    DOUBTING = "doubting"
    FAILING = "failing"


class SeatState(StrEnum):
    """Where one instance of a request is."""

    OPEN = "open"  # to be decided
    WAITING = "waiting"  # for a claim to land, or for others to have their turn
    ASKING = "asking"  # Placement is asked for candidates of one host
    CLAIMING = "claiming"  # its claim is with the agent or with Placement
    WRITTEN = "written"


@dataclass(slots=True)
class Seat:
    """One instance of a request: ``choice`` is set once a host was chosen for it."""

    index: int
    consumer: str
    state: SeatState = SeatState.OPEN
    choice: Choice | None = None
    claim: OpenClaim | None = None
    #: the host whose candidates Placement is asked for
    asked: str = ""
    ask_id: str = ""
    #: hosts that refused this instance, and the last reason
    out: dict[str, Reason] = field(default_factory=dict)
    attempts: int = 0
    #: hosts judged although a filter over columns had left them out
    last_words: int = 0

    def reopen(self) -> None:
        """Its host is lost; decide it again."""
        self.state, self.choice, self.claim = SeatState.OPEN, None, None


@dataclass(slots=True)
class AlternatesSearch:
    """Alternates of one set of chosen nodes: found so far, and what is still asked of Placement."""

    chosen: frozenset[str]
    found: dict[str, list[Choice]] = field(default_factory=dict)  # cell -> best first
    waiting: dict[str, str] = field(default_factory=dict)  # ask id -> node
    asked: list[str] = field(default_factory=list)  # nodes, the best of a cell first

    def add(self, choice: Choice) -> None:
        """One of those that were asked for; answers come in any order."""
        found = self.found.setdefault(choice.cell, [])
        found.append(choice)
        found.sort(key=lambda one: self.asked.index(one.node))


@dataclass(slots=True)
class Work:
    """One request under way."""

    key: int
    request: Request
    arrived_s: float
    deadline_s: float
    seats: list[Seat]
    phase: Phase = Phase.PLACING
    doubted: bool = False
    #: the only hosts to try, once Placement has named those that have candidates
    fitting: frozenset[str] | None = None
    journal: Journal = field(default_factory=Journal)
    #: what the first instance's decision leaves to the others (Nova's once-per-request filters)
    narrowing: Narrowing = field(default_factory=Narrowing)
    alternates: AlternatesSearch | None = None
    failure: tuple[FailureCode, str] | None = None

    @classmethod
    def begin(cls, key: int, request: Request, now: float, deadline_s: float) -> Work:
        """All instances are open."""
        seats = [Seat(i, consumer) for i, consumer in enumerate(request.instance_uuids)]
        return cls(key, request, now, deadline_s, seats)

    @property
    def claims_hosts(self) -> bool:
        """Whether hosts are claimed for it: not for a rebuild, and not for legacy callers."""
        return self.request.claim and bool(self.request.forms)

    def leaves_out(self, seat: Seat, node: str) -> bool:
        """Whether a host is not to be tried for this instance."""
        return node in seat.out or (self.fitting is not None and node not in self.fitting)

    def claims(self) -> Iterator[OpenClaim]:
        """Those that have not ended."""
        return (seat.claim for seat in self.seats if seat.claim is not None)

    def next_open(self) -> Seat | None:
        """The instance to decide now: none while one waits for its candidates or for a claim to land."""
        for seat in self.seats:
            if seat.state in (SeatState.ASKING, SeatState.WAITING):
                return None
            if seat.state == SeatState.OPEN:
                return seat
        return None

    def wake(self) -> None:
        """Claims have landed, or others had their turn: decide what waited for that."""
        for seat in self.seats:
            if seat.state == SeatState.WAITING:
                seat.state = SeatState.OPEN

    def all_in(self, *states: SeatState) -> bool:
        """Whether every instance is in one of ``states``."""
        return all(seat.state in states for seat in self.seats)

    def chosen(self) -> frozenset[str]:
        """Nodes that instances are on."""
        return frozenset(seat.choice.node for seat in self.seats if seat.choice is not None)

    def request_for_alternates(self) -> Request:
        """As Nova: one instance alone does not bind its group to the host that is chosen for it, for an
        alternate is where it goes if it is not built there; several bind one another."""
        return self.request_for(self.seats[0] if len(self.seats) == 1 else None)

    def request_for(self, seat: Seat | None) -> Request:
        """The request as one instance sees it: the others are in the server group already."""
        group = self.request.group
        others = [s for s in self.seats if s is not seat and s.choice is not None]
        if group is None or not others:
            return self.request
        hosts = group.hosts | {s.choice.host for s in others if s.choice is not None}
        members = group.members | {s.consumer for s in others if s.consumer}
        return replace(self.request, group=replace(group, hosts=hosts, members=members))

# SPDX-License-Identifier: Apache-2.0
"""A hypothesis state machine of confirmed claims: each claim counts until there is evidence.

One node whose agent accepts everything, reports changes at any later time, and sends heartbeats.  Servers are built and
deleted; Placement answers anything.  At any time the row counts each server once: those in its base, and those that
were promised and for which there is no evidence that they are in the base or deleted.
"""

from __future__ import annotations

from collections import deque

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shared_scheduler.core import effects as ef
from shared_scheduler.core.events import ConsumerAnswered
from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import Consumer, Heartbeat, Increment
from tests.unit.core.scheduler_driver import (
    SchedulerDriver,
    host_of,
    node_leaves,
    of_kind,
    only,
    only_claim,
    request,
    taken,
)

NODE = "node-1"
VCPUS, FREE_MB = 64, 8192
SERVERS_MAX = 4
HEARTBEAT_S = 5.0
#: by then Placement must have been asked about a claim that its node does not show
ASKED_WITHIN_S = 40.0


class ClaimMachine(RuleBasedStateMachine):
    """`promised`: servers that were answered and that only the overlay holds."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = SchedulerDriver().with_agents(NODE, vcpus=VCPUS)
        self.leaves = node_leaves(NODE, VCPUS, FREE_MB)
        self.sequence = self.delivered = 1  # of the agent; of what the scheduler has heard
        self.on_its_way: deque[Increment] = deque()
        self.base: dict[str, Consumer] = {}  # as heard
        self.pending: dict[str, str] = {}  # claim id -> consumer, as heard
        self.claims: dict[str, str] = {}  # consumer -> claim id, of all that were built and not deleted
        self.promised: dict[str, int] = {}  # consumer -> the sequence that shows it
        self.asked: set[str] = set()  # of Placement
        self.count = 0

    # -- the node

    @precondition(lambda self: len(self.claims) < SERVERS_MAX)
    @rule()
    def build(self) -> None:
        """A request is answered: accepted, written, confirmed."""
        self.count += 1
        server = f"server-{self.count}"
        claim = only_claim(self.driver.ask(request(server)))
        self._tell({server: Consumer(taken(NODE), False)}, {claim.claim_id: server})
        self.driver.written(only(ef.WriteAllocation, self.driver.accept(claim, self.sequence)))
        self.claims[server], self.promised[server] = claim.claim_id, self.sequence

    @precondition(lambda self: set(self.claims) & set(self.base))
    @rule()
    def delete(self) -> None:
        """A server that everybody knows is deleted."""
        server = min(set(self.claims) & set(self.base))
        self._tell({server: None}, {self.claims.pop(server): None})

    def _tell(self, consumers: dict[str, Consumer | None], claims: dict[str, str | None]) -> None:
        self.sequence += 1
        self.on_its_way.append(Increment(NODE, 1, self.sequence, {}, consumers, claims))

    @precondition(lambda self: self.on_its_way)
    @rule()
    def deliver(self) -> None:
        """The next of what the agent has told arrives."""
        news = self.on_its_way.popleft()
        self.driver.hear(news)
        self.delivered = news.sequence
        for held, changes in ((self.base, news.consumers), (self.pending, news.claims)):
            held.update({key: value for key, value in changes.items() if value is not None})  # type: ignore[attr-defined]
            for key in [key for key, value in changes.items() if value is None]:
                held.pop(key, None)  # type: ignore[attr-defined]
        self.promised = {server: shown for server, shown in self.promised.items() if shown > self.delivered}

    # -- time and Placement

    @rule(for_s=st.sampled_from([0.1, 3.0, 20.0, 100.0]))
    def wait(self, for_s: float) -> None:
        """The agent goes on to heartbeat, at what it has got through."""
        asked: set[str] = set()
        for _ in range(max(1, int(for_s / HEARTBEAT_S))):
            questions = of_kind(ef.AskConsumer, self.driver.wait(min(for_s, HEARTBEAT_S)))
            asked |= {question.consumer for question in questions}
            digest = digest_of(self.leaves, self.base, self.pending)
            self.driver.hear(Heartbeat(NODE, 1, self.delivered, host_of(NODE), digest))
        self.asked |= asked
        assert for_s < ASKED_WITHIN_S or self.promised.keys() <= asked, "nobody reads what is not shown"

    @precondition(lambda self: self.asked)
    @rule(says=st.sampled_from(["holds", "holds", "does not answer", "knows nothing"]))
    def answer(self, says: str) -> None:
        """Only that Placement knows nothing of it is evidence; then it was deleted meanwhile."""
        server = min(self.asked)
        self.asked.discard(server)
        if says == "does not answer":
            self.driver.give(ConsumerAnswered(server, {}, "HTTP 503", cause="req-1"))
            return
        if says == "holds" or server not in self.promised:
            self.driver.give(ConsumerAnswered(server, taken(NODE), "", cause="req-1"))
            return
        self.driver.give(ConsumerAnswered(server, {}, "", cause="req-1"))
        del self.promised[server]
        self._tell({server: None}, {self.claims.pop(server): None})

    # -- what must hold

    @invariant()
    def every_server_counts_once_until_there_is_evidence(self) -> None:
        expected = self.base.keys() | self.promised.keys()
        used = self.driver.table.view(NODE).used.get(NODE, {}).get("VCPU", 0)
        assert used == len(expected), f"the row counts {used} servers, not {sorted(expected)}"

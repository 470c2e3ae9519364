# SPDX-License-Identifier: Apache-2.0
"""A complete scheduler core that writes to a real Placement, and a second writer that interferes."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.request import Flavor, PlacementForm, Request
from shared_scheduler.placement.batch_writer import BatchWriter
from shared_scheduler.placement.client import PlacementClient
from shared_scheduler.placement.connection import Reply, Transport, no_reply
from shared_scheduler.placement.reconciler import without_nova
from shared_scheduler.protocol.messages import Usage
from shared_scheduler.sync.question_reads import QuestionReads
from shared_scheduler.sync.read_registry import SOURCES
from shared_scheduler.sync.revalidator import Revalidator
from tests.unit.core.scheduler_driver import CELL, SchedulerDriver, host_of, node_leaves

WAIT_S = 120.0

#: Called with (method, path) and a function that sends the request.
Between = Callable[[str, str, Callable[[], Reply]], Reply]


class Interfering:
    """A transport that runs each planned action once, before or after one of our calls."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._plan: list[tuple[str, str, Between]] = []
        self.codes: list[str] = []

    def at(self, method: str, path: str, between: Between) -> None:
        """Let ``between`` send the next call of this method and path prefix."""
        self._plan.append((method, path, between))

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None,
        request_id: str = "", timeout_s: float | None = 10.0,
    ) -> Reply:  # fmt: skip
        """See ``Transport``."""

        def go() -> Reply:
            return self._transport.call(method, path, body, request_id, timeout_s)

        for planned in self._plan:
            if method == planned[0] and path.startswith(planned[1]):
                self._plan.remove(planned)
                reply = planned[2](method, path, go)
                break
        else:
            reply = go()
        if reply.status == 409:
            self.codes.append(reply.code)
        return reply


def before(action: Callable[[], None]) -> Between:
    """Run an action before this call."""

    def between(_method: str, _path: str, go: Callable[[], Reply]) -> Reply:
        action()
        return go()

    return between


def after(action: Callable[[], None]) -> Between:
    """Run an action right after this call."""

    def between(_method: str, _path: str, go: Callable[[], Reply]) -> Reply:
        reply = go()
        action()
        return reply

    return between


def lose_reply(_method: str, _path: str, go: Callable[[], Reply]) -> Reply:
    """The call is carried out, and its reply is lost."""
    go()
    return no_reply("read timed out")


class PlacementDriver(SchedulerDriver):
    """A core without agents.  ``select`` is the call of a conductor."""

    def __init__(self, transport: Transport, **settings: Any) -> None:
        # ten seconds are not enough for a write where the machine stands still
        super().__init__(**{"write_timeout_s": WAIT_S, **settings})
        self.http = Interfering(transport)
        self.outcomes: list[ef.Answer | ef.Fail] = []
        self.written_unchecked = 0
        self._events: queue.Queue[Any] = queue.Queue()
        client = PlacementClient(self.http)
        self._writer = BatchWriter(client, self._events.put, without_nova)
        self._revalidator = Revalidator(self._events.put, sources=[each for each in SOURCES if each.is_on_request])
        self._questions = QuestionReads(client, self._revalidator, self._events.put, lambda _: {}, lambda *_: {})
        self._writer.start()
        self._revalidator.start()

    def stop(self) -> None:
        """Stop its threads."""
        self._revalidator.stop()
        self._questions.stop()
        self._writer.stop()

    def knows(self, *nodes: str, vcpus: int = 8, free_mb: int = 8192) -> None:
        """Add these hosts; the first one is the best."""
        self._services(nodes, CELL)
        for place, node in enumerate(nodes):
            leaves = node_leaves(node, vcpus, free_mb - place * 1024)
            del leaves["agent.mode"], leaves["agent.ready"]
            root = leaves[f"rp.{node}"]
            assert isinstance(root, dict)
            root["inventories"] = {"VCPU": [vcpus, 0, 1, vcpus, 1, 1.0]}
            host = host_of(node)
            self.give(ev.NodeRead(CELL, node, host, host, leaves, {}, frozenset(), 0.0))

    def select(self, request: Request) -> ef.Answer | ef.Fail:
        """Run one request until it ends, with all its calls to Placement."""
        found = self._step(ev.RequestArrived(request, time.monotonic() + WAIT_S))
        while found is None:
            found = self._next()
        return found

    def select_all(self, requests: Sequence[Request], at_once: int = 8) -> None:
        """Run all requests until they end, this many at the same time; see ``outcomes``."""
        waiting = list(requests)
        while len(self.outcomes) < len(requests):
            under_way = len(requests) - len(waiting) - len(self.outcomes)
            if waiting and under_way < at_once:
                self._step(ev.RequestArrived(waiting.pop(), time.monotonic() + WAIT_S))
            else:
                self._next()

    def settled(self) -> None:
        """Run until no claim is under way."""
        while len(self.core.claims):
            self._next()

    def _next(self) -> ef.Answer | ef.Fail | None:
        due_s = self.core.next_deadline_s()
        wait_s = WAIT_S if due_s is None else max(0.0, due_s - time.monotonic())
        try:
            return self._step(self._events.get(timeout=min(wait_s, WAIT_S)))
        except queue.Empty:
            return self._step(ev.Tick())

    def _step(self, event: ev.Event) -> ef.Answer | ef.Fail | None:
        self.now = time.monotonic()
        outcome: ef.Answer | ef.Fail | None = None
        for effect in self.give(event):
            if isinstance(effect, ef.WriteAllocation | ef.DeleteAllocation):
                self._writer.submit(effect)
                unchecked = isinstance(effect, ef.WriteAllocation) and not effect.serialise
                self.written_unchecked += unchecked
            elif isinstance(effect, ef.AskCandidates | ef.AskFitting | ef.AskConsumer):
                self._questions.submit(effect)
            elif isinstance(effect, ef.Answer | ef.Fail):
                outcome = effect
                self.outcomes.append(effect)
        return outcome


def vcpus_for(*servers: str, vcpus: int = 2, **changes: Any) -> Request:
    """The request of a conductor for servers of two VCPUs (or another number)."""
    return Request(
        request_id="req-1", project_id="project", user_id="user",
        flavor=Flavor("small", vcpus=vcpus), forms=(PlacementForm({"VCPU": vcpus}),),
        usage=Usage(vcpus, 0, 0, 1, 1), instance_uuids=servers,
        queries=(f"resources=VCPU:{vcpus}",), **changes,
    )  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Schedulers and nova-computes in one process, for Nova's own functional tests.

``attach`` gives each ResourceTracker of a test an embedded agent, and puts agents and schedulers onto one
local bus in place of RabbitMQ, until the test is over.  It is called before the ``setUp`` of the test,
registers its clean-up with the test, and changes only the functions that it names.

The hooks and the agent are those of the product.  Two things differ.  The hooks are on the class, because Nova's tests
replace its methods after a tracker was made.  And nova-compute waits until schedulers have received a change,
because the next step of a test relies on it.

Two things are mended.  Both failures are Nova's: they occur with its own scheduler too.  Nova's ``CellDatabases``
makes the cell that one thread targets the current one of all threads, under a lock of readers and writers.

- A periodic task that runs in a cell is a reader, and waits for a thread that is to become one.  If the API waits to
  switch to cell 0 in between, this thread waits for the API, and none of the three goes on.  So readers join those who
  read already, whoever waits to write.
- While the API lists something over all cells, cell 0 is the current one, and a thread that has no cell of its own
  does not find its compute node.  The list only needs contexts, so it is made without switching.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

from nova import context
from nova.compute.resource_tracker import ResourceTracker
from oslo_concurrency.lockutils import ReaderWriterLock

from compute_agent.agent_settings import AgentSettings
from compute_agent.core import AgentCore
from compute_agent.effects import Broadcast, KeptClaim
from compute_agent.service.agent import Agent, Do
from compute_agent.tap.embedded import MODE, EmbeddedAgent
from compute_agent.tap.hooks import METHODS, Hooks
from compute_agent.tap_wire import TapMessage
from shared_scheduler.nova import cells, running  # noqa: F401  see below
from shared_scheduler.novalib.report_client import NovaTransport
from shared_scheduler.novalib.topology import NovaTopologyFit
from shared_scheduler.placement.reader import PlacementReader
from shared_scheduler.transport.channel import Channel
from tests.support.local_bus import LocalBus

# The scheduler is imported here, because a test starts it too late: NumPy asks for the machine's name when
# it is imported, and Nova's tests forbid that from their setUp on.

LOG = logging.getLogger(__name__)

#: How long nova-compute waits until schedulers have received a change.
TOLD_WITHIN_S = 30.0


class NothingKept:
    """The state directory of an agent that stores nothing, because it ends together with its nova-compute."""

    def kept(self) -> Mapping[str, tuple[KeptClaim, ...]]:
        """Nothing."""
        return {}

    def keep(self, node: str, claims: tuple[KeptClaim, ...], groups: Mapping[str, str]) -> None:
        """Not stored; claims are found again in Placement and in the tracker."""

    def groups(self, node: str) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def forget(self, node: str) -> None:
        """There is nothing to delete."""

    def keep_epoch(self, epoch: int) -> None:
        """Not stored; the clock gives the next epoch."""

    def close(self) -> None:
        """There is nothing to release."""


class SettlingAgent(Agent):
    """The agent, with a way to wait until it has sent all changes to the schedulers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settling: list[Callable[[], None]] = []

    def when_settled(self, told: Callable[[], None]) -> None:
        """Call ``told`` when everything put before is handled, what Placement is asked because of it
        is answered, and schedulers were told."""
        self.put(Do(lambda: self._settling.append(told)))

    def run(self) -> None:
        """Run until ``stop``; waiting threads are released then."""
        super().run()
        self._tell_settled()

    def _handle_next(self) -> None:
        super()._handle_next()
        if self._settling and self._is_settled():
            now = time.monotonic()
            for core in self.cores.values():
                if core.publisher.open:
                    self._carry_out(Broadcast(message) for message in core.publisher.pipe.flush(now))
            self._tell_settled()

    def _is_settled(self) -> bool:
        now = time.monotonic()
        return self._inbox.empty() and not any(_asks_placement(core, now) for core in self.cores.values())

    def _tell_settled(self) -> None:
        settling, self._settling = self._settling, []
        for told in settling:
            told()


def _asks_placement(core: AgentCore, now: float) -> bool:
    """Whether a read of Placement is under way or due."""
    plans = [core.tree, core.allocations] if core.ledger.mirror.tree_known else [core.tree]
    return any(plan.reading or plan.is_due(now) for plan in plans)


class WaitingSink(EmbeddedAgent):
    """Lets nova-compute wait until schedulers have received a change; ``agent`` is the running one."""

    def __init__(self, tracker: Any, make: Callable[[Any], SettlingAgent], wait_s: float) -> None:
        super().__init__(tracker, make)
        self._wait_s = wait_s

    @property
    def agent(self) -> SettlingAgent | None:
        """The agent, while it runs."""
        agent = self._agent
        assert agent is None or isinstance(agent, SettlingAgent)
        return agent

    def put(self, message: TapMessage) -> None:
        """Pass a change to the agent, and wait until it has sent it to the schedulers."""
        super().put(message)
        agent = self.agent
        if agent is None or self._wait_s <= 0:
            return
        told = threading.Event()
        agent.when_settled(told.set)
        if not told.wait(self._wait_s):
            LOG.warning("schedulers were not told of host %s within %.0f s", agent.host, self._wait_s)


class EmbeddedAgents:
    """The agents of the trackers of one class."""

    def __init__(self, make: Callable[[Any], SettlingAgent], wait_s: float = TOLD_WITHIN_S) -> None:
        """``make`` creates the agent of a tracker at its first report."""
        self.make = make
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._hooks: dict[Any, Hooks] = {}  # by tracker
        self.sinks: dict[str, WaitingSink] = {}  # by host: those that have or had an agent

    def hooks(self, trackers: type) -> Iterator[tuple[str, Callable[..., Any]]]:
        """(name, hooked method), to be set on the class."""
        for name in METHODS:
            yield name, self._on_class(name, getattr(trackers, name))

    def _on_class(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def hooked(tracker: Any, *args: Any, **kwargs: Any) -> Any:
            own = functools.partial(original, tracker)
            return self._hooks_of(tracker).hooked(name, own)(*args, **kwargs)

        return hooked

    def _hooks_of(self, tracker: Any) -> Hooks:
        with self._lock:
            if tracker not in self._hooks:
                sink = WaitingSink(tracker, lambda one: self._agent_of(one, sink), self._wait_s)
                self._hooks[tracker] = Hooks(tracker, os.getpid(), lambda _: sink)
            return self._hooks[tracker]

    def _agent_of(self, tracker: Any, sink: WaitingSink) -> SettlingAgent:
        """Stop the agent of an earlier tracker of the host, because nova-compute was restarted."""
        earlier = self.sinks.get(str(tracker.host))
        if earlier is not None and earlier is not sink:
            earlier.stop()
        self.sinks[str(tracker.host)] = sink
        return self.make(tracker)

    def stop(self) -> None:
        """End all agents."""
        for sink in list(self.sinks.values()):
            sink.stop()


def attach(testcase: Any) -> None:
    """Create agents for the computes of one test; ``testcase`` only needs ``addCleanup``."""
    bus = LocalBus()
    agents = EmbeddedAgents(lambda tracker: _agent(tracker, bus))
    _replace(testcase, cells, "open_bus", lambda _url: bus)
    for name, hooked in agents.hooks(ResourceTracker):
        _replace(testcase, ResourceTracker, name, hooked)
    _replace(testcase, context, "scatter_gather_cells", _as_it_is_now(context.scatter_gather_cells))
    _replace(testcase, ReaderWriterLock, "has_pending_writers", property(_is_a_writer_next))
    testcase.addCleanup(agents.stop)


def _replace(testcase: Any, owner: Any, name: str, value: Any) -> None:
    testcase.addCleanup(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def _as_it_is_now(function: FunctionType) -> FunctionType:
    """The function, which goes on to call what it calls now, whatever a test puts in the place of that."""
    names = dict(function.__globals__)
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def _is_a_writer_next(lock: Any) -> bool:
    """Whether somebody who wants to read has to wait for a writer that waits."""
    return bool(lock._pending_writers) and not lock._readers


def _agent(tracker: Any, bus: LocalBus) -> SettlingAgent:
    """The epoch is taken from the clock, so it is greater than that of an earlier agent of the host."""
    return SettlingAgent(
        tracker.host,
        Channel(bus.agent_endpoint(tracker.host)),
        PlacementReader(NovaTransport(tracker.reportclient)),
        NothingKept(),
        int(time.time() * 1000),
        NovaTopologyFit(),
        AgentSettings(),
        random.Random(),
        MODE,
    )

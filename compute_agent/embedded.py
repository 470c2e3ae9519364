# SPDX-License-Identifier: Apache-2.0
"""The agent inside nova-compute: one process less for small sites.

Ten methods of the ResourceTracker class are hooked; every tracker of the process then has an agent of
its own (nova-compute has one tracker), made when it reports for the first time: in the process that
serves, after any fork.  The agent is that of ``service/agent.py`` with its own thread, Placement reader
and channel; only the socket between the two is gone.

==========================  ====================================================================
``_update``                 after it, also when it raises: memory is right, Placement and database
                            were written; Nova's lock is held
``update_available_         marks ``_update`` calls below it as audits: without one since nova-compute
resource``                  began, claims are refused
``_update_usage_from_       before it: which image the instance has
instance``
``_drop_move_claim``        before and after it: the tracker forgets the move behind its ``_update``
the device tracker's        after it: devices taken and freed past ``_update``; Nova's lock is held
``save``
``*_claim``                 when they raise: what a scheduler claimed for the instance has ended; Nova's
                            lock is not held
``remove_node``,            after them: nodes that the tracker has no more are gone
``clean_compute_node_cache``
the driver's                after it: nova-compute ends, and the agent says goodbye before its process
``cleanup_host``            is gone; a tracker that reports once more gets an agent in a newer epoch
==========================  ====================================================================

A hook never raises, and never waits for the agent: what finds no room in its inbox is told by the next
report.  It waits for schedulers to be told only where ``wait_s`` says so: in one process with the
schedulers nothing is gained by going on before they know.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from compute_agent.effects import KeptClaim
from compute_agent.mistakes import Mistakes
from compute_agent.service.agent import Agent
from compute_agent.tap.picture import Reader, changes
from compute_agent.tap.refusals import CLAIMS, refused
from compute_agent.tap.wire import ClaimFailed, NodeGone, NodeReported, TapHello, TreeWritten
from shared_scheduler.protocol.messages import Leaf

LOG = logging.getLogger(__name__)

#: What is hooked; all of them are there in Nova 34.
UPDATED = "_update"
AUDITS = "update_available_resource"
COUNTED = "_update_usage_from_instance"
MOVE_DROPPED = "_drop_move_claim"
REMOVED = ("remove_node", "clean_compute_node_cache")
METHODS = (UPDATED, AUDITS, COUNTED, MOVE_DROPPED, *CLAIMS, *REMOVED)
#: What its agents call themselves in ``agent.mode``.
MODE = "embedded"
#: Why nothing is accepted any more while it ends.
ENDED = "nova-compute ends"
#: How long ``stop`` waits for the agent's thread.
JOIN_S = 10.0

MakeAgent = Callable[[Any], Agent]


class NothingKept:
    """The state of an agent that ends with the process whose claims it has accepted."""

    def kept(self) -> Mapping[str, tuple[KeptClaim, ...]]:
        """Nothing."""
        return {}

    def keep(self, node: str, claims: tuple[KeptClaim, ...]) -> None:
        """Claims are found again in Placement and in the tracker."""

    def forget(self, node: str) -> None:
        """Nothing is remembered."""

    def keep_epoch(self, epoch: int) -> None:
        """The clock makes the next one."""

    def close(self) -> None:
        """There is nothing to give free."""


class EmbeddedAgent:
    """One tracker's agent, and what it was told."""

    def __init__(self, tracker: Any, agent: Agent, wait_s: float) -> None:
        self._tracker = tracker
        self._agent = agent
        self._wait_s = wait_s
        self._reader = Reader(tracker)
        self._nodes: dict[str, str] = {}  # nodename -> uuid
        self._audited: set[str] = set()  # nodenames
        self._trees: dict[str, bytes] = {}
        self._topologies: dict[str, dict[str, Leaf]] = {}  # by nodename, as told
        self._devices: Any = None
        self._ended = False
        self._thread = threading.Thread(target=agent.run, name="compute-agent", daemon=True)
        self._thread.start()
        agent.told(TapHello(str(tracker.host), os.getpid()))

    @property
    def host(self) -> str:
        """The nova-compute service that it speaks for."""
        return str(self._tracker.host)

    def updated(self, nodename: str, audited: bool = False) -> None:
        """The tracker has changed a node, under Nova's lock; in an audit it has counted everything."""
        compute_node = self._tracker.compute_nodes.get(nodename)
        if compute_node is None:
            return  # the record is being moved from another host, the audit follows
        node = self._nodes[nodename] = str(compute_node.uuid)
        leaves, members = self._reader.leaves(nodename), self._reader.members(nodename)
        self._reader.forget_gone()
        ready = audited or nodename in self._audited
        self._agent.told(NodeReported(node, leaves, members, complete=True, ready=ready))
        if ready:
            self._audited.add(nodename)
        self._topologies[nodename] = self._reader.topology(nodename)
        self._tell_of_tree(node)
        self._follow_devices()
        self._wait()

    def counting(self, instance: Any) -> None:
        """The tracker is about to count this instance, or not to count it any more."""
        self._reader.see(instance)

    def _follow_devices(self) -> None:
        """Their tracker is made during the first audit."""
        devices = self._tracker.pci_tracker
        if devices is not None and devices is not self._devices:
            self._devices = devices
            devices.save = hooked(devices.save, after=lambda *_, **__: self._devices_changed())

    def _devices_changed(self) -> None:
        if self._ended:
            return  # the tracker lives on, with another agent that follows them
        for nodename, node in self._nodes.items():
            if nodename in self._tracker.compute_nodes:
                now_is = self._reader.topology(nodename)
                changed = changes(self._topologies.get(nodename, {}), now_is)
                if changed:
                    self._agent.told(NodeReported(node, changed, ready=nodename in self._audited))
                self._topologies[nodename] = now_is
        self._wait()

    def move_ends(self, uuid: str) -> None:
        """The tracker is about to forget a move of this instance."""
        self._reader.move_ends(uuid)

    def move_ended(self, nodename: str, uuid: str) -> None:
        """It has."""
        self._reader.move_ended(nodename, uuid)
        self.updated(nodename)

    def refused(self, refusal: ClaimFailed) -> None:
        """nova-compute could not take an instance."""
        self._agent.told(refusal)
        self._wait()

    def _tell_of_tree(self, node: str) -> None:
        if self._tracker.provider_tree is None:
            return  # Placement was never reached
        digest = self._reader.tree_digest(node)
        if self._trees.get(node) != digest:
            self._agent.told(TreeWritten(node))
            self._trees[node] = digest

    def removed(self) -> None:
        """The tracker may have dropped nodes."""
        for nodename in self._nodes.keys() - self._tracker.compute_nodes.keys():
            node = self._nodes[nodename]
            self._agent.told(NodeGone(node))
            del self._nodes[nodename]
            self._audited.discard(nodename)
            self._trees.pop(node, None)
            self._topologies.pop(nodename, None)
        self._wait()

    def stop(self) -> None:
        """Say that nova-compute takes nothing more, say goodbye, and end the thread."""
        self._ended = True
        self._agent.tap_lost(ENDED)
        self._agent.stop()
        self._thread.join(JOIN_S)

    def _wait(self) -> None:
        """Until schedulers know, as far as the channel can tell."""
        if self._wait_s <= 0:
            return
        told = threading.Event()
        self._agent.when_settled(told.set)
        if not told.wait(self._wait_s):
            LOG.warning("schedulers were not told of host %s within %.0f s", self.host, self._wait_s)


class TrackerClass(Protocol):
    """Nova's ResourceTracker class."""

    _update: Callable[..., Any]
    update_available_resource: Callable[..., Any]
    _update_usage_from_instance: Callable[..., Any]
    _drop_move_claim: Callable[..., Any]
    instance_claim: Callable[..., Any]
    rebuild_claim: Callable[..., Any]
    resize_claim: Callable[..., Any]
    live_migration_claim: Callable[..., Any]
    remove_node: Callable[..., Any]
    clean_compute_node_cache: Callable[..., Any]


def hooked(
    original: Callable[..., Any],
    after: Callable[..., None] | None = None,
    before: Callable[..., None] | None = None,
    raised: Callable[..., None] | None = None,
) -> Callable[..., Any]:
    """``original`` with what is called around it, with the same arguments, whatever becomes of it.

    ``raised`` is given the error first.
    """
    mistakes = Mistakes(LOG, "embedded agent")

    @functools.wraps(original)
    def around(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            mistakes.safely(before, *args, **kwargs)
        try:
            return original(*args, **kwargs)
        except Exception as error:
            if raised is not None:
                mistakes.safely(raised, error, *args, **kwargs)
            raise
        finally:
            if after is not None:
                mistakes.safely(after, *args, **kwargs)

    return around


class EmbeddedAgents:
    """The agents of this process, by tracker; an object's, never a module's."""

    def __init__(self, make: MakeAgent, wait_s: float = 0.0) -> None:
        """``make`` builds the agent of a tracker that reports for the first time."""
        self._make = make
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._audits = threading.local()
        self._agents: dict[str, tuple[Any, EmbeddedAgent]] = {}  # host -> its tracker and agent

    def hooks(self, trackers: type[TrackerClass]) -> Iterator[tuple[str, Callable[..., Any]]]:
        """(name, hooked method) for whoever puts them onto the class."""
        yield UPDATED, hooked(getattr(trackers, UPDATED), self._updated)
        yield AUDITS, hooked(getattr(trackers, AUDITS), self._audit_ends, before=self._audit_begins)
        yield COUNTED, hooked(getattr(trackers, COUNTED), before=self._counting)
        dropping = getattr(trackers, MOVE_DROPPED)
        yield MOVE_DROPPED, hooked(dropping, self._move_dropped, before=self._move_drops)
        for name in CLAIMS:
            yield name, hooked(getattr(trackers, name), raised=self._refuses(name))
        for name in REMOVED:
            yield name, hooked(getattr(trackers, name), self._removed)

    def stop(self) -> None:
        """End all agents."""
        with self._lock:
            ended, self._agents = list(self._agents.values()), {}
        for _, agent in ended:
            agent.stop()

    def _updated(self, tracker: Any, _context: Any, compute_node: Any, *_: Any, **__: Any) -> None:
        audited = getattr(self._audits, "tracker", None) is tracker
        self._agent_of(tracker).updated(compute_node.hypervisor_hostname, audited)

    def _audit_begins(self, tracker: Any, *_: Any, **__: Any) -> None:
        self._audits.tracker = tracker

    def _audit_ends(self, *_: Any, **__: Any) -> None:
        self._audits.tracker = None

    def _counting(self, tracker: Any, _context: Any, instance: Any, *_: Any, **__: Any) -> None:
        self._agent_of(tracker).counting(instance)

    def _move_drops(self, tracker: Any, _context: Any, instance: Any, *_: Any, **__: Any) -> None:
        self._agent_of(tracker).move_ends(str(instance.uuid))

    def _move_dropped(
        self, tracker: Any, _context: Any, instance: Any, nodename: str, *_: Any, **__: Any
    ) -> None:
        self._agent_of(tracker).move_ended(nodename, str(instance.uuid))

    def _refuses(self, kind: str) -> Callable[..., None]:
        def claim_refused(error: Exception, tracker: Any, *args: Any, **kwargs: Any) -> None:
            agent = self._known(tracker)
            if agent is not None:
                agent.refused(refused(kind, error, args, kwargs))

        return claim_refused

    def _removed(self, tracker: Any, *_: Any, **__: Any) -> None:
        agent = self._known(tracker)
        if agent is not None:
            agent.removed()

    def _known(self, tracker: Any) -> EmbeddedAgent | None:
        """Its agent, if it has reported already."""
        known = self._agents.get(str(tracker.host))
        return known[1] if known is not None and known[0] is tracker else None

    def _agent_of(self, tracker: Any) -> EmbeddedAgent:
        """Its agent; one of an earlier tracker of the host ends: nova-compute has begun anew."""
        host = str(tracker.host)
        with self._lock:
            known = self._agents.get(host)
            if known is not None and known[0] is tracker:
                return known[1]
            if known is not None:
                known[1].stop()
            agent = EmbeddedAgent(tracker, self._make(tracker), self._wait_s)
            self._agents[host] = (tracker, agent)
            self._end_with(tracker)
            return agent

    def _end_with(self, tracker: Any) -> None:
        """Hook the last thing that nova-compute's manager does."""
        driver = tracker.driver
        original = driver.cleanup_host

        def ended(*_: Any, **__: Any) -> None:
            driver.cleanup_host = original
            self._ended(tracker)

        driver.cleanup_host = hooked(original, after=ended)

    def _ended(self, tracker: Any) -> None:
        with self._lock:
            known = self._agents.get(str(tracker.host))
            if known is None or known[0] is not tracker:
                return  # another tracker has the host by now, and ended this agent
            del self._agents[str(tracker.host)]
        known[1].stop()

# SPDX-License-Identifier: Apache-2.0
"""Hooks on one live ResourceTracker: they read its state and pass the changes to a sink.

There are two sinks: the socket of an agent process (``tap_channel.py``), and the agent inside nova-compute
(``embedded.py``).  Each hook calls the original method with unchanged arguments, and returns or raises the same.
Errors in the hooks themselves are never raised: they are logged at most once a minute, and the node is reported as not
ready until a later reading succeeds.

=================================  ======================================================  ==========
hooked                             when it reads                                           Nova's lock
=================================  ======================================================  ==========
_update                            before the original: memory is current, the writes      held
                                   to Placement and the database follow
update_available_resource          marks ``_update`` calls below it as audits              taken inside
_copy_resources                    before: an audit empties the numbers of the node until  held
                                   its ``_update``
_update_to_placement               after success: is the provider tree a new one, or was   held
                                   the one of before not written completely?  Nova
                                   sets all traits below it, also old ones
_update_usage_from_instance        before: which image the instance has                    held
_drop_move_claim                   before and after: membership changes once more there    held
pci_tracker.save                   after: PCI claims that do not call ``_update``          held
reportclient.set_traits_for_       after, also an error, except below                      not held
provider                           ``_update_to_placement``: the node was enabled or
                                   disabled
remove_node                        after: the node was removed                             maybe
*_claim                            before, and when they raise                             not held
instance_claim                     after: the build of the instance begins in this thread  not held
abort_instance_claim               before: the build of the instance has failed, and why   maybe
build_failed, build_succeeded      after: ``failed_builds``, and the end of the build      not held
=================================  ======================================================  ==========

An audit that fails.  Nova empties the numbers of a node, reads its instances from nova-conductor, and counts them.  If
nova-conductor does not answer, the numbers stay empty until the next audit, and what is claimed meanwhile is counted on
top of nothing.  Therefore the numbers of before are the ones that are reported until an audit has counted again: what
nova-compute claims meanwhile is pending in the agent, and what it frees is free a minute later.

The end of a build.  nova-compute claims, builds and calls ``build_succeeded`` in one thread, which therefore tells the
instance.  When a build fails, Nova leaves the context of the claim by an exception, so ``abort_instance_claim`` runs
while that exception is handled.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from oslo_utils.strutils import mask_password

from compute_agent.events import Member
from compute_agent.sources.compute_node_leaves import FAILED_BUILDS
from compute_agent.tap.node_snapshot import NodeSnapshot, TrackerReader, is_topology
from compute_agent.tap_wire import (
    BUILD_CLAIM,
    BuildEnded,
    ClaimEntered,
    ClaimFailed,
    NodeGone,
    TapHello,
    TapMessage,
    TreeWritten,
)
from shared_scheduler.protocol.limits import BUILD_REASON_MAX_CHARS
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

#: Methods of the tracker; all take (context, instance, ...).
ABORT = "abort_instance_claim"
CLAIMS = (BUILD_CLAIM, "rebuild_claim", "resize_claim", "live_migration_claim")
#: Errors of a chain that the reason of a build names.
CAUSES_MAX = 3
BUILDS = ("build_failed", "build_succeeded")
#: of Nova's client of Placement, which the tracker shares with the rest of nova-compute
SET_TRAITS = "set_traits_for_provider"
METHODS = (
    "_update",
    "update_available_resource",
    "_copy_resources",
    "_update_to_placement",
    "_update_usage_from_instance",
    "_drop_move_claim",
    "remove_node",
    ABORT,
    *CLAIMS,
    *BUILDS,
)
ATTRIBUTES = ("host", "compute_nodes", "stats", "tracked_migrations", "pci_tracker")


def missing_names(tracker: Any, pci_tracker_class: Any, report_client_class: Any) -> list[str]:
    """The names that the hooks need and this Nova does not have; empty if it has all."""
    found = [name for name in METHODS if not callable(getattr(tracker, name, None))]
    found += [name for name in ATTRIBUTES if not hasattr(tracker, name)]
    if not callable(getattr(pci_tracker_class, "save", None)):
        found.append("PciDevTracker.save")
    if not callable(getattr(report_client_class, SET_TRAITS, None)):
        found.append(f"SchedulerReportClient.{SET_TRAITS}")
    return found


class Sink(Protocol):
    """The receiver of the messages of the hooks."""

    #: held while snapshots change and messages are put
    lock: threading.RLock

    @property
    def needs_everything(self) -> bool:
        """Whether the next report must be a complete one, as none has been received."""

    def put(self, message: TapMessage) -> None:
        """Take a message.  Called with ``lock`` held, by threads of nova-compute, which must not wait.

        :raises Exception: when it cannot be taken; the next report of the node is then complete, and that a node is
            gone is put again before it
        """


class Hooks:
    """Reads one tracker for one sink.  ``install`` puts the hooks onto the tracker."""

    def __init__(self, tracker: Any, pid: int, sink_of: Callable[[Callable[[], Sequence[TapMessage]]], Sink]) -> None:
        """``pid``: that of nova-compute; ``sink_of``: makes the sink, which may call the argument for all reports."""
        self._tracker = tracker
        self._pid = pid
        self._reader = TrackerReader(tracker)
        self._snapshots: dict[str, NodeSnapshot] = {}
        self._node_of: dict[str, str] = {}  # nodename -> uuid
        self._gone: list[str] = []  # nodes of which the sink has not taken yet that they are gone
        self._trees: dict[str, bytes] = {}
        self._audits = threading.local()
        self._emptied: set[str] = set()  # nodenames whose instances an audit has not counted yet, or never will
        self._updates = threading.local()  # running: the thread writes a provider tree to Placement
        self._builds = threading.local()  # consumer: the instance that the thread builds
        self._log = RateLimitedLog(LOG)
        self._pci_hooked: Any = None
        self._client_hooked: Any = None
        self.sink = sink_of(self.everything)

    def install(self) -> None:
        """Hook this one tracker."""
        for name in METHODS:
            setattr(self._tracker, name, self.hooked(name, getattr(self._tracker, name)))

    def hooked(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """``original``, which is the tracker's method ``name``, with its hooks."""
        if name in CLAIMS:
            entered, failed = self._claim_readings(name)
            began = self._build_begins if name == BUILD_CLAIM else None
            return self.wrapped(original, before=entered, after=began, failed=failed)
        if name in BUILDS:
            ended = self._build_succeeded if name == "build_succeeded" else None
            return self.wrapped(original, before=ended, after=self._build_counted)
        match name:
            case "_update":
                return self.wrapped(original, before=self._updating)
            case "update_available_resource":
                return self.wrapped(original, before=self._audit_begins, always=self._audit_ends)
            case "_copy_resources":
                return self.wrapped(original, before=self._audit_empties)
            case "_update_to_placement":
                done, failed = self._placement_written, self._placement_not_written
                return self.wrapped(original, self._update_begins, done, failed, self._update_ends)
            case "_update_usage_from_instance":
                return self.wrapped(original, before=self._counting)
            case "_drop_move_claim":
                return self.wrapped(original, before=self._move_drops, after=self._move_dropped)
            case "remove_node":
                return self.wrapped(original, after=self._node_removed)
            case "abort_instance_claim":
                return self.wrapped(original, before=self._build_failed)
        raise ValueError(f"{name} is not hooked")

    # -- wrapping -----------------------------------------------------------------------------------

    def wrapped(
        self,
        original: Callable[..., Any],
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
        failed: Callable[..., None] | None = None,
        always: Callable[..., None] | None = None,
    ) -> Callable[..., Any]:
        """``original`` with readings before and after it, which get its arguments.

        ``after`` follows success, ``failed`` an error, which it gets first, and ``always`` both.
        """

        @functools.wraps(original)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            self._safely(before, *args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except Exception as error:
                self._safely(failed, error, *args, **kwargs)
                raise
            finally:
                self._safely(always, *args, **kwargs)
            self._safely(after, *args, **kwargs)
            return result

        return hooked

    def _safely(self, reading: Callable[..., None] | None, *args: Any, **kwargs: Any) -> None:
        """Call the reading; log what it raises."""
        if reading is None:
            return
        try:
            reading(*args, **kwargs)
        except Exception:
            line = "compute-agent tap: %s failed; nova-compute is not affected"
            self._log.write(logging.ERROR, reading.__name__, line, reading.__name__, exc_info=True)

    # -- readings, under Nova's lock ----------------------------------------------------------------

    def _audit_begins(self, *_args: Any, **_kwargs: Any) -> None:
        self._audits.running = True

    def _audit_ends(self, *_args: Any, **_kwargs: Any) -> None:
        self._audits.running = False

    def _audit_empties(self, _compute_node: Any, resources: Mapping[str, Any], *_args: Any, **_kwargs: Any) -> None:
        self._emptied.add(resources["hypervisor_hostname"])

    def _updating(self, _context: Any, compute_node: Any, *_args: Any, **_kwargs: Any) -> None:
        nodename = compute_node.hypervisor_hostname
        if nodename not in self._tracker.compute_nodes:
            return  # the record is being moved from another host; the audit follows
        if self._is_audit:
            self._emptied.discard(nodename)
        self._hook_pci_tracker()
        self._hook_report_client()
        self._read(nodename)
        self._reader.forget_gone()

    def _counting(self, _context: Any, instance: Any, *_args: Any, **_kwargs: Any) -> None:
        self._reader.see(instance)

    def _move_drops(self, _context: Any, instance: Any, *_args: Any, **_kwargs: Any) -> None:
        self._reader.move_ends(str(instance.uuid))

    def _move_dropped(self, _context: Any, instance: Any, nodename: str, *_args: Any, **_kwargs: Any) -> None:
        self._reader.move_ended(nodename, str(instance.uuid))
        for known in list(self._tracker.compute_nodes):
            if known in self._node_of:
                self._read(known)

    def _read(self, nodename: str) -> None:
        compute_node = self._tracker.compute_nodes[nodename]
        with self.sink.lock:
            snapshot = self._snapshot(nodename, str(compute_node.uuid))
            if self._keeps(nodename, snapshot):  # the sink may not have taken it
                self._report(snapshot, snapshot.leaves, snapshot.members, snapshot.ready)
                return
            ready = snapshot.ready or self._is_audit
            try:
                leaves, members = self._reader.leaves(nodename), self._reader.members(nodename)
            except Exception:
                self._report(snapshot, snapshot.leaves, snapshot.members, False)
                raise
            self._report(snapshot, leaves, members, ready)

    @property
    def _is_audit(self) -> bool:
        """Whether this thread audits."""
        return bool(getattr(self._audits, "running", False))

    def _keeps(self, nodename: str, snapshot: NodeSnapshot) -> bool:
        """Whether the last report is right, and the numbers of the node are not."""
        return nodename in self._emptied and snapshot.ready

    def _pci_saved(self, *_args: Any, **_kwargs: Any) -> None:
        with self.sink.lock:
            for nodename, node in self._node_of.items():
                snapshot = self._snapshots[node]
                if nodename in self._tracker.compute_nodes and not self._keeps(nodename, snapshot):
                    kept = {key: one for key, one in snapshot.leaves.items() if not is_topology(key)}
                    leaves = kept | self._reader.topology(nodename)
                    self._report(snapshot, leaves, snapshot.members, snapshot.ready)

    def _update_begins(self, *_args: Any, **_kwargs: Any) -> None:
        self._updates.running = True

    def _update_ends(self, *_args: Any, **_kwargs: Any) -> None:
        self._updates.running = False

    def _placement_written(self, _context: Any, compute_node: Any, *_args: Any, **_kwargs: Any) -> None:
        node = str(compute_node.uuid)
        digest = self._reader.tree_digest(node)
        with self.sink.lock:
            if self._trees.get(node) != digest:
                self.sink.put(TreeWritten(node))
                self._trees[node] = digest

    def _placement_not_written(self, _error: Exception, _context: Any, compute_node: Any, *_: Any, **_kw: Any) -> None:
        """A part may be written, so the next tree is told even if it is the one of before."""
        with self.sink.lock:
            self._trees.pop(str(compute_node.uuid), None)

    def _hook_pci_tracker(self) -> None:
        """Hook the PCI tracker, which Nova creates during the first audit."""
        pci_tracker = self._tracker.pci_tracker
        if pci_tracker is not None and pci_tracker is not self._pci_hooked:
            self._pci_hooked = pci_tracker
            pci_tracker.save = self.wrapped(pci_tracker.save, after=self._pci_saved)

    def _hook_report_client(self) -> None:
        """Hook Nova's client of Placement, which the tracker gets after it has made the tap."""
        client = getattr(self._tracker, "reportclient", None)
        if client is not self._client_hooked and hasattr(client, SET_TRAITS):
            self._client_hooked = client
            setattr(client, SET_TRAITS, self.wrapped(getattr(client, SET_TRAITS), always=self._traits_written))

    # -- readings without Nova's lock ---------------------------------------------------------------

    def _traits_written(self, *args: Any, **kwargs: Any) -> None:
        """Report new traits of a node: Nova sets those of a disabled service between audits.

        An audit that has looked at the service before may write the old ones again, so its tree is told as well."""
        if getattr(self._updates, "running", False):
            return  # Nova sets all traits, and ``_placement_written`` finds those that are new
        node = str(kwargs["rp_uuid"] if "rp_uuid" in kwargs else args[1])
        with self.sink.lock:
            if node in self._node_of.values():
                self._trees.pop(node, None)
                self.sink.put(TreeWritten(node))

    def _claim_readings(self, kind: str) -> tuple[Callable[..., None], Callable[..., None]]:
        """The readings for the begin of a claim of this kind, and for its failure."""

        def claim_entered(*args: Any, **kwargs: Any) -> None:
            self._put(ClaimEntered(instance_uuid(args, kwargs), kind))

        def claim_failed(error: Exception, *args: Any, **kwargs: Any) -> None:
            self._put(refused(kind, error, args, kwargs))

        return claim_entered, claim_failed

    def _build_begins(self, *args: Any, **kwargs: Any) -> None:
        self._builds.consumer = instance_uuid(args, kwargs)

    def _build_succeeded(self, nodename: str) -> None:
        self._report_build(nodename, getattr(self._builds, "consumer", ""), True, "")

    def _build_failed(self, _context: Any, instance: Any, nodename: str) -> None:
        self._report_build(nodename, str(instance.uuid), False, reason_of(sys.exception()))

    def _report_build(self, nodename: str, consumer: str, succeeded: bool, text: str) -> None:
        self._builds.consumer = ""
        node = self._node_of.get(nodename)
        if node is not None and consumer:
            self._put(BuildEnded(node, consumer, succeeded, text))

    def _build_counted(self, nodename: str) -> None:
        with self.sink.lock:
            snapshot = self._snapshots.get(self._node_of.get(nodename, ""))
            if snapshot is not None:
                failed = self._tracker.stats[nodename].get("failed_builds", 0)
                leaves = snapshot.leaves | {FAILED_BUILDS: failed}
                self._report(snapshot, leaves, snapshot.members, snapshot.ready)

    def _node_removed(self, nodename: str, *_args: Any, **_kwargs: Any) -> None:
        with self.sink.lock:
            self._emptied.discard(nodename)
            node = self._node_of.pop(nodename, None)
            if node is not None:
                del self._snapshots[node]
                self._trees.pop(node, None)
                self._gone.append(node)
            self._report_gone()

    # -- sending --------------------------------------------------------------------------------------

    def _snapshot(self, nodename: str, node: str) -> NodeSnapshot:
        self._node_of[nodename] = node
        return self._snapshots.setdefault(node, NodeSnapshot(node))

    def _report(self, snapshot: NodeSnapshot, leaves: dict[str, Leaf], members: dict[str, Member], ready: bool) -> None:
        self._report_gone()
        if self.sink.needs_everything:
            snapshot.told = False
        changed = snapshot.update(leaves, members, ready)
        if changed is None:
            return
        try:
            self.sink.put(changed)
        except Exception:
            snapshot.told = False
            raise

    def _report_gone(self) -> None:
        while self._gone:
            self.sink.put(NodeGone(self._gone[0]))
            del self._gone[0]

    def _put(self, message: TapMessage) -> None:
        with self.sink.lock:
            self.sink.put(message)

    def everything(self) -> list[TapMessage]:
        """Hello, and a complete report of each node.  Call with the sink's lock held."""
        hello = TapHello(str(self._tracker.host), self._pid)
        return [hello, *(snapshot.complete() for snapshot in self._snapshots.values())]


def reason_of(error: BaseException | None) -> str:
    """The text of an error and of the errors that caused it, which is where Nova hides what really happened."""
    texts: list[str] = []
    while error is not None and len(texts) < CAUSES_MAX:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    line = mask_password(" ".join("; because of ".join(texts).split()))
    return "".join(filter(str.isprintable, line))[:BUILD_REASON_MAX_CHARS]


def refused(kind: str, error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ClaimFailed:
    """The message for a claim of this ``kind``, called with these arguments, that raised ``error``."""
    return ClaimFailed(instance_uuid(args, kwargs), kind, reason_of(error))


def instance_uuid(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The instance of a claim."""
    instance = kwargs["instance"] if "instance" in kwargs else args[1]
    return str(instance.uuid)

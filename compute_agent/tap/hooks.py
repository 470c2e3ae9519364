# SPDX-License-Identifier: Apache-2.0
"""Hooks on one live ResourceTracker.

Every hook calls what it hooks with the arguments as they came and returns or raises what that
returned or raised.  What the hooks themselves do never raises: a mistake is logged once a minute at
most, and the node is reported as not ready until a later reading succeeds.

=================================  ======================================================  ==========
hooked                             when it reads                                           Nova's lock
=================================  ======================================================  ==========
_update                            before the original: memory is right, Placement and DB  held
                                   follow
update_available_resource          marks ``_update`` calls below it as audits              taken inside
_update_to_placement               after success: is the provider tree a new one?          held
_update_usage_from_instance        before: which image the instance has                    held
_drop_move_claim                   after: membership changes once more there               held
pci_tracker.save                   after: PCI claims that go past ``_update``              held
remove_node                        after: the node is gone                                 maybe
*_claim                            before, and when they raise                             not held
build_failed, build_succeeded      after: ``failed_builds`` only                           not held
=================================  ======================================================  ==========
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from compute_agent.mistakes import Mistakes
from compute_agent.sources.compute_node import FAILED_BUILDS
from compute_agent.tap.channel import TapChannel
from compute_agent.tap.picture import Picture, Reader, is_topology
from compute_agent.tap.refusals import CLAIMS, instance_uuid, refused
from compute_agent.tap.wire import ClaimEntered, NodeGone, TapHello, TapMessage, TreeWritten

LOG = logging.getLogger(__name__)

BUILDS = ("build_failed", "build_succeeded")
METHODS = (
    "_update",
    "update_available_resource",
    "_update_to_placement",
    "_update_usage_from_instance",
    "_drop_move_claim",
    "remove_node",
    *CLAIMS,
    *BUILDS,
)
ATTRIBUTES = ("host", "compute_nodes", "stats", "tracked_migrations", "pci_tracker")


def missing_names(tracker: Any, pci_tracker_class: Any) -> list[str]:
    """What the hooks need and this Nova does not have; empty when all is there."""
    found = [name for name in METHODS if not callable(getattr(tracker, name, None))]
    found += [name for name in ATTRIBUTES if not hasattr(tracker, name)]
    if not callable(getattr(pci_tracker_class, "save", None)):
        found.append("PciDevTracker.save")
    return found


class Hooks:
    """Installs itself on construction; ``pid`` tells agents which nova-compute speaks."""

    def __init__(self, tracker: Any, path: str, pid: int) -> None:
        self._tracker = tracker
        self._pid = pid
        self._reader = Reader(tracker)
        self._pictures: dict[str, Picture] = {}
        self._node_of: dict[str, str] = {}  # nodename -> uuid
        self._trees: dict[str, bytes] = {}
        self._audits = threading.local()
        self._safely = Mistakes(LOG, "compute-agent tap").safely
        self._pci_hooked: Any = None
        self.channel = TapChannel(path, self._everything)
        self._install()

    def _install(self) -> None:
        self._hook("_update", before=self._updating)
        self._hook("_update_to_placement", after=self._placement_written)
        self._hook("_update_usage_from_instance", before=self._counting)
        self._hook("_drop_move_claim", before=self._move_drops, after=self._move_dropped)
        self._hook("remove_node", after=self._node_removed)
        for name in BUILDS:
            self._hook(name, after=self._build_ended)
        for name in CLAIMS:
            self._hook_claim(name)
        self._hook_audit()

    # -- wrapping -----------------------------------------------------------------------------------

    def _hook(
        self,
        name: str,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
        owner: Any = None,
    ) -> None:
        owner = self._tracker if owner is None else owner
        original = getattr(owner, name)

        @functools.wraps(original)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                self._safely(before, *args, **kwargs)
            result = original(*args, **kwargs)
            if after is not None:
                self._safely(after, *args, **kwargs)
            return result

        setattr(owner, name, hooked)

    def _hook_claim(self, name: str) -> None:
        original = getattr(self._tracker, name)

        @functools.wraps(original)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            self._safely(self._claiming, name, args, kwargs)
            try:
                return original(*args, **kwargs)
            except Exception as error:
                self._safely(self._claim_failed, name, args, kwargs, error)
                raise

        setattr(self._tracker, name, hooked)

    def _hook_audit(self) -> None:
        original = self._tracker.update_available_resource

        @functools.wraps(original)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            self._audits.running = True
            try:
                return original(*args, **kwargs)
            finally:
                self._audits.running = False

        self._tracker.update_available_resource = hooked

    # -- readings, under Nova's lock ----------------------------------------------------------------

    def _updating(self, _context: Any, compute_node: Any, *_args: Any, **_kwargs: Any) -> None:
        nodename = compute_node.hypervisor_hostname
        if nodename not in self._tracker.compute_nodes:
            return  # the record is being moved from another host, the audit follows
        self._hook_pci_tracker()
        self._read(nodename)
        self._reader.forget_gone()

    def _counting(self, _context: Any, instance: Any, *_args: Any, **_kwargs: Any) -> None:
        self._reader.see(instance)

    def _move_drops(self, _context: Any, instance: Any, *_args: Any, **_kwargs: Any) -> None:
        self._reader.move_ends(str(instance.uuid))

    def _move_dropped(
        self, _context: Any, instance: Any, nodename: str, *_args: Any, **_kwargs: Any
    ) -> None:
        self._reader.move_ended(nodename, str(instance.uuid))
        for known in list(self._tracker.compute_nodes):
            if known in self._node_of:
                self._read(known)

    def _read(self, nodename: str) -> None:
        compute_node = self._tracker.compute_nodes[nodename]
        with self.channel.lock:
            picture = self._picture(nodename, str(compute_node.uuid))
            ready = picture.ready or getattr(self._audits, "running", False)
            try:
                leaves, members = self._reader.leaves(nodename), self._reader.members(nodename)
            except Exception:
                self._report(picture.update(picture.leaves, picture.members, False))
                raise
            self._report(picture.update(leaves, members, ready))

    def _pci_saved(self, *_args: Any, **_kwargs: Any) -> None:
        with self.channel.lock:
            for nodename, node in self._node_of.items():
                if nodename in self._tracker.compute_nodes:
                    picture = self._pictures[node]
                    kept = {key: one for key, one in picture.leaves.items() if not is_topology(key)}
                    leaves = kept | self._reader.topology(nodename)
                    self._report(picture.update(leaves, picture.members, picture.ready))

    def _placement_written(
        self, _context: Any, compute_node: Any, *_args: Any, **_kwargs: Any
    ) -> None:
        node = str(compute_node.uuid)
        digest = self._reader.tree_digest(node)
        if self._trees.get(node) != digest:
            self._trees[node] = digest
            self._tell(TreeWritten(node))

    def _hook_pci_tracker(self) -> None:
        """It is made during the first audit."""
        pci_tracker = self._tracker.pci_tracker
        if pci_tracker is not None and pci_tracker is not self._pci_hooked:
            self._pci_hooked = pci_tracker
            self._hook("save", after=self._pci_saved, owner=pci_tracker)

    # -- readings without Nova's lock ---------------------------------------------------------------

    def _claiming(self, kind: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._tell(ClaimEntered(instance_uuid(args, kwargs), kind))

    def _claim_failed(
        self, kind: str, args: Sequence[Any], kwargs: dict[str, Any], error: Exception
    ) -> None:
        self._tell(refused(kind, error, args, kwargs))

    def _build_ended(self, nodename: str) -> None:
        with self.channel.lock:
            picture = self._pictures.get(self._node_of.get(nodename, ""))
            if picture is not None:
                failed = self._tracker.stats[nodename].get("failed_builds", 0)
                leaves = picture.leaves | {FAILED_BUILDS: failed}
                self._report(picture.update(leaves, picture.members, picture.ready))

    def _node_removed(self, nodename: str, *_args: Any, **_kwargs: Any) -> None:
        with self.channel.lock:
            node = self._node_of.pop(nodename, None)
            if node is not None:
                del self._pictures[node]
                self._trees.pop(node, None)
                self.channel.put(NodeGone(node))

    # -- telling --------------------------------------------------------------------------------------

    def _picture(self, nodename: str, node: str) -> Picture:
        self._node_of[nodename] = node
        return self._pictures.setdefault(node, Picture(node))

    def _report(self, changed: TapMessage | None) -> None:
        if changed is not None:
            self.channel.put(changed)

    def _tell(self, message: TapMessage) -> None:
        with self.channel.lock:
            self.channel.put(message)

    def _everything(self) -> list[TapMessage]:
        hello = TapHello(str(self._tracker.host), self._pid)
        return [hello, *(picture.complete() for picture in self._pictures.values())]

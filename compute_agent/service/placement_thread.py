# SPDX-License-Identifier: Apache-2.0
"""Reads Placement in a thread, so that the core never waits for HTTP."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from compute_agent.effects import ReadAllocations, ReadTree
from compute_agent.events import AllocationsRead, ReadFailed, TreeChanged, TreeRead
from shared_scheduler.model.providers import Provider
from shared_scheduler.placement.connection import PlacementError, RefusedError
from shared_scheduler.placement.reader import PlacementReader, common_generation

LOG = logging.getLogger(__name__)

Read = ReadTree | ReadAllocations
Answer = TreeRead | AllocationsRead | ReadFailed | TreeChanged


class PlacementThread:
    """One thread.  Its queue is bounded by the core, which has at most one read of each kind in flight for a node."""

    def __init__(self, reader: PlacementReader, answered: Callable[[str, Answer], None]) -> None:
        self._reader = reader
        self._answered = answered
        self._known: dict[str, dict[str, Provider]] = {}  # node -> its tree by uuid
        self._waiting: SimpleQueue[Read | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="placement", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, read: Read) -> None:
        self._waiting.put(read)

    def stop(self) -> None:
        """End the thread after the current read, whose answer is not handled any more."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (read := self._waiting.get()) is not None:
            self._answered(read.node, self.carry_out(read))

    def carry_out(self, read: Read) -> Answer:
        """Read in the calling thread."""
        started_at_s = time.monotonic()
        what = "tree" if isinstance(read, ReadTree) else "allocations"
        try:
            if isinstance(read, ReadTree):
                return TreeRead(self._tree(read.node), started_at_s, cause=read.cause)
            return self._allocations(read, started_at_s)
        except PlacementError as error:
            if isinstance(error, RefusedError) and error.status == 404:  # the tree that named the provider is old
                self._answered(read.node, TreeChanged())
            return ReadFailed(what, str(error), cause=read.cause)
        except Exception as error:
            LOG.exception("reading the %s of node %s failed", what, read.node)
            return ReadFailed(what, f"{type(error).__name__}: {error}", cause=read.cause)

    def _tree(self, node: str) -> tuple[Provider, ...]:
        """All providers of the node's tree, empty if it has none yet."""
        known, listed = self._known.get(node, {}), self._reader.providers(in_tree=node)
        found = {one.uuid: self._reader.provider(one, known.get(one.uuid)) for one in listed}
        self._known.pop(node, None)
        if found:
            self._known[node] = found
        return tuple(found.values())

    def _allocations(self, read: ReadAllocations, started_at_s: float) -> AllocationsRead:
        found: dict[str, dict[str, dict[str, int]]] = {}
        generations: dict[str, int] = {}
        for provider in read.providers:
            for consumer, held in self._reader.allocations(provider).items():
                found.setdefault(consumer, {})[provider] = held.amounts
                generations[consumer] = common_generation(generations.get(consumer), held.generation)
        return AllocationsRead(dict(found), started_at_s, generations, cause=read.cause)

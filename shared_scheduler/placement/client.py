# SPDX-License-Identifier: Apache-2.0
"""The calls of Placement's API that the scheduler uses, typed, at microversion 1.36.

Writes return a ``Reply`` with a ``meaning``.  Reads return data or raise ``PlacementError``, as in ``reader``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from shared_scheduler.core.events import Candidate
from shared_scheduler.placement.connection import Meaning, Reply, Transport, UnreachableError, data_of, no_reply
from shared_scheduler.placement.consumer_conflicts import ConsumerAllocations
from shared_scheduler.placement.consumer_write import ConsumerWrite
from shared_scheduler.placement.reader import PlacementReader
from shared_scheduler.transport.rate_limited_log import LOG_INTERVAL_S

LOG = logging.getLogger(__name__)

GUARDED = (
    "Placement announces that racing writes do not over-commit a provider: allocations on nodes without an agent are "
    "written together, and not checked again"
)
UNGUARDED = (
    "Placement announces no more that racing writes do not over-commit a provider: allocations on nodes without an "
    "agent are written alone, and checked again"
)
#: HTTP status of a write that was carried out.
WRITTEN = 204
#: Timeout of a small call.
TIMEOUT_S = 10.0
#: Timeout of a call whose cost grows with the cloud: candidates, all providers.
SWEEP_TIMEOUT_S = 60.0
#: Limit of candidates if only some fitting hosts are needed.
FITTING_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Summary:
    """One provider in ``provider_summaries``."""

    uuid: str
    parent: str | None
    root: str
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    traits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The answer to ``GET /allocation_candidates``."""

    requests: tuple[Candidate, ...]
    summaries: Mapping[str, Summary]

    def roots(self) -> frozenset[str]:
        """The root providers of all candidates."""
        used = {provider for one in self.requests for provider in one.allocations}
        return frozenset(self.summaries[uuid].root for uuid in used if uuid in self.summaries)


class PlacementClient(PlacementReader):
    """The reads of providers, and the reads and writes of consumers."""

    def __init__(
        self,
        transport: Transport,
        timeout_s: float = TIMEOUT_S,
        sweep_timeout_s: float = SWEEP_TIMEOUT_S,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(transport, timeout_s, sweep_timeout_s, count)
        self.timeout_s = timeout_s
        #: whether the last answer to a write announced that racing writes do not over-commit a provider
        self.guards_capacity = False
        self._told_guards, self._told_s = False, float("-inf")  # what the log says, and since when

    # -- consumers ---------------------------------------------------------------------------

    def write(self, write: ConsumerWrite, request_id: str = "", timeout_s: float | None = None) -> Reply:
        """Replace one consumer's allocations (empty ones remove the consumer)."""
        path = f"/allocations/{write.consumer}"
        return self._written(self._call("PUT", path, write.body(), request_id, timeout_s))

    def write_many(
        self,
        writes: Iterable[ConsumerWrite],
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> Reply:
        """Replace the allocations of several consumers in one transaction: all or none."""
        body = {write.consumer: write.body() for write in writes}
        return self._written(self._call("POST", "/allocations", body, request_id, timeout_s))

    def _written(self, reply: Reply) -> Reply:
        if reply.status:
            self.guards_capacity = reply.guards_capacity
            self._tell()
        if reply.meaning is Meaning.DONE and reply.status != WRITTEN:
            return no_reply(f"the answer, HTTP {reply.status}, is not of Placement")
        return reply

    def _tell(self) -> None:
        """Log a change, but not each time that another worker of Placement answers."""
        now = time.monotonic()
        if self.guards_capacity != self._told_guards and now - self._told_s >= LOG_INTERVAL_S:
            self._told_guards, self._told_s = self.guards_capacity, now
            LOG.info(GUARDED if self.guards_capacity else UNGUARDED)

    def consumer(self, uuid: str, timeout_s: float | None = None) -> ConsumerAllocations:
        """What a consumer holds; empty if it holds nothing or does not exist."""
        body = self._get(f"/allocations/{uuid}", timeout_s)
        found = body.get("allocations")
        if not isinstance(found, dict):
            raise UnreachableError("the answer is not of Placement")
        allocations = {provider: dict(part["resources"]) for provider, part in found.items()}
        return ConsumerAllocations(
            allocations, body.get("consumer_generation"),
            body.get("project_id", ""), body.get("user_id", ""),
        )  # fmt: skip

    # -- questions ---------------------------------------------------------------------------

    def candidates(self, query: str, node: str = "", limit: int | None = None, request_id: str = "") -> Candidates:
        """Ask with Nova's query string, of one tree if ``node`` is given."""
        asked = narrowed(query, node, limit)
        body = self._get(f"/allocation_candidates?{asked}", self._sweep_timeout_s, request_id)
        return Candidates(
            tuple(_candidate(item) for item in body["allocation_requests"]),
            {
                uuid: _summary(uuid, item)
                for uuid, item in body["provider_summaries"].items()
            },
        )  # fmt: skip

    def known_traits(self, names: Iterable[str], timeout_s: float | None = None) -> frozenset[str]:
        """Those of the names that are traits, whether a provider has them or not.

        :raises PlacementError: when Placement does not answer
        """
        query = urlencode({"name": f"in:{','.join(sorted(names))}"}, safe=":,")
        return frozenset(self._get(f"/traits?{query}", timeout_s)["traits"])

    # -- providers ---------------------------------------------------------------------------

    def root(self, provider: str) -> str:
        """The root of the provider's tree, which is the compute node; the provider itself if it does not exist."""
        tree = self.providers(in_tree=provider)
        return tree[0].root if tree else provider

    def exists(self, provider: str) -> bool:
        """Whether the provider exists.

        :raises PlacementError: when Placement does not tell
        """
        return self.generation(provider) is not None

    def generation(self, provider: str) -> int | None:
        """The generation, which grows with every change of the provider and its allocations; None: no such provider.

        :raises PlacementError: when Placement does not tell; a proxy may answer 404 as well, without an error code
        """
        reply = self._call("GET", f"/resource_providers/{provider}")
        return None if reply.status == 404 and reply.code else int(data_of(reply)["generation"])


def narrowed(query: str, node: str, limit: int | None) -> str:
    """``query`` restricted to one tree, with its limit replaced by ``limit`` (None: without a limit).

    ``in_tree`` of the unnumbered group binds all groups to the anchor of that tree.  If that group is empty, Placement
    ignores it, so ``in_tree`` is added to each numbered group instead.
    """
    asked = [(name, value) for name, value in parse_qsl(query) if name != "limit"]
    if limit is not None:
        asked.append(("limit", str(limit)))
    if node:
        asked = [(name, value) for name, value in asked if name != "in_tree"]
        names = [name for name, _ in asked if name.startswith("resources")]
        whole = ["resources"] if "resources" in names else names
        asked += [("in_tree" + name.removeprefix("resources"), node) for name in whole]
    return urlencode(asked, safe=":,!")


def _candidate(item: Mapping[str, Any]) -> Candidate:
    return Candidate(
        {name: dict(part["resources"]) for name, part in item["allocations"].items()},
        {name: tuple(rps) for name, rps in item.get("mappings", {}).items()},
    )


def _summary(uuid: str, item: Mapping[str, Any]) -> Summary:
    resources: Mapping[str, Mapping[str, int]] = item["resources"]
    return Summary(
        uuid,
        item["parent_provider_uuid"],
        item["root_provider_uuid"],
        {name: part["capacity"] for name, part in resources.items()},
        {name: part["used"] for name, part in resources.items()},
        tuple(sorted(item["traits"])),
    )

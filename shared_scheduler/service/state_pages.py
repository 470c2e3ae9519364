# SPDX-License-Identifier: Apache-2.0
"""The table of a running scheduler in pages, from which another process makes its own table.

A page has a bounded number of rows, so decisions do not wait long for its copy, nor for its encoding.  The rows of one
page are of the same moment, those of two pages are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any

from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import Consumer
from shared_scheduler.service.engine import Engine
from shared_scheduler.service.inspection import whole_row
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.numbers import DefaultRatios
from shared_scheduler.table.row import Freshness

#: Rows of one page.
PAGE_ROWS = 32
#: What Nova's own filters read of a service that missed its heartbeats.
LONG_AGO = "1970-01-01T00:00:00"


class StatePages:
    """Answers ``{"after": node}`` with the next rows by node; an empty ``after`` begins."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """A page.

        :raises ValueError: when the question is malformed
        """
        after = question.get("after", "")
        if not isinstance(after, str):
            raise ValueError("after: the node of the last row of the page before is needed")
        return self._engine.inspect(lambda core: self._page(core, after))

    def _page(self, core: SchedulerCore, after: str) -> dict[str, Any]:
        table = core.table
        nodes = nsmallest(PAGE_ROWS, (node for node in table.nodes() if node > after))
        return {
            "scheduler": self._name,
            "hosts": len(table),
            "rows": [whole_row(core, node) for node in nodes],
            "sharing": {uuid: provider.to_leaf() for uuid, provider in table.sharing.items()},
            "disabled_cells": sorted(table.disabled_cells),
            "quarantined": sorted(core.quarantine.nodes),
        }


def read_pages(ask: Callable[[str], Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """All pages.  ``ask`` returns the page after a node."""
    page = ask("")
    yield page
    while page["rows"]:
        page = ask(page["rows"][-1]["node"])
        yield page


def table_of(pages: Iterable[Mapping[str, Any]], ratios: DefaultRatios) -> HostTable:
    """The table in pages, without host aggregates.  An own claim that the base does not show counts in the allocations
    only."""
    table = HostTable(ratios)
    for page in pages:
        table.set_sharing({uuid: Provider.from_leaf(uuid, leaf) for uuid, leaf in page["sharing"].items()})
        table.set_disabled_cells(frozenset(page["disabled_cells"]))
        for row in page["rows"]:
            _add(table, row)
    return table


def _add(table: HostTable, row: Mapping[str, Any]) -> None:
    node = row["node"]
    table.upsert(node, row["cell"], row["host"], row["nodename"])
    if row["service"] is not None:
        table.set_service(_service(row["host"], row["service"]))
    claimed = {claim["consumer"]: Consumer(claim["allocations"], True) for claim in row["outstanding"]}
    stored = {
        uuid: Consumer(one["allocations"], one["member"], one.get("group", ""))
        for uuid, one in row["consumers"].items()
    }
    table.load(node, row["leaves"], {**claimed, **stored}, row["claims"], epoch=row["epoch"], sequence=row["sequence"])
    table.set_freshness(node, Freshness(row["freshness"]))


def _service(host: str, flags: Mapping[str, bool]) -> ServiceFacts:
    record = {
        "host": host, "topic": "compute", "binary": "nova-compute", "disabled": flags["disabled"],
        "forced_down": flags["forced_down"], "last_seen_up": None, "updated_at": None, "created_at": LONG_AGO,
    }  # fmt: skip
    return ServiceFacts(host, flags["disabled"], flags["forced_down"], flags["up"], record=record)

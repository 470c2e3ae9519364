# SPDX-License-Identifier: Apache-2.0
"""The path of one increment: from a change in nova-compute's resource tracker to the host table of a scheduler.

``STATIONS`` lists every function that handles it.  A test fails when a name does not exist, and follows one
increment through real cores: the stations inside the cores are called in the order of the list.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import CodeType
from typing import Any

from tools.drawings.rst_tables import table


@dataclass(frozen=True)
class Station:
    """One function or class.  ``core``: inside one of the two cores or the codec, which the simulator runs."""

    module: str
    name: str  # class or class.method
    does: str
    holds: str = ""  # what may wait there, and how much of it at most
    core: bool = True

    def resolve(self) -> Any:
        """The class or function.

        :raises AttributeError: when it does not exist
        """
        found: Any = importlib.import_module(self.module)
        for part in self.name.split("."):
            found = getattr(found, part)
        return found

    def code(self) -> CodeType:
        """The code of a method."""
        return self.resolve().__code__  # type: ignore[no-any-return]


STATIONS = (
    Station(
        "compute_agent.tap.hooks", "Hooks", "reads the tracker when nova-compute has changed it, under Nova's lock",
        core=False,
    ),
    Station(
        "compute_agent.tap.node_snapshot", "NodeSnapshot.update", "compares with what was reported last", core=False
    ),
    Station(
        "compute_agent.tap.tap_channel", "TapChannel.put", "passes the change to a thread; Nova continues",
        "changes for the socket; too many of them are replaced by the whole state", core=False,
    ),
    Station("compute_agent.sources.tap_client", "TapClient", "reads the socket in the agent's process", core=False),
    Station(
        "compute_agent.service.agent", "Agent.take_from_tap", "puts it into the agent's queue", "events, in order",
        core=False,
    ),
    Station("compute_agent.core", "AgentCore.step", "takes it as TrackerReported"),
    Station("compute_agent.claim_ledger", "ClaimLedger.reported", "ends claims that the tracker has taken over"),
    Station("compute_agent.publisher", "Publisher.sync", "adds accepted claims and Placement's view"),
    Station(
        "shared_scheduler.protocol.pipe", "MessagePipe.replace", "notes the leaves and consumers that differ",
        "the last value of each leaf",
    ),
    Station("compute_agent.publisher", "Publisher.due", "checks whether a message may be sent now"),
    Station(
        "shared_scheduler.protocol.pipe", "MessagePipe.poll",
        "sends the first change at once and merges later ones; gives the sequence",
        "the replay ring: the last increments, for a resync",
    ),
    Station("shared_scheduler.transport.channel", "Channel.broadcast", "encodes and signs", core=False),
    Station("shared_scheduler.protocol.codec", "encode", "encodes the body, within the limits of the protocol"),
    Station(
        "shared_scheduler.transport.outbox", "Outbox", "waits for the broker", "bodies, a bounded number", core=False
    ),
    Station(
        "shared_scheduler.transport.receiver", "Receiver", "reads the scheduler's queue in bursts",
        "the scheduler's queue in the broker, bounded", core=False,
    ),
    Station("shared_scheduler.protocol.codec", "decode", "decodes the message, or rejects the body"),
    Station("shared_scheduler.service.engine", "Engine.handle", "one event after the other", core=False),
    Station("shared_scheduler.core.scheduler", "SchedulerCore.step", "takes it as MessagesArrived"),
    Station("shared_scheduler.core.nodes", "Nodes.receive", "finds the node's window; drops invalid leaves"),
    Station(
        "shared_scheduler.protocol.window", "MessageWindow.receive",
        "applies in order; holds early ones, drops old ones, sends a Resync when one is missing",
        "early increments, for a bounded time",
    ),
    Station("shared_scheduler.table.host_table", "HostTable.apply", "updates the row of the node"),
    Station("shared_scheduler.table.row_writer", "RowWriter.apply", "writes leaves and consumers into the base"),
    Station(
        "shared_scheduler.table.host_table", "HostTable.set_freshness",
        "updates whether the row may be selected; the next decision uses the change",
    ),
)  # fmt: skip

HEAD = """\
===================
An increment's life
===================

The path of a change from nova-compute's resource tracker to the row of the node in a scheduler's host table, in
order.  ``tools/draw`` generates this page from ``tools/drawings/increment_life.py``.  A
test follows an increment through the two cores and fails when they call the functions in another order.

An increment is identified by its node, epoch and sequence (``shared_scheduler/protocol/causes.py``).  Its
effects in a scheduler have this cause id.  Messages between the two cores may be lost, duplicated or
reordered; the window corrects this (:doc:`state_machines`).
"""


def page() -> str:
    """All of ``doc/source/reference/increment_life.rst``."""
    head = ("no", "where", "what is done", "what waits there")
    rows = [
        (str(number), f"``{one.module}:{one.name}``", one.does, one.holds) for number, one in enumerate(STATIONS, 1)
    ]
    return f"{HEAD}\n{table([head, *rows])}\n"

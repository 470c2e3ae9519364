# SPDX-License-Identifier: Apache-2.0
"""The registry: everything that the scheduler reads from Nova's databases and from Placement, and when.

One row is one source.  ``sync.revalidator`` runs the reads, ``sync.decision_reads`` applies the columns ``decision``
and ``refusal``, ``shared-scheduler-manage status`` prints the table with ages and costs, and the page
``doc/source/admin/reads.rst`` is generated from it.  To change what a decision waits for, change the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from shared_scheduler.model.read_schedule import ReadTimes


class ReadFrom(StrEnum):
    """Who answers."""

    API = "API database"
    CELL = "cell database"
    PLACEMENT = "Placement"
    CELL_AND_PLACEMENT = "cell database and Placement"
    ALL = "API and cell databases and Placement"
    SCHEDULER = "this scheduler"


class ReadKey(StrEnum):
    """The key of a source: at most one read is in flight for each key."""

    CLOUD = "cloud"
    CELL = "cell"
    NODE = "node"
    QUESTION = "question"


class Waits(StrEnum):
    """In which clouds a decision, or the answer "no valid host", waits for a read.

    ``SILENT``: at most ``catch_up_nodes_max`` nodes, but at least one, have no agent.  ``UNLISTED``: the same, or an
    agent has reported a node that the databases have not shown yet.  ``UNWRITTEN``: before requests for which nothing
    is written; for the others the services of the selected hosts are read while their agents judge the claims.
    """

    NEVER = "never"
    SILENT = "few without agent"
    UNLISTED = "few without agent, or new node"
    UNWRITTEN = "nothing is written"
    ALWAYS = "always"

    def holds(self, fleet: AgentCoverage, writes: bool) -> bool:
        """Whether a caller waits in this cloud; evaluates only the conditions that are needed.

        ``writes``: allocations will be written for the request."""
        match self:
            case Waits.UNWRITTEN:
                return not writes
            case Waits.SILENT:
                return fleet.few_are_silent
            case Waits.UNLISTED:
                return fleet.has_unlisted() or fleet.few_are_silent
        return self is Waits.ALWAYS


class AgentCoverage(Protocol):
    """See ``sync.fleet``."""

    @property
    def few_are_silent(self) -> bool: ...
    def has_unlisted(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Source:
    """One row.

    ``poll_s``: the maximum age, None if it is read on request only; ``option`` of ``[shared_scheduler]`` sets it.
    ``triggers``: the causes of a read besides the poll.  ``cost``: the expected cost of one read; ``status`` prints the
    measured cost.  ``max_age_s``: a caller that waits accepts a read that began so long before.
    """

    name: str
    what: str
    authority: ReadFrom
    key: ReadKey
    cost: str
    poll_s: float | None = None
    option: str = ""
    triggers: str = ""
    decision: Waits = Waits.NEVER
    refusal: Waits = Waits.NEVER
    max_age_s: float = 0.0
    lane: str = ""  # empty: the lane of each cell

    @property
    def times(self) -> ReadTimes:
        """The read times for the schedule of each key."""
        return ReadTimes(self.poll_s, RETRY_FIRST_S, RETRY_MOST_S)

    @property
    def is_on_request(self) -> bool:
        """Whether a key exists only while a read of it is requested."""
        return self.key in (ReadKey.NODE, ReadKey.QUESTION)

    @property
    def is_waited_for(self) -> bool:
        """Whether a decision or a refusal may wait for it, directly or because another read requests it."""
        return self.name in (NODE, SELECTED) or {self.decision, self.refusal} != {Waits.NEVER}


#: The wait after a failed read: full jitter below these.
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 10.0
#: A decision accepts a read that began so long before it: the user who made a change then had no answer of Nova's API
#: yet.  It bounds the load of a busy scheduler on a cell.
MAX_AGE_S = 0.02

#: Groups of threads that read.  Each cell has two more: one with one thread, and one for its nodes with as many threads
#: as ``NODES``, which is for nodes whose cell is not known.  A source that does not answer delays only its own lane.  A
#: question over the whole cloud (0.35 ms of Placement for each fitting host) never delays the fast ones.  ``OWN`` waits
#: for no database and not for Placement.
API, PLACEMENT, NODES, ORPHANS, QUESTIONS, WIDE = "api", "placement", "nodes", "orphans", "questions", "fitting"
OWN = "own"
LANES = {API: 1, PLACEMENT: 1, NODES: 2, ORPHANS: 1, QUESTIONS: 2, WIDE: 1, OWN: 1}

START, CELLS, FILL = "start", "cells", "fill"
SERVICES, ALL_SERVICES, SELECTED, NODE_LIST = "services", "all services", "selected services", "node list"
PROVIDERS, RECORDS, BUILDS = "providers", "records", "builds"
NODE, REPORTED, AUDIT = "node", "reported nodes", "audit"
SHARING, AGGREGATES, ORPHANED, COUNTERS = "sharing providers", "aggregates", "orphans", "counters"
CANDIDATES, FITTING, CONSUMER, GROUP = "candidates", "fitting hosts", "consumer", "server group"

#: In the order in which a decision waits for them, because each may change what the next one reads.
SOURCES = (
    Source(
        SERVICES, "nova-compute services that are disabled, forced down, without a report or new, and those that were "
        "so at the last read", ReadFrom.CELL, ReadKey.CELL, "1 query, a handful of rows",
        1.5, "services_poll_interval_s", "decision",
        decision=Waits.UNWRITTEN, refusal=Waits.ALWAYS, max_age_s=MAX_AGE_S,
    ),
    Source(
        SELECTED, "nova-compute services of the hosts for which allocations are about to be written; the write waits",
        ReadFrom.CELL, ReadKey.CELL, "1 query by an index, 1 row a host", None, "", "a claim, or a write without one",
    ),
    Source(
        NODE_LIST, "uuids of all compute nodes: new ones are read, missing ones are removed",
        ReadFrom.CELL, ReadKey.CELL, "1 query, 1 row a node", 10.0, "nodes_poll_interval_s", "decision, refusal",
        decision=Waits.UNLISTED, refusal=Waits.ALWAYS, max_age_s=MAX_AGE_S,
    ),
    Source(
        PROVIDERS, "generations of the resource providers of nodes without an agent: trees that changed",
        ReadFrom.PLACEMENT, ReadKey.CLOUD, "1 call over the cloud, or 1 a node without an agent",
        30.0, "placement_poll_interval_s", "decision, refusal",
        decision=Waits.SILENT, refusal=Waits.SILENT, max_age_s=MAX_AGE_S, lane=PLACEMENT,
    ),
    Source(
        RECORDS, "records and instances of the nodes without an agent: those that changed are read",
        ReadFrom.CELL, ReadKey.CELL, "2 queries, 1 row a node and an instance", None, "", "decision, refusal",
        decision=Waits.SILENT, refusal=Waits.SILENT, max_age_s=MAX_AGE_S,
    ),
    Source(
        NODE, "record, instances and provider tree of one node without an agent", ReadFrom.CELL_AND_PLACEMENT,
        ReadKey.NODE, "2 queries, 3 calls (5 a provider that changed)", None, "",
        "a source that found a change; a suspect row; an agent that falls silent (the first 100 at once, others 20 a "
        "second); a message of nova-compute; a node that only its agent has named", lane=NODES,
    ),
    Source(
        REPORTED, "nodes that nova-compute has reported since the last read: those without an agent are read, twice, "
        "because nova-compute reports a deleted instance before it deletes its allocation",
        ReadFrom.CELL, ReadKey.CELL, "1 query, 1 row a report", 3.0, "changes_poll_interval_s",
    ),
    Source(
        BUILDS, "servers that were placed some time ago and whose end no agent has reported: whether they are active, "
        "and their faults", ReadFrom.CELL, ReadKey.CELL, "2 queries, 1 row a server and a fault", None, "",
        "a build that has not ended 15 s after its placement (with an agent: 240 s), and later again",
    ),
    Source(
        ALL_SERVICES, "all nova-compute services", ReadFrom.CELL, ReadKey.CELL, "1 query, 1 row a service", 60.0,
    ),
    Source(
        AUDIT, "every node without an agent, spread over this time, at most 20 a second", ReadFrom.SCHEDULER,
        ReadKey.CLOUD, "as many reads of one node", 60.0, "audit_interval_s", lane=PLACEMENT,
    ),
    Source(
        SHARING, "providers that share with other trees, and what is left of them", ReadFrom.PLACEMENT, ReadKey.CLOUD,
        "1 call, 2 a provider that shares (4 if it changed)", 30.0, "placement_poll_interval_s", lane=PLACEMENT,
    ),
    Source(
        AGGREGATES, "host aggregates and their metadata; messages of nova-api are faster", ReadFrom.API, ReadKey.CLOUD,
        "3 queries, 1 row an aggregate, a host and an item", 60.0, "aggregates_read_interval_s", lane=API,
    ),
    Source(
        ORPHANED, "servers whose build or unshelve failed while their allocation was written: it is deleted",
        ReadFrom.ALL, ReadKey.CLOUD, "1 query, 1 a cell, 1 call a new server", 15.0, lane=ORPHANS,
    ),
    Source(
        START, "everything, in bulk", ReadFrom.ALL, ReadKey.CLOUD,
        "2 queries, 3 a cell, 2 calls", None, "", "start", lane=API,
    ),
    Source(CELLS, "cell mappings", ReadFrom.API, ReadKey.CLOUD, "1 query, 1 row a cell", None, "", "SIGHUP", lane=API),
    Source(
        FILL, "every node without an agent, once, after the agents had time to answer",
        ReadFrom.SCHEDULER, ReadKey.CLOUD, "as many reads of one node", None, "", "start", lane=PLACEMENT,
    ),
    Source(
        COUNTERS, "what the core has counted, for warnings in the log; cells whose reads hang, which are opened again",
        ReadFrom.SCHEDULER, ReadKey.CLOUD, "nothing", 10.0, lane=OWN,
    ),
    Source(
        CANDIDATES, "allocation candidates of one host, where a request cannot be answered from memory",
        ReadFrom.PLACEMENT, ReadKey.QUESTION, "1 call a query of the request, more with shared storage", None, "",
        "the core asks; its request waits for the answer", lane=QUESTIONS,
    ),
    Source(
        FITTING, "hosts that fit, before \"no valid host\" is returned", ReadFrom.PLACEMENT, ReadKey.QUESTION,
        "1 call over the cloud a query of the request", None, "", "the core asks; its request waits for the answer",
        lane=WIDE,
    ),
    Source(
        CONSUMER, "what a consumer holds whose claim no agent has reported", ReadFrom.PLACEMENT, ReadKey.QUESTION,
        "1 call", None, "", "the core asks", lane=QUESTIONS,
    ),
    Source(
        GROUP, "the members of a server group and what they hold, and where Nova has them if no agent counts them or "
        "affinity keeps them together, before a request is answered that was written",
        ReadFrom.PLACEMENT, ReadKey.QUESTION, "1 query and 1 call a member that is not known to be there; 1 query a "
        "cell without such agents; for affinity, up to 2 queries a cell that has such members", None, "",
        "the core asks; its request waits for the answer", lane=QUESTIONS,
    ),
)  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""The times and bounds of the scheduler core.

The edges set them from the configuration.  The defaults equal the defaults of the options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from shared_scheduler.protocol.limits import SILENT_AFTER_S


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a scheduler.

    ``epoch`` increases with each start.  A scheduler has an address on the state channel of each cell;
    ``addresses`` is read each time (cell uuid -> address), so an edge may add cells later.
    """

    name: str
    epoch: int
    addresses: Mapping[str, str] = field(default_factory=dict)
    #: unique for each process: two that start at the same moment have the same name and epoch
    salt: str = ""
    #: the release of this program
    release: str = ""

    def address(self, cell: str) -> str:
        """The address for answers from ``cell``."""
        return self.addresses.get(cell, self.name)

    def digest(self) -> str:
        """16 hex digits, unique for each run of each scheduler; claim ids begin with them."""
        return blake2b(f"{self.name}\0{self.epoch}\0{self.salt}".encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Times in seconds; ``_max`` are bounds."""

    #: a claim without a verdict after this time is released, and the next host is tried
    verdict_timeout_s: float = 3.0
    #: a write without an answer after this time has failed; shorter than ``[compute_agent] claim_check_after_s``: after
    #: that time and ``CARRIED_OUT_WITHIN_S``, an agent ends an accepted claim that Placement does not have
    write_timeout_s: float = 10.0
    #: an allocation is written within this time from the first cast of its claim, or not at all: agents keep an
    #: accepted claim that Placement does not have for ``[compute_agent] claim_check_after_s``, 15 by default, and
    #: ``CARRIED_OUT_WITHIN_S``, in which a late write may be carried out
    written_within_s: float = 13.0
    #: a claim without a verdict is cast again at this interval, because the claim or the verdict may be lost
    claim_repeat_s: float = 1.0
    #: a request that is not finished this long before its caller's deadline starts to release its claims; a
    #: request with less than twice this time starts after half of it
    cleanup_s: float = 2.0
    #: hosts that are tried for one instance (a claim, or a question to Placement) before the request fails
    attempts_max: int = 30
    #: hosts that filters over columns rejected and that the judge checks before an instance has no host; 0 if
    #: the judge uses the columns too
    last_words_max: int = 0
    #: hosts that the judge checks in one step, at up to two milliseconds each, before other events are handled
    judged_per_step_max: int = 64
    #: requests under way; further ones fail at once
    requests_max: int = 1_000
    #: claims that have not ended; a request that needs more fails
    claims_max: int = 10_000
    #: claims in flight for one node; if it has more, another host is selected, or the instance waits until a claim
    #: ends; and the interval at which a waiting instance is decided again if none ends
    claims_per_node_max: int = 32
    crowded_wait_s: float = 1.0
    #: how long the search for alternates may delay an answer: without alternates a build that fails is not
    #: rescheduled, so a late answer is better
    alternates_timeout_s: float = 10.0

    #: an agent without a message for this time is silent: its node becomes provisional
    silent_after_s: float = SILENT_AFTER_S
    #: the same for an agent that did not answer a claim
    silent_after_timeout_s: float = 6.0
    #: interval of the Hellos between schedulers; a scheduler that misses three counts as gone
    hello_interval_s: float = 5.0
    #: agents spread their answers to a new scheduler over this time for each thousand nodes
    spread_ms_per_1000_nodes: int = 2_000
    #: nodes with a window; messages of further ones are counted and dropped
    nodes_max: int = 20_000

    #: refusals in a row after which a node is quarantined, and for how long
    refusals_max: int = 5
    quarantine_s: float = 30.0

    #: a recheck asks Placement the same question at most once within this time, in a small cloud within a part of it
    recheck_interval_s: float = 5.0
    #: how long a recheck waits for the answer and for the corrected rows
    recheck_timeout_s: float = 5.0
    #: rows read again because of one recheck
    recheck_rows_max: int = 50

    #: a written claim that its node does not report after this time is read from Placement
    unreported_after_s: float = 15.0
    #: attempts to delete an allocation, and the first pause between them (then doubled)
    delete_attempts_max: int = 5
    delete_pause_s: float = 0.2
    #: released claims that are remembered, to release them again if a late verdict accepts one; and as many
    #: confirmed ones, in case their caller did not get the answer
    released_max: int = 4_096

    #: time from a change of a host aggregate until the agent is asked to read Placement, to which nova-api copies
    #: the aggregate
    mirrored_after_s: float = 5.0

    #: one node is read again (databases and Placement) at most this often
    refresh_interval_s: float = 1.0

# SPDX-License-Identifier: Apache-2.0
"""How patient the scheduler core is, and the bounds of everything it keeps.

Edges fill this from their configuration; the defaults are the product's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from shared_scheduler.protocol.limits import SILENT_AFTER_S


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this scheduler is.

    ``epoch`` grows with each life.  A scheduler has an address on the state channel of each cell;
    ``addresses`` is read each time (cell uuid -> address), so an edge may add cells later.
    """

    name: str
    epoch: int
    addresses: Mapping[str, str] = field(default_factory=dict)
    #: what no other process has: name and epoch are the same in two that begin at one moment
    salt: str = ""

    def address(self, cell: str) -> str:
        """Where answers from ``cell`` go."""
        return self.addresses.get(cell, self.name)

    def digest(self) -> str:
        """16 hex digits that no other life of any scheduler has: claim ids begin with them."""
        return blake2b(f"{self.name}\0{self.epoch}\0{self.salt}".encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds; ``_max`` are bounds."""

    #: a claim without a verdict for this long is released and the next host is tried
    verdict_timeout_s: float = 3.0
    #: a write that is not answered for this long is given up; shorter than an agent waits before it
    #: looks in Placement for an accepted claim and, not finding it, counts it no more
    #: (``[compute_agent] claim_check_after_s``)
    write_timeout_s: float = 10.0
    #: until then its claim is cast again this often, for claim or verdict may be lost
    claim_repeat_s: float = 1.0
    #: a request that is not done this long before its caller's deadline begins to clean up; or after half
    #: of its time, where it has less than twice as much
    cleanup_s: float = 2.0
    #: hosts tried for one instance (claimed, or asked of Placement) before the request fails
    attempts_max: int = 30
    #: hosts that fell to filters over columns and are judged before an instance has no host; 0 where the
    #: judge knows no more than the columns
    last_words_max: int = 0
    #: hosts that the judge refuses in one step, at up to two milliseconds each, before others have their turn
    judged_per_step_max: int = 64
    #: requests at once; more are refused at once rather than late
    requests_max: int = 1_000
    #: claims that have not ended; a request that needs more is refused
    claims_max: int = 10_000
    #: claims in flight for one node; beyond, another host is chosen, and where there is none, a claim has
    #: to land first; how often an instance that waits for that is decided again without one
    claims_per_node_max: int = 32
    crowded_look_s: float = 1.0
    #: how long the search for alternates may hold up an answer: without them a build that fails on its
    #: node is not tried elsewhere, so rather a late answer than one without
    alternates_timeout_s: float = 10.0

    #: an agent that was not heard of for this long is silent: its node turns provisional
    silent_after_s: float = SILENT_AFTER_S
    #: the same, once it has let a claim without a verdict
    silent_after_timeout_s: float = 6.0
    #: schedulers say Hello to one another this often; three missed ones make one gone
    hello_interval_s: float = 5.0
    #: agents spread their answers to a new scheduler over this much time for each thousand nodes
    spread_ms_per_1000_nodes: int = 2_000
    #: nodes a scheduler keeps windows for; messages of further ones are counted and dropped
    nodes_max: int = 20_000

    #: refusals in a row after which a node is left alone, and for how long
    refusals_max: int = 5
    quarantine_s: float = 30.0

    #: the same question is put to Placement at most once within this time ("No" is checked)
    doubt_interval_s: float = 5.0
    #: how long a doubtful "No" waits for the answer and for the rows that it corrects
    doubt_timeout_s: float = 5.0
    #: rows read again because of one doubt
    doubt_refresh_max: int = 50

    #: a written claim that its node does not show after this long is looked up in Placement
    look_after_s: float = 15.0
    #: attempts to take back a written allocation, and the first pause between them (then doubled)
    delete_attempts_max: int = 5
    delete_pause_s: float = 0.2
    #: released claims that are remembered, to release them again if a late verdict accepts one; and
    #: as many kept ones, should nobody have heard their answer
    released_max: int = 4_096

    #: after a host joined or left a host aggregate, its agent is told to look in Placement, where nova-api
    #: mirrors it
    mirrored_after_s: float = 5.0

    #: one node is read again (databases and Placement) at most this often
    refresh_interval_s: float = 1.0

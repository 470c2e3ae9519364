# SPDX-License-Identifier: Apache-2.0
"""Own outstanding claims: what this scheduler has taken and a row's base does not show yet.

A row is its *base* (what the agent, or the databases, said) plus these.  A claim has two parts, and
each is counted until the base shows it:

=============  ====================================================================================
part           the base shows it when
=============  ====================================================================================
allocations    the base has reached the verdict's ``reflected_sequence`` in its epoch, or the claim
               is pending in the base, or the base's consumer holds the claim's allocations
numbers and    as the first two, or the base's consumer is a member (nova-compute counts it); a row
membership     without an agent shows allocations (Placement) before numbers (nova-compute)
=============  ====================================================================================

========  ======================  ========  =========================================================
state     event                   next      what is done
========  ======================  ========  =========================================================
(none)    assume                  ASSUMED   both parts are counted
ASSUMED   accepted                ASSUMED   the sequence that will show it is known
ASSUMED   confirm                 KEPT      Placement holds it: only evidence ends it now
any       the base shows a part   same      that part is counted no more
KEPT      an agent's base shows   (gone)    ended: reflected
          both
KEPT      the databases' does       READ      an agent that comes up may yet send an older snapshot
READ      the databases' does no    (gone)    ended: what was there is over
          more
READ      a while has passed        (gone)    ended by forget (``core/watch.py``)
KEPT      the base says: ended    (gone)    the agent let the claim go (``claims: {id: None}``)
any       forget                  (gone)    ended: what was still counted is given back
========  ======================  ========  =========================================================

A claim that is only assumed stays until ``confirm`` or ``forget`` even when the base shows it already,
so that ``forget`` of it is never a surprise.  A snapshot of another epoch changes nothing by itself:
the claim stays until evidence comes.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.protocol.messages import Allocations, Usage
from shared_scheduler.state.topology import TopologyTake


@dataclass(slots=True)
class OwnClaim:
    """One outstanding claim of this scheduler.

    ``counts_allocations`` and ``counts_numbers`` tell which parts the overlay adds at present.
    """

    claim_id: str
    consumer: str
    allocations: Allocations
    usage: Usage
    topology: TopologyTake | None = None
    kept: bool = False
    #: the databases have shown all of it
    read: bool = False
    #: the agent let it go; what it says of the consumer is all there is
    ended: bool = False
    epoch: int = 0
    reflected_sequence: int = 0
    counts_allocations: bool = True
    counts_numbers: bool = True

    @property
    def shown(self) -> bool:
        """The base shows all of it."""
        return not (self.counts_allocations or self.counts_numbers)

    def reached(self, epoch: int, sequence: int) -> bool:
        """Whether a base at this position holds it for sure."""
        return (
            self.reflected_sequence > 0
            and epoch == self.epoch
            and sequence >= self.reflected_sequence
        )

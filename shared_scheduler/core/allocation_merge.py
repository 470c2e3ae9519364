# SPDX-License-Identifier: Apache-2.0
"""The three-way merge of the allocations of a server that moves.  Pure.

While a server moves, others may add resources to it in Placement, or remove them: ports with QoS, accelerators.  A
write of ours then conflicts.  ``merge`` finds the allocations that contain both, or None if that is undecidable; the
writer then fails as it does without merging (``placement/consumer_conflicts.py``, option c).

Terms
    ``base``: what the consumer had when our write was made.  ``part``: what our write adds, on providers that ``base``
    does not have.  ``theirs``: what the consumer has now, at generation g.  ``rest``: ``theirs`` without the providers
    of ``part``.

Whose is what
    The providers of ``part`` are ours, and all others are theirs.  Resources that place a server belong to Nova's
    operation, on all providers: processors, memory, disk, and all classes of ``part``.  Ports are an exception, because
    a port that is attached meanwhile has the classes of the ports that the server had before.

A merge is undecidable
    1. if ``theirs`` has something else than ``part`` on a provider of ``part``: somebody else has added to our
       provider, and amounts of one class cannot be separated;
    2. if ``rest`` and ``base`` differ in a class that places a server: it was deleted or resized, or another operation
       has placed it on another host, and our own request is out of date;
    3. if ``part`` has no class that places a server, because then 2 would notice neither.

The result is ``rest`` and ``part``.  It is written with generation g.

Nobody's allocation is lost
    (a) Each amount of ``theirs`` is in the result: on other providers than ours by definition of ``rest``, and on ours
    because of 1 it is that of ``part``.
    (b) Placement carries out the write only if the generation is still g, and each write changes the generation, so
    the write replaces ``theirs`` and nothing else.  By (a) and (b) and induction over all writes, the consumer always
    has what the others alone would have left there, and ``part`` once or not at all.
    (c) An earlier write of ours without an answer cannot come later: it was sent with an older generation.
    (d) If it was carried out, ``theirs`` contains ``part``, and ``part`` is not added again.
    (e) If our write is taken back, ``rest`` is restored if nobody has written since.  Otherwise it is what stands,
    without ``part``, and only if ``part`` is there as it was written; otherwise everything stays.

The gaps of Placement 16
    (b) does not hold for writes of one consumer within the same milliseconds, of which one creates it or removes all
    of it (``placement/consumer_conflicts.py``).  (c) does not hold if others remove all allocations of the server and
    add new ones while our write may still arrive, because generations then begin with 1 again; this scheduler itself
    does not remove them in that time (``placement/late_writes.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_scheduler.model.resources import plain_allocations
from shared_scheduler.protocol.messages import Allocations

#: Merges of one write before it fails.
MAX_MERGES = 5
#: Resource classes of ports with QoS.
PORT_CLASSES = frozenset({
    "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC", "NET_PACKET_RATE_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC", "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
})  # fmt: skip
#: Resource classes of which each server has at least one, unless its flavor has only other classes.
SERVER_CLASSES = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})


@dataclass(frozen=True, slots=True)
class Merged:
    """The allocations to write, and those of them that are not ours."""

    allocations: dict[str, dict[str, int]]
    rest: dict[str, dict[str, int]]


def merge(base: Allocations, part: Allocations, theirs: Allocations) -> Merged | None:
    """The merge of ``part`` with ``theirs``; None: undecidable."""
    ours, now = plain_allocations(part), plain_allocations(theirs)
    there = {provider: amounts for provider, amounts in now.items() if provider in ours}
    rest = {provider: amounts for provider, amounts in now.items() if provider not in ours}
    placing = _classes(ours) - PORT_CLASSES
    if not placing or there not in ({}, ours):
        return None
    if _only(rest, placing | SERVER_CLASSES) != _only(plain_allocations(base), placing | SERVER_CLASSES):
        return None
    return Merged(rest | ours, rest)


def _classes(allocations: dict[str, dict[str, int]]) -> frozenset[str]:
    return frozenset(name for amounts in allocations.values() for name in amounts)


def _only(allocations: dict[str, dict[str, int]], classes: frozenset[str]) -> dict[tuple[str, str], int]:
    return {
        (provider, name): amount
        for provider, amounts in allocations.items()
        for name, amount in amounts.items()
        if name in classes
    }

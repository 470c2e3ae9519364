# SPDX-License-Identifier: Apache-2.0
"""Consumer generations: what each operation expects to find, and what it does if it finds otherwise.

The question is the one of openstack-dev, 16 August 2018: how should Nova behave when Placement
answers "consumer generation conflict"?  Three ways were discussed: (a) read, write, fail on conflict;
(b) retry blindly; (c) keep an own view, read, combine, write.  Ours is (c) where we are the author of
what stands there, and (a) everywhere else; nothing is ever retried blindly.

``RULES`` says what is done about each finding, ``placement.operations`` which operation goes by which
rule, and what becomes of it.

*New* is sent with null and without a read before.  If nothing stands there after a conflict, a race for
a provider was lost: it is sent again with null until ``ORPHAN_AFTER_S``, then once with 0 in case the
record is an orphan (a consumer without a record refuses 0), and once more with null.  A race that is
lost for a provider moves a provider's generation, so these are read before that last write and after
it: where none has moved, it is the consumer's record that refuses null and 0, and no host would be any
better (a hard error); else it is a provider conflict.  *Merge* reads first and sends the generation
read; where it finds nothing it is new.  What we wrote is taken back with the generation just read, if
it is exactly what stands there; anything else is left alone.

A *twin* is the same move's, from an earlier try of another scheduler that had failed and may take it
back: it is written again with its generation, and so becomes ours under another one.

An orphan is a consumer record of generation 0 without allocations: Placement commits the record before
the allocations, and died in between.  It refuses null for ever and takes 0.  But every write of a new
consumer looks like that for some milliseconds, and whoever then writes with 0 destroys: the creator,
having lost, deletes the record under the allocations of the one who won.  So 0 is sent only when
nothing has moved for much longer than a write takes.

Two gaps of Placement 16 remain, both only for writers of one consumer within the same milliseconds:
two creators with null may both pass (the second adopts the first one's record), and a write of empty
allocations compares the generation before it reads what it deletes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared_scheduler.core.effects import ConsumerPolicy
from shared_scheduler.protocol.messages import Allocations

#: Writes of one consumer before it is given up; with the waits between them some 8 s.
MAX_ATTEMPTS = 20
#: A record that refuses null and shows nothing for this long is an orphan ...
ORPHAN_AFTER_S = 2.0
#: ... or for this long, where an unanswered write of ours may still be under way.
ORPHAN_AFTER_UNSURE_S = 5.0
#: Waits before a write is sent again: doubled each time up to the longest, half of it at random.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.02, 0.5


#: Provider to its generation; None: there is no such provider.
Generations = Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Standing:
    """What Placement holds for a consumer.  ``generation`` None: no allocations, no record shown."""

    allocations: Allocations = field(default_factory=dict)
    generation: int | None = None
    project_id: str = ""
    user_id: str = ""


class Finding(StrEnum):
    """What stands there, compared with what one operation wanted."""

    NOTHING = "nothing"
    AS_WANTED = "as_wanted"
    UNCHANGED = "unchanged"  # merge: still what was read before
    OWN_ATTEMPT = "own_attempt"
    TWIN = "twin"  # as wanted, but no write of ours is out that could have put it there
    FOREIGN = "foreign"


class Step(StrEnum):
    """What is done about a finding."""

    DONE = "done"  # it stands there (or is gone) as it should: an answer was lost
    AGAIN = "again"  # the consumer is as expected, so a race for a provider was lost
    REPLACE = "replace"  # it is ours, or becomes ours: write with its generation
    REFUSE = "refuse"  # it is somebody else's: untouched, a hard error


RULES: Mapping[ConsumerPolicy, Mapping[Finding, Step]] = {
    ConsumerPolicy.NEW: {
        Finding.AS_WANTED: Step.DONE,
        Finding.NOTHING: Step.AGAIN,
        Finding.OWN_ATTEMPT: Step.REPLACE,
        Finding.TWIN: Step.REPLACE,
        Finding.FOREIGN: Step.REFUSE,
    },
    ConsumerPolicy.MERGE: {
        Finding.AS_WANTED: Step.DONE,
        Finding.UNCHANGED: Step.AGAIN,
        Finding.FOREIGN: Step.REFUSE,
    },
}


def same(left: Allocations, right: Allocations) -> bool:
    """Equal as allocations: order and empty parts do not count."""
    return _plain(left) == _plain(right)


def holds(standing: Allocations, part: Allocations) -> bool:
    """True if any provider of ``part`` carries exactly ``part``'s amounts in ``standing``."""
    there = _plain(standing)
    return any(there.get(provider) == amounts for provider, amounts in _plain(part).items())


def union(standing: Allocations, wanted: Allocations) -> dict[str, dict[str, int]]:
    """Both; a provider that is held already (shared storage) is not added again.

    The rule of nova/scheduler/client/report.py, ``_move_operation_alloc_request``.
    """
    return _plain(wanted) | _plain(standing)


def without(standing: Allocations, part: Allocations) -> dict[str, dict[str, int]]:
    """``standing`` less the providers of ``part``."""
    return {name: amounts for name, amounts in _plain(standing).items() if name not in part}


def find_new(
    standing: Standing, wanted: Standing, attempts: tuple[Allocations, ...] = (), unsure: bool = True
) -> Finding:
    """After a conflict or an unknown outcome of a *new*.  ``attempts``: earlier ones of ours.

    ``unsure``: a write of it got no answer.
    Of ``wanted`` allocations and owner count: the same amounts for somebody else are not ours.
    """
    if not standing.allocations:
        return Finding.NOTHING
    if (standing.project_id, standing.user_id) != (wanted.project_id, wanted.user_id):
        return Finding.FOREIGN
    if same(standing.allocations, wanted.allocations):
        return Finding.AS_WANTED if unsure else Finding.TWIN
    mine = any(same(standing.allocations, attempt) for attempt in attempts)
    return Finding.OWN_ATTEMPT if mine else Finding.FOREIGN


def find_merge(standing: Standing, before: Standing, wanted: Allocations) -> Finding:
    """After a conflict or an unknown outcome of a *merge* of ``wanted`` over ``before``."""
    if standing.generation == before.generation:
        return Finding.UNCHANGED
    return Finding.AS_WANTED if same(standing.allocations, wanted) else Finding.FOREIGN


def find_delete(standing: Standing, written: Allocations) -> Finding:
    """Before each attempt of a *delete*."""
    if not standing.allocations:
        return Finding.NOTHING
    return Finding.AS_WANTED if same(standing.allocations, written) else Finding.FOREIGN


def is_consumers(before: Generations | None, after: Generations | None) -> bool:
    """Whether a conflict that shows nothing is the consumer's: no provider has moved over the last write.

    None: they could not be read, and nobody knows.
    """
    return before is not None and before == after


def wait_s(sent: int, fraction: float) -> float:
    """Before the next write after ``sent`` of them; ``fraction``: random, from 0 to 1."""
    longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(sent, 10))
    return longest * (1 + fraction) / 2


def patience_s(unsure: bool) -> float:
    """How long conflicts are answered with the same write again."""
    return ORPHAN_AFTER_UNSURE_S if unsure else ORPHAN_AFTER_S


def _plain(allocations: Allocations) -> dict[str, dict[str, int]]:
    plain = {name: _amounts(amounts) for name, amounts in allocations.items()}
    return {name: amounts for name, amounts in plain.items() if amounts}


def _amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}

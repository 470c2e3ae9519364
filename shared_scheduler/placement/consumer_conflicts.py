# SPDX-License-Identifier: Apache-2.0
"""Consumer generations: what each operation expects, and how it handles a conflict.

openstack-dev discussed on 16 August 2018 what Nova should do when Placement answers "consumer generation conflict":
(a) read, write, fail on a conflict; (b) retry blindly; (c) keep an own copy, read, combine, write.  This module does
(c) for allocations that this scheduler wrote, and (a) for all others.  It never retries blindly.  For the moves that
``[shared_scheduler] merged_moves`` names, *refuse* becomes (c) for the allocations of others too, a bounded number of
times (``core/allocation_merge.py`` says how, and why nobody's allocation is lost).

``RULES`` maps each comparison to an action.  ``doc/source/contributor/allocation_writes.rst`` shows the rules and
results of each operation.

*New* is sent with null, without a read before.  If the consumer has no allocations after a conflict, a race for a
provider was lost.  The write is sent again with null until ``ORPHAN_AFTER_S``, then once with 0 if an own write may
have left the record as an orphan (a consumer without a record refuses 0), and once more with null.  A lost race changes
the generation of a provider, so the generations are read before and after that last write.  If none changed, the record
of the consumer refuses the write, and no other host would help: a hard error.  Otherwise it is a provider conflict.
*Merge* sends the generation that the table knows; without a known one it reads first.  After a conflict with a
generation that the table knew, it reads, and merges with what it finds, because the table may be late; the change is
noted as foreign.  If the write got no answer, its own part may be there already: it is written once more, because it
may as well be another scheduler's.  If an earlier attempt of this scheduler, for another host, was carried out late,
its part is replaced.  If another scheduler, which got the same request, has merged the same, it is written again, so
that the other one does not delete it, and it stays if this scheduler takes its write back.  Without allocations it is
*new*.  An allocation of this scheduler is deleted with the generation that was just read, if it is exactly what was
written; anything else stays.  If others have written since a merge, only its own part is deleted, and only when Nova
shows that it is not needed: another scheduler may have got the same request, and merged the same.

A *twin* is an allocation of the same move, written by another scheduler in an earlier attempt that failed.  That
scheduler may still delete it.  Writing it again with its generation makes it ours, with a new generation, and each
scheduler deletes only the generation that its own write has made (``generation_after``).  If a message queue that fails
over delivers one request to two schedulers, both may answer with the same allocation, and the caller hears the first.
So what has replaced a twin is deleted only after the time of the request, if Nova shows that it is not needed
(``core/claims.py``).  Once Nova has a new server in a cell, the other scheduler has answered, and what stands is not
written again.  An earlier attempt is recognised by its generation as well.

If a write of a new consumer got no answer, and its allocations stand in the first generation, or in the one that the
last write makes, Placement does not show who has written them: they are *unclear*.  A scheduler that needs them writes
them once more, as it does those of a twin, so that a twin that fails does not delete them.  Only an answer ends this,
because a twin may do the same at the same moment.  If there is no time for that, as after the time-out of a write, they
count as its own.  A scheduler that does not need them any more asks Nova about a new server: once the other one
has answered, the server is in a cell.

An *orphan* is a consumer record of generation 0 without allocations: Placement commits the record before the
allocations, and was interrupted in between, or has refused the call because a provider does not exist (it then leaves
the records of all new consumers of the call).  It always refuses null, and accepts 0.  But every write of a new
consumer is in this state until it ends.  With a slow Placement, which repeats a write that loses races, that may take
longer than its writer waits.  A write with 0 is harmful then: the first writer fails, and deletes the record, although
the second one has written allocations for it.  Nobody can see which of the two a record is.  Therefore 0 is sent only
for a record that a failed write of this scheduler may have left, and never while one of its writes without an answer
may still be carried out (``own_records``).  The record of another writer is not taken over: if it is an orphan,
because Placement was interrupted, the server fails, as with ``nova-scheduler``.

Two gaps of Placement 16 remain, both only for writers of one consumer within the same milliseconds: two creators with
null may both succeed (the second adopts the record of the first), and a write of empty allocations compares the
generation before it reads what it deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared_scheduler.core.effects import ConsumerPolicy
from shared_scheduler.core.own_writes import CREATED
from shared_scheduler.model.resources import plain_allocations, same_allocations
from shared_scheduler.placement.in_doubt_writes import WriteAttempt
from shared_scheduler.protocol.backoff import Backoff
from shared_scheduler.protocol.messages import Allocations

#: Time for which a conflict over a consumer without allocations is a race for a provider.
ORPHAN_AFTER_S = 2.0
#: Waits before a write is sent again after a conflict.
CONFLICT_BACKOFF = Backoff(0.02, 0.5, least=0.5)

#: Provider to its generation; None: there is no such provider.
Generations = Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class ConsumerAllocations:
    """The allocations of a consumer in Placement.  ``generation`` None: it has no allocations."""

    allocations: Allocations = field(default_factory=dict)
    generation: int | None = None
    project_id: str = ""
    user_id: str = ""


class ConflictCase(StrEnum):
    """The existing allocations, compared with those that an operation writes."""

    NOTHING = "nothing"
    AS_WANTED = "as_wanted"
    UNCHANGED = "unchanged"  # merge: the same as read before
    OWN_ATTEMPT = "own_attempt"
    TWIN = "twin"  # as wanted, but not written by this scheduler
    UNCLEAR = "unclear"  # as wanted, by a write of this scheduler without an answer or by a twin
    FOREIGN = "foreign"


class ConflictAction(StrEnum):
    """The actions that follow from a comparison."""

    AGAIN = "again"  # the consumer is as expected, so a race for a provider was lost
    REPLACE = "replace"  # ours, or becomes ours: write with its generation
    MAKE_SURE = "make_sure"  # the same, but done if there is no time to write
    REFUSE = "refuse"  # another writer's: unchanged, a hard error


RULES: Mapping[ConsumerPolicy, Mapping[ConflictCase, ConflictAction]] = {
    ConsumerPolicy.NEW: {
        ConflictCase.NOTHING: ConflictAction.AGAIN,
        ConflictCase.OWN_ATTEMPT: ConflictAction.REPLACE,
        ConflictCase.TWIN: ConflictAction.REPLACE,
        ConflictCase.UNCLEAR: ConflictAction.MAKE_SURE,
        ConflictCase.FOREIGN: ConflictAction.REFUSE,
    },
    ConsumerPolicy.MERGE: {
        ConflictCase.AS_WANTED: ConflictAction.MAKE_SURE,
        ConflictCase.UNCHANGED: ConflictAction.AGAIN,
        ConflictCase.OWN_ATTEMPT: ConflictAction.REPLACE,
        ConflictCase.FOREIGN: ConflictAction.REFUSE,
    },
}


def holds(standing: Allocations, part: Allocations) -> bool:
    """Whether ``standing`` has exactly the amounts of ``part`` on any provider of ``part``."""
    there = plain_allocations(standing)
    return any(there.get(provider) == amounts for provider, amounts in plain_allocations(part).items())


def contains(standing: Allocations, part: Allocations) -> bool:
    """Whether ``standing`` has exactly the amounts of ``part`` on all providers of ``part``."""
    there = plain_allocations(standing)
    return all(there.get(provider) == amounts for provider, amounts in plain_allocations(part).items())


def union(standing: Allocations, wanted: Allocations) -> dict[str, dict[str, int]]:
    """The union of both; a provider in ``standing`` (shared storage) is not added again.

    The rule of nova/scheduler/client/report.py, ``_move_operation_alloc_request``.
    """
    return plain_allocations(wanted) | plain_allocations(standing)


def without(standing: Allocations, part: Allocations) -> dict[str, dict[str, int]]:
    """``standing`` less the providers of ``part``."""
    return {name: amounts for name, amounts in plain_allocations(standing).items() if name not in part}


def remaining(standing: Allocations, part: Allocations) -> dict[str, dict[str, int]]:
    """What remains of ``standing`` if an own write of ``part`` is taken back; all of it if that was not carried out."""
    return without(standing, part) if contains(standing, part) else plain_allocations(standing)


def find_new(
    standing: ConsumerAllocations,
    wanted: ConsumerAllocations,
    attempts: Iterable[WriteAttempt] = (),
    unsure: bool = True,
) -> ConflictCase:
    """Compare after a conflict or an unknown outcome of *new*.  ``attempts``: as for ``own_attempt``.

    ``unsure``: one of its writes got no answer.
    Allocations and owner of ``wanted`` are compared: equal amounts of another owner are not ours.  Its generation is
    the one that the write makes: another one is of a twin.
    """
    if not standing.allocations:
        return ConflictCase.NOTHING
    if (standing.project_id, standing.user_id) != (wanted.project_id, wanted.user_id):
        return ConflictCase.FOREIGN
    if same_allocations(standing.allocations, wanted.allocations):
        may_be_ours = unsure and standing.generation in (CREATED, wanted.generation)
        return ConflictCase.UNCLEAR if may_be_ours else ConflictCase.TWIN
    mine = own_attempt(standing, (attempt for attempt in attempts if not attempt.before))
    return ConflictCase.FOREIGN if mine is None else ConflictCase.OWN_ATTEMPT


def find_merge(
    standing: ConsumerAllocations,
    before: ConsumerAllocations,
    wanted: Allocations,
    attempts: Iterable[WriteAttempt] = (),
) -> ConflictCase:
    """Compare after a conflict or an unknown outcome of a *merge* of ``wanted`` with ``before``.  ``attempts``: as for
    ``own_attempt``."""
    if is_same(standing, before):
        return ConflictCase.UNCHANGED
    if same_allocations(standing.allocations, wanted):
        return ConflictCase.AS_WANTED
    return ConflictCase.FOREIGN if own_attempt(standing, attempts) is None else ConflictCase.OWN_ATTEMPT


def own_attempt(standing: ConsumerAllocations, attempts: Iterable[WriteAttempt]) -> WriteAttempt | None:
    """That of these earlier writes of this scheduler, for other hosts of the same request, which was the last one."""
    for attempt in attempts:
        if same_allocations(standing.allocations, attempt.written) and is_of(standing, attempt.generation):
            return attempt
    return None


def begins_anew(finding: ConflictCase, is_known: bool, unsure: bool) -> bool:
    """Whether a *merge* begins again with what was read: an earlier attempt has arrived, the table, which it began with
    (``is_known``), was late, or another scheduler has merged the same, because no answer was lost (``unsure``)."""
    if finding is ConflictCase.AS_WANTED:
        return not unsure
    return finding is ConflictCase.OWN_ATTEMPT or (is_known and finding is ConflictCase.FOREIGN)


def begin_merge(
    standing: ConsumerAllocations, part: Allocations, attempts: Iterable[WriteAttempt], unsure: bool
) -> tuple[Allocations, Allocations]:
    """The allocations that a *merge* of ``part`` keeps, and those that remain if it is taken back.

    What an earlier attempt has written is neither.  ``unsure``: a write of ``part`` got no answer."""
    own = own_attempt(standing, attempts)
    if own is not None:
        return own.before, own.before
    kept = standing.allocations
    return kept, remaining(kept, part) if unsure else kept


def find_delete(standing: ConsumerAllocations, written: Allocations, generation: int | None) -> ConflictCase:
    """Compare before each attempt of a *delete* of what a write with this generation left."""
    if not standing.allocations:
        return ConflictCase.NOTHING
    ours = same_allocations(standing.allocations, written) and is_of(standing, generation)
    return ConflictCase.AS_WANTED if ours else ConflictCase.FOREIGN


def rest_of(
    standing: Allocations, written: Allocations, before: Allocations, finding: ConflictCase
) -> Allocations | None:
    """What a *delete* leaves of ``standing``; None: nothing is deleted.

    ``finding`` compares it with ``written``, which was merged with ``before``."""
    if finding is ConflictCase.AS_WANTED:
        return before
    rest = remaining(standing, without(written, before))
    return rest if before and len(rest) < len(standing) else None


def is_same(one: ConsumerAllocations, other: ConsumerAllocations) -> bool:
    """Whether nobody has written between the two reads of a consumer."""
    return one.generation == other.generation and same_allocations(one.allocations, other.allocations)


def is_of(standing: ConsumerAllocations, generation: int | None) -> bool:
    """Whether nobody has written since the write that made this generation.  None: not known, so it may be."""
    return generation is None or standing.generation == generation


def generation_after(sent: int | None) -> int:
    """The generation of a consumer after a write with ``sent``; a new one begins with 1."""
    return CREATED if sent is None else sent + 1


def is_consumers(before: Generations | None, after: Generations | None) -> bool:
    """Whether a conflict without allocations is one of the consumer, because no provider changed during the last write.

    None: the generations could not be read.
    """
    return before is not None and before == after

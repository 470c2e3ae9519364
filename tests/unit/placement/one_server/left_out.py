# SPDX-License-Identifier: Apache-2.0
"""What does not happen in these worlds, because the product is known not to cover it.  Pure.

Each of these leaves allocations until the server is deleted, or ``nova-manage placement audit`` finds them.

``copies_of_moves``
    Of a move or an evacuation, the broker delivers no copy after its caller has given up; who asks then asks on his
    own.  Once Nova knows of an answer, a copy would be written where the server lives by then.
``separate_operations_at_once``
    Nova's API begins no operation of a server while another one is under way, so no caller asks for a move or an
    evacuation while another one waits.  The second evacuation would take the share of the first for something that
    stood before.
``evacuations_with_nothing``
    Once the user has deleted a server, at most one more copy of its evacuation is delivered.  With nothing to merge
    with, two of them are like two moves: the second one takes the first one's share for something that stood before.
``deletes_before_a_late_call``
    The user deletes no server while a copy of its request is under way, or a lost call may still be carried out, which
    may write what was heard.  The claim of that answer has ended, so nobody looks for what comes after the delete.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared_scheduler.placement.consumer_write import ConsumerWrite
from shared_scheduler.placement.reconciler import ServerActivity, ServerLocation
from tests.unit.placement.one_server.plan import Kind


def copies_of_moves(kind: Kind, arrived_s: float, caller_gives_up_s: float) -> bool:
    return kind is not Kind.BUILD and arrived_s > caller_gives_up_s


def separate_operations_at_once(found: ServerLocation) -> bool:
    return found.activity is not ServerActivity.AT_REST


def evacuations_with_nothing(kind: Kind, is_deleted: bool, copies_since: int) -> bool:
    return kind is Kind.EVACUATION and is_deleted and copies_since > 0


def deletes_before_a_late_call(heard: str | None, copies: int, late_calls: Iterable[ConsumerWrite]) -> bool:
    return copies > 0 or any(heard in late.allocations for late in late_calls)

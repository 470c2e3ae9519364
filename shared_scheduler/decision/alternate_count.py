# SPDX-License-Identifier: Apache-2.0
"""How many alternates the answer to a request has.

An alternate is a host that the caller may try without the scheduler when the build on the selected host fails.  The
number belongs to the caller, who retries, not to the scheduler.  The first of these that is given counts:

1. the argument ``num_alternates`` of the call,
2. the extra spec ``shared_scheduler:alternates`` of the flavor,
3. ``[shared_scheduler] alternates``, which the Nova edge puts into the request,
4. Nova's ``[scheduler] max_attempts`` - 1, likewise.

With 1 to 3, a request for several servers gets none, because its servers are placed together or not at all; with 4 it
gets what Nova gives.  A caller that wants no alternates at all gets none.
"""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.request import Request

ALTERNATES = "shared_scheduler:alternates"
#: more hosts than a caller tries
ALTERNATES_MAX = 100
#: characters of a text that an error quotes
QUOTED_CHARS = 64


def with_alternates(request: Request) -> Request:
    """The request with the number that counts.

    :raises DecisionError: when a number is not from 0 to ``ALTERNATES_MAX``
    """
    text = request.flavor.extra_specs.get(ALTERNATES)
    if request.flavor_sets_alternates and text is not None:
        number = for_servers(len(request.instance_uuids), _number(text))
        return replace(request, num_alternates=number, flavor_sets_alternates=False)
    if not 0 <= request.num_alternates <= ALTERNATES_MAX:
        raise DecisionError(f"num_alternates is {request.num_alternates}; 0 to {ALTERNATES_MAX} are possible")
    return request


def for_servers(count: int, number: int) -> int:
    """What a request for ``count`` servers gets of the number that somebody has chosen."""
    return number if count < 2 or number < 0 else 0


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(ALTERNATES_MAX)) else -1
    if not 0 <= number <= ALTERNATES_MAX:
        quoted = repr(text[:QUOTED_CHARS])
        raise DecisionError(f"{ALTERNATES} of the flavor: {quoted} is not a whole number from 0 to {ALTERNATES_MAX}")
    return number

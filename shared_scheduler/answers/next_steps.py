# SPDX-License-Identifier: Apache-2.0
"""What an operator may do after reading a story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shared_scheduler.answers.shapes import Why
from shared_scheduler.records.store import ACTIVE, BUILD, DECISION, PLACED
from shared_scheduler.records.story import NO_HOST


def next_steps(story: Why) -> Iterator[str]:
    """Sentences that name a command or a log; none if all is well.  They follow from the newest decision or build."""
    last: Mapping[str, Any] = next((one for one in reversed(story["records"]) if one["kind"] in (DECISION, BUILD)), {})
    name, result = story["name"], last.get("result")
    if last.get("kind") == BUILD and result != ACTIVE:
        yield f"the log of nova-compute on {last['hosts'][0]} has the traceback"
        if "nova" not in story:
            yield f"why {name} --nova shows Nova's own events and faults of it"
    elif result in NO_HOST:
        yield f"why-not {name} HOST shows what one host lacked, and what it would answer now"
        if flavor := last.get("asked", {}).get("flavor"):
            yield f"fit --flavor {flavor} --number 1 shows whether such a server would fit now"
    elif result == PLACED and "nova" not in story:
        yield f"why {name} --nova shows how far Nova is with the build"
    elif last.get("kind") == DECISION and result != PLACED:
        yield f"the log of {last.get('scheduler')} has more lines with the id of the request"

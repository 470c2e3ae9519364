# SPDX-License-Identifier: Apache-2.0
"""The last requests, kept so that an operator can ask why.

Requests that found no host are what is asked about, and on a busy cloud they would soon be pushed out
by those that did: each kind has a memory of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from itertools import chain

from shared_scheduler.core.effects import Answer, Fail
from shared_scheduler.decision.record import DecisionRecord
from shared_scheduler.decision.request import Request

#: Requests of each kind that are remembered; one takes some 20 kB with Nova's own object in it.
REQUESTS_MAX = 200


@dataclass(frozen=True, slots=True)
class Past:
    """One of them.  ``at_s``: seconds since 1970."""

    at_s: float
    request: Request
    record: DecisionRecord

    def is_called(self, name: str) -> bool:
        """Whether this is the name of the request or of one of its servers."""
        return name == self.request.request_id or name in self.request.instance_uuids


class Recent:
    """Used by many threads."""

    def __init__(self, requests_max: int = REQUESTS_MAX) -> None:
        self._lock = threading.Lock()
        self._failed: deque[Past] = deque(maxlen=requests_max)
        self._answered: deque[Past] = deque(maxlen=requests_max)

    def add(self, outcome: Answer | Fail, at_s: float) -> None:
        """Remember how this one ended."""
        past = Past(at_s, outcome.request, outcome.record)
        with self._lock:
            (self._failed if isinstance(outcome, Fail) else self._answered).append(past)

    def find(self, name: str) -> Past | None:
        """The newest that has this name (of the request, or of a server); None if none is remembered."""
        with self._lock:
            found = [past for past in chain(self._failed, self._answered) if past.is_called(name)]
        return max(found, key=lambda past: past.at_s, default=None)

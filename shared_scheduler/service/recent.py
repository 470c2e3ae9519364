# SPDX-License-Identifier: Apache-2.0
"""Stores the last requests, so that an operator can ask why they ended as they did.

Operators ask about requests that found no host.  On a busy cloud successful requests would soon displace them, so each
kind has its own memory.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from itertools import chain

from shared_scheduler.core.effects import Answer, Fail
from shared_scheduler.decision.record import DecisionRecord
from shared_scheduler.decision.request import Request

#: The number of stored requests of each kind; one needs about 20 kB, including Nova's own object.
REQUESTS_MAX = 200


@dataclass(frozen=True, slots=True)
class Past:
    """One stored request.  ``at_s``: seconds since 1970."""

    at_s: float
    request: Request
    record: DecisionRecord

    def is_called(self, name: str) -> bool:
        """Whether this is the name of the request or of one of its servers."""
        return name == self.request.request_id or name in self.request.instance_uuids


class Recent:
    """Many threads use it."""

    def __init__(self, requests_max: int = REQUESTS_MAX) -> None:
        self._lock = threading.Lock()
        self._failed: deque[Past] = deque(maxlen=requests_max)
        self._answered: deque[Past] = deque(maxlen=requests_max)

    def add(self, outcome: Answer | Fail, at_s: float) -> None:
        """Store the outcome of a request."""
        past = Past(at_s, outcome.request, outcome.record)
        with self._lock:
            (self._failed if isinstance(outcome, Fail) else self._answered).append(past)

    def find(self, name: str) -> Past | None:
        """The newest request with this name (of the request, or of a server); None if there is none."""
        with self._lock:
            found = [past for past in chain(self._failed, self._answered) if past.is_called(name)]
        return max(found, key=lambda past: past.at_s, default=None)

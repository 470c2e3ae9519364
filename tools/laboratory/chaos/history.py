# SPDX-License-Identifier: Apache-2.0
"""The operations and faults of a run with their times, which are of the monotonic clock."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Requirement:
    """The conditions that limit the hosts of a request."""

    memory_mb: int
    hosts: frozenset[str]
    """Hosts that are allowed if they have room, are enabled and up."""
    count: int = 1


@dataclass
class Operation:
    """One request of a user. `why`: Nova's message when it failed. An operation without an end is in progress."""

    user: int
    name: str
    server: str
    began_at: float
    requirement: Requirement | None = None
    """None if it needs no host."""
    ended_at: float | None = None
    ok: bool = False
    why: str = ""


@dataclass(frozen=True)
class Fault:
    """An injected fault, from its beginning to its repair."""

    name: str
    target: str
    began_at: float
    ended_at: float


@dataclass
class History:
    """All operations and faults; many threads write it."""

    operations: list[Operation] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, user: int, name: str, server: str, requirement: Requirement | None = None) -> Operation:
        operation = Operation(user, name, server, time.monotonic(), requirement)
        with self._lock:
            self.operations.append(operation)
        return operation

    def end(self, operation: Operation, ok: bool, why: str) -> None:
        with self._lock:
            operation.ok, operation.why, operation.ended_at = ok, why, time.monotonic()

    def record_fault(self, name: str, target: str, began_at: float) -> None:
        """A fault that has just been repaired."""
        with self._lock:
            self.faults.append(Fault(name, target, began_at, time.monotonic()))

    def failed(self) -> list[Operation]:
        with self._lock:
            return [one for one in self.operations if one.ended_at is not None and not one.ok]

    def concurrent_with(self, operation: Operation) -> Iterator[Operation]:
        """Operations that were in progress at some time of this one and may have used a host."""
        until = operation.ended_at or time.monotonic()
        with self._lock:
            operations = list(self.operations)
        for other in operations:
            ended_at = other.ended_at or until
            overlaps = other.began_at < until and ended_at > operation.began_at
            if other is not operation and other.requirement and overlaps:
                yield other

    def counts(self) -> dict[str, dict[str, int]]:
        """Operations by name: how many succeeded, how many failed."""
        with self._lock:
            done = Counter((one.name, one.ok) for one in self.operations if one.ended_at is not None)
        names = sorted({name for name, _ in done})
        return {name: {"ok": done[name, True], "failed": done[name, False]} for name in names}

    def fault_counts(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(Counter(fault.name for fault in self.faults).items()))

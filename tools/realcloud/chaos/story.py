# SPDX-License-Identifier: Apache-2.0
"""What happened, and when. Times are of the monotonic clock."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wish:
    """What a request asked for, as far as it decides where it can go."""

    memory_mb: int
    hosts: frozenset[str]
    """Where it would be allowed, were they free, enabled and up."""
    count: int = 1


@dataclass
class Deed:
    """One request of a user. `why` is what Nova said when it failed; without an end it is under way."""

    user: int
    name: str
    server: str
    began_at: float
    wish: Wish | None = None
    """None: it needs no place."""
    ended_at: float | None = None
    ok: bool = False
    why: str = ""


@dataclass(frozen=True)
class Blow:
    """Something that went wrong on purpose, from a moment to another."""

    name: str
    target: str
    began_at: float
    ended_at: float


@dataclass
class Story:
    """Everything that happens, told by many threads."""

    deeds: list[Deed] = field(default_factory=list)
    blows: list[Blow] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, user: int, name: str, server: str, wish: Wish | None = None) -> Deed:
        deed = Deed(user, name, server, time.monotonic(), wish)
        with self._lock:
            self.deeds.append(deed)
        return deed

    def end(self, deed: Deed, ok: bool, why: str) -> None:
        with self._lock:
            deed.ok, deed.why, deed.ended_at = ok, why, time.monotonic()

    def strike(self, name: str, target: str, began_at: float) -> None:
        """It has just been put right again."""
        with self._lock:
            self.blows.append(Blow(name, target, began_at, time.monotonic()))

    def failed(self) -> list[Deed]:
        with self._lock:
            return [deed for deed in self.deeds if deed.ended_at is not None and not deed.ok]

    def beside(self, deed: Deed) -> Iterator[Deed]:
        """Those that were under way at some moment of this one and may have taken a place."""
        until = deed.ended_at or time.monotonic()
        with self._lock:
            deeds = list(self.deeds)
        for other in deeds:
            ended_at = other.ended_at or until
            if other is not deed and other.wish and other.began_at < until and ended_at > deed.began_at:
                yield other

    def counts(self) -> dict[str, dict[str, int]]:
        """Deeds by name: how many went well, how many failed."""
        with self._lock:
            done = Counter((deed.name, deed.ok) for deed in self.deeds if deed.ended_at is not None)
        names = sorted({name for name, _ in done})
        return {name: {"ok": done[name, True], "failed": done[name, False]} for name in names}

    def blow_counts(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(Counter(blow.name for blow in self.blows).items()))

# SPDX-License-Identifier: Apache-2.0
"""The questions that the page and its JSON ask: fields of a query in, an answer of the library out.

The commands call the same functions, so the three surfaces cannot differ.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from cachetools import TTLCache

from shared_scheduler.answers import from_records, from_schedulers
from shared_scheduler.answers.from_schedulers import Rates
from shared_scheduler.answers.shapes import Fleet, HostEvent, Load, Reasons, RecordEntry, Why, WhyNot
from shared_scheduler.daemon.admin import AdminError
from shared_scheduler.records.store import FOUND_MAX, Record, RecordConditions, Store

T = TypeVar("T")
Given = ParamSpec("Given")
Fields = Mapping[str, str]

#: conditions on records, in the order of ``RecordConditions``
CONDITIONS = ("kind", "project", "host", "result", "reason")
FIELD_CHARS_MAX = 255
RECORDS_DEFAULT, STORY_DEFAULT = 50, 50
HOURS_DEFAULT, HOURS_MAX = 24, 24 * 365
SECONDS_PER_HOUR = 3600.0
#: what the name of a worker process has behind that of its scheduler, which is in the records
WORKER = re.compile(r"\.worker\d+$")
#: How long an answer that costs the scheduler or the store much is shown again.
KEPT_MAX = 64
FLEET_TTL_S, REASONS_TTL_S, LOAD_TTL_S = 2.0, 10.0, 1.0


class NoSuchPageError(LookupError):
    """Nothing is there; the text says what is."""


class BadQuestionError(ValueError):
    """A field is missing or wrong; the text says which one."""


class NotRecordedError(LookupError):
    """There is no record of what was asked for."""


class PageQuestions:
    """Answers questions by name; threads may share it.  ``clock``: seconds since 1970."""

    def __init__(self, store: Store, directory: Path | None, clock: Callable[[], float]) -> None:
        """``directory``: where the sockets of the schedulers are; None: only records are shown."""
        self._store, self._directory, self._clock = store, directory, clock
        self._rates = Rates()
        self._fleet = _shared(FLEET_TTL_S, lambda: from_schedulers.fleet(self._sockets()))
        self._loads = _shared(LOAD_TTL_S, self._ask_loads)
        self._writers = _shared(REASONS_TTL_S, self._read_writers)
        self._reasons = _shared(REASONS_TTL_S, self._count_reasons)
        self._by_name: Mapping[str, Callable[[Fields], Any]] = {
            "why": self.why, "why-not": self.why_not, "records": self.records, "story": self.story,
            "reasons": self.reasons, "fleet": self.fleet, "top": self.top,
        }  # fmt: skip

    @property
    def names(self) -> frozenset[str]:
        """The questions that are answered."""
        return frozenset(self._by_name)

    def ask(self, name: str, fields: Fields) -> Any:
        """The answer to a question.

        :raises NoSuchPageError: when there is no such question
        :raises BadQuestionError: when a field is missing or wrong
        :raises NotRecordedError: when there is no record of it
        :raises RecordsError: when the records cannot be read
        :raises AdminError: when no scheduler answers
        """
        if name not in self._by_name:
            raise NoSuchPageError(f"There is no question {name}; these are answered: {', '.join(self._by_name)}.")
        return self._by_name[name](fields)

    def why(self, fields: Fields) -> Why:
        """What became of a request or a server: ``id``."""
        name = _text(fields, "id")
        return _recorded(name, from_records.why(self._store, name))

    def why_not(self, fields: Fields) -> list[WhyNot]:
        """Why a server is not on a host: ``id`` and ``host``."""
        name, host = _text(fields, "id"), _text(fields, "host")
        told = _recorded(name, from_records.server_and_host(self._store, name, host))
        return told.why_not + self._why_not_now(told.decision, host)

    def _why_not_now(self, decision: Record | None, host: str) -> list[WhyNot]:
        """The same of a running scheduler; nothing without one."""
        if self._directory is None or decision is None:
            return []
        try:
            return from_schedulers.why_not_now(self._directory, decision, host)
        except AdminError:
            return []

    def records(self, fields: Fields) -> list[RecordEntry]:
        """The last records: ``count`` and the conditions of ``records.store.RecordConditions``."""
        since_s, until_s = (_number(fields, name) for name in ("since", "until"))
        kind, project, host, result, reason = (_optional(fields, name) for name in CONDITIONS)
        wanted = RecordConditions(kind, project, host, result, reason, since_s, until_s)
        found = from_records.last(self._store, _whole(fields, "count", RECORDS_DEFAULT, FOUND_MAX), wanted)
        return from_records.with_askers_of(self._store, found)

    def last_failures(self, count: int) -> list[RecordEntry]:
        """The newest ``count`` failures, oldest first."""
        return from_records.last_failures(self._store, count)

    def story(self, fields: Fields) -> list[HostEvent]:
        """What happened on a host: ``host``, ``last``, ``since`` and ``until``."""
        host, count = _text(fields, "host"), _whole(fields, "last", STORY_DEFAULT, FOUND_MAX)
        span = RecordConditions(since_s=_number(fields, "since"), until_s=_number(fields, "until"))
        found = from_records.story(self._store, host, count, span)
        return _recorded(host, found or None)

    def reasons(self, fields: Fields) -> Reasons:
        """Failures by reason: of the last ``hours``."""
        return self._reasons(_whole(fields, "hours", HOURS_DEFAULT, HOURS_MAX))

    def fleet(self, _: Fields) -> Fleet:
        """What each node has, holds and lags behind."""
        return self._fleet()

    def top(self, _: Fields) -> list[Load]:
        """What the schedulers do."""
        return self._loads()[0]

    def schedulers_without_answer(self) -> list[str]:
        """A text for each scheduler that runs and did not answer."""
        return self._loads()[1]

    def away(self) -> dict[str, float]:
        """Each scheduler that wrote records in the last day, and is not among those that answer -> its last record."""
        there = {WORKER.sub("", one["scheduler"]) for one in self._loads()[0]}
        return {name: at for name, at in self._writers().items() if name not in there}

    def _read_writers(self) -> dict[str, float]:
        return from_records.writers(self._store, self._clock() - HOURS_DEFAULT * SECONDS_PER_HOUR)

    def _ask_loads(self) -> tuple[list[Load], list[str]]:
        loads, silent = from_schedulers.loads(self._sockets())
        return self._rates.add(loads), list(map(str, silent))

    def _count_reasons(self, hours: int) -> Reasons:
        now_s = self._clock()
        return from_records.reasons(self._store, now_s - hours * SECONDS_PER_HOUR, now_s)

    def _sockets(self) -> Path:
        if self._directory is None:
            raise AdminError("no scheduler is asked: serve was started with --records and without --socket-dir, or "
                             "[shared_scheduler] admin_socket_dir is empty")  # fmt: skip
        return self._directory


def _shared(ttl_s: float, answer: Callable[Given, T]) -> Callable[Given, T]:
    """The answer, computed by one thread at a time and kept for a while."""
    computing, kept = threading.Lock(), TTLCache[Any, T](maxsize=KEPT_MAX, ttl=ttl_s)

    def ask(*given: Given.args, **named: Given.kwargs) -> T:
        with computing:
            found = kept.get(given)
            if found is None:
                found = kept[given] = answer(*given, **named)
            return found

    return ask


def _recorded(name: str, found: T | None) -> T:
    if found is None:
        raise NotRecordedError(f"There is no record of {name}. The oldest records are deleted.")
    return found


def _optional(fields: Fields, name: str) -> str:
    value = fields.get(name, "").strip()
    if len(value) > FIELD_CHARS_MAX:
        raise BadQuestionError(f"{name}: at most {FIELD_CHARS_MAX} characters are accepted")
    return value


def _text(fields: Fields, name: str) -> str:
    value = _optional(fields, name)
    if not value:
        raise BadQuestionError(f"{name} is missing")
    return value


def _number(fields: Fields, name: str) -> float | None:
    value = _optional(fields, name)
    try:
        found = float(value) if value else None
        if found is None or isfinite(found):
            return found
        raise ValueError(value)
    except ValueError:
        raise BadQuestionError(f"{name}: {value!r} is not a number of seconds since 1970") from None


def _whole(fields: Fields, name: str, default: int, most: int) -> int:
    value = _optional(fields, name)
    if not value:
        return default
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= most):
        raise BadQuestionError(f"{name}: a whole number from 1 to {most} is required")
    return int(value)

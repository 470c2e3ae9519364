# SPDX-License-Identifier: Apache-2.0
"""Answers whether servers would fit: they are placed one after the other on a copy of the live table.

Nothing is claimed, and decisions go on meanwhile.  They wait for one part of the copy (about a millisecond), or for the
decision of one server, and this thread rests after each as long as it took.  One question is answered at a time.
"""

from __future__ import annotations

import gc
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from shared_scheduler.core.effects import AskCandidates
from shared_scheduler.core.events import CandidatesAnswered
from shared_scheduler.core.planner import CandidatesWanted, HostJudge, Refusal, Selected
from shared_scheduler.core.trial import FitUnknownError, Trial
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.record import asked_of
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.what_if import WhatIf, WhatIfError, what_if_of
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.service.engine import Engine
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.table_copy import ROWS_PER_PART, TableChangesTooFastError, TableCopy

#: Results of a question: all servers fit; not all fit; that is not known.
FITS, DOES_NOT_FIT, UNKNOWN = "fits", "does_not_fit", "unknown"
#: Hosts of each reason that an answer lists, and hosts that Nova's own filters refused.
NEAR_MAX, REFUSED_MAX = 3, 20
#: How long one question may take, and how long it waits for the one before it; less than clients wait together.
TIME_MAX_S, WAIT_MAX_S = 15.0, 12.0
#: Traits that Placement is asked for, and how long it is waited for; without an answer, a name is taken as it is.
TRAITS_MAX, TRAITS_WAIT_S = 50, 2.0
#: what Placement accepts as the name of a trait, and how an extra spec or a property of an image begins that names one
TRAIT, NAMES_TRAIT = re.compile(r"[A-Z0-9_]{1,255}"), re.compile(r"trait\d*:")
#: Questions that may wait; further ones are refused at once.
WAITING_MAX = 16
#: The longest rest after a step.
REST_MAX_S = 0.02

Prepare = Callable[[HostTable], tuple[Decider, HostJudge]]


class BusyError(Exception):
    """Other questions are answered; the text says what to do."""


@dataclass(slots=True)
class _Course:
    """How far a trial came.  ``next_host`` is set if one server more than asked for would fit."""

    hosts: dict[str, str] = field(default_factory=dict)  # node -> host
    servers: dict[str, int] = field(default_factory=dict)  # node -> servers
    placed: int = 0
    next_host: str = ""
    refusal: str = ""
    unknown: str = ""

    def add(self, node: str, host: str, wanted: int) -> None:
        if self.placed == wanted:
            self.next_host = host
            return
        self.placed += 1
        self.hosts[node] = host
        self.servers[node] = self.servers.get(node, 0) + 1

    def result(self, wanted: int) -> dict[str, Any]:
        """What was found of the servers that were asked for."""
        return {
            "result": UNKNOWN if self.unknown else FITS if self.placed == wanted else DOES_NOT_FIT,
            "unknown": self.unknown,
            "number": wanted,
            "fit": self.placed,
            "hosts": [
                {"host": self.hosts[node], "node": node, "servers": servers} for node, servers in self.servers.items()
            ],
        }


class FitAnswerer:
    """Answers ``{"request": {fields of WhatIf}}``.

    ``prepare`` makes the decider and the judge of production for a table; ``candidates`` asks Placement, as does
    ``known_traits`` for those of some names that are traits.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        make_request: Callable[[WhatIf, int], Request],
        prepare: Prepare,
        candidates: Callable[[AskCandidates], CandidatesAnswered],
        known_traits: Callable[[Collection[str], float], Collection[str]],
        last_words_max: int,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._engine = engine
        self._name = name
        self._make_request = make_request
        self._prepare = prepare
        self._candidates = candidates
        self._known_traits = known_traits
        self._last_words_max = last_words_max
        self._clock = clock
        self._rest = rest
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(WAITING_MAX)

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Plain values of the shape ``answers.shapes.Fit``.

        :raises WhatIfError: when the request is malformed, or names something that does not exist
        :raises DecisionError: when the request is malformed
        :raises BusyError: when too many questions wait
        """
        given = question.get("request")
        if not isinstance(given, Mapping):
            raise WhatIfError("request: an object with the fields of the request is needed")
        asked = what_if_of(given)
        _check_image(asked)
        self._check_traits(asked)
        request = self._make_request(asked, asked.number + 1)
        with self._alone(), _without_collector():
            return self._try(asked, request)

    def _check_traits(self, asked: WhatIf) -> None:
        """Tell a misspelt trait from one that no host has.

        :raises WhatIfError: when a trait does not exist
        """
        names = _traits_of(asked)
        malformed = [name for name in names if not TRAIT.fullmatch(name)]
        if names and not malformed:
            with suppress(PlacementError):
                known = self._known_traits(names, TRAITS_WAIT_S)
                malformed = [name for name in names if name not in known]
        if malformed:
            text = "openstack trait list shows those that exist, and names of a site begin with CUSTOM_"
            raise WhatIfError(f"traits: Placement has no trait {', '.join(malformed)}; {text}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other question is answered.

        :raises BusyError: when too many wait, or it takes too long
        """
        if not self._places.acquire(blocking=False):
            raise BusyError(f"{WAITING_MAX} such questions wait already; ask again later")
        try:
            if not self._turn.acquire(timeout=WAIT_MAX_S):
                raise BusyError(f"other such questions have taken {WAIT_MAX_S:g} s; ask again later")
            try:
                yield
            finally:
                self._turn.release()
        finally:
            self._places.release()

    def _try(self, asked: WhatIf, request: Request) -> dict[str, Any]:
        began_s = self._clock()
        course, after = _Course(), dict[str, Any]()
        table, hosts = None, 0
        try:
            table = self._copy(began_s + TIME_MAX_S)
            hosts = len(table)
            quarantined = self._engine.inspect(lambda core: core.quarantine.nodes)
            trial = Trial(table, *self._prepare(table), request, self._last_words_max, quarantined)
            self._place(trial, course, asked.number, began_s + TIME_MAX_S)
            after = self._after(trial, table, course)
        except (FitUnknownError, TableChangesTooFastError) as error:
            course.unknown = str(error)
        finally:
            while table is not None and table.free_rows(ROWS_PER_PART):
                self._rest(0)  # other threads go on
        return {
            "scheduler": self._name,
            "pid": os.getpid(),
            "at": round(time.time(), 3),
            **course.result(asked.number),
            "next": {"host": course.next_host, "text": course.refusal, **after},
            "asked": {name: value for name, value in asked_of(request).items() if name != "instances"},
            "table_hosts": hosts,
            "took_ms": round(1000 * (self._clock() - began_s), 1),
        }

    def _copy(self, until_s: float) -> HostTable:
        copying: list[TableCopy] = []

        def part(core: Any) -> bool:
            if not copying:
                copying.append(TableCopy(core.table))
            return copying[0].copy_part()

        while self._step(part):
            if self._clock() > until_s:
                raise FitUnknownError("the table could not be copied in time")
        return copying[0].finish()

    def _step(self, question: Callable[[Any], Any]) -> Any:
        """Do something while no event is handled, then rest as long as it took."""
        took_s = 0.0

        def timed(core: Any) -> Any:
            nonlocal took_s
            began_s = self._clock()
            try:
                return question(core)
            finally:
                took_s = self._clock() - began_s

        found = self._engine.inspect(timed)
        self._rest(min(took_s, REST_MAX_S))
        return found

    def _place(self, trial: Trial, course: _Course, wanted: int, until_s: float) -> None:
        """Place servers until one has no host, or one more than ``wanted`` would fit.

        :raises FitUnknownError: when it is not known for one of the wanted servers
        """
        while not course.next_host and not course.refusal:
            if self._clock() > until_s:
                raise FitUnknownError(f"{course.placed} servers were placed in {TIME_MAX_S:g} s; ask for fewer")
            plan = self._step(lambda _: trial.step())
            if isinstance(plan, CandidatesWanted):
                plan = self._ask(trial, plan.node)
            if isinstance(plan, Selected):
                course.add(plan.choice.node, plan.choice.host, wanted)
            elif isinstance(plan, Refusal):
                if plan.bad_request:
                    raise FitUnknownError(plan.text)
                course.refusal = plan.text

    def _ask(self, trial: Trial, node: str) -> Any:
        request = trial.request
        sharing = trial.sharing_with(node)
        answered = self._candidates(AskCandidates("fit", node, request.queries, request.request_id, sharing))
        if answered.error:
            raise FitUnknownError(f"Placement must name the candidates of this request: {answered.error}")
        return self._step(lambda _: trial.answered(node, answered.candidates))

    def _after(self, trial: Trial, table: HostTable, course: _Course) -> dict[str, Any]:
        """What stops the server after the last that fits."""
        if course.next_host:
            return {"reasons": {}, "missing": {}, "near": [], "refused": []}
        try:
            stop = trial.stopped(NEAR_MAX)
        except DecisionError as error:
            raise FitUnknownError(str(error)) from error
        refused = [
            {"host": table.view(node).host, "code": reason.code, "detail": dict(reason.detail)}
            for node, reason in list(stop.refused.items())[:REFUSED_MAX]
        ]
        return {
            "reasons": {} if stop.counts is None else dict(stop.counts.reasons),
            "missing": {code: list(span) for code, span in stop.hosts.missing.items()},
            "near": [asdict(one) for one in stop.hosts.listed if one.code and one.node not in stop.refused],
            "refused": refused,
        }


def _traits_of(asked: WhatIf) -> list[str]:
    """The traits that a request names, each once."""
    keys = (*asked.extra_specs, *asked.image_properties)
    named = (NAMES_TRAIT.sub("", key, count=1) for key in keys if NAMES_TRAIT.match(key))
    return list(dict.fromkeys((*asked.traits, *named)))[:TRAITS_MAX]


def _check_image(asked: WhatIf) -> None:
    """No scheduler asks Glance, so only the form of an image's id is known.

    :raises WhatIfError: when it is not the uuid of an image
    """
    if not asked.image:
        return
    try:
        uuid.UUID(asked.image)
    except ValueError:
        text = "openstack image show tells it; the properties of an image are not read, so name those that matter too"
        raise WhatIfError(f"image: {asked.image!r} is not the uuid of an image; {text} (image_properties)") from None


@contextmanager
def _without_collector() -> Iterator[None]:
    """Without collections of garbage, which would traverse the whole table because of the many objects of its copy,
    and hold up decisions for a fifth of a second.  The copy has no cycles and is freed at once."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

# SPDX-License-Identifier: Apache-2.0
"""A question whether servers fit does not hold up decisions, and waits for its turn."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.what_if import WhatIf, WhatIfError
from shared_scheduler.placement.connection import PlacementError
from shared_scheduler.protocol.messages import Reason
from shared_scheduler.service import fit as fit_module
from shared_scheduler.service.engine import Engine
from shared_scheduler.service.fit import BusyError, FitAnswerer
from shared_scheduler.table import table_copy
from tests.unit.core.scheduler_driver import AcceptAll, SchedulerDriver, request

NODES = [f"node-{number}" for number in range(300)]
QUESTION = {"request": {"flavor": "small", "number": 20}}


class InspectedEngine:
    """In the engine's place: counts how often, and lets a story happen each time no question holds the core."""

    def __init__(self, core: SchedulerCore, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.core = core
        self.inspections = 0
        self._meanwhile = meanwhile

    def inspect(self, question: Callable[[SchedulerCore], Any]) -> Any:
        self._meanwhile()
        self.inspections += 1
        return question(self.core)


def make(asked: WhatIf, servers: int) -> Request:
    return request(*(f"server-{number}" for number in range(servers)))


def fit(engine: InspectedEngine, **changes: Any) -> FitAnswerer:
    parts: dict[str, Any] = {
        "make_request": make, "prepare": lambda table: (Decider(table), AcceptAll()), "candidates": None,
        "known_traits": lambda names, _: names, "last_words_max": 3, "rest": lambda _: None, "clock": lambda: 0.0,
    }  # fmt: skip
    return FitAnswerer(cast(Engine, engine), "sched1", **(parts | changes))


def test_each_server_is_decided_alone_and_the_table_is_copied_in_parts() -> None:
    engine = InspectedEngine(SchedulerDriver().without_agents(*NODES).core)

    answer = fit(engine).answer(QUESTION)

    assert (answer["result"], answer["fit"]) == ("fits", 20)
    parts = -(-len(NODES) // table_copy.ROWS_PER_PART) + 1
    assert engine.inspections == parts + 1 + 21  # the quarantine, and one server more than asked for


def test_after_each_step_the_thread_rests_as_long_as_it_took() -> None:
    engine, rests = InspectedEngine(SchedulerDriver().without_agents("node-1").core), list[float]()
    ticks = iter(range(10_000))

    fit(engine, rest=rests.append, clock=lambda: next(ticks) / 1000).answer({"request": {"flavor": "a", "number": 2}})

    assert [rest for rest in rests if rest] == [pytest.approx(0.001)] * 4  # one part of the copy, three servers


def test_concurrent_requests_are_not_affected() -> None:
    cloud = SchedulerDriver().with_agents(*NODES[:30])
    names = iter(range(1000))
    engine = InspectedEngine(cloud.core, lambda: cloud.ask(request(f"real-{next(names)}")))

    answer = fit(engine).answer(QUESTION)

    assert answer["result"] == "fits"
    assert len(cloud.core.claims) == engine.inspections
    outstanding = [claim.claim_id for node in NODES[:30] for claim in cloud.table.outstanding(node)]
    assert sorted(outstanding) == sorted(claim.claim_id for claim in cloud.core.claims.open())


def test_the_garbage_collector_is_paused_and_resumed() -> None:
    seen = list[bool]()
    engine = InspectedEngine(SchedulerDriver().without_agents("node-1").core, lambda: seen.append(gc.isenabled()))
    asked = fit(engine, make_request=lambda asked, servers: replace(make(asked, servers)))

    asked.answer(QUESTION)

    assert seen and not any(seen)
    assert gc.isenabled()


def test_a_question_that_takes_too_long_reports_its_progress() -> None:
    engine = InspectedEngine(SchedulerDriver().without_agents(*NODES).core)
    ticks = iter(range(10_000))

    answer = fit(engine, clock=lambda: next(ticks) / 2).answer(QUESTION)

    assert answer["result"] == "unknown"
    assert answer["unknown"] == f"{answer['fit']} servers were placed in 15 s; ask for fewer"
    assert 0 < answer["fit"] < 20


def test_a_table_that_changes_too_fast_is_reported_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copy, "ROUNDS_MAX", 0)
    engine = InspectedEngine(SchedulerDriver().without_agents(*NODES).core)

    answer = fit(engine).answer(QUESTION)

    assert (answer["result"], answer["fit"]) == ("unknown", 0)
    assert "change faster than they can be copied" in answer["unknown"]


def test_questions_wait_for_each_other_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_module, "WAITING_MAX", 1)
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait(60)

    asked = fit(InspectedEngine(SchedulerDriver().without_agents("node-1").core, hold))
    first = threading.Thread(target=asked.answer, args=(QUESTION,))
    first.start()
    begun.wait(60)

    with pytest.raises(BusyError, match="ask again later"):
        asked.answer(QUESTION)
    go_on.set()
    first.join()

    assert asked.answer(QUESTION)["result"] == "does_not_fit"


@pytest.mark.parametrize("question", [{}, {"request": 7}, {"request": {}}])
def test_a_malformed_question_is_refused(question: dict[str, Any]) -> None:
    with pytest.raises(WhatIfError):
        fit(InspectedEngine(SchedulerDriver().core)).answer(question)


class RefusesAll:
    """A filter of Nova that no host passes, as ``nova.judge`` reports it."""

    def verify(self, *_: Any) -> Reason:
        return Reason("filter", {"filter": "PickyFilter"})


def test_a_host_that_a_filter_of_nova_refused_is_not_listed_as_tried_before() -> None:
    engine = InspectedEngine(SchedulerDriver().without_agents("node-1", "node-2").core)

    answer = fit(engine, prepare=lambda table: (Decider(table), RefusesAll())).answer(QUESTION)

    assert [one["host"] for one in answer["next"]["refused"]] == ["host-1", "host-2"]
    assert answer["next"]["near"] == []


def knows(*traits: str) -> Callable[..., frozenset[str]]:
    return lambda names, _: frozenset(traits).intersection(names)


@pytest.mark.parametrize("named", [
    {"traits": ["CUSTOM_FSAT"]}, {"extra_specs": {"trait:CUSTOM_FSAT": "required"}},
    {"image_properties": {"trait1:CUSTOM_FSAT": "required"}}, {"traits": ["custom-fsat"]},
])  # fmt: skip
def test_a_trait_that_does_not_exist_is_an_error_and_not_a_lack_of_hosts(named: dict[str, Any]) -> None:
    asked = fit(InspectedEngine(SchedulerDriver().without_agents("node-1").core), known_traits=knows("CUSTOM_FAST"))

    with pytest.raises(WhatIfError, match=r"Placement has no trait (CUSTOM_FSAT|custom-fsat); openstack trait list"):
        asked.answer({"request": {"flavor": "a", **named}})
    assert asked.answer({"request": {"flavor": "a", "traits": ["CUSTOM_FAST"]}})["result"] == "fits"


def test_a_trait_is_taken_as_it_is_while_placement_does_not_answer() -> None:
    def away(*_: Any) -> frozenset[str]:
        raise PlacementError("Placement did not answer")

    asked = fit(InspectedEngine(SchedulerDriver().without_agents("node-1").core), known_traits=away)
    assert asked.answer({"request": {"flavor": "a", "traits": ["CUSTOM_FSAT"]}})["result"] == "fits"


def test_without_a_trait_placement_is_not_asked() -> None:
    asked = fit(InspectedEngine(SchedulerDriver().without_agents("node-1").core), known_traits=cast(Any, None))
    assert asked.answer({"request": {"flavor": "a"}})["result"] == "fits"


def test_an_image_by_its_name_is_an_error() -> None:
    asked = fit(InspectedEngine(SchedulerDriver().without_agents("node-1").core))

    with pytest.raises(WhatIfError, match="image: 'ubuntu' is not the uuid of an image; openstack image show"):
        asked.answer({"request": {"flavor": "a", "image": "ubuntu"}})
    by_uuid = {"flavor": "a", "image": "4f0c8e1d-7b62-4a93-95bd-0d2c6a1e7f38"}
    assert asked.answer({"request": by_uuid})["result"] == "fits"

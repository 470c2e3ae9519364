# SPDX-License-Identifier: Apache-2.0
"""An operator asks why, and gets an answer with numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.core.scheduler import SchedulerCore
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.record import DecisionRecord, asked_of
from shared_scheduler.decision.request import Flavor, PlacementForm
from shared_scheduler.service.engine import Engine
from shared_scheduler.service.recent import Recent
from shared_scheduler.service.why import WhyAnswerer
from tests.unit.core.scheduler_driver import SchedulerDriver, request

HUGE = {"flavor": Flavor("huge", vcpus=1, memory_mb=1 << 20, root_gb=10),
        "forms": (PlacementForm({"VCPU": 1, "MEMORY_MB": 1 << 20, "DISK_GB": 10}),)}  # fmt: skip


class Still:
    """Stands in for the engine: nothing changes during a query."""

    def __init__(self, core: SchedulerCore) -> None:
        self._core = core

    def inspect(self, question: Callable[[SchedulerCore], Any]) -> Any:
        return question(self._core)


class Office:
    """A driver whose outcomes are stored, and the object that answers questions about them."""

    def __init__(self, *nodes: str) -> None:
        self.driver = SchedulerDriver().with_agents(*nodes)
        self.recent = Recent()
        self._decider = Decider(self.driver.table)
        self._why = WhyAnswerer(cast(Engine, Still(self.driver.core)), self._decider, self.recent, "sched1")

    def fail(self, *servers: str, at_s: float = 1.0, **changes: Any) -> None:
        asked = request(*servers, **{**HUGE, **changes})
        counts = (self._decider.decide(asked).counts(),)
        record = DecisionRecord(asked.request_id, asked_of(asked), counts, failure="no_valid_host", text="no host")
        self.recent.add(ef.Fail(asked, ef.FailureCode.NO_VALID_HOST, "no host", record), at_s)

    def use(self, settings: DecisionSettings) -> None:
        self._decider.configure(settings)

    def why(self, name: str, **fields: Any) -> dict[str, Any]:
        """As it comes over the socket."""
        answer = self._why.answer({"request": name, **fields})
        return cast(dict[str, Any], json.loads(json.dumps(answer)))


def test_a_request_without_a_host_is_explained_with_the_compared_numbers() -> None:
    office = Office("node-1", "node-2")
    office.fail("server-1")

    for name in ("req-1", "server-1"):
        told = office.why(name)
        assert told["found"]
        assert told["result"] == "no_valid_host"
        assert told["decisions"][-1]["reasons"] == {"no_room:MEMORY_MB": 2}
        assert {one["host"]: one["detail"]["asked"] for one in told["now"]} == {
            "host-1": 1 << 20, "host-2": 1 << 20,
        }  # fmt: skip
        assert told["counts_now"]["no_room:MEMORY_MB"] == 2


def test_one_host_of_many_can_be_asked_for() -> None:
    office = Office(*(f"node-{number}" for number in range(30)))
    office.fail("server-1")
    assert len(office.why("req-1")["now"]) == 10
    assert [one["host"] for one in office.why("req-1", hosts=["host-29"])["now"]] == ["host-29"]


def test_hosts_are_judged_now_and_the_record_is_of_the_decision() -> None:
    office = Office("node-1")
    eight = PlacementForm({"VCPU": 8, "MEMORY_MB": 1024, "DISK_GB": 10})
    office.fail("server-1", flavor=Flavor("wide", vcpus=8, memory_mb=1024, root_gb=10), forms=(eight,))
    office.driver.with_agents("node-1", vcpus=16, epoch=2)
    told = office.why("server-1")
    assert told["decisions"][-1]["survivors"] == 0
    assert [one["code"] for one in told["now"]] == [""]


def test_the_newest_record_of_a_server_is_shown_and_an_unknown_one_is_not_found() -> None:
    office = Office("node-1")
    office.fail("server-1", request_id="req-old", at_s=1.0)
    office.fail("server-1", request_id="req-new", at_s=2.0)
    assert office.why("server-1")["request_id"] == "req-new"
    assert office.why("req-old")["request_id"] == "req-old"
    assert not office.why("server-2")["found"]


def test_an_invalid_hint_is_the_reason() -> None:
    office = Office("node-1")
    office.fail("server-1", hints={"query": ("{",)})
    office.use(DecisionSettings(enabled_filters=("JsonFilter",)))
    told = office.why("req-1")
    assert told["now"] == []
    assert told["unexplained"].startswith("hint query: not JSON")


@pytest.mark.parametrize(
    "fields",
    [{"request": ""}, {"request": 7}, {"request": "r", "hosts": "h"}, {"request": "r", "hosts": ["h"] * 99},
     {"request": "r", "each_max": 0}, {"request": "r", "each_max": 10**9}],
)  # fmt: skip
def test_a_malformed_question_is_answered_with_the_error(fields: dict[str, Any]) -> None:
    office = Office("node-1")
    with pytest.raises(ValueError, match="is required"):
        office.why(**{"name": fields.pop("request"), **fields})


def test_requests_that_found_a_host_do_not_push_out_those_that_did_not() -> None:
    recent = Recent(requests_max=3)
    failed = ef.Fail(request("bad"), ef.FailureCode.NO_VALID_HOST, "", DecisionRecord("req-1", {}))
    recent.add(failed, 0.0)
    for number in range(10):
        answer = ef.Answer(request(f"good-{number}"), (), DecisionRecord("req-1", {}))
        recent.add(answer, float(number))
    assert recent.find("bad") is not None
    assert recent.find("good-9") is not None
    assert recent.find("good-6") is None

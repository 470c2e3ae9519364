# SPDX-License-Identifier: Apache-2.0
"""An end of a build without ids gets those of the decision that caused it, also if the server was placed again."""

from __future__ import annotations

import pytest

from shared_scheduler.records.joined_ends import with_askers
from shared_scheduler.records.store import AGENT, BUILD, DATABASES, DECISION, PLACED, Record


def placed(at_s: float, request_id: str, *hosts: str) -> Record:
    """A decision: the selected host, and its alternates."""
    return {
        "kind": DECISION, "at": at_s, "result": PLACED, "request_id": request_id, "project_id": "demo",
        "instances": ["i-1"], "hosts": list(hosts[:1]), "answer": [list(hosts)],
    }  # fmt: skip


def ended(at_s: float, host: str, source: str = AGENT) -> Record:
    """The end of a build that a scheduler recorded which has not placed the server."""
    return {"kind": BUILD, "at": at_s, "source": source, "instances": ["i-1"], "hosts": [host]}


def asker_of(end: Record, *decisions: Record) -> str:
    """The request to which an end belongs."""
    [found] = with_askers([end], decisions)
    return str(found.get("request_id", ""))


def test_an_end_just_before_the_next_decision_belongs_to_the_one_before() -> None:
    # given a server that is placed again within a second of the end of its first build, on the same host
    first, second = placed(100.5, "req-1", "cmp1"), placed(200.3, "req-2", "cmp1")
    # then the end that the agent has told belongs to the first request, and the next one to the second
    assert asker_of(ended(199.9, "cmp1"), first, second) == "req-1"
    assert asker_of(ended(203.0, "cmp1"), first, second) == "req-2"


@pytest.mark.parametrize("host", ["cmp1", "cmp2"])
def test_an_end_that_is_told_after_the_next_decision_belongs_to_the_one_that_names_its_host(host: str) -> None:
    # given a server that is placed again before anybody was told that its build on the host, or an alternate, failed
    first, second = placed(100.5, "req-1", "cmp1", "cmp2"), placed(102.0, "req-2", "cmp3")
    assert asker_of(ended(102.1, host), first, second) == "req-1"
    assert asker_of(ended(104.0, "cmp3"), first, second) == "req-2"


def test_an_end_on_a_host_that_no_decision_names_belongs_to_the_newest() -> None:
    first, second = placed(100.5, "req-1", "cmp1"), placed(102.0, "req-2", "cmp3")
    assert asker_of(ended(104.0, "cmp9"), first, second) == "req-2"


def test_an_end_in_whole_seconds_belongs_to_the_decision_of_its_second() -> None:
    assert asker_of(ended(100.0, "cmp1", DATABASES), placed(100.6, "req-1", "cmp1")) == "req-1"
    assert asker_of(ended(100.0, "cmp1", DATABASES), placed(101.0, "req-1", "cmp1")) == ""


def test_an_end_or_a_decision_with_few_fields_is_joined_as_far_as_it_goes() -> None:
    # given what a changed file may hold
    bare: Record = {"kind": BUILD, "at": 1.0}
    assert with_askers([bare], [placed(0.5, "req-1", "cmp1")]) == [bare]
    decision: Record = {"kind": DECISION, "at": 0.5, "result": PLACED, "instances": ["i-1"], "request_id": "req-1"}
    [found] = with_askers([{"kind": BUILD, "at": 1.0, "instances": ["i-1"]}], [decision])
    assert (found["request_id"], found["project_id"]) == ("req-1", "")

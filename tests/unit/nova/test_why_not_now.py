# SPDX-License-Identifier: Apache-2.0
"""``why-not`` also asks a running scheduler, for every host: real filters, request filters and table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from nova import exception

from shared_scheduler.answers.schema import schemas
from shared_scheduler.cmd import manage
from shared_scheduler.daemon import admin
from tests.unit.nova.test_fit import begin, sockets
from tests.unit.nova.test_manager import Cloud, ask, cloud, placement_app, small, start, uuids, world

__all__ = ["begin", "cloud", "placement_app", "sockets", "start", "world"]  # fixtures

WhyNot = Callable[..., tuple[list[dict[str, Any]], str]]


@pytest.fixture
def server() -> str:
    [found] = uuids(1)
    return found


@pytest.fixture
def why_not(
    begin: Any, cloud: Cloud, sockets: Path, server: str, conf: Any, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> WhyNot:  # fmt: skip
    """Asks about a server that found no room on cmp1; cmp2 came later.  Returns the facts and the errors."""
    cloud.compute("cmp1", 1)
    path = tmp_path / "records.jsonl"
    conf.set_override("records_file", str(path), group="shared_scheduler")
    started = begin()
    with pytest.raises(exception.NoValidHost):
        ask(small(), [server])

    def asked(host: str, *more: str) -> tuple[list[dict[str, Any]], str]:
        started.manager._running.recorder.stop()
        command = ["why-not", server, host, "--records", str(path), *more, "--format", "json"]
        assert manage.main(command) == 0
        told = capsys.readouterr()
        found = json.loads(told.out)
        Draft202012Validator(schemas()["why-not"]).validate(found)
        return found, told.err

    return asked


def test_the_record_and_the_table_give_the_numbers_and_where_they_came_from(why_not: WhyNot, sockets: Path) -> None:
    [recorded, now], err = why_not("cmp1", "--socket-dir", str(sockets))

    assert (recorded["source"], now["source"], err) == ("record", "table", "")
    told = "rejected: no_room:VCPU (asked 2, used 0, capacity 1; short by 1 VCPU; from the databases"
    assert told in recorded["text"] and told in now["text"]


def test_a_host_that_the_record_does_not_name_has_its_own_reason_now(why_not: WhyNot, sockets: Path) -> None:
    [recorded, now], _ = why_not("cmp9", "--socket-dir", str(sockets))

    assert "does not name cmp9" in recorded["text"]
    assert now["text"].endswith("cmp9 is not in its table; is the name that of a nova-compute service?")


def test_without_a_scheduler_the_records_are_told_and_one_line_says_so(why_not: WhyNot, tmp_path: Path) -> None:
    found, err = why_not("cmp1", "--socket-dir", str(tmp_path))

    assert [one["source"] for one in found] == ["record"]
    assert err.startswith("why-not: the present state is not known: ") and err.count("\n") == 1


def test_a_reader_is_told_before_the_words_that_the_present_state_is_not_known(
    why_not: WhyNot, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why_not("cmp1")
    where = ["--records", str(tmp_path / "records.jsonl"), "--socket-dir", str(tmp_path)]

    assert manage.main(["why-not", server, "cmp1", *where]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    now = lines.index(f"now  unknown, because no scheduler of this machine answers in {tmp_path}")
    assert (lines[now + 1 : now + 3], told.err) == (["", "Words:"], "")


def test_the_records_of_another_machine_need_no_scheduler(why_not: WhyNot) -> None:
    found, err = why_not("cmp1")

    assert ([one["source"] for one in found], err) == (["record"], "")


def test_the_answer_of_a_scheduler_obeys_its_schema(why_not: WhyNot, sockets: Path) -> None:
    asked = {"flavor": "m1.small", "vcpus": 1, "memory_mb": 64}
    answer = admin.ask_first(sockets, "hosts", request=asked, servers=[], hosts=["cmp1"])

    Draft202012Validator(schemas()["hosts"]).validate(answer)
    assert [(one["host"], one["code"], one["source"]) for one in answer["hosts"]] == [("cmp1", "", "databases")]


@pytest.mark.parametrize("question", [
    {}, {"request": [], "hosts": []}, {"request": {"flavor": "m1"}, "hosts": "cmp1"},
    {"request": {"vcpus": 1, "memory_mb": 1}, "hosts": ["c"] * 51},
])  # fmt: skip
def test_a_wrong_question_is_refused(why_not: WhyNot, sockets: Path, question: dict[str, Any]) -> None:
    with pytest.raises(admin.AdminError, match=r"is needed|no flavor"):
        admin.ask_first(sockets, "hosts", **question)

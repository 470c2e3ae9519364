# SPDX-License-Identifier: Apache-2.0
"""The schema of each answer is a schema, accepts what the library answers, and refuses what it never answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from shared_scheduler.answers import from_records
from shared_scheduler.answers.schema import ANSWERS, schema_of, schemas
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import RecordConditions, Store
from tests.unit.cmd.test_questions_to_records import build, stored


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = JsonLines(tmp_path / "records.jsonl")
    found.write(stored())
    return found


def validate(name: str, answer: Any) -> None:
    Draft202012Validator(schemas()[name]).validate(answer)


@pytest.mark.parametrize("name", ANSWERS)
def test_each_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(schemas()[name])


def test_the_answers_from_records_obey_their_schemas(store: Store) -> None:
    story = from_records.why(store, "server-1")
    not_there = from_records.why_not(store, "server-1", "c9")
    last = from_records.last(store, 100, RecordConditions())
    of_host = from_records.story(store, "c1", 10)

    assert story and not_there and len(last) == len(stored()) and of_host
    for name, answer in {"why": story, "why-not": not_there, "records": last, "story": of_host}.items():
        validate(name, answer)


@pytest.mark.parametrize("name", ["why", "records", "fleet", "top", "reasons"])
def test_another_shape_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        validate(name, [{}] if name in ("records", "top") else {})


def test_what_json_cannot_hold_has_no_schema() -> None:
    with pytest.raises(TypeError, match="bytes"):
        schema_of(list[bytes])


def test_each_failure_is_counted_once_under_its_main_reason(store: Store) -> None:
    # given three failed builds and one request without a host, each at its time
    found = from_records.reasons(store, 1_760_000_000.0, 1_760_000_048.0)

    validate("reasons", found)
    assert found["whole"] and found["step_s"] == 1.0
    assert {reason: sum(counts) for reason, counts in found["counts"].items()} == {
        "NoMoreFixedIps": 4, "no_room:MEMORY_MB": 1,
    }  # fmt: skip
    assert found["counts"]["no_room:MEMORY_MB"][10] == 1


def test_the_texts_of_failed_builds_are_bounded(tmp_path: Path) -> None:
    # given builds that failed with one error and ten texts, one of them long and frequent
    store, long = JsonLines(tmp_path / "records"), "x" * 1000
    store.write([build(f"c{n}", 1.0 + n, reason=f"NoRoom: text {n}") for n in range(9)])
    store.write([build("c9", 10.0 + n, reason=f"NoRoom: {long}") for n in range(3)])

    [(reason, texts)] = from_records.reasons(store, 0.0, 20.0)["texts"].items()

    assert reason == "NoRoom"
    assert len(texts) == from_records.TEXTS_MAX
    assert next(iter(texts.items())) == (long[: from_records.TEXT_CHARS_MAX] + "…", 3)


def test_reasons_say_when_they_read_not_all_records(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_records, "COUNTED_MAX", 3)

    found = from_records.reasons(store, 0.0, 1_760_000_048.0)

    assert (found["whole"], found["records"], found["since_at"]) == (False, 3, 1_760_000_010.0)


def test_without_records_there_are_no_reasons(tmp_path: Path) -> None:
    (tmp_path / "none").touch()

    assert from_records.reasons(JsonLines(tmp_path / "none"), 5.0, 5.0)["counts"] == {}

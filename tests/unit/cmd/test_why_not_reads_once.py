# SPDX-License-Identifier: Apache-2.0
"""``why-not`` reads the story of a server once, whatever it tells of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.answers import from_records
from shared_scheduler.cmd import manage
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import Record, RecordConditions
from tests.unit.cmd.test_questions_to_records import stored


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the records of each name are read."""
    names, last = Counter[str](), JsonLines.last

    def counted(self: JsonLines, count: int, wanted: RecordConditions) -> list[Record]:
        names.update(wanted.names)
        return last(self, count, wanted)

    monkeypatch.setattr(JsonLines, "last", counted)
    return names


@pytest.mark.parametrize("more", [[], ["--format", "json"], ["--socket-dir", "{}"]])
def test_the_records_of_a_server_are_read_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], read: Counter[str], more: list[str]
) -> None:
    JsonLines(tmp_path / "r").write(stored())
    options = [one.format(tmp_path) for one in more]

    assert manage.main(["why-not", "server-1", "c1", "--records", str(tmp_path / "r"), *options]) == 0

    assert read["server-1"] == 1
    assert capsys.readouterr().out


def test_the_newest_decision_is_that_of_the_server_and_not_of_one_beside_it(tmp_path: Path) -> None:
    # given a request for two servers, of which the second one was moved by a later request
    both, moved = ({**stored()[0], "instances": ["one", "two"]}, {**stored()[0], "instances": ["two"]})
    later: dict[str, Any] = {"request_id": "req-moved", "global_request_id": "", "at": both["at"] + 9}
    store = JsonLines(tmp_path / "r")
    store.write([both, {**moved, **later}])

    # then the newest decision about the first one is that of the first request
    found = {name: from_records.server_and_host(store, name, "c1") for name in ("one", "two", "req-local")}
    assert {name: one and one.decision and one.decision["request_id"] for name, one in found.items()} == {
        "one": "req-local", "two": "req-moved", "req-local": "req-local",
    }  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""What a story tells of an active server when a later request for it fails, and of a request that has later ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from shared_scheduler.answers.next_steps import next_steps
from shared_scheduler.answers.shapes import Why
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.story import Story, story_of

GLOBAL = "req-portal"


def decision(at: float, server: str, *hosts: str, **more: Any) -> dict[str, Any]:
    """A decision; without hosts, none was found."""
    flavor, not_on = more.pop("flavor", "small"), more.pop("not_on", [])
    return {
        "kind": "decision", "at": at, "request_id": f"req-{at:.0f}", "scheduler": "s1", "instances": [server],
        "result": "placed" if hosts else "no_candidates", "reason": "" if hosts else f"0 of 4 hosts pass at {at:.0f}",
        "hosts": list(hosts[:1]), "decisions": [], "near": [], "attempts": [], "reasons": {},
        "asked": {"forms": [], "instances": [server], "flavor": flavor, "ignore_hosts": not_on, "is_rebuild": False},
        "answer": [list(hosts)] if hosts else [], **more,
    }  # fmt: skip


def active(at: float, server: str, host: str, request_at: float) -> dict[str, Any]:
    return {
        "kind": "build", "at": at, "scheduler": "s1", "request_id": f"req-{request_at:.0f}", "instances": [server],
        "hosts": [host], "result": "active", "reason": "",
    }  # fmt: skip


def told(path: Path, name: str, *records: dict[str, Any]) -> Story:
    store = JsonLines(path)
    store.write(records)
    story = story_of(store, name)
    store.close()
    assert story is not None
    return story


def steps(story: Story) -> list[str]:
    return list(next_steps(cast(Why, story.as_dict())))


BUILT = (decision(1, "a", "c1", "c2"), active(2, "a", "c1", 1))


def test_a_server_that_could_not_be_moved_is_active_where_it_was(tmp_path: Path) -> None:
    story = told(tmp_path / "r", "a", *BUILT, decision(3, "a", not_on=["c1"]))

    later = "a later request to move it (req-3) found no host (no_candidates) and left it there"
    assert story.outcome == f"became active on c1; {later}"
    assert story.causes == ("0 of 4 hosts pass at 3",)
    assert story.later == ()
    assert any("why-not a HOST" in step for step in steps(story))


def test_a_server_that_could_not_be_resized_is_active_where_it_was(tmp_path: Path) -> None:
    story = told(tmp_path / "r", "a", *BUILT, decision(3, "a", flavor="large", not_on=["c1"]))

    later = "a later resize to large (req-3) found no host (no_candidates) and left it there"
    assert story.outcome == f"became active on c1; {later}"


def test_a_request_that_does_not_exclude_the_host_of_the_server_may_be_of_one_that_has_left_it(tmp_path: Path) -> None:
    story = told(tmp_path / "r", "a", *BUILT, decision(3, "a"))

    assert story.outcome == "became active on c1; a later request for it (req-3) found no host (no_candidates)"


def test_a_failure_of_another_kind_leaves_the_server_as_well(tmp_path: Path) -> None:
    story = told(tmp_path / "r", "a", *BUILT, decision(3, "a", not_on=["c1"], result="timed_out", reason="late"))

    assert (
        story.outcome == "became active on c1; a later request to move it (req-3) failed (timed_out) and left it there"
    )


def test_what_happened_before_a_server_became_active_is_told_if_it_could_not_be_moved(tmp_path: Path) -> None:
    failed = {**active(2, "a", "c1", 1), "result": "failed", "reason": "no memory"}
    story = told(tmp_path / "r", "a", BUILT[0], failed, active(3, "a", "c2", 1), decision(4, "a", not_on=["c2"]))

    assert story.outcome.startswith("became active on c2 (the build on c1 failed before); a later request to move it")
    assert story.causes == ("0 of 4 hosts pass at 4",)


def test_a_server_whose_build_is_not_recorded_stays_where_a_request_found_it(tmp_path: Path) -> None:
    story = told(tmp_path / "r", "a", decision(1, "a", "c1"), decision(3, "a", not_on=["c1"]))

    assert story.outcome.startswith("placed on c1; no build is recorded after that; a later request to move it (req-3)")


def test_a_request_that_finds_no_host_for_a_server_that_was_only_placed_has_failed(tmp_path: Path) -> None:
    story = told(tmp_path / "r", "a", decision(1, "a", "c1"), decision(3, "a"))

    assert story.outcome == "no host was found (no_candidates)"


def test_a_request_does_not_answer_for_later_ones_of_its_servers(tmp_path: Path) -> None:
    own = (decision(1, "a", "c1", global_request_id=GLOBAL), active(2, "a", "c1", 1),
           decision(3, "b", global_request_id=GLOBAL))  # fmt: skip
    story = told(tmp_path / "r", GLOBAL, *own, decision(4, "a", flavor="large", not_on=["c1"]))

    assert story.outcome == "2 servers: 1 active, 1 failed"
    assert story.causes == ("0 of 4 hosts pass at 3",)
    assert story.later == ("a: a later resize to large (req-4) found no host (no_candidates) and left it on c1",)
    assert [one["at"] for one in story.records] == [1, 2, 3, 4]


def test_the_steps_after_a_request_are_not_those_of_later_ones(tmp_path: Path) -> None:
    story = told(tmp_path / "r", "req-1", *BUILT, decision(3, "a", not_on=["c1"]))

    assert story.outcome == "became active on c1"
    assert story.causes == ()
    assert steps(story) == []


def test_the_story_of_a_request_tells_where_a_later_one_has_placed_the_server(tmp_path: Path) -> None:
    story = told(tmp_path / "r", "req-1", *BUILT, decision(3, "a", "c3", not_on=["c1"]), active(4, "a", "c3", 3))

    assert story.outcome == "became active on c1"
    assert story.later == ("a: a later request to move it (req-3) placed it on c3",)


def test_a_request_that_could_not_move_a_server_tells_where_it_stays(tmp_path: Path) -> None:
    story = told(tmp_path / "r", "req-3", *BUILT, decision(3, "a", not_on=["c1"]))

    assert story.outcome == "no host was found (no_candidates); the server stays on c1"
    assert story.causes == ("0 of 4 hosts pass at 3",)
    assert story.later == ()


def test_the_servers_of_one_request_each_have_their_later_ones(tmp_path: Path) -> None:
    both = decision(1, "a", "c1")
    both = {**both, "instances": ["a", "b"], "answer": [["c1"], ["c2"]],
            "asked": {**both["asked"], "instances": ["a", "b"]}}  # fmt: skip
    ends = (active(2, "a", "c1", 1), active(2.5, "b", "c2", 1))
    story = told(tmp_path / "r", "a", both, *ends, decision(3, "a", not_on=["c1"]))

    assert story.outcome == "2 servers: 2 active"
    assert story.later == ("a: a later request to move it (req-3) found no host (no_candidates) and left it on c1",)


@pytest.mark.parametrize(("move", "flavor", "text"), [
    ("live_migration", "small", "live migration (req-3) found no host (no_candidates) and left it there"),
    ("evacuation", "small", "evacuation (req-3) found no host (no_candidates) and left it there"),
    ("resize_or_cold_migration", "small", "cold migration (req-3) found no host (no_candidates) and left it there"),
    ("resize_or_cold_migration", "large", "resize to large (req-3) found no host (no_candidates) and left it there"),
    ("resize_or_cold_migration", "",
     "resize or cold migration (req-3) found no host (no_candidates) and left it there"),
    ("unshelve", "small", "unshelve (req-3) found no host (no_candidates)"),
    (None, "small", "request for it (req-3) found no host (no_candidates)"),
])  # fmt: skip
def test_a_later_request_is_named_as_the_move_that_its_record_names(
    tmp_path: Path, move: str | None, flavor: str, text: str
) -> None:
    moved = decision(3, "a", flavor=flavor)
    moved["asked"] |= {"move": move}

    assert told(tmp_path / "r", "a", *BUILT, moved).outcome == f"became active on c1; a later {text}"


@pytest.mark.parametrize(("move", "text"), [
    ("live_migration", "live migration (req-3) found no host (no_candidates) and left it there"),
    ("unshelve", "unshelve (req-3) found no host (no_candidates)"),
])  # fmt: skip
def test_a_named_move_is_no_resize_although_the_flavor_is_not_that_of_the_request_before(
    tmp_path: Path, move: str, text: str
) -> None:
    moved = decision(3, "a", flavor="large")
    moved["asked"] |= {"move": move}

    assert told(tmp_path / "r", "a", *BUILT, moved).outcome == f"became active on c1; a later {text}"


def test_a_resize_that_may_stay_on_the_host_is_of_a_server_that_is_there(tmp_path: Path) -> None:
    resize = decision(3, "a", flavor="large")
    resize["asked"] |= {"move": "resize_or_cold_migration"}
    story = told(tmp_path / "r", "a", decision(1, "a", "c1"), resize)

    assert story.outcome == (
        "placed on c1; no build is recorded after that; "
        "a later resize to large (req-3) found no host (no_candidates) and left it there"
    )

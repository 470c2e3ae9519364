# SPDX-License-Identifier: Apache-2.0
"""What a story tells of the reasons of a failure: a full zone, a disabled service, a request that fits in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from shared_scheduler.answers.decision_facts import limits, took
from shared_scheduler.answers.next_steps import next_steps
from shared_scheduler.answers.shapes import Why
from shared_scheduler.cmd import why
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.story import Story, story_of

GROUP, MEMORY, ANTI = "group-1", "no_room:MEMORY_MB", "ServerGroupAntiAffinityFilter"


def refused(*decided: tuple[int, dict[str, int]], **more: Any) -> dict[str, Any]:
    """A request that found no host; ``decided``: index of the server, and the hosts of each reason, of four."""
    servers, asked, reasons = more.pop("servers", ["a"]), more.pop("asked", {}), decided[-1][1]
    text = ", ".join(f"{code}: {count}" for code, count in reasons.items())
    form = {"resources": {"MEMORY_MB": 400}, "member_of": [["zone-w"]] * ("availability_zone" in asked)}
    return {
        "kind": "decision", "at": 10.0, "request_id": "req-1", "scheduler": "s1", "project_id": "p",
        "instances": servers, "hosts": [], "result": "no_valid_host", "reason": f"0 of 4 hosts pass; rejected: {text}",
        "reasons": reasons, "near": [], "missing": {}, "attempts": [], "answer": [],
        "asked": {"forms": [form], "instances": servers, "flavor": "small", **asked},
        "decisions": [{"index": index, "hosts": 4, "survivors": 4 - sum(found.values()), "reasons": found, "best": []}
                      for index, found in decided], **more,
    }  # fmt: skip


def near(host: str, code: str, **detail: Any) -> dict[str, Any]:
    return {"host": host, "code": code, "detail": detail}


def asked_filter(host: str, after: int) -> dict[str, Any]:
    """Nova's own filter was asked about a host that our counterpart had rejected."""
    return {"instance": "a", "host": host, "outcome": "filter", "detail": {"filter": ANTI}, "verdict_ms": None,
            "write_ms": None, "after_decisions": after}  # fmt: skip


def told(path: Path, record: dict[str, Any]) -> Story:
    store = JsonLines(path)
    store.write([record])
    story = story_of(store, "req-1")
    store.close()
    assert story is not None
    return story


def as_why(story: Story) -> Why:
    return cast(Why, story.as_dict())


FULL_ZONE = refused(
    (0, {"aggregates": 2, ANTI: 2}), (0, {"aggregates": 2, "tried": 1, ANTI: 1}), (0, {"aggregates": 2, "tried": 2}),
    (0, {"aggregates": 2, ANTI: 2}), (0, {"aggregates": 2, "tried": 1, ANTI: 1}),
    asked={"availability_zone": "west", "group": [GROUP, "anti-affinity"]},
    attempts=[asked_filter("c3", 1), asked_filter("c4", 2), asked_filter("c3", 4)],
    near=[near("c1", "aggregates"), near("c2", "aggregates"), near("c3", ANTI), near("c4", ANTI)],
    timings_ms={"total": 5.0, "decisions": 5.0, "attempts": 3.0},
)  # fmt: skip


def test_a_host_that_nova_s_filter_rejects_again_is_told_under_this_filter(tmp_path: Path) -> None:
    story = told(tmp_path / "r", FULL_ZONE)

    assert story.causes == (f"0 of 4 hosts pass; rejected: 2 {ANTI}, 2 aggregates",)
    lines = why.lines(as_why(story))
    [decided] = [line for line in lines if line.startswith("  decided")]
    assert decided == f"  decided   0 of 4 hosts passed; rejected: 2 {ANTI}, 2 aggregates (5 times)"
    assert not any("tried  " in line for line in lines)


def test_a_zone_whose_hosts_have_members_of_the_group_is_told(tmp_path: Path) -> None:
    assert told(tmp_path / "r", FULL_ZONE).would_help == (
        "2 of 4 hosts are not in zone west",
        f"c3 and c4 have as many members of the server group {GROUP} as its policy anti-affinity allows",
    )


def test_a_host_that_a_filter_rejects_twice_counts_once() -> None:
    [text] = took(FULL_ZONE)

    assert text == "5.0 ms: 5 decisions, 0 hosts tried, 2 rejected by a filter"


def test_a_host_that_was_tried_by_a_claim_stays_tried(tmp_path: Path) -> None:
    claimed = {**asked_filter("c3", 1), "outcome": "no_capacity", "detail": {}}
    story = told(tmp_path / "r", refused((0, {MEMORY: 3}), (0, {MEMORY: 3, "tried": 1}), attempts=[claimed]))

    assert story.causes == (f"0 of 4 hosts pass; rejected: 3 {MEMORY}, 1 tried; tried: c3 no_capacity",)


DISABLED = {"disabled": True, "disabled_reason": "ticket 4711", "forced_down": False, "up": True}
TRAIT = {"missing": [], "forbidden": ["COMPUTE_STATUS_DISABLED"]}


def test_a_disabled_service_is_told_alike_whoever_has_told_it(tmp_path: Path) -> None:
    by_filter = refused((0, {"ComputeFilter": 1, MEMORY: 3}), near=[near("c1", "ComputeFilter", **DISABLED)])
    by_trait = refused((0, {"root_traits": 1, MEMORY: 3}), near=[near("c1", "root_traits", **TRAIT)])

    first, second = (told(tmp_path / name, one) for name, one in (("f", by_filter), ("t", by_trait)))

    cause = f"0 of 4 hosts pass; rejected: 3 {MEMORY}, 1 disabled"
    assert (first.causes, second.causes) == ((cause,), (cause,))
    assert first.would_help == ("the service of c1 is disabled (ticket 4711)",)
    assert second.would_help == ("the service of c1 is disabled",)
    for story in (first, second):
        lines = why.lines(as_why(story))
        assert any(line.startswith("  host      c1: disabled") for line in lines)
        assert any("disabled" in line and "An administrator" in line for line in lines), "it is defined"
        step = "enable the service of c1 when it is ready: openstack compute service set --enable c1 nova-compute"
        assert step in next_steps(as_why(story))


def test_a_service_that_is_down_as_well_is_not_only_disabled(tmp_path: Path) -> None:
    down = refused((0, {"ComputeFilter": 4}), near=[near("c1", "ComputeFilter", **{**DISABLED, "up": False})])

    story = told(tmp_path / "r", down)

    assert story.causes == ("0 of 4 hosts pass; rejected: 4 ComputeFilter",)
    assert story.would_help == ()


def test_of_many_hosts_of_a_reason_only_those_that_are_named_are_known_as_disabled(tmp_path: Path) -> None:
    story = told(tmp_path / "r", refused((0, {"root_traits": 4}), near=[near("c1", "root_traits", **TRAIT)]))

    assert story.causes == ("0 of 4 hosts pass; rejected: 4 root_traits",)
    assert story.would_help == ("the service of c1 is disabled",)


SIX = ["s1", "s2", "s3", "s4", "s5", "s6"]
FOUR_FIT = refused(
    *((index, {MEMORY: number}) for index, number in enumerate((1, 1, 2, 3, 4))), (4, {MEMORY: 4}), servers=SIX,
    attempts=[{**asked_filter("c1", 6), "instance": "s1", "outcome": outcome, "detail": {}, "after_decisions": after}
              for outcome, after in (("written", 5), ("deleted", 6))],
    near=[near("c4", MEMORY, asked=800, used=400, capacity=800)], missing={MEMORY: [400, 400]},
    timings_ms={"total": 5.0, "decisions": 6.0, "attempts": 2.0},
)  # fmt: skip


def test_how_many_servers_of_a_request_had_a_host_is_told(tmp_path: Path) -> None:
    story = told(tmp_path / "r", FOUR_FIT)

    assert story.causes == (
        "4 of 6 servers had a host when server 5, s5, found none, and a request places all or none: "
        f"0 of 4 hosts pass; rejected: 4 {MEMORY}",
    )


def test_a_shortage_is_told_of_the_hosts_that_the_record_has_numbers_of(tmp_path: Path) -> None:
    assert told(tmp_path / "r", FOUR_FIT).would_help == (
        "c4 is short of MEMORY_MB by 400 MB; 3 more hosts had no room beside the servers of this request, "
        "and the record has no numbers of them",
    )


def test_hosts_that_are_too_small_are_not_told_as_short_of_what_others_hold(tmp_path: Path) -> None:
    # given a server of 2000 MB, and one host of four that is large enough, but full
    small = [near(f"c{number}", MEMORY, asked=2000, used=0, max_unit=size, capacity=size)
             for number, size in ((2, 1600), (3, 1200), (4, 800))]  # fmt: skip
    full = near("c1", MEMORY, asked=2000, used=1200, max_unit=2400, capacity=2400)
    record = refused((0, {MEMORY: 4}), near=[full, *small], missing={MEMORY: [400, 1200]})

    assert told(tmp_path / "r", record).would_help == (
        "asked 2000 MB of MEMORY_MB; one server gets at most 1600 MB on c2, c3 and c4, even if they are empty",
        "c1 is short of MEMORY_MB by 800 MB",
    )


def test_a_host_that_the_server_has_to_leave_lacks_nothing(tmp_path: Path) -> None:
    full = [near(f"c{number}", MEMORY, asked=400, used=800, capacity=800) for number in (1, 2, 3)]
    record = refused((0, {MEMORY: 3}), near=full, missing={MEMORY: [400, 400]}, asked={"ignore_hosts": ["c1"]})

    assert told(tmp_path / "r", record).would_help == ("c2 and c3 are short of MEMORY_MB by 400 MB",)


def test_hosts_without_numbers_are_counted(tmp_path: Path) -> None:
    full = [near(f"c{number}", MEMORY) for number in (1, 2)]
    record = refused((0, {MEMORY: 2}), near=full, missing={MEMORY: [400, 400]}, asked={"ignore_hosts": ["c1"]})

    assert told(tmp_path / "r", record).would_help == ("2 hosts are short of MEMORY_MB by 400 MB",)


def test_a_claim_that_was_written_and_deleted_is_one_host_that_was_tried() -> None:
    [text] = took(FOUR_FIT)

    assert text == "5.0 ms: 6 decisions, 1 host tried"


def test_a_request_whose_decisions_are_not_all_kept_does_not_tell_how_many_had_a_host(tmp_path: Path) -> None:
    story = told(tmp_path / "r", {**FOUR_FIT, "timings_ms": {"total": 5.0, "decisions": 90.0}})

    assert story.causes == (f"0 of 4 hosts pass; rejected: 4 {MEMORY}; tried: c1 deleted for s1",)


def test_why_tells_each_constraint_of_spreading_with_its_source_and_an_image_that_was_not_read() -> None:
    # given records of this release, and one of before, which does not name the source
    rack = {"key": "rack", "max_skew": 1, "mode": "hard", "source": "image"}
    room = {"key": "room", "max_skew": 2, "mode": "soft", "source": "flavor and scheduler hints"}
    old = {"key": "rack", "max_skew": 1, "mode": "hard"}
    assert list(limits({"forms": [], "spread": [rack, room], "image_unread": ""})) == [
        "spread over rack with max_skew 1, hard (image); "
        "over room with max_skew 2, soft (flavor and scheduler hints)"
    ]  # fmt: skip
    assert list(limits({"forms": [], "spread": [old]})) == ["spread over rack with max_skew 1, hard"]
    assert list(limits({"forms": [], "image_unread": "no server answers"})) == ["without its image: no server answers"]

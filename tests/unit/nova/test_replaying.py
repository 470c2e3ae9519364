# SPDX-License-Identifier: Apache-2.0
"""Recorded requests are decided again on the table of a running scheduler, with another configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator
from nova import exception

from shared_scheduler.answers.schema import schemas
from shared_scheduler.daemon import admin
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.nova import replaying
from shared_scheduler.nova.replaying import Redecider, ReplayedChoice, current_table, present_settings, replayed
from shared_scheduler.records.record_file import RecordFile
from shared_scheduler.records.replay_sum import ReplaySum
from shared_scheduler.records.reweigh import Replayed, reweighed
from tests.unit.nova.conftest import flavor, request_spec
from tests.unit.nova.test_manager import Cloud, ask, cloud, placement_app, small, start, uuids, world

__all__ = ["cloud", "placement_app", "start", "world"]  # fixtures


class Recorded:
    """A scheduler with records and a control socket."""

    def __init__(self, start: Any, conf: Any, directory: Path) -> None:
        self._start, self._conf, self._directory = start, conf, directory
        self.path = directory / "records.jsonl"
        self._service: Any = None

    def begin(self) -> None:
        conf = self._conf
        conf.set_override("admin_socket_dir", str(self._directory / "run"), group="shared_scheduler")
        conf.set_override("records_file", str(self.path), group="shared_scheduler")
        self._service = self._start()

    def table(self) -> Any:
        path = admin.first_answering(self._directory / "run")
        return current_table(lambda after: admin.ask(path, "state", after=after))

    def end(self) -> RecordFile:
        """Stop, so that all records are written."""
        self._service.stop()
        return RecordFile(self.path)


@pytest.fixture
def scheduler(start: Any, conf: Any, tmp_path: Path) -> Recorded:
    (tmp_path / "run").mkdir()
    return Recorded(start, conf, tmp_path)


def test_reasons_of_a_refusal_are_counted_as_on_other_screens() -> None:
    was = ReplayedChoice((), "0 of 9 hosts pass; rejected: traits: 6, no_room:VCPU: 3")
    nobody: Any = None  # no host of the record is weighed

    told = replaying._why({}, was, ReplayedChoice(("c3",)), nobody)

    assert told == "a host passes now; then: 0 of 9 hosts pass; rejected: 6 traits, 3 no_room:VCPU"


def again(records: RecordFile, state: Any, change: Callable[[], object] = lambda: None) -> list[Replayed]:
    """The verdicts with the present configuration and with a changed one."""

    def changed() -> Redecider:
        change()
        return Redecider(*state)

    return list(replayed(records, Redecider(*state), changed))


def test_the_same_configuration_makes_the_same_choices_on_the_current_state(scheduler: Recorded, cloud: Cloud) -> None:
    cloud.compute("cmp1", 16)
    cloud.compute("cmp2", 8)
    scheduler.begin()
    state = scheduler.table()
    [one], many = ask(small(), uuids(1)), ask(small(), uuids(5))
    records = scheduler.end()

    verdicts = list(replayed(records, None, lambda: Redecider(*state)))

    # the first request was decided on this state, the second one when one server more was there
    assert (verdicts[0].verdict, verdicts[0].now) == ("same", (one[0].service_host,))
    assert len(verdicts[1].now) == len(many)
    assert [one.verdict for one in again(records, state)] == ["same", "same"]


def test_another_weight_chooses_another_host_and_the_reason_names_both(
    scheduler: Recorded, cloud: Cloud, conf: Any
) -> None:
    cloud.compute("cmp1", 16)
    cloud.compute("cmp2", 4)
    scheduler.begin()
    ask(small(), uuids(1))
    state = scheduler.table()
    records = scheduler.end()

    def stack() -> None:
        conf.set_override("cpu_weight_multiplier", -5.0, group="filter_scheduler")

    [verdict] = again(records, state, stack)

    assert (verdict.verdict, verdict.was, verdict.now) == ("differs", ("cmp1",), ("cmp2",))
    assert verdict.why.startswith("cmp2 weighs")
    assert "and cmp1" in verdict.why
    on_record = [reweighed(one, present_settings()) for one in records]
    assert [(one.verdict, one.now) for one in on_record] == [("differs", ("cmp2",))]


def test_another_filter_rejects_the_host_and_is_named(scheduler: Recorded, cloud: Cloud, conf: Any) -> None:
    cloud.compute("cmp1", 16)
    cloud.compute("cmp2", 4)
    scheduler.begin()
    ask(small(), uuids(1))
    state = scheduler.table()
    records = scheduler.end()

    def isolated() -> None:
        conf.set_override("enabled_filters", ["ComputeFilter", "IsolatedHostsFilter"], group="filter_scheduler")
        conf.set_override("isolated_hosts", ["cmp1"], group="filter_scheduler")
        conf.set_override("isolated_images", ["an-image"], group="filter_scheduler")

    [verdict] = again(records, state, isolated)

    assert (verdict.verdict, verdict.was, verdict.now) == ("differs", ("cmp1",), ("cmp2",))
    assert verdict.why.startswith("cmp1: IsolatedHostsFilter")


def test_the_table_is_unchanged_after_a_replay(scheduler: Recorded, cloud: Cloud) -> None:
    cloud.compute("cmp1", 16)
    scheduler.begin()
    ask(small(), uuids(4))
    state = scheduler.table()
    before = [state[0].describe(node) for node in state[0].nodes()]
    records = scheduler.end()

    again(records, state)

    assert [state[0].describe(node) for node in state[0].nodes()] == before


def test_a_refusal_is_decided_again_as_well(scheduler: Recorded, cloud: Cloud) -> None:
    cloud.compute("cmp1", 2)
    scheduler.begin()
    with pytest.raises(exception.NoValidHost):
        ask(small(), uuids(2))
    state = scheduler.table()
    cloud.compute("cmp2", 8)

    [verdict] = again(scheduler.end(), state)

    assert (verdict.verdict, verdict.was) == ("same", ())


def test_a_request_that_found_no_host_says_that_one_passes_now(scheduler: Recorded, cloud: Cloud) -> None:
    cloud.compute("cmp1", 2)
    scheduler.begin()
    with pytest.raises(exception.NoValidHost):
        ask(small(), uuids(2))
    records = scheduler.end()
    cloud.compute("cmp2", 8)
    scheduler.begin()
    state = scheduler.table()
    scheduler.end()

    [verdict] = replayed(records, None, lambda: Redecider(*state))

    assert (verdict.verdict, verdict.was, verdict.now) == ("differs", (), ("cmp2", "cmp1"))
    assert verdict.why.startswith("a host passes now; then: 0 of 1 hosts pass")


def test_hosts_of_equal_weight_are_told_as_equal(scheduler: Recorded, cloud: Cloud) -> None:
    cloud.compute("cmp1", 4)
    scheduler.begin()
    ask(small(), uuids(1))

    class Redecided:
        """Chooses another host of the same weight."""

        def choose(self, *_: Any) -> ReplayedChoice:
            return ReplayedChoice(("cmp0",))

        def compared(self, *_: Any) -> list[ExplainedHost]:
            return [ExplainedHost(f"n-{host}", host, "", {}, 2.0) for host in ("cmp0", "cmp1")]

    [verdict] = replayed(scheduler.end(), None, lambda: cast(Redecider, Redecided()))

    assert (verdict.verdict, verdict.why) == ("differs", "cmp0 and cmp1 both weigh 2: either may be chosen")


def test_what_cannot_be_replayed_is_counted_with_its_reason(scheduler: Recorded, cloud: Cloud) -> None:
    cloud.compute("cmp1", 32)
    scheduler.begin()
    ask(small(scheduler_hints={"same_host": ["nobody"], "query": ["[]"]}), uuids(1))
    ask(request_spec(flavor=flavor(vcpus=1, memory_mb=64, root_gb=1), is_bfv=True), uuids(1))
    state = scheduler.table()
    scheduler.end()
    with scheduler.path.open() as lines:
        stored = [json.loads(line) for line in lines]
    old = json.loads(json.dumps(stored[1]))
    del old["asked"]["sizes"]
    scheduler.path.write_text("\n".join([*map(json.dumps, [*stored, old]), "half a li", "[1]"]) + "\n")
    found = ReplaySum("current")

    for one in again(RecordFile(scheduler.path), state):
        found.add(one)

    answer = found.as_dict(1.0)
    Draft202012Validator(schemas()["replay"]).validate(answer)
    assert (answer["result"], answer["same"], answer["cannot"]) == ("cannot", 1, 4)
    assert answer["cannot_reasons"] == {
        "the line is not a record": 2,
        "the values of the hints query, same_host are not recorded": 1,
        "the record is from a release that did not keep the sizes of the flavor": 1,
    }

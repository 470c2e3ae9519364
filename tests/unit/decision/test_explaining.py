# SPDX-License-Identifier: Apache-2.0
"""Explanations: invalid requests are reported, and a decision returns its numbers."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.errors import DecisionError, UnknownFilterError, UnknownWeigherError
from shared_scheduler.decision.explain import explain
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.record import DecisionRecord, asked_of
from shared_scheduler.decision.request import Group
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.table.host_table import HostTable
from tests.unit.decision.small_clouds import SMALL, add_host, cloud, form, small_request

# -- what is wrong is said


def test_an_unknown_filter_is_named():
    with pytest.raises(UnknownFilterError, match="'RamFilter', which is not a filter of Nova"):
        Decider(HostTable(), DecisionSettings(enabled_filters=("RamFilter",)))


def test_an_unknown_weigher_is_named():
    with pytest.raises(UnknownWeigherError, match="'LuckWeigher'"):
        Decider(HostTable(), DecisionSettings(weighers=("LuckWeigher",)))


@pytest.mark.parametrize(
    ("hints", "complaint"),
    [
        ({"query": ("{",)}, "hint query: not JSON"),
        ({"query": ('["xor", 1]',)}, "does not begin with one of"),
        ({"build_near_host_ip": ("not-an-ip",)}, "hints build_near_host_ip and cidr"),
    ],
)
def test_an_invalid_hint_is_reported_to_the_caller(hints, complaint):
    settings = DecisionSettings(enabled_filters=("JsonFilter", "SimpleCIDRAffinityFilter"))
    with pytest.raises(DecisionError, match=complaint):
        Decider(cloud("a"), settings).decide(small_request(hints=hints))


# -- why


def test_explain_returns_the_compared_numbers():
    table = cloud("fine")
    add_host(table, "full", used={"DISK_GB": 100})
    add_host(table, "plain", traits=())
    add_host(table, "down")
    table.set_service(ServiceFacts("down", disabled=True, record={"disabled_reason": "disk"}))
    table.upsert("new", "cell1", "new", "new")
    request = small_request(forms=(form(root_required=frozenset({"COMPUTE_NODE"})),))

    answers = {answer.node: answer for answer in explain(Decider(table), request).listed}

    assert answers["fine"].code == ""
    assert answers["full"].code == "no_room:DISK_GB"
    assert answers["full"].detail == {
        "provider": "full",
        "resource_class": "DISK_GB",
        "asked": 1,
        "used": 100,
        "capacity": 100,
    }
    assert answers["plain"].code == "root_traits"
    assert answers["plain"].detail["missing"] == ["COMPUTE_NODE"]
    assert answers["down"].code == "ComputeFilter"
    assert answers["down"].detail["disabled_reason"] == "disk"
    assert answers["new"].code == "never_reported"


def test_a_host_that_placement_marks_as_disabled_has_the_reason_of_its_service():
    # given hosts with the trait of disabled ones: Nova's database tells why, does not, or has enabled it since
    table = cloud("fine")
    for name, facts in {
        "told": ServiceFacts("told", disabled=True, record={"disabled_reason": "exchange of memory"}),
        "silent": ServiceFacts("silent", disabled=True), "enabled": ServiceFacts("enabled"),
    }.items():  # fmt: skip
        add_host(table, name, traits=("COMPUTE_STATUS_DISABLED",))
        table.set_service(facts)
    request = small_request(forms=(form(root_forbidden=frozenset({"COMPUTE_STATUS_DISABLED"})),))

    answers = {answer.node: answer for answer in explain(Decider(table), request).listed if answer.code}

    assert {answer.code for answer in answers.values()} == {"root_traits"}
    reasons = {node: answer.detail.get("disabled_reason") for node, answer in answers.items()}
    assert reasons == {"told": "exchange of memory", "silent": None, "enabled": None}


def test_explain_returns_the_weight_of_each_weigher():
    table = cloud("a")
    add_host(table, "b", **{"cn.free_ram_mb": 7936})
    first, second = explain(Decider(table), small_request()).listed
    assert (first.node, second.node) == ("a", "b")
    assert second.weights["RAMWeigher"] == 0.5
    assert second.weight == Decider(table).decide(small_request()).weight("b")


def test_explain_agrees_with_the_decision():
    table = cloud("a", "b")
    add_host(table, "c", used={"VCPU": 16})
    decision = Decider(table).decide(small_request())
    explained = explain(Decider(table), small_request())
    codes = [answer.code for answer in explained.listed if answer.code]
    assert {code: codes.count(code) for code in codes} == decision.reasons
    assert {code: count for code, count in explained.counts.items() if code and count} == decision.reasons
    assert explained.counts[""] == decision.survivors


def test_explain_lists_some_hosts_of_each_reason_and_counts_all():
    table = cloud("a", "b", "c")
    for name in ("full-1", "full-2", "full-3"):
        add_host(table, name, used={"VCPU": 16})
    explained = explain(Decider(table), small_request(), each_max=2)
    assert [answer.host for answer in explained.listed] == ["a", "b", "full-1", "full-2"]
    assert {code: count for code, count in explained.counts.items() if count} == {"": 3, "no_room:VCPU": 3}


def test_a_named_host_is_explained_at_any_position():
    table = cloud("a", "b", "c")
    add_host(table, "full", used={"VCPU": 16})
    for name, code in (("c", ""), ("full", "no_room:VCPU")):
        [answer] = explain(Decider(table), small_request(), only=frozenset({name}), each_max=1).listed
        assert (answer.host, answer.code) == (name, code)


def test_a_record_is_plain_data():
    decision = Decider(cloud("a", "b")).decide(small_request())
    request = small_request(group=Group("g", "affinity"), hints={"query": ("[]",)})
    record = DecisionRecord("req-1", asked_of(request), (decision.counts(),))
    again = json.loads(json.dumps(asdict(record)))
    assert again["decisions"][0]["survivors"] == 2
    assert again["decisions"][0]["best"][0]["node"] == "a"
    assert again["asked"]["forms"][0]["resources"] == SMALL

# SPDX-License-Identifier: Apache-2.0
"""A filter checks one host of each kind, and the cached result stays correct when hosts change."""

from __future__ import annotations

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.masks import MaskCache
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Flavor
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.protocol.messages import Usage
from tests.unit.decision.small_clouds import SMALL, add_host, cloud, small_request

OLD, NEW = {"cn.cpu_info": '{"model": "old"}'}, {"cn.cpu_info": '{"model": "new"}'}
WANTS_NEW = {"capabilities:cpu_info:model": "new"}


def mixed(hosts):
    table = cloud()
    for number in range(hosts):
        add_host(table, f"n{number:02}", **(NEW if number % 2 else OLD))
    return table


def says(table, node, leaves):
    sequence = table.version(node).sequence + 1
    table.apply(node, leaves, {}, {}, epoch=1, sequence=sequence)


def deciding(table, name):
    """Survivors of one filter, by a decider that remembers."""
    decider = Decider(table, DecisionSettings(enabled_filters=(name,)))
    return lambda request: set(decider.decide(request).weights())


def asking(**extra_specs):
    return small_request(flavor=Flavor("m1.small", 1, 512, 1, extra_specs=extra_specs))


def test_one_host_of_each_kind_is_asked():
    table, asked = mixed(40), []

    def test(row):
        asked.append(row.node)
        return row.leaves["cn.cpu_info"] == NEW["cn.cpu_info"]

    mask = MaskCache().kinds(table, "new", table.columns.hypervisors, lambda: test)
    assert mask.tolist() == [number % 2 == 1 for number in range(40)]
    assert len(asked) == 2


def test_a_host_that_gets_another_cpu_passes_from_then_on():
    table = mixed(4)
    request = asking(**WANTS_NEW)
    decide = deciding(table, "ComputeCapabilitiesFilter")
    assert decide(request) == {"n01", "n03"}
    says(table, "n00", NEW)
    says(table, "n01", OLD)
    assert decide(request) == {"n00", "n03"}


def test_a_statistic_replaces_a_capability_that_is_not_set():
    table = cloud("n00", "n01")
    request = asking(**{"capabilities:cpu_info": "fast"})
    decide = deciding(table, "ComputeCapabilitiesFilter")
    assert decide(request) == set()
    says(table, "n01", {"stats.cpu_info": "fast"})
    assert decide(request) == {"n01"}


def test_an_extra_spec_without_a_scope_counts_where_the_host_has_such_a_statistic():
    table = cloud("n00", "n01")
    decide = deciding(table, "ComputeCapabilitiesFilter")
    assert decide(asking(ssd="fast")) == {"n00", "n01"}
    says(table, "n01", {"stats.ssd": "slow"})
    assert decide(asking(ssd="fast")) == {"n00"}
    says(table, "n01", {"stats.ssd": None})
    assert decide(asking(ssd="fast")) == {"n00", "n01"}


def test_own_claims_count_among_the_statistics():
    table = cloud("n00", "n01")
    decide = deciding(table, "ComputeCapabilitiesFilter")
    assert decide(asking(num_instances="0")) == {"n00", "n01"}
    table.assume("n00", "claim", "server", {"n00": SMALL}, Usage(1, 512, 1, 1, 1))
    assert decide(asking(num_instances="0")) == {"n01"}


def test_a_host_that_joins_an_aggregate_is_asked_as_its_new_kind():
    table = mixed(4)
    decide = deciding(table, "AggregateMultiTenancyIsolation")
    everybody = {"n00", "n01", "n02", "n03"}
    assert decide(small_request()) == everybody
    own = AggregateFacts(1, "u", "own", frozenset({"n02"}), {"filter_tenant_id": "another"})
    table.set_aggregates([own])
    assert decide(small_request()) == everybody - {"n02"}
    table.delete_aggregates([1])
    assert decide(small_request()) == everybody


def test_no_host_is_checked_for_a_statistic_that_none_reported():
    table = cloud("n00", "n01")
    request = asking(ssd="fast")
    decider = Decider(table, DecisionSettings(enabled_filters=("ComputeCapabilitiesFilter",)))
    (asked,) = decider.stages(decider.context(request))[-1:]
    assert asked.mask(decider.context(request)) is None
    says(table, "n01", {"stats.ssd": "slow"})
    mask = asked.mask(decider.context(request))
    assert mask is not None and mask.tolist() == [True, False]

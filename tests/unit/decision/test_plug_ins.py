# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers of a site."""

from __future__ import annotations

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import Decider, OncePerRequestFilters
from shared_scheduler.model.services import ServiceFacts
from tests.unit.decision.small_clouds import add_host, cloud, small_request


class OnlyEvenHosts:
    """A site's filter."""

    name = "OnlyEvenHosts"

    def __init__(self, once: bool = False) -> None:
        self.once = once
        self.asked: list[str] = []

    def passing(self, request, index, views):
        self.asked += [view.node for view in views]
        return [view for view in views if int(view.node[-1]) % 2 == 0]


class BackwardsWeigher:
    """A site's weigher."""

    name = "BackwardsWeigher"
    minval = None
    maxval = None

    def weigh(self, request, views):
        return [int(view.node[-1]) for view in views]

    def multipliers(self, views):
        return [2.0 for _ in views]


def test_plug_ins_see_the_survivors_and_have_their_say():
    table = cloud("h0", "h1", "h2")
    add_host(table, "h4", used={"DISK_GB": 100})
    even = OnlyEvenHosts()
    decider = Decider(
        table,
        DecisionSettings(enabled_filters=("OnlyEvenHosts",), weighers=("BackwardsWeigher",)),
        foreign_filters={"OnlyEvenHosts": even},
        foreign_weighers={"BackwardsWeigher": BackwardsWeigher()},
    )
    decision = decider.decide(small_request())
    assert list(decision.nodes()) == ["h2", "h0"]
    assert decision.weights() == {"h0": 0.0, "h2": 2.0}
    assert even.asked == ["h0", "h1", "h2"]
    assert decision.reasons["OnlyEvenHosts"] == 1


def test_a_plug_in_that_runs_once_is_asked_for_the_first_instance_only():
    table, even = cloud("h0", "h1"), OnlyEvenHosts(once=True)
    decider = Decider(
        table,
        DecisionSettings(enabled_filters=("OnlyEvenHosts",)),
        foreign_filters={"OnlyEvenHosts": even},
    )
    narrowing = OncePerRequestFilters()
    for index in (0, 1):
        decision = decider.decide(small_request(), index, narrowing=narrowing)
        assert list(decision.nodes()) == ["h0"]
    assert even.asked == ["h0", "h1"]


def test_the_few_that_have_room_are_all_shown_to_novas_own_filters():
    for hosts, exact_hosts_max, shown in ((1, 3, 0), (2, 3, 2), (3, 3, 3), (4, 3, 0), (2, 0, 0)):
        names = [f"h{number}" for number in range(hosts)]
        even, decider = OnlyEvenHosts(), Decider(cloud(*names))
        decider.configure(DecisionSettings(exact_hosts_max=exact_hosts_max), exact=even)

        left = set(decider.decide(small_request()).nodes())

        assert even.asked == names[:shown]
        assert left == {name for name in names if not shown or int(name[-1]) % 2 == 0}


def test_a_host_is_counted_under_the_filter_that_rejected_it():
    table, settings = cloud("h0", "h1", "h2"), DecisionSettings(exact_hosts_max=3)
    table.set_service(ServiceFacts("h2", up=False))
    decider = Decider(table)
    decider.configure(settings, exact=OnlyEvenHosts())

    decision = decider.decide(small_request())

    assert list(decision.nodes()) == ["h0"]
    assert decision.reasons == {"ComputeFilter": 1, "OnlyEvenHosts": 1}


def test_they_are_not_shown_without_their_candidates():
    even, decider = OnlyEvenHosts(), Decider(cloud("h0", "h1"))
    decider.configure(DecisionSettings(exact_hosts_max=3), exact=even)
    decider.decide(small_request(root_only=False))
    assert even.asked == []

# SPDX-License-Identifier: Apache-2.0
"""The number of alternates: of the call, of the flavor, of the deployment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.decision.alternate_count import ALTERNATES, ALTERNATES_MAX, for_servers, with_alternates
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.request import Flavor, Request
from shared_scheduler.protocol.messages import Usage


def request(number: int, text: str | None = None, servers: int = 1, from_flavor: bool = True) -> Request:
    flavor = Flavor(extra_specs={} if text is None else {ALTERNATES: text})
    return Request(
        request_id="r", project_id="p", user_id="u", flavor=flavor, forms=(), usage=Usage(), num_alternates=number,
        instance_uuids=tuple(map(str, range(servers))), flavor_sets_alternates=from_flavor,
    )  # fmt: skip


def number_of(asked: Request) -> int:
    return with_alternates(asked).num_alternates


def test_the_flavor_counts_before_the_deployment() -> None:
    assert number_of(request(2)) == 2
    assert number_of(request(2, "5")) == 5
    assert number_of(request(2, "0")) == 0
    assert number_of(request(2, str(ALTERNATES_MAX))) == ALTERNATES_MAX


def test_the_call_overrides_the_flavor_and_alternates_can_be_turned_off() -> None:
    assert number_of(request(3, "5", from_flavor=False)) == 3
    assert number_of(request(0, "5", from_flavor=False)) == 0


def test_a_request_for_several_servers_gets_none_of_a_chosen_number() -> None:
    assert number_of(request(2, "5", servers=3)) == 0
    assert number_of(request(2, servers=3)) == 2, "Nova's number is kept"
    assert (for_servers(1, 4), for_servers(2, 4), for_servers(2, -4)) == (4, 0, -4)


def test_the_flavor_is_read_once() -> None:
    once = with_alternates(request(2, "5"))

    assert with_alternates(replace(once, num_alternates=7)).num_alternates == 7


@pytest.mark.parametrize("text", ["-1", "101", "9" * 20, "two", "", "1.5", "+1", "\u0665", "5" * 1000], ids=repr)
def test_a_flavor_with_another_text_fails_its_request(text: str) -> None:
    for servers in (1, 2):
        with pytest.raises(DecisionError, match=f"{ALTERNATES} of the flavor: .* from 0 to 100") as failure:
            with_alternates(request(2, text, servers=servers))
        assert len(str(failure.value)) < 200


@pytest.mark.parametrize("number", [-1, ALTERNATES_MAX + 1, 2**63])
def test_a_call_with_an_absurd_number_fails(number: int) -> None:
    with pytest.raises(DecisionError, match="0 to 100 are possible"):
        with_alternates(request(number, from_flavor=False))

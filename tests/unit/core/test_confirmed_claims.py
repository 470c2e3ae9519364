# SPDX-License-Identifier: Apache-2.0
"""Confirmed claims that no node shows yet are read from Placement one by one, however many there are."""

from __future__ import annotations

from shared_scheduler.core.confirmed_claims import ConfirmedClaims
from shared_scheduler.core.events import ConsumerAnswered
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Step, Timers
from shared_scheduler.table.host_table import HostTable

CLAIMS = 1_000


class Named(str):
    """A consumer's uuid that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Named.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_answer_for_one_consumer_is_not_compared_with_all_others() -> None:
    # given many builds that wait for their nova-computes
    confirmed = ConfirmedClaims(SchedulerSettings(), HostTable(), Timers())
    for number in range(CLAIMS):
        confirmed.begin(Step(0.0, "req"), f"claim-{number}", Named(f"server-{number}"), {"node-1": {"VCPU": 1}}, "req")
    # when Placement tells of one of them
    Named.compared = 0
    confirmed.on_consumer(ConsumerAnswered("server-7", {}, cause="claim-7"))
    # then
    assert "claim-7" not in confirmed and len(confirmed) == CLAIMS - 1
    assert Named.compared < 10


def test_all_claims_of_a_consumer_that_holds_nothing_end() -> None:
    # given a server that was asked for twice
    confirmed = ConfirmedClaims(SchedulerSettings(), HostTable(), Timers())
    for claim_id, node in (("first", "node-1"), ("second", "node-2")):
        confirmed.begin(Step(0.0, "req"), claim_id, "server", {node: {"VCPU": 1}}, "req")
    # when it holds the place of the second, and then nothing
    confirmed.on_consumer(ConsumerAnswered("server", {"node-2": {"VCPU": 1}}, cause="second"))
    assert "first" not in confirmed and "second" in confirmed
    confirmed.on_consumer(ConsumerAnswered("server", {}, cause="second"))
    assert len(confirmed) == 0

# SPDX-License-Identifier: Apache-2.0
"""Digest, bucket, jitter, errors."""

from __future__ import annotations

from random import Random

import pytest

from shared_scheduler.protocol.backoff import Backoff, jittered_s
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.digest import claim_hash, consumer_hash, digest_of, leaf_hash
from shared_scheduler.protocol.errors import ProtocolError, UnknownVersion
from shared_scheduler.protocol.messages import Consumer, Snapshot
from shared_scheduler.protocol.rate_limits import TokenBucket
from tests.unit.protocol.samples import ALLOCATIONS, LEAVES, NODE, SERVER

# --- digest ------------------------------------------------------------------------------------


def test_the_order_of_anything_does_not_matter() -> None:
    consumers = {
        SERVER: Consumer({"a": {"VCPU": 1, "DISK_GB": 2}, "b": {}}),
        "x": Consumer({}, True),
    }
    turned = {"x": Consumer({}, True), SERVER: Consumer({"b": {}, "a": {"DISK_GB": 2, "VCPU": 1}})}
    one = digest_of({"a": {"k": 1, "l": 2}, "b": 2}, consumers, {"p": "x", "q": "y"})
    two = digest_of({"b": 2, "a": {"l": 2, "k": 1}}, turned, {"q": "y", "p": "x"})
    assert one == two != 0


def test_every_difference_shows() -> None:
    digests = [
        digest_of({}, {}, {}),
        digest_of({"a": 1}, {}, {}),
        digest_of({"a": True}, {}, {}),
        digest_of({"a": 1.0}, {}, {}),
        digest_of({"a": "1"}, {}, {}),
        digest_of({"b": 1}, {}, {}),
        digest_of({"a": [1, 2]}, {}, {}),
        digest_of({"a": [2, 1]}, {}, {}),
        digest_of({}, {"a": Consumer({})}, {}),
        digest_of({}, {"a": Consumer({}, True)}, {}),
        digest_of({}, {"a": Consumer(ALLOCATIONS)}, {}),
        digest_of({}, {}, {"a": "b"}),
        digest_of({}, {}, {"b": "a"}),
    ]
    assert len(set(digests)) == len(digests)


def test_missing_values_count_zero() -> None:
    assert leaf_hash("a", None) == consumer_hash("a", None) == claim_hash("a", None) == 0
    assert digest_of({"a": None}, {}, {}) == 0


def test_both_ends_of_the_wire_compute_the_same() -> None:
    sent = Snapshot(NODE, 1, 1, "h", LEAVES, {SERVER: Consumer(ALLOCATIONS, True)}, {"c": SERVER}, 0)
    got = decode(encode(sent))
    assert isinstance(got, Snapshot)
    here, there = (digest_of(s.leaves, s.consumers, s.claims) for s in (sent, got))
    assert here == there


def test_the_digest_is_the_same_in_every_release() -> None:
    # two releases that disagree here would resync each other for ever
    assert digest_of({"cn.vcpus_used": 4}, {SERVER: Consumer(ALLOCATIONS)}, {"c": SERVER}) == (0x3BC052DBBCD75BBB)


# --- bucket ------------------------------------------------------------------------------------


def test_a_burst_then_the_rate() -> None:
    bucket = TokenBucket(rate_per_s=2, burst=3)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait_s(0.0) == pytest.approx(0.5)
    assert not bucket.take(0.4)
    assert bucket.take(0.5) and not bucket.take(0.5)


def test_a_wait_of_the_returned_time_is_sufficient() -> None:
    rng = Random(1)
    bucket, now = TokenBucket(rate_per_s=7, burst=1), 1e6
    assert bucket.take(now)
    for _ in range(1000):
        now += bucket.wait_s(now) + rng.random() * 1e-9
        assert bucket.take(now)


def test_a_wait_is_sufficient_on_a_machine_that_has_run_for_years() -> None:
    """If it is not, a timer that is set to its end may ring again and again at the same moment."""
    rng, years_s = Random(1), 2.0**28
    bucket, now = TokenBucket(rate_per_s=1000, burst=50), years_s
    for _ in range(1000):
        bucket.take(now, 1 + rng.randrange(49))
        now += bucket.wait_s(now)
        assert not bucket.wait_s(now)
        now += rng.random() / 1000


def test_quiet_saves_up_no_more_than_the_burst() -> None:
    bucket = TokenBucket(rate_per_s=100, burst=5)
    bucket.take(0.0)
    assert sum(bucket.take(1e6) for _ in range(100)) == 5


def test_a_clock_that_jumps_back_changes_no_tokens() -> None:
    bucket = TokenBucket(rate_per_s=1, burst=2)
    assert bucket.take(100.0) and bucket.take(100.0)
    assert not bucket.take(50.0)
    assert not bucket.take(50.9)
    assert bucket.take(51.0)


@pytest.mark.parametrize(("rate_per_s", "burst"), [(0, 1), (-1, 1), (1, 0.5)])
def test_a_bucket_that_could_never_give_is_refused(rate_per_s: float, burst: float) -> None:
    with pytest.raises(ValueError, match="a bucket needs"):
        TokenBucket(rate_per_s, burst)


def test_the_longest_wait_doubles_up_to_its_bound() -> None:
    backoff = Backoff(0.5, 6.0)
    assert [backoff.longest_s(attempts) for attempts in range(6)] == [0.5, 1, 2, 4, 6, 6]
    assert backoff.longest_s(10_000) == 6


@pytest.mark.parametrize(
    ("backoff", "least_s", "most_s"),
    [(Backoff(0.5, 6.0), 0.0, 2.0), (Backoff(0.5, 6.0, least=0.5), 1.0, 2.0), (Backoff.between(0.1, 0.2), 0.1, 0.2)],
)
def test_a_wait_is_drawn_from_the_whole_range(backoff: Backoff, least_s: float, most_s: float) -> None:
    rng = Random(1)
    waits = [backoff.wait_s(rng, attempts=2) for _ in range(1000)]
    tenth_s = (most_s - least_s) / 10
    assert least_s <= min(waits) < least_s + tenth_s
    assert most_s - tenth_s < max(waits) <= most_s


@pytest.mark.parametrize("bounds", [(-1.0, 1.0, 0.0), (1.0, -1.0, 0.0), (1.0, 2.0, 1.5)])
def test_a_backoff_that_makes_no_sense_is_refused(bounds: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="back-off needs"):
        Backoff(*bounds)


def test_an_interval_is_as_often_shorter_as_longer() -> None:
    rng = Random(1)
    found = [jittered_s(10.0, 0.2, rng) for _ in range(1000)]
    assert 8.0 <= min(found) < 8.5 and 11.5 < max(found) <= 12.0


# --- errors ------------------------------------------------------------------------------------


def test_an_error_has_place_reason_and_remedy_in_one_line() -> None:
    error = UnknownVersion("protocol version 2, this release uses 1", "Heartbeat")
    assert str(error) == (
        "Heartbeat: protocol version 2, this release uses 1; "
        "dropped; run releases with the same protocol version in one cell"
    )
    assert str(ProtocolError("odd")) == "odd"
    assert str(ProtocolError("odd", remedy="look")) == "odd; look"

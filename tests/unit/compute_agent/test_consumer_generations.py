# SPDX-License-Identifier: Apache-2.0
"""The generations of consumers that an agent publishes, and when it knows all of their allocations."""

from __future__ import annotations

from compute_agent.claim_ledger import ClaimLedger
from compute_agent.effects import KeptClaim
from shared_scheduler.protocol.messages import Consumer
from tests.unit.compute_agent.node_facts import NODE, claim
from tests.unit.compute_agent.test_claim_ledger import CHECK_AFTER_S, ledger

HELD = {NODE: {"VCPU": 2, "MEMORY_MB": 512}}
POOL = {"pool": {"DISK_GB": 10}}


def read(book: ClaimLedger, generation: int, at_s: float = 2.0, **consumers: dict[str, dict[str, int]]) -> Consumer:
    held = consumers or {"vm-1": HELD}
    book.allocations_read(held, at_s, CHECK_AFTER_S, dict.fromkeys(held, generation))
    return book.consumers()["vm-1"]


def test_a_server_that_was_claimed_here_and_written_once_is_known_completely() -> None:
    book = ledger()
    book.judge(claim("c1", "vm-1", vcpus=2), 1.0)
    assert book.consumers()["vm-1"] == Consumer(HELD, True), "not written yet"
    assert read(book, 1) == Consumer(HELD, True, generation=1, whole=True)


def test_a_server_that_was_written_again_may_have_more_elsewhere() -> None:
    book = ledger()
    book.judge(claim("c1", "vm-1", vcpus=2), 1.0)
    assert read(book, 2) == Consumer(HELD, True, generation=2, whole=False)


def test_an_unclaimed_server_may_have_allocations_on_other_nodes() -> None:
    assert not read(ledger(), 1).whole


def test_a_server_whose_claim_takes_from_a_shared_pool_has_more_elsewhere() -> None:
    book = ledger()
    book.judge(claim("c1", "vm-1", allocations=HELD | POOL), 1.0)
    assert read(book, 1) == Consumer(HELD, True, generation=1, whole=False)


def test_amounts_that_differ_from_the_claim_were_written_by_another_writer() -> None:
    book = ledger()
    book.judge(claim("c1", "vm-1", vcpus=1), 1.0)
    assert not read(book, 1).whole


def test_a_claim_that_an_earlier_run_accepted_counts_as_well() -> None:
    book = ledger()
    book.restore(KeptClaim(claim("c1", "vm-1", vcpus=2)), 1.0)
    assert read(book, 1).whole


def test_a_claim_is_forgotten_with_its_consumer() -> None:
    # given a server that was deleted, and its allocations with it
    book = ledger()
    book.judge(claim("c1", "vm-1", vcpus=2), 1.0)
    read(book, 1)
    book.release("c1", "vm-1", "ssched.scheduler.a")
    book.allocations_read({}, 3.0, CHECK_AFTER_S)

    # when a server of the same uuid stands here again, without a claim
    found = read(book, 1, at_s=4.0)

    # then nobody knows whether that is all
    assert found == Consumer(HELD, False, generation=1, whole=False)

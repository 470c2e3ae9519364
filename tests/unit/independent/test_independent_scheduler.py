# SPDX-License-Identifier: Apache-2.0
"""The scheduler without Nova: a table of nodes with accelerators, fed by the test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.independent import (
    ALTERNATES_MAX,
    Ask,
    AskError,
    Claim,
    IndependentScheduler,
    Inventory,
    Node,
    NoNodeError,
    emptiest,
    fullest,
)
from shared_scheduler.model.providers import MalformedProviderError

GPU = "CUSTOM_GPU"


def node(name: str, gpus: int = 4, consumers: Mapping[str, int] | None = None, traits: str = "") -> Node:
    held = {consumer: {GPU: amount} for consumer, amount in (consumers or {}).items()}
    return Node(uuid=f"{name}-uuid", name=name, inventories={GPU: Inventory(gpus)}, traits=frozenset(traits.split()),
                consumers=held)  # fmt: skip


def ask(*consumers: str, gpus: int = 1) -> Ask:
    return Ask(consumers=consumers or ("job",), resources={GPU: gpus})


def scheduler(*nodes: Node) -> IndependentScheduler:
    made = IndependentScheduler(emptiest(GPU))
    for one in nodes:
        made.put(one)
    return made


class Book:
    """An authority with capacities of its own."""

    def __init__(self, capacity: int) -> None:
        self.held: dict[str, str] = {}
        self._capacity = capacity

    def commit(self, claim: Claim) -> str:
        taken = list(self.held.values()).count(claim.node)
        if taken == self._capacity:
            return f"{taken} of {self._capacity} are taken"
        self.held[claim.consumer] = claim.node
        return ""

    def undo(self, claim: Claim) -> None:
        del self.held[claim.consumer]


def test_the_preferred_node_comes_first_and_the_others_are_counted_by_reason() -> None:
    pool = scheduler(node("a", 2), node("b", 8), node("c", 4, {"old": 4}), node("d", 4, traits="BROKEN"))
    pool.put(replace(node("e"), in_service=False))

    found = pool.decide(replace(ask(), forbidden=frozenset({"BROKEN"})))

    assert found.nodes == ("b-uuid", "a-uuid")
    assert (found.fit, found.known) == (2, 5)
    assert found.reasons == {f"no_room:{GPU}": 1, "traits": 1, "out_of_service": 1}


def test_a_preference_may_fill_nodes() -> None:
    pool = IndependentScheduler(fullest(GPU))
    for one in (node("a", 8), node("b", 2), node("c", 4)):
        pool.put(one)

    assert pool.decide(ask()).nodes == ("b-uuid", "c-uuid", "a-uuid")


def test_a_claim_counts_at_once_and_until_the_node_shows_it() -> None:
    pool = scheduler(node("a", 2))
    [claim] = pool.claim(ask("job", gpus=2)).claims
    assert (claim.name, pool.state("a-uuid").free(GPU)) == ("a", 0)

    # a state that was read before the claim does not hide it
    pool.put(node("a", 2))
    assert pool.state("a-uuid").free(GPU) == 0

    # when the node shows it, it counts once, and it ends with what the node shows
    pool.put(node("a", 2, {"job": 2}))
    assert pool.state("a-uuid").used == {GPU: 2}
    pool.put(node("a", 2))
    assert pool.state("a-uuid").used == {}


@pytest.mark.parametrize("shown", [False, True])
def test_a_release_ends_a_claim_whether_the_node_has_shown_it_or_not(shown: bool) -> None:
    pool = scheduler(node("a", 2))
    pool.claim(ask("job", gpus=2))
    if shown:
        pool.put(node("a", 2, {"job": 2}))

    assert pool.release("job") and not pool.release("job")

    assert pool.state("a-uuid").used == {}
    assert pool.claim(ask("job", gpus=2)).claims[0].node == "a-uuid"


def test_a_node_without_a_name_has_its_uuid_as_name() -> None:
    # given a node that its owner does not name, and one whose name was taken from it
    pool = scheduler(replace(node("a", 1), name=""), node("b", 1))
    pool.put(replace(node("b", 1), name=""))
    # then both are claimed like others
    assert [pool.claim(ask(job)).claims[0].name for job in ("x", "y")] == ["a-uuid", "b-uuid"]


def test_a_node_that_gets_another_name_keeps_its_claims() -> None:
    # given a claim that the node does not show yet
    pool = scheduler(node("a", 1))
    pool.claim(ask())
    # when its owner names it otherwise
    pool.put(replace(node("a", 1), name="renamed"))
    # then the room is taken
    state = pool.state("a-uuid")
    assert (state.name, state.free(GPU)) == ("renamed", 0)


def test_alternates_follow_the_claim_and_are_not_claimed() -> None:
    pool = scheduler(node("a", 8), node("b", 6), node("c", 4), node("d", 2))

    found = pool.claim(replace(ask(), alternates=2))

    assert [claim.node for claim in found.claims] == ["a-uuid"]
    assert found.alternates == ("b-uuid", "c-uuid")
    assert pool.state("b-uuid").used == {}


def test_the_authority_has_the_last_word() -> None:
    # given two schedulers whose tables do not know of one another, and one book
    book = Book(1)
    pools = [IndependentScheduler(authority=book) for _ in range(2)]
    for pool in pools:
        for one in (node("a"), node("b")):
            pool.put(one)

    # when both claim
    first, second = (pool.claim(ask(name)).claims[0] for pool, name in zip(pools, ("x", "y"), strict=True))

    # then the second gets the next node, and the third none
    assert (first.node, second.node) == ("a-uuid", "b-uuid")
    with pytest.raises(NoNodeError, match="refused: 2") as failure:
        pools[0].claim(ask("z"))
    assert failure.value.refusals == dict.fromkeys(("a-uuid", "b-uuid"), "1 of 1 are taken")
    assert pools[0].state("b-uuid").used == {}


def test_a_request_for_several_succeeds_or_fails_as_a_whole() -> None:
    book = Book(2)
    pool = IndependentScheduler(authority=book)
    pool.put(node("a"))

    with pytest.raises(NoNodeError):
        pool.claim(ask("x", "y", "z"))

    assert book.held == {} and pool.state("a-uuid").used == {}
    assert len(pool.claim(ask("x", "y")).claims) == 2


def test_an_error_of_the_authority_leaves_nothing_claimed() -> None:
    class Broken(Book):
        def commit(self, claim: Claim) -> str:
            if claim.consumer == "y":
                raise OSError("no database")
            return super().commit(claim)

    book = Broken(4)
    pool = IndependentScheduler(authority=book)
    pool.put(node("a"))

    with pytest.raises(OSError, match="no database"):
        pool.claim(ask("x", "y"))

    assert book.held == {} and pool.state("a-uuid").used == {}


def test_an_explanation_has_the_numbers_that_were_compared() -> None:
    pool = scheduler(node("a", 4, {"old": 3}), node("b", 8))

    found = pool.explain(ask(gpus=2))

    passing, rejected = found.listed
    assert (passing.host, passing.code) == ("b", "")
    assert (rejected.host, rejected.code) == ("a", f"no_room:{GPU}")
    assert {"asked": 2, "used": 3, "capacity": 4}.items() <= dict(rejected.detail).items()
    assert found.counts == {"": 1, f"no_room:{GPU}": 1}
    assert [one.host for one in pool.explain(ask(gpus=2), only=frozenset({"a-uuid"})).listed] == ["a"]


def test_nodes_may_be_named_and_excluded() -> None:
    pool = scheduler(node("a"), node("b"), node("c"))
    pool.put(replace(node("c"), in_service=False))

    assert pool.decide(replace(ask(), excluded=frozenset({"a-uuid"}))).nodes == ("b-uuid",)
    assert pool.decide(replace(ask(), only=frozenset({"b-uuid", "c-uuid"}))).nodes == ("b-uuid",)


def test_traits_and_aggregates_select_nodes() -> None:
    pool = scheduler(node("a", traits="V100"), replace(node("b", traits="A100"), aggregates=frozenset({"rack-1"})))

    assert pool.decide(replace(ask(), required=frozenset({"V100"}))).nodes == ("a-uuid",)
    either = frozenset({"A100", "H100"})
    assert pool.decide(replace(ask(), any_of=(either,))).nodes == ("b-uuid",)
    assert pool.decide(replace(ask(), member_of=(frozenset({"rack-1"}),))).nodes == ("b-uuid",)


def test_a_node_that_is_removed_is_not_found_and_takes_its_claims_with_it() -> None:
    pool = scheduler(node("a"))
    pool.claim(ask("job"))

    pool.remove("a-uuid")

    assert len(pool) == 0 and not pool.release("job")
    with pytest.raises(NoNodeError, match="the table is empty"):
        pool.claim(ask("job"))


def test_nodes_of_equal_preference_are_drawn() -> None:
    pool = IndependentScheduler(rng=Random(1))
    for number in range(20):
        pool.put(node(str(number)))

    assert len({pool.decide(ask()).nodes[0] for _ in range(50)}) > 5


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"alternates": -1}, "alternates: -1"),
        ({"alternates": ALTERNATES_MAX + 1}, "alternates: 101"),
        ({"alternates": 1.5}, "alternates: 1.5"),
        ({"alternates": "1"}, "alternates: '1'"),
        ({"alternates": True}, "alternates: True"),
        ({"resources": {"CUSTOM_GPU": 1.5}}, "resources: CUSTOM_GPU is 1.5"),
        ({"resources": {"CUSTOM_GPU": "1"}}, "resources: CUSTOM_GPU is '1'"),
        ({"consumers": "job-1"}, "consumers: 'job-1' is one text"),
        ({"alternates": 1, "consumers": ("x", "y")}, "only a request for one consumer"),
        ({"consumers": ()}, "consumers: 0"),
        ({"consumers": ("x", "x")}, "an id of its own"),
        ({"resources": {}}, "at least one class"),
        ({"resources": {GPU: 0}}, "CUSTOM_GPU is 0"),
        ({"resources": {GPU: 2**63}}, "CUSTOM_GPU is 9223372036854775808"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(change: dict[str, object], mistake: str) -> None:
    with pytest.raises(AskError, match=mistake):
        replace(ask(), **change)  # type: ignore[arg-type]


def test_a_consumer_has_one_node_only() -> None:
    pool = scheduler(node("a"), node("b", consumers={"old": 1}))
    pool.claim(ask("job"))

    for consumer in ("job", "old"):
        with pytest.raises(AskError, match="has a node already"):
            pool.claim(ask(consumer))


def test_an_inventory_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(MalformedProviderError):
        scheduler(replace(node("a"), inventories={GPU: Inventory(-1)}))


STEPS = st.lists(st.tuples(st.sampled_from(("claim", "release", "put")), st.integers(0, 5)), max_size=30)


@given(STEPS)
def test_no_node_gets_more_than_it_has_in_any_order_of_events(steps: list[tuple[str, int]]) -> None:
    pool = scheduler(node("a", 2), node("b", 1))
    held: dict[str, str] = {}
    for what, number in steps:
        consumer = f"job-{number}"
        if what == "put":
            name, gpus = ("a", 2) if number % 2 else ("b", 1)
            pool.put(node(name, gpus, {who: 1 for who, where in held.items() if where == f"{name}-uuid"}))
        elif what == "release":
            assert pool.release(consumer) is (held.pop(consumer, None) is not None)
        elif consumer not in held:
            try:
                held[consumer] = pool.claim(ask(consumer)).claims[0].node
            except NoNodeError:
                assert len(held) == 3
        on = list(held.values())
        assert (pool.state("a-uuid").free(GPU), pool.state("b-uuid").free(GPU)) == (
            2 - on.count("a-uuid"), 1 - on.count("b-uuid"),
        )  # fmt: skip


def test_it_needs_neither_nova_nor_the_libraries_of_openstack() -> None:
    script = """
import sys
for absent in ("nova", "oslo_config", "oslo_messaging", "sqlalchemy", "keystoneauth1", "kombu"):
    sys.modules[absent] = None
import shared_scheduler.independent
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

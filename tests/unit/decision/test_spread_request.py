# SPDX-License-Identifier: Apache-2.0
"""Spreading constraints in flavors and scheduler hints, and the errors for invalid ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.request import LABEL_POLICY, Flavor, Group, SpreadConstraint, SpreadMode
from shared_scheduler.decision.spread_request import CONSTRAINTS_MAX, LABEL, SPREAD, label_uuid, with_spreading
from tests.unit.decision.small_clouds import small_request

KEYS = ("rack", "room", "availability_zone")
GROUP = Group("group-1", "soft-anti-affinity")


def asking(*hints, label="", flavor="", **fields):
    said = ({SPREAD: hints} if hints else {}) | ({LABEL: (label,)} if label else {})
    specs = {SPREAD: flavor} if flavor else {}
    return small_request(hints=said, flavor=Flavor(extra_specs=specs), project_id="p1", **fields)


def test_the_defaults_are_those_of_kubernetes():
    found = with_spreading(asking("key=rack", group=GROUP), KEYS)
    assert found.spread == (SpreadConstraint("rack", 1, SpreadMode.HARD),)
    assert found.group == GROUP and not found.label


def test_flavor_and_hints_apply_together_and_equal_constraints_once():
    hints = ("key=rack; key = room , mode = soft, max_skew=3", "key=rack")
    found = with_spreading(asking(*hints, flavor="key=availability_zone", group=GROUP), KEYS)
    assert found.spread == (
        SpreadConstraint("availability_zone"),
        SpreadConstraint("rack"),
        SpreadConstraint("room", 3, SpreadMode.SOFT),
    )


def test_a_label_is_a_group_of_the_project_without_a_policy():
    found = with_spreading(asking("key=rack", label="web"), KEYS)
    assert found.group == Group(label_uuid("p1", "web"), LABEL_POLICY) and found.label == "web"
    assert label_uuid("p1", "web") != label_uuid("p2", "web") != label_uuid("p2", "db")


def test_a_server_with_a_label_is_counted_although_it_is_not_spread_itself():
    found = with_spreading(asking(label="web"), KEYS)
    assert found.label == "web" and not found.spread


def test_the_server_group_is_counted_if_there_is_one():
    found = with_spreading(asking("key=rack", label="web", group=GROUP), KEYS)
    assert found.group == GROUP and not found.label


@pytest.mark.parametrize("keys", [(), KEYS])
def test_a_request_without_the_texts_is_unchanged(keys):
    request = asking()
    assert with_spreading(request, keys) == request


def test_without_keys_the_texts_are_ignored_and_a_rebuild_stays_where_it_is():
    wrong = asking("nonsense", label="?")
    assert with_spreading(wrong, ()) is wrong
    rebuild = replace(wrong, is_rebuild=True)
    assert with_spreading(rebuild, KEYS) is rebuild


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rack", "'rack' is not understood"),
        ("", "'' is not understood"),
        ("key=rack,", "'' is not understood"),
        ("key=rack;", "'' is not understood"),
        ("key=", "'key=' is not understood"),
        ("keys=rack", "'keys=rack' is not understood"),
        ("key=rack,key=room", "key is given twice"),
        ("max_skew=2", "key '' is not allowed; use one of rack, room, availability_zone"),
        ("key=owner", "key 'owner' is not allowed"),
        ("key=rack,max_skew=0", "max_skew '0' is not a whole number"),
        ("key=rack,max_skew=-1", "max_skew '-1' is not a whole number"),
        ("key=rack,max_skew=1.5", "max_skew '1.5' is not a whole number"),
        ("key=rack,max_skew=\u0661", "is not a whole number"),
        pytest.param("key=rack," * 500, "has 4500 characters", id="long"),
        ("key=rack,mode=DoNotSchedule", "mode 'DoNotSchedule' is unknown; use hard or soft"),
        (";".join(f"key=rack,max_skew={n}" for n in range(1, 6)), f"at most {CONSTRAINTS_MAX} are allowed"),
    ],
)
def test_a_mistake_is_named_with_its_place(text, named):
    with pytest.raises(DecisionError) as raised:
        with_spreading(asking(text, group=GROUP), KEYS)
    assert SPREAD in str(raised.value) and named in str(raised.value)


@pytest.mark.parametrize("label", ["a b", "ü", "x" * 64, " "])
def test_a_malformed_label_is_named(label):
    with pytest.raises(DecisionError, match="1 to 63 letters"):
        with_spreading(asking(label=label), KEYS)


def test_two_labels_are_a_mistake():
    request = replace(asking(label="web"), flavor=Flavor(extra_specs={LABEL: "db"}))
    with pytest.raises(DecisionError, match=r"several values \(db, web\)"):
        with_spreading(request, KEYS)


def test_there_must_be_something_to_count():
    with pytest.raises(DecisionError, match="put the server into a server group, or give it"):
        with_spreading(asking("key=rack"), KEYS)


WORDS = st.sampled_from(["key", "max_skew", "mode", "rack", "soft", "hard", "=", ",", ";", " ", "1", "-", "\n"])


@given(st.one_of(st.text(), st.lists(WORDS).map("".join)), st.one_of(st.text(), st.just("web")))
def test_any_text_of_a_user_is_understood_or_refused(text, label):
    try:
        found = with_spreading(asking(text, label=label), KEYS)
    except DecisionError as error:
        assert len(str(error)) < 500
    else:
        assert found.spread and all(one.key in KEYS and one.max_skew >= 1 for one in found.spread)


CONSTRAINTS = st.builds(
    SpreadConstraint, st.sampled_from(KEYS), st.integers(1, 1_000_000), st.sampled_from(list(SpreadMode))
)


@given(st.lists(CONSTRAINTS, min_size=1, max_size=CONSTRAINTS_MAX, unique=True))
def test_written_constraints_can_be_parsed(constraints):
    text = ";".join(f"key={one.key},max_skew={one.max_skew},mode={one.mode}" for one in constraints)
    assert with_spreading(asking(text, group=GROUP), KEYS).spread == tuple(constraints)

# SPDX-License-Identifier: Apache-2.0
"""Spreading constraints in flavors, images and scheduler hints, and the errors for invalid ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.decision.decision_settings import SpreadImages
from shared_scheduler.decision.errors import DecisionError, ImageUnreadError
from shared_scheduler.decision.request import LABEL_POLICY, Flavor, Group, SpreadConstraint, SpreadMode
from shared_scheduler.decision.spread_request import (
    CONSTRAINTS_MAX,
    IMAGE_TEXT_MAX_BYTES,
    LABEL,
    SPREAD,
    label_uuid,
    with_spreading,
)
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


# -- the image


def with_image(flavor="", hints=(), group=GROUP, **properties):
    """Properties of the image are named with ``_`` for ``:``."""
    named = {name.replace("__", ":"): text for name, text in properties.items()}
    return asking(*hints, flavor=flavor, group=group, image_spread=named)


def sources(request):
    return {(one.key, one.source) for one in with_spreading(request, KEYS).spread}


@pytest.mark.parametrize("name", ["shared_scheduler_spread", "shared_scheduler__spread"])
def test_an_image_asks_under_both_names_that_nova_allows_for_its_own_properties(name):
    found = with_spreading(with_image(**{name: "key=rack,max_skew=2"}), KEYS)
    assert found.spread == (SpreadConstraint("rack", 2),) and found.spread[0].source == "image"


def test_the_label_of_an_image_makes_its_servers_count():
    found = with_spreading(with_image(group=None, shared_scheduler_label="web"), KEYS)
    assert found.group == Group(label_uuid("p1", "web"), LABEL_POLICY) and found.label == "web"


def test_what_flavor_image_and_hints_ask_applies_together_and_each_constraint_names_its_source():
    asked = with_image("key=availability_zone", ["key=room"], shared_scheduler_spread="key=rack")
    assert sources(asked) == {("availability_zone", "flavor"), ("rack", "image"), ("room", "scheduler hints")}


def test_equal_constraints_of_several_sources_are_one_that_names_them_all():
    asked = with_image("key=rack", ["key=rack"], shared_scheduler_spread="key=rack")
    assert sources(asked) == {("rack", "flavor and image and scheduler hints")}


@pytest.mark.parametrize("text", ["key=rack,max_skew=2", "key=rack,mode=soft", "key=rack;key=rack,max_skew=2"])
def test_an_image_must_not_change_what_the_flavor_says_of_a_key(text):
    # given a flavor of the operator, and an image of a user that is looser, or stricter besides
    with pytest.raises(DecisionError) as raised:
        with_spreading(with_image("key=rack", shared_scheduler_spread=text), KEYS)
    # then the request fails, as for Nova's own properties, and both texts are named
    assert f"the image has {written(text)}" in str(raised.value)
    assert "the flavor has key=rack,max_skew=1,mode=hard: an image must not change" in str(raised.value)


def written(text):
    """A text with its defaults."""
    parts = [dict(word.split("=") for word in one.split(",")) for one in text.split(";")]
    return ";".join(f"key={p['key']},max_skew={p.get('max_skew', 1)},mode={p.get('mode', 'hard')}" for p in parts)


def test_the_user_of_an_image_may_add_a_stricter_constraint_by_a_hint():
    found = with_spreading(with_image("", ["key=rack"], shared_scheduler_spread="key=rack,max_skew=3"), KEYS)
    assert {one.max_skew for one in found.spread} == {1, 3}


@pytest.mark.parametrize("other", [{"flavor": {LABEL: "db"}}, {"hints": {LABEL: ("db",)}}])
def test_the_label_of_an_image_must_be_that_of_the_flavor_and_the_hints(other):
    request = asking(image_spread={LABEL: "web"})
    if "flavor" in other:
        request = replace(request, flavor=Flavor(extra_specs=other["flavor"]))
    else:
        request = replace(request, hints=other["hints"])
    with pytest.raises(DecisionError, match=r"several values \(db, web\): a server has one label"):
        with_spreading(request, KEYS)


def test_an_image_with_both_names_and_different_texts_is_a_mistake():
    same = with_image(shared_scheduler_spread="key=rack", shared_scheduler__spread="key=rack")
    assert sources(same) == {("rack", "image")}
    differs = with_image(shared_scheduler_spread="key=rack", shared_scheduler__spread="key=room")
    with pytest.raises(DecisionError, match="has shared_scheduler:spread and shared_scheduler_spread with different"):
        with_spreading(differs, KEYS)


@pytest.mark.parametrize("key", ["rack", "Gestell-ü"])
def test_a_text_that_nova_has_cut_is_refused_even_if_what_is_left_can_be_read(key):
    # given constraints of which Nova has kept the first ones
    long = ";".join(f"key={key},max_skew={n}" for n in range(1, 100)).encode()
    text = long[: 255 if key == "rack" else 252].decode(errors="ignore")  # at the worst, a character did not fit
    with pytest.raises(DecisionError, match=r"of the image has 25. bytes or more, because Nova cuts it"):
        with_spreading(with_image(shared_scheduler_spread=text), (*KEYS, key))
    whole = f"key={key}".ljust(IMAGE_TEXT_MAX_BYTES - key.count("ü"))
    assert sources_of(whole, key) == {(key, "image")}


def test_a_text_with_half_a_character_is_malformed():
    # given what JSON can express, and no encoding can
    with pytest.raises(DecisionError, match="is not understood"):
        with_spreading(with_image(shared_scheduler_spread="\ud83d"), KEYS)


def sources_of(text, key):
    found = with_spreading(with_image(shared_scheduler_spread=text), (*KEYS, key))
    return {(one.key, one.source) for one in found.spread}


def test_an_image_that_is_required_and_unread_fails_the_request_and_otherwise_only_says_nothing():
    unread = asking("key=rack", group=GROUP, image_unread="the API database does not answer")
    with pytest.raises(ImageUnreadError, match="could not be read: the API database does not answer"):
        with_spreading(unread, KEYS, SpreadImages.REQUIRED)
    assert with_spreading(unread, KEYS, SpreadImages.IF_READABLE).spread == (SpreadConstraint("rack"),)
    # then no text of the image is missed by what needs it
    without_label = asking("key=rack", image_unread="the API database does not answer")
    with pytest.raises(DecisionError, match=r"the image could not be read: the API database"):
        with_spreading(without_label, KEYS, SpreadImages.IF_READABLE)


def test_without_keys_and_for_a_rebuild_an_unread_image_does_not_matter():
    unread = asking(image_unread="x")
    assert with_spreading(unread, (), SpreadImages.REQUIRED) is unread
    rebuild = replace(unread, is_rebuild=True)
    assert with_spreading(rebuild, KEYS, SpreadImages.REQUIRED) is rebuild


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

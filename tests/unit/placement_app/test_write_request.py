# SPDX-License-Identifier: Apache-2.0
"""The compiled schemas accept nothing that Placement's own validation refuses."""

from __future__ import annotations

import copy
import json
from typing import Any

import fastjsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement import util

from shared_scheduler.placement_app.write_request import POST_SCHEMAS, PUT_SCHEMAS, compiled

PROVIDER = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
BODY = {
    "allocations": {PROVIDER: {"generation": 1, "resources": {"VCPU": 1, "CUSTOM_A": 2}}},
    "mappings": {"": [PROVIDER], "_1": [PROVIDER]}, "consumer_generation": None, "consumer_type": "INSTANCE",
    "project_id": "project", "user_id": "user",
}  # fmt: skip
MISTAKES: list[Any] = [
    None, True, 0, -1, 1, 1.0, 1.5, 2**70, "", "x", "x" * 256, "VCPU", "vcpu", "VCPU\n", PROVIDER, PROVIDER + "\n",
    [], {}, ["x"], {"VCPU": 1},
]  # fmt: skip
JUNK = st.sampled_from(MISTAKES)
KEYS = st.sampled_from(
    ["", "x", "VCPU", "VCPU\n", "project_id", "mappings", PROVIDER.upper(), PROVIDER + "\n", "a" * 70]
)


VALIDATORS = {id(one): compiled(one) for one in (*PUT_SCHEMAS.values(), *POST_SCHEMAS.values())}


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each part of a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(spot for key, part in inner for spot in spots(part, (*path, key)))]


@st.composite
def bodies(draw: st.DrawFn) -> Any:
    """A body with a few parts replaced, removed or added."""
    body: Any = {"body": copy.deepcopy(BODY)}
    for _ in range(draw(st.integers(0, 3))):
        *above, last = draw(st.sampled_from(spots(body)[1:]))
        holder = body
        for key in above:
            holder = holder[key]
        change = draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "replace" or len(above) == 0 or isinstance(holder, list):
            holder[last] = copy.deepcopy(draw(JUNK))
        elif change == "remove":
            del holder[last]
        else:
            holder[draw(KEYS)] = copy.deepcopy(draw(JUNK))
        if not isinstance(body["body"], dict | list):
            break
    return body["body"]


@pytest.mark.parametrize("version", PUT_SCHEMAS)
@given(body=bodies())
def test_what_is_accepted_for_put(version: tuple[int, int], body: Any) -> None:
    check(PUT_SCHEMAS[version], body)


@pytest.mark.parametrize("version", POST_SCHEMAS)
@given(body=bodies(), consumer=st.sampled_from([PROVIDER, "x", PROVIDER + "\n"]))
def test_what_is_accepted_for_post(version: tuple[int, int], body: Any, consumer: str) -> None:
    check(POST_SCHEMAS[version], {consumer: body})


@pytest.mark.parametrize("version", PUT_SCHEMAS)
def test_each_part_replaced_by_each_mistake(version: tuple[int, int]) -> None:
    for path in spots(BODY)[1:]:
        for mistake in MISTAKES:
            body: Any = copy.deepcopy(BODY)
            *above, last = path
            holder = body
            for key in above:
                holder = holder[key]
            holder[last] = mistake
            check(PUT_SCHEMAS[version], body)


def check(schema: Any, body: Any) -> None:
    """Whatever the compiled schema accepts is valid for Placement, which raises HTTPBadRequest otherwise."""
    if accepts(schema, body):
        assert util.extract_json(json.dumps(body).encode(), schema) == body


def accepts(schema: Any, body: Any) -> bool:
    try:
        VALIDATORS[id(schema)](body)
    except fastjsonschema.JsonSchemaException:
        return False
    return True


def test_the_usual_body_is_accepted() -> None:
    assert accepts(PUT_SCHEMAS[1, 38], BODY)

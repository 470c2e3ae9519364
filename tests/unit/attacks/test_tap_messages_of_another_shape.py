# SPDX-License-Identifier: Apache-2.0
"""A process of nova's user writes messages of another shape to the tap's socket: each is an error of the tap."""

from __future__ import annotations

from random import Random
from typing import Any

import msgpack
import pytest

from compute_agent.tap_wire import Assembler, NodeReported, TapError, frames
from tests.unit.compute_agent.node_facts import NODE, ROOT_LEAVES
from tools.laboratory.fuzz.mutations import mutated_bytes, value_like

REPORTED = NodeReported(NODE, ROOT_LEAVES, {}, complete=True, ready=True)
[WHOLE] = frames(REPORTED)
HEAD = WHOLE[:4]
NAME, VALUES = msgpack.unpackb(WHOLE[4:], strict_map_key=False)


def read(body: bytes) -> Any:
    return Assembler().feed(HEAD + body)


@pytest.mark.parametrize("content", [[NAME, []], [NAME, [1, 2, 3]], [NAME, [1, 2, [], 4, 5]], [NAME, 7], [[], {}], 7])
def test_it_is_an_error_of_the_tap(content: Any) -> None:
    with pytest.raises(TapError):
        read(msgpack.packb(content))


def test_nothing_else_is_raised() -> None:
    rng = Random(1)
    for _ in range(3000):
        content: Any = value_like([NAME, VALUES], rng, 4)
        body = msgpack.packb(content, default=str)
        try:
            read(mutated_bytes(body, rng) if rng.random() < 0.5 else body)
        except TapError:
            continue

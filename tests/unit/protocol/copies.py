# SPDX-License-Identifier: Apache-2.0
"""A scheduler's copy of a node in the simplest form, and the possible changes of the node."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from shared_scheduler.protocol.digest import digest_of
from shared_scheduler.protocol.messages import Consumer, Increment, Snapshot

NODE = "node-1"
names = st.sampled_from(["cn.a", "cn.b", "numa.0", "pci.x"])
values = st.one_of(st.none(), st.integers(0, 3), st.lists(st.integers(0, 1), max_size=2))
uuids = st.sampled_from(["u1", "u2", "u3"])
consumers = st.one_of(st.none(), st.builds(Consumer, st.just({NODE: {"VCPU": 1}}), st.booleans()))


class Copy:
    """A scheduler's copy of a node, to which messages are applied."""

    def __init__(self) -> None:
        self.position = (0, 0)
        self.leaves: dict[str, Any] = {}
        self.consumers: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}

    def apply(self, message: Snapshot | Increment) -> None:
        if isinstance(message, Snapshot):
            assert (message.epoch, message.sequence) >= self.position, "rolled back"
            self.leaves, self.consumers, self.claims = {}, {}, {}
        else:
            assert (message.epoch, message.sequence - 1) == self.position, "out of order"
        self.position = (message.epoch, message.sequence)
        for mine, news in zip(self.parts, (message.leaves, message.consumers, message.claims), strict=True):
            for key, value in news.items():
                mine.pop(key, None)
                if value is not None:
                    mine[key] = value

    @property
    def parts(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return self.leaves, self.consumers, self.claims

    def digest(self) -> int:
        return digest_of(*self.parts)

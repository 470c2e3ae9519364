# SPDX-License-Identifier: Apache-2.0
"""A request: consumers, their resources, and the number of alternates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared_scheduler.protocol.limits import AMOUNT_MAX

#: alternates of one request
ALTERNATES_MAX = 100
#: consumers of one request
CONSUMERS_MAX = 10_000


class AskError(ValueError):
    """The request is invalid; the text names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Each of ``consumers`` gets ``resources`` on one node; all of them get a node, or none.

    The nodes have all traits in ``required``, none in ``forbidden``, and at least one of each set in ``any_of``; they
    are in an aggregate of each set in ``member_of``.  ``excluded`` and ``only`` are uuids of nodes; an empty ``only``
    allows every node.  ``alternates`` is the number of further nodes that the caller may try without asking again.

    :raises AskError: when a value makes no sense
    """

    consumers: tuple[str, ...]
    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    any_of: tuple[frozenset[str], ...] = ()
    member_of: tuple[frozenset[str], ...] = ()
    excluded: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    alternates: int = 0
    #: shown to preferences; the scheduler does not read it
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.consumers) is not tuple:
            raise AskError(f"consumers: {self.consumers!r} is one text, or no tuple")
        if not 0 < len(self.consumers) <= CONSUMERS_MAX:
            raise AskError(f"consumers: {len(self.consumers)} of them; 1 to {CONSUMERS_MAX} are possible")
        if len(set(self.consumers)) < len(self.consumers) or not all(self.consumers):
            raise AskError("consumers: each needs an id of its own")
        if not self.resources:
            raise AskError("resources: name at least one class")
        for resource_class, amount in self.resources.items():
            if not _is_whole(amount, 1, AMOUNT_MAX):
                raise AskError(f"resources: {resource_class} is {amount!r}; 1 to {AMOUNT_MAX} are possible")
        if not _is_whole(self.alternates, 0, ALTERNATES_MAX):
            raise AskError(f"alternates: {self.alternates!r}; 0 to {ALTERNATES_MAX} are possible")
        if self.alternates and len(self.consumers) > 1:
            raise AskError("alternates: only a request for one consumer can have them, because the consumers of one "
                           "request succeed or fail together")  # fmt: skip


def _is_whole(value: object, least: int, most: int) -> bool:
    """Whether this is a whole number within these bounds; True is none."""
    return type(value) is int and least <= value <= most

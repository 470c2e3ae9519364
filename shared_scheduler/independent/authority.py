# SPDX-License-Identifier: Apache-2.0
"""Who has the last word about a claim.

A table is a copy, and other schedulers may claim at the same moment.  The *authority* is what can refuse: the node
itself, or the database with its inventory.  It is asked before the caller gets its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Claim:
    """``consumer`` wants ``resources`` of the node.  The id is unique for one scheduler."""

    claim_id: str
    consumer: str
    node: str
    name: str
    resources: Mapping[str, int]


class Authority(Protocol):
    """Both methods are called by the thread that claims."""

    def commit(self, claim: Claim) -> str:
        """Accept the claim and return an empty text, or return why not.  A claim whose commit raises is not kept."""

    def undo(self, claim: Claim) -> None:
        """Take back an accepted claim, because another consumer of the request got no node."""


class TableAlone:
    """No other scheduler claims, so the table is right."""

    def commit(self, claim: Claim) -> str:
        """Accept it."""
        return ""

    def undo(self, claim: Claim) -> None:
        """Nothing was written."""

# SPDX-License-Identifier: Apache-2.0
"""The scheduler without Nova: a table that any program fills, and decide, claim, release and explain over it."""

from shared_scheduler.independent.ask import ALTERNATES_MAX, CONSUMERS_MAX, Ask, AskError
from shared_scheduler.independent.authority import Authority, Claim, TableAlone
from shared_scheduler.independent.node import Node, NodeState
from shared_scheduler.independent.preference import Preference, emptiest, fullest
from shared_scheduler.independent.scheduler import Claimed, IndependentScheduler, NoNodeError, Ranking
from shared_scheduler.model.resources import Inventory

__all__ = [
    "ALTERNATES_MAX",
    "CONSUMERS_MAX",
    "Ask",
    "AskError",
    "Authority",
    "Claim",
    "Claimed",
    "IndependentScheduler",
    "Inventory",
    "NoNodeError",
    "Node",
    "NodeState",
    "Preference",
    "Ranking",
    "TableAlone",
    "emptiest",
    "fullest",
]

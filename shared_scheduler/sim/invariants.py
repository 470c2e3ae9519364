# SPDX-License-Identifier: Apache-2.0
"""What must hold, whatever happens: each invariant has a name and a sentence (``doc/simulator.rst``)."""

from __future__ import annotations

from dataclasses import dataclass

#: name -> what it says; checked as soon as something happens that could break it
WHILE_IT_RUNS = {
    "no_overcommit": "No node holds more than it can by claims that its agent accepted.",
    "no_overpinning": "No NUMA cell, page size or PCI pool gives out more than it has, nothing twice.",
    "one_ending": "Every claim ends exactly once.",
    "visible_once": "A consumer's amounts are in a row once, whether base, overlay or both hold it.",
    "sequence_grows": "Per node and epoch, the applied sequence only grows.",
    "no_gap": "An increment changes a row only directly after its predecessor.",
    "older_epoch": "A message of an older epoch changes nothing.",
    "row_is_truth": "A row's base equals the agent's state at the row's sequence.",
    "overlay": "A row's overlay holds exactly this scheduler's claims that may still be unseen; what it "
    "has promised counts.",
    "seen_epoch": "A claim that is cast names the life of the agent that it was decided on.",
    "bounds": "No buffer passes its bound, no window or pipe is in a state that it cannot be in.",
    "reasons_add_up": "The hosts of a decision's reasons and survivors are all the hosts.",
    "answered_once": "Every request is answered once, and in time.",
    "written_first": "What an answer names stands in Placement.",
    "alternates": "Alternates are of the chosen host's cell, none of the chosen hosts.",
    "nothing_left_behind": "A request that failed has given back what it wrote.",
}

#: checked after the faults are healed
AT_REST = {
    "caught_up": "Within some beats of the healing, every row is fresh and has its node's newest version.",
    "converged": "At rest, every row is fresh, equals the truth and holds no claim of its own.",
    "no_orphans": "At rest, nothing is allocated and no claim is pending without an owner.",
    "few_snapshots": "After the healing, a node sends a bounded number of snapshots.",
    "quiet": "At rest, nobody asks for snapshots, and nothing but beats and Hellos is sent.",
    "no_request_left": "At rest, no request and no claim is under way, and none is unanswered.",
    "never_refused": "At rest, no node and no Placement refuses a request that comes alone.",
}

INVARIANTS = WHILE_IT_RUNS | AT_REST


class InvariantBroken(AssertionError):
    """Raised by ``Checkers.demand``; the text names the first violations."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant: its name, when, where, and what was seen."""

    name: str
    at_s: float
    where: str
    what: str

    def line(self) -> str:
        """One line for people."""
        return f"{self.at_s:.6f} {self.where}: {self.name}: {INVARIANTS[self.name]} {self.what}"

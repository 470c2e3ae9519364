# SPDX-License-Identifier: Apache-2.0
"""The invariants of the simulator: each has a name and a sentence (``doc/source/contributor/simulator.rst``)."""

from __future__ import annotations

from dataclasses import dataclass

#: name -> sentence; checked at each step that could violate it
WHILE_IT_RUNS = {
    "no_overcommit": "The claims that an agent accepted never exceed the capacity of its node.",
    "no_overpinning": "No NUMA cell, page size or PCI pool is over-committed, and nothing is given out twice.",
    "one_ending": "Every claim ends exactly once.",
    "visible_once": "A row counts the amounts of a consumer once, whether base, overlay or both hold it.",
    "sequence_grows": "Per node and epoch, the applied sequence only increases.",
    "no_gap": "An increment changes a row only directly after its predecessor.",
    "older_epoch": "A message of an older epoch changes nothing.",
    "row_equals_agent": "The base of a row equals the agent's state at the sequence of the row.",
    "overlay": "The overlay of a row holds exactly this scheduler's claims that the base may not reflect yet, and "
    "promised resources are counted.",
    "seen_epoch": "A claim that is cast names the epoch of the agent that it was decided on.",
    "bounds": "No buffer exceeds its bound, and no window or pipe is in an impossible state.",
    "reasons_add_up": "The reasons and survivors of a decision add up to all hosts.",
    "answered_once": "Every request is answered once, and in time.",
    "written_first": "Placement has each allocation before an answer names it.",
    "own_word": "Of each claim that was cast and is answered, the agent of its own node has said that it accepts it.",
    "allocation_kept": "No scheduler deletes or replaces the allocation of a server that is being built or is on the "
    "host.",
    "alternates": "Alternates are in the cell of the selected host, and none of them is a selected host.",
    "selected": "Each node of an answer had the trait or aggregate that was asked for at some time since the request "
    "arrived.",
    "enabled": "An agent that was told that its host is enabled or disabled knows it after a read of Placement, and at "
    "rest every host is enabled for every scheduler.",
    "named": "An answer has the host and the name of each of its nodes as the database has them.",
    "anti_affinity": "No agent accepts a claim beyond the members that an anti-affinity group may have on its node, "
    "and no answer goes beyond them where no agent speaks.",
    "affinity": "No answer places members of an affinity group on different hosts.",
    "soft_anti_affinity": "An agent that has more members of a group than the decision saw says so once before it "
    "accepts.",
    "soft_affinity": "A first member of a group, as its scheduler knows it, or one that is only beside claims, goes "
    "where others are, if that can be done by a few more tries.",
    "soft_choice": "A member of a soft group is claimed for a host with as many members as the best one by weight, of "
    "those that its scheduler may try, and a late agent of that host is waited for.",
    "spread": "No answer makes the skew of servers with a label over racks exceed max_skew.",
    "goes_on": "No request of a server with a label fails because it was always placed in the same rack.",
    "none_left_out": "No plain request fails for lack of a host while the table of its scheduler shows one that takes "
    "servers, has room, and was not claimed for it in vain.",
    "sendable": "No message that a scheduler or an agent sends exceeds a limit of the protocol.",
    "well_asked": "No request fails as a bad one, because each is well-formed, and no larger than what a host has.",
    "few_comparisons": "What Placement says of one server is not compared with the claims of all others.",
    "judged_fits": "Writes that overlap, of claims that an agent was asked about, do not over-commit its node in "
    "Placement, if the agent knew all that stood there.",
    "taken_back": "The last write that over-commits a node, if no agent was asked, is deleted six calls later, or 100 "
    "seconds after its scheduler and Placement are well, if it lives and there is no room by then.",
    "others_kept": "What others have allocated to a server that moves is there, and besides that only the resources of "
    "its flavor, once, on the host that the outcome of the move names; an evacuated server also has them on its "
    "source, until nova-compute is back there.",
    "its_turn": "However many nodes of another host wait for a resync, a node waits for its own host at most.",
    "no_wait_for_no_node": "No request waits for the row of a provider that is no node longer than the search for its "
    "node takes.",
    "no_lost_records": "Every allocation has the record of its consumer.",
    "nothing_left_behind": "A request that failed has deleted what it wrote.",
    "only_of_others": "No scheduler tells more changes of a server by others than others have made since its first "
    "write of the server, and none counts as a removal unless somebody has removed all of a server that lives.",
    "well_again": "Ten seconds after Placement is well again, no request fails because of Placement.",
}

#: checked after the faults have ended
AT_REST = {
    "caught_up": "A few heartbeats after the faults end, every row is fresh and has its node's newest version.",
    "converged": "At rest, every row is fresh, equals the state of its node and holds no claim of its scheduler.",
    "gone": "At rest, no scheduler has a row of a node that has gone for good.",
    "no_orphans": "At rest, every allocation and every pending claim has an owner.",
    "heard_stands": "At rest, Placement has each server that lives on the host where it is, and, if it was not moved, "
    "nowhere else.",
    "few_snapshots": "After the faults end, a node sends a bounded number of snapshots.",
    "quiet": "At rest, no snapshots are requested, and only heartbeats and Hellos are sent.",
    "no_request_left": "At rest, no request and no claim is under way or unanswered.",
    "change_told": "At rest, each change of the allocations of a server that stays is told once, by the scheduler that "
    "has placed it, and each removal counts as one.",
    "never_refused": "At rest, no agent and no Placement refuses a request that arrives alone.",
}

#: checked while worlds of their own run
IN_WORLDS_OF_THEIR_OWN = {
    "left_is_found": "A server in cell 0 has allocations for three minutes at most, while schedulers search and "
    "Placement is well, also in a storm of other requests that fail.",
    "few_reads": "However many requests have no valid host, a scheduler reads the list of nodes for them at most once "
    "a second, and ten times more at first.",
    "no_is_checked": "No request is told that there is no valid host before a read of the list of nodes has ended that "
    "began less than a second before the decision, or after it.",
}

INVARIANTS = WHILE_IT_RUNS | AT_REST | IN_WORLDS_OF_THEIR_OWN


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of an invariant: its name, the time, the place and the values."""

    name: str
    at_s: float
    where: str
    what: str

    def line(self) -> str:
        """The violation as one line of text."""
        return f"{self.at_s:.6f} {self.where}: {self.name}: {INVARIANTS[self.name]} {self.what}"

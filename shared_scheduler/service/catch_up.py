# SPDX-License-Identifier: Apache-2.0
"""Changes looked for at the moment of a decision: as fresh as Nova where few hosts have no agent.

Who disables a compute or forces it down writes to a database, and nobody tells.  The query for such
services finds a handful of rows, so it is asked before each decision; requests that come together share
it.  Polling tells of hosts without an agent some seconds late.  While they are few, asking is cheap too:
three queries a cell and one call to Placement, which is less than stock asks for each request.  And
before "no valid host" leaves, any cloud is worth that look: a compute may have come a moment ago.

An agent's mirror of its providers is up to a minute old where others than its nova-compute write to
Placement.  In a small cloud such a tree is seen to have moved, and its agent is asked to look.  In a
larger one only the hosts without an agent are looked at: each allocation moves a tree.

Looks are shared.  One is under way at a time; who comes meanwhile waits for the next one, which begins
after he came, together with all others that wait.  A cell or Placement that does not answer is left to
the poller for a while, and nobody waits long for a look that does: an outage costs one request a
time-out, not every request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from shared_scheduler.core.events import NodeDoubted, NodeRead
from shared_scheduler.placement.client import PlacementError
from shared_scheduler.placement.mirror import PlacementMirror, Tree
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.service.databases import DatabaseError
from shared_scheduler.service.node_reads import node_read
from shared_scheduler.service.outages import Outages
from shared_scheduler.service.poller import CellPoll
from shared_scheduler.state.leaves import PROVIDER

LOG = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")
#: A compute node's record, and the instances of its host.
_Seen = tuple[Mapping[str, Any], frozenset[str]]

#: The source that is not a cell.
PLACEMENT = "Placement"
#: Cells that are asked at once.
CELLS_AT_ONCE = 8
#: How long a source that did not answer is not asked again from here.
LEFT_ALONE_S = 10.0
#: How often the hosts without an agent are counted: to ask of each of ten thousand takes milliseconds.
RECOUNT_S = 1.0
#: A look that began so long before a request is good for it: whoever changed something had no answer
#: of Nova's API yet when it began.  Bounds what a busy scheduler asks a cell.
LOOK_MAX_AGE_S = 0.02
#: Who finds that a look has been under way for so long decides without it: a source hangs.
LOOK_PATIENCE_S = 3.0
#: A tree asked for alone costs Placement as much as so many providers in one list of them all.
PROVIDERS_A_TREE = 100

#: How often trees that have moved are compared with what their agents say: each allocation moves them.
AGENTS_EVERY_S = 0.25
#: How long an agent may take to look; the decision then goes on with what there is.
AGENT_LOOKS_S = 2.0
#: How long one that did not is not asked again from here.
AGENT_LEFT_ALONE_S = 60.0
#: Between two looks at its row meanwhile.
GLANCE_S = 0.01


class SharedLook:
    """Runs ``look`` for everybody who waits, one at a time, in the thread of one of them."""

    def __init__(
        self,
        look: Callable[[], None],
        clock: Callable[[], float],
        patience_s: float = LOOK_PATIENCE_S,
    ) -> None:
        self._look = look
        self._clock = clock
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._running = False
        #: who comes to a look that is under way
        self.waiting = 0
        self._begun = 0
        self._begun_s = 0.0  # when the newest had begun
        self._ended = 0
        self._newest_s = float("-inf")  # when the newest that ended had begun

    def take(self, max_age_s: float = 0.0) -> None:
        """Return after a look that began after this call, or ``max_age_s`` before it at the most.

        Or without one, where the look under way takes longer than anybody should wait for it.
        """
        with self._changed:
            if self._clock() - self._newest_s < max_age_s:
                return
            mine = self._begun + 1
            self._wait_for(mine)
            if self._ended >= mine or self._running:
                return
            self._running, self._begun, self._begun_s = True, mine, self._clock()
        self._run(mine)

    def _wait_for(self, mine: int) -> None:
        self.waiting += 1
        while self._ended < mine and self._running:
            left_s = self._begun_s + self._patience_s - self._clock()
            if left_s <= 0:
                break
            self._changed.wait(left_s)
        self.waiting -= 1

    def _run(self, mine: int) -> None:
        try:
            self._look()
        finally:
            with self._changed:
                self._running, self._ended, self._newest_s = False, mine, self._begun_s
                self._changed.notify_all()


class CatchUp:
    """``before_decision`` and ``before_no`` may be called from any thread; both block."""

    def __init__(
        self,
        mirror: PlacementMirror,
        polls: Callable[[], Mapping[str, CellPoll]],
        submit: Callable[[NodeRead | NodeDoubted], None],
        leaves_of: Callable[[str], Mapping[str, Leaf]],
        agent_speaks_for: Callable[[str], bool],
        clock: Callable[[], float],
        nodes_max: int,
    ) -> None:
        """``mirror`` is for this use alone: what one sweep has seen, the next one does not tell.
        ``polls``: the cells that the poller asks, by uuid.  ``leaves_of``: the row of a node."""
        self._mirror = mirror
        self._polls = polls
        self._submit = submit
        self._leaves_of = leaves_of
        self._agent_speaks_for = agent_speaks_for
        self._clock = clock
        self._nodes_max = nodes_max
        self._look = SharedLook(self._look_safely, clock)
        self._told: dict[str, _Seen] = {}
        self._moved: set[str] = set()  # roots of trees that changed and are still to be read
        self._lock = threading.Lock()
        self._askers = ThreadPoolExecutor(CELLS_AT_ONCE, "catch-up")
        self._counted_s = float("-inf")
        self._are_few = False
        self._is_small = False
        self._compared_s = float("-inf")
        self._glance = threading.Event()  # never set
        self._thorough = 0  # how many wait for a look at everything
        #: grows with whatever a look finds
        self.news = 0
        self._left_alone_until_s: dict[str, float] = {}
        self._outages = Outages(LOG, clock)

    def deciding(
        self, decide: Callable[[float], Outcome], is_no: Callable[[Outcome], bool], timeout_s: float
    ) -> Outcome:
        """Look, decide, and before "no" look at everything; decide again if that had news.

        ``decide`` takes the seconds it has: ``timeout_s``, and the second time what is left of them.
        """
        self.before_decision()
        known, until_s = self.news, self._clock() + timeout_s
        outcome = decide(timeout_s)
        if is_no(outcome):
            self.before_no()
            left_s = until_s - self._clock()
            if self.news != known and left_s > 0:
                return decide(left_s)
        return outcome

    def before_decision(self) -> None:
        """Learn what nobody tells; of hosts without an agent, if they are few."""
        self._look.take(LOOK_MAX_AGE_S)

    def before_no(self) -> None:
        """Learn what there is to learn, also where no host is without an agent: new computes."""
        with self._lock:
            self._thorough += 1
        try:
            self._look.take()
        finally:
            with self._lock:
                self._thorough -= 1

    # -- how many have no agent?

    def _few(self, polls: Mapping[str, CellPoll]) -> bool:
        """Whether the hosts to look at are few: those without an agent, in a small cloud all."""
        if self._clock() - self._counted_s >= RECOUNT_S:
            self._count(polls)
        return self._are_few

    def _count(self, polls: Mapping[str, CellPoll]) -> dict[str, list[str]]:
        """The nodes without an agent, by cell; and whether they are few."""
        self._counted_s = self._clock()
        silent = {cell: poll.silent_nodes() for cell, poll in polls.items()}
        self._is_small = sum(len(poll.nodes) for poll in polls.values()) <= self._nodes_max
        self._are_few = self._is_small or 0 < sum(map(len, silent.values())) <= self._nodes_max
        return silent

    # -- one look; one at a time

    def _look_safely(self) -> None:
        """Nobody waits in vain, and no request fails, because of a mistake here."""
        try:
            self._look_now()
        except Exception:
            LOG.exception("looking for changes failed in an unforeseen way; decisions go on without")

    def _look_now(self) -> None:
        polls = self._polls()
        self._ask_cells(polls, lambda poll: poll.exceptions())
        if self._thorough or self._few(polls):
            self._ask_cells(polls, lambda poll: poll.node_list())
            silent = self._count(polls)
            if self._are_few:
                self._nodes(polls, silent)

    def _nodes(self, polls: Mapping[str, CellPoll], silent: Mapping[str, list[str]]) -> None:
        """Look at the hosts that are not as they were."""
        there = {node for poll in polls.values() for node in poll.nodes}
        without_agent = set(chain(*silent.values()))
        self._ask(PLACEMENT, partial(self._sweep, there, without_agent))
        self._forget_all_but(there, without_agent)
        for cell, poll in polls.items():
            self._ask(cell, partial(self._read_rows, poll, silent[cell]))
        if self._is_small and self._clock() - self._compared_s >= AGENTS_EVERY_S:
            self._compared_s = self._clock()
            self._ask(PLACEMENT, partial(self._compare, there & self._moved))

    def _forget_all_but(self, there: set[str], without_agent: set[str]) -> None:
        """A node that comes back is read anew, as is one that an agent has spoken for meanwhile; whom to
        leave alone no longer needs no remembering."""
        now_s = self._clock()
        self._told = {node: seen for node, seen in self._told.items() if node in without_agent}
        self._moved &= there
        alone = self._left_alone_until_s
        self._left_alone_until_s = {who: until_s for who, until_s in alone.items() if until_s > now_s}

    def _compare(self, nodes: set[str]) -> bool:
        """Have the agents of these look whose providers are not as they say; whether there were any."""
        doubted: dict[str, Callable[[], bool]] = {}
        now_s = self._clock()
        asked = (node for node in nodes if self._left_alone_until_s.get(node, 0.0) <= now_s)
        for node in sorted(filter(self._agent_speaks_for, asked)):
            agrees = self._agreement(node)
            self._moved.discard(node)
            if not agrees():
                doubted[node] = agrees
                self._submit(NodeDoubted(node, "Placement shows other providers"))
        self._wait_for(doubted)
        return bool(doubted)

    def _agreement(self, node: str) -> Callable[[], bool]:
        """What tells whether the row has the providers that Placement has.  A tree that has grown or
        shrunk is seen without reading it: that is its agent's to do, and costs some calls a provider."""
        there = {PROVIDER + uuid for uuid in self._mirror.tree_of(node)}
        if self._providers_of(node).keys() != there:
            return lambda: self._providers_of(node).keys() == there
        return partial(self._says, node, self._mirror.read(node))

    def _wait_for(self, doubted: dict[str, Callable[[], bool]]) -> None:
        """Until these agents have looked; who takes too long holds up no further decision."""
        until_s = self._clock() + AGENT_LOOKS_S
        while (late := [node for node, agrees in doubted.items() if not agrees()]) and (
            self._clock() < until_s
        ):
            self._glance.wait(GLANCE_S)
        for node in late:
            self._left_alone_until_s[node] = self._clock() + AGENT_LEFT_ALONE_S

    def _says(self, node: str, tree: Tree) -> bool:
        """Whether the node's row has the providers of this tree."""
        return _content(self._providers_of(node)) == _content(tree.leaves)

    def _providers_of(self, node: str) -> dict[str, Leaf]:
        row = self._leaves_of(node)
        return {name: leaf for name, leaf in row.items() if name.startswith(PROVIDER)}

    def _sweep(self, there: set[str], without_agent: set[str]) -> bool:
        """Which trees have moved, of those that are looked at."""
        if self._is_small or len(without_agent) * PROVIDERS_A_TREE >= len(there):
            moved = self._mirror.sweep()
        else:
            moved = self._mirror.changed_among(without_agent)
        self._moved |= moved & (there if self._is_small else without_agent)
        return False  # that is news only of hosts that are read because of it

    def _read_rows(self, poll: CellPoll, nodes: list[str]) -> bool:
        read_at_s = self._clock()
        for seen in poll.look_at(nodes):
            node = seen[0]["uuid"]
            if node in self._moved or self._told.get(node) != seen:
                self._ask(PLACEMENT, partial(self._tell, poll.cell, seen, read_at_s))
        return False  # each row is told by itself

    def _tell(self, cell: str, seen: _Seen, read_at_s: float) -> bool:
        row, members = seen
        event = node_read(cell, row, members, self._mirror.read(row["uuid"]), read_at_s)
        self._told[row["uuid"]] = seen
        self._moved.discard(row["uuid"])
        if event is not None:
            self._submit(event)
        return event is not None

    def _ask_cells(
        self, polls: Mapping[str, CellPoll], question: Callable[[CellPoll], bool]
    ) -> None:
        """Side by side, so that it takes no longer than the slowest one."""

        def ask(poll: CellPoll) -> None:
            self._ask(poll.cell, partial(question, poll))

        if len(polls) > 1:
            list(self._askers.map(ask, polls.values()))  # raises what a question raised
            return
        for poll in polls.values():
            ask(poll)

    def _ask(self, source: str, question: Callable[[], bool]) -> None:
        """Ask what says whether it had news; sources that did not answer lately are not asked."""
        if self._clock() < self._left_alone_until_s.get(source, float("-inf")):
            return
        try:
            found = question()
            with self._lock:
                self.news += found
        except (DatabaseError, PlacementError) as error:
            self._left_alone_until_s[source] = self._clock() + LEFT_ALONE_S
            self._outages.failed(source, f"decisions go on without a look at it: {error}")
        else:
            self._outages.recovered(source)


def _content(providers: Mapping[str, Any]) -> dict[str, tuple[object, ...]]:
    """What nova-compute or others write; generations move with each allocation."""
    return {
        name: (leaf["parent"], leaf["inventories"], set(leaf["traits"]), set(leaf["aggregates"]))
        for name, leaf in providers.items()
    }

# SPDX-License-Identifier: Apache-2.0
"""Alternates: hosts for the conductor to try without us, should a build fail.

As Nova gives them: of the same cell as the chosen host, none of the request's chosen hosts, best
first, approved by the judge, with an allocation candidate, not claimed.  All instances of a request
in one cell get the same ones, and fewer than wanted is fine.  Where only Placement can tell what a host
would give, it is asked for the candidates of each; what is not there in time is left out.
"""

from __future__ import annotations

from shared_scheduler.core.effects import AskCandidates
from shared_scheduler.core.events import CandidatesAnswered
from shared_scheduler.core.planner import Planner, Selected
from shared_scheduler.core.settings import Settings
from shared_scheduler.core.turn import Timers, Turn
from shared_scheduler.core.work import AlternatesSearch, Work


class Alternates:
    """Looks for the alternates of requests; what it finds is kept in ``Work.alternates``."""

    def __init__(self, settings: Settings, timers: Timers, planner: Planner) -> None:
        self._settings = settings
        self._timers = timers
        self._planner = planner
        self._count = 0

    def want(self, turn: Turn, work: Work) -> None:
        """All claims are on their way: look for alternates next, so that the claims leave first."""
        if work.request.num_alternates and not self._is_current(work):
            self._timers.set(("alternates", str(work.key)), turn.now)

    def ready(self, turn: Turn, work: Work) -> bool:
        """Whether the answer can leave; begins to look if nobody has."""
        if not self._is_current(work):
            self.search(turn, work)
        return work.alternates is None or not work.alternates.waiting

    def give_up(self, work: Work) -> None:
        """Answer with what is there."""
        if work.alternates is not None:
            work.alternates.waiting.clear()

    def on_timer(self, turn: Turn, work: Work) -> None:
        """Time to begin, or to answer without the rest."""
        if self._is_current(work):
            self.give_up(work)
        else:
            self.search(turn, work)

    def search(self, turn: Turn, work: Work) -> None:
        """Find them, or ask Placement for the candidates of the best ones."""
        work.alternates = None
        if not work.request.num_alternates:
            return
        work.alternates = search = AlternatesSearch(work.chosen())
        for cell in sorted({s.choice.cell for s in work.seats if s.choice is not None}):
            flat = work.request.flat or not work.request.forms
            found = self._planner.alternates(work, cell) if flat else None
            if found is None:
                self._ask(turn, work, search, cell)
            else:
                search.found[cell] = found
        if search.waiting:
            at_s = turn.now + self._settings.alternates_timeout_s
            self._timers.set(("alternates", str(work.key)), at_s)

    def _ask(self, turn: Turn, work: Work, search: AlternatesSearch, cell: str) -> None:
        request = work.request
        for node in self._planner.alternate_nodes(work, cell):
            self._count += 1
            ask_id = f"alternate.{work.key}.{self._count}"
            search.waiting[ask_id] = node
            search.asked.append(node)
            sharing = self._planner.sharing_with(node)
            turn.emit(AskCandidates(ask_id, node, request.queries, request.request_id, sharing))

    def on_candidates(self, work: Work, event: CandidatesAnswered) -> None:
        """Placement named the candidates of one alternate."""
        search = work.alternates
        if search is None or event.ask_id not in search.waiting:
            return
        node = search.waiting.pop(event.ask_id)
        verdict = self._planner.judge(work, work.seats[-1], node, event.candidates)
        if isinstance(verdict, Selected):
            search.add(verdict.choice)

    @staticmethod
    def _is_current(work: Work) -> bool:
        if not work.request.num_alternates:
            return True
        return work.alternates is not None and work.alternates.chosen == work.chosen()

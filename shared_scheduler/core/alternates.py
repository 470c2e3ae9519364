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
from shared_scheduler.core.request_state import AlternatesSearch, RequestState
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Step, Timers


class Alternates:
    """Looks for the alternates of requests; what it finds is kept in ``RequestState.alternates``."""

    def __init__(self, settings: SchedulerSettings, timers: Timers, planner: Planner) -> None:
        self._settings = settings
        self._timers = timers
        self._planner = planner
        self._count = 0

    def want(self, step: Step, state: RequestState) -> None:
        """All claims are on their way: look for alternates next, so that the claims leave first."""
        if state.request.num_alternates and not self._is_current(state):
            self._timers.set(("alternates", str(state.key)), step.now)

    def ready(self, step: Step, state: RequestState) -> bool:
        """Whether the answer can leave; begins to look if nobody has."""
        if not self._is_current(state):
            self.search(step, state)
        return state.alternates is None or not state.alternates.waiting

    def give_up(self, state: RequestState) -> None:
        """Answer with what is there."""
        if state.alternates is not None:
            state.alternates.waiting.clear()

    def on_timer(self, step: Step, state: RequestState) -> None:
        """Time to begin, or to answer without the rest."""
        if self._is_current(state):
            self.give_up(state)
        else:
            self.search(step, state)

    def search(self, step: Step, state: RequestState) -> None:
        """Find them, or ask Placement for the candidates of the best ones."""
        state.alternates = None
        if not state.request.num_alternates:
            return
        state.alternates = search = AlternatesSearch(state.chosen())
        for cell in sorted({s.choice.cell for s in state.instances if s.choice is not None}):
            root_only = state.request.root_only or not state.request.forms
            found = self._planner.alternates(state, cell) if root_only else None
            if found is None:
                self._ask(step, state, search, cell)
            else:
                search.found[cell] = found
        if search.waiting:
            at_s = step.now + self._settings.alternates_timeout_s
            self._timers.set(("alternates", str(state.key)), at_s)

    def _ask(self, step: Step, state: RequestState, search: AlternatesSearch, cell: str) -> None:
        request = state.request
        for node in self._planner.alternate_nodes(state, cell):
            self._count += 1
            ask_id = f"alternate.{state.key}.{self._count}"
            search.waiting[ask_id] = node
            search.asked.append(node)
            sharing = self._planner.sharing_with(node)
            step.emit(AskCandidates(ask_id, node, request.queries, request.request_id, sharing))

    def on_candidates(self, state: RequestState, event: CandidatesAnswered) -> None:
        """Placement named the candidates of one alternate."""
        search = state.alternates
        if search is None or event.ask_id not in search.waiting:
            return
        node = search.waiting.pop(event.ask_id)
        verdict = self._planner.judge(state, state.instances[-1], node, event.candidates)
        if isinstance(verdict, Selected):
            search.add(verdict.choice)

    @staticmethod
    def _is_current(state: RequestState) -> bool:
        if not state.request.num_alternates:
            return True
        return state.alternates is not None and state.alternates.chosen == state.chosen()

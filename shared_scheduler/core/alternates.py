# SPDX-License-Identifier: Apache-2.0
"""Searches for alternates: hosts that the conductor tries without the scheduler if a build fails.

As in Nova, alternates are of the same cell as the chosen host, are none of the request's chosen hosts, are approved by
the judge, have an allocation candidate and are not claimed; the best comes first.  All instances of a request in one
cell get the same ones, and fewer than configured are allowed.  If only Placement can judge the hosts, it is asked for
the candidates of each; answers that come too late are ignored.

They are searched while the claims are in flight, by a timer that rings at once, so that the claims leave first.  When
a host is decided again, they are searched again, and also when the check of spreading has read where the others are.
A question that waits then is not asked again: its answer is judged when it comes.
"""

from __future__ import annotations

from shared_scheduler.core.effects import AskCandidates
from shared_scheduler.core.events import CandidatesAnswered
from shared_scheduler.core.planner import Planner, Selected
from shared_scheduler.core.request_state import AlternatesSearch, RequestState
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.core.step import Step, Timers


class Alternates:
    """The searches of all requests under way; what each has found is in ``RequestState.alternates``."""

    def __init__(self, settings: SchedulerSettings, timers: Timers, planner: Planner) -> None:
        self._settings = settings
        self._timers = timers
        self._planner = planner
        self._count = 0

    def want(self, step: Step, state: RequestState) -> None:
        """Schedule the search after all claims are cast, so that the claims leave first."""
        if state.request.num_alternates and not self._is_current(state):
            self._timers.set(("alternates", str(state.key)), step.now)

    def ready(self, step: Step, state: RequestState) -> bool:
        """Whether the answer can leave; begins the search if it has not begun."""
        if not self._is_current(state):
            self.search(step, state)
        return state.alternates is None or not state.alternates.waiting

    def search_again(self, state: RequestState) -> None:
        """Search once more for the same hosts, later.  Placement is not asked again about those that pass still."""
        if state.alternates is not None:
            state.alternates.chosen = frozenset()

    def give_up(self, state: RequestState) -> None:
        """End the search: the answer contains the alternates that were found."""
        if state.alternates is not None:
            state.alternates.waiting.clear()

    def on_timer(self, step: Step, state: RequestState) -> None:
        """Begin the search, or end it."""
        if self._is_current(state):
            self.give_up(state)
        else:
            self.search(step, state)

    def search(self, step: Step, state: RequestState) -> None:
        """Find alternates, or ask Placement for the candidates of the best hosts."""
        before, state.alternates = state.alternates or AlternatesSearch(frozenset()), None
        if not state.request.num_alternates:
            return
        state.alternates = search = AlternatesSearch(state.chosen())
        for cell in sorted({s.choice.cell for s in state.instances if s.choice is not None}):
            root_only = state.request.root_only or not state.request.forms
            found = self._planner.choose_alternates(state, cell) if root_only else None
            if found is None:
                self._ask(step, state, search, cell, before)
            else:
                search.found[cell] = found
        if search.waiting:
            at_s = step.now + self._settings.alternates_timeout_s
            self._timers.set(("alternates", str(state.key)), at_s)

    def _ask(
        self, step: Step, state: RequestState, search: AlternatesSearch, cell: str, before: AlternatesSearch
    ) -> None:
        found = {} if before.chosen else before.by_node()
        waiting = {node: ask_id for ask_id, node in before.waiting.items()}
        for node in self._planner.alternate_nodes(state, cell):
            search.asked.append(node)
            if node in found:
                search.add(found[node])
                continue
            ask_id = waiting.get(node) or self._ask_one(step, state, node)
            search.waiting[ask_id] = node

    def _ask_one(self, step: Step, state: RequestState, node: str) -> str:
        """Ask for the candidates of one host; returns the id of the question."""
        self._count += 1
        ask_id, request = f"alternate.{state.key}.{self._count}", state.request
        sharing = self._planner.sharing_with(node)
        step.emit(AskCandidates(ask_id, node, request.queries, request.request_id, sharing))
        return ask_id

    def on_candidates(self, state: RequestState, event: CandidatesAnswered) -> None:
        """Handle the candidates of one alternate."""
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

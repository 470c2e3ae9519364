# SPDX-License-Identifier: Apache-2.0
"""Hosts for requests that claim nothing: a rebuild, and callers that claim by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared_scheduler.core.effects import FailureCode
from shared_scheduler.core.planner import Planner, Refusal, Selected
from shared_scheduler.core.request_state import InstancePlacement, InstanceState, RequestState
from shared_scheduler.table.host_table import HostTable


class UnclaimedSelection:
    """Selects a host for each instance, and assumes them in the table for the length of one step."""

    def __init__(self, table: HostTable, planner: Planner) -> None:
        self._table = table
        self._planner = planner
        self._count = 0

    @contextmanager
    def selected(self, state: RequestState) -> Iterator[tuple[FailureCode, str] | None]:
        """Hosts for all instances, so that each sees those before it; or why there is none for one."""
        assumed: list[str] = []
        try:
            yield self._select_each(state, assumed)
        finally:
            for claim_id in assumed:
                self._table.forget(claim_id)

    def _select_each(self, state: RequestState, assumed: list[str]) -> tuple[FailureCode, str] | None:
        for instance in state.instances:
            plan = self._planner.plan(state, instance)
            if not isinstance(plan, Selected):
                text = plan.text if isinstance(plan, Refusal) else "candidates without resources"
                return FailureCode.NO_VALID_HOST, text
            instance.choice, instance.state = plan.choice, InstanceState.WRITTEN
            if not state.request.is_rebuild:
                assumed.append(self._assume(state, instance))
        return None

    def _assume(self, state: RequestState, instance: InstancePlacement) -> str:
        assert instance.choice is not None
        self._count += 1
        claim_id = f"only-{self._count}"
        consumer = instance.consumer or claim_id
        self._table.assume(instance.choice.node, claim_id, consumer, {}, state.request.usage)
        return claim_id

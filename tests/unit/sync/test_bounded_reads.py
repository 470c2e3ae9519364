# SPDX-License-Identifier: Apache-2.0
"""A database that hangs is asked by few threads, and again after a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_scheduler.core.effects import AskGroup
from shared_scheduler.sync import state_sync
from shared_scheduler.sync.bounded_reads import HANGING_MAX
from shared_scheduler.sync.databases import DatabaseError
from tests.unit.placement.conftest import placement_app, world
from tests.unit.placement.real_placement import World
from tests.unit.sync.nova_databases import NovaDatabases
from tests.unit.sync.one_cell import Site

WAIT_S = 60.0
SOON_S = 0.2


class HangingApi:
    """The questions about groups of a scheduler whose API database accepts queries and answers none of the first."""

    def __init__(self, nova: NovaDatabases, site: Site, patch: pytest.MonkeyPatch) -> None:
        self.site, self.hangs = site, True
        self.answer = threading.Event()
        self.begun = 0
        self._server = nova.map_server("cell1")
        self._asked = AskGroup("ask", nova.group(self._server), frozenset(), "req-1")
        read = site.sync._api.members_of

        def members_of(question: AskGroup) -> dict[str, str | None]:
            self.begun += 1
            if self.hangs:
                self.answer.wait(WAIT_S)
            return read(question)

        patch.setattr(site.sync._api, "members_of", members_of)

    def end(self) -> None:
        """All that hangs is answered."""
        self.answer.set()
        for thread in threading.enumerate():
            if thread.name == "bounded read":
                thread.join(WAIT_S)
        self.answer.clear()

    def ask(self) -> bool:
        """Whether a question is answered."""
        try:
            return self._server in self.site.sync._members_of(self._asked)
        except DatabaseError:
            return False

    def ask_after(self, pause_s: float) -> int:
        """The number of queries that many questions cause after a pause."""
        self.site.now_s += pause_s
        before = self.begun
        for _ in range(2 * HANGING_MAX):
            assert not self.ask()
        return self.begun - before


@pytest.fixture
def api(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingApi]:
    monkeypatch.setattr(state_sync, "QUESTION_READ_WITHIN_S", SOON_S)
    nova = NovaDatabases(tmp_path)
    made = HangingApi(nova, Site(nova, world, nodes_max=2), monkeypatch)
    yield made
    made.answer.set()


def test_a_database_that_has_moved_is_asked_again_while_queries_of_before_hang(
    api: HangingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given as many queries as hang at most, on a machine that is gone
    assert api.ask_after(0.0) == HANGING_MAX
    # when another machine answers, and a minute has gone
    api.hangs = False
    assert not api.ask()
    api.site.now_s += state_sync.OPENED_AGAIN_AFTER_S
    monkeypatch.setattr(api.site.sync._bounded_reads, "_within_s", WAIT_S)
    # then questions are answered
    assert api.ask() and api.ask()


def test_a_database_that_goes_on_to_hang_is_asked_less_and_less_often(api: HangingApi) -> None:
    again_s = state_sync.OPENED_AGAIN_AFTER_S
    assert api.ask_after(0.0) == HANGING_MAX
    assert api.ask_after(again_s) == HANGING_MAX
    assert api.ask_after(again_s) == 0
    assert api.ask_after(again_s) == HANGING_MAX
    # and when all has been answered, it is as at first
    api.end()
    assert api.ask_after(0.0) == HANGING_MAX
    assert api.ask_after(again_s) == HANGING_MAX

# SPDX-License-Identifier: Apache-2.0
"""One server, asked for up to three times, in any order: heard answers stand, and nothing else is left.

``one_server/judge.py`` has the laws, and ``one_server/left_out.py`` what does not happen.
``python -m tests.unit.placement.one_server --seeds 1000`` runs other worlds.
"""

from __future__ import annotations

import logging

import pytest

from shared_scheduler.core.effects import DeleteAllocation
from shared_scheduler.core.events import AllocationDeleted
from shared_scheduler.placement.allocation_writer import AllocationWriter
from tests.unit.placement.one_server.__main__ import main
from tests.unit.placement.one_server.judge import Law
from tests.unit.placement.one_server.plan import Kind
from tests.unit.placement.one_server.world import broken_in

#: of each kind, in blocks
SEEDS, BLOCK = 750, 75

#: what each has shown
ONCE_BROKEN = (
    # what this scheduler has written itself, or left, was told as a change by others
    (Kind.BUILD, 4),
    # so was what stood before a merge that was lost
    (Kind.EVACUATION, 23),
    # a late call was left for good, because a call that was not sent after it decided which generation it had made
    (Kind.MOVE, 68),
    # so it was after a batch without an answer
    (Kind.MOVE, 3263),
    # a lost evacuation was left alone, because its delete did not know what it was merged with
    (Kind.EVACUATION, 48),
    # a late delete took what was answered before it, without a question to Nova
    (Kind.MOVE, 2812),
    # of two unheard evacuations, one of which was unclear, the share of one stayed
    (Kind.EVACUATION, 3235),
    # a write that might still arrive was forgotten when its delete left others alone
    (Kind.MOVE, 911),
    # the generation of a write that was deleted before the one that stands kept that from being deleted
    (Kind.BUILD, 2255),
    # of many calls of this scheduler, of which some were equal, too few were known
    (Kind.BUILD, 1248),
    (Kind.EVACUATION, 2280),
    (Kind.EVACUATION, 2778),
)


@pytest.fixture(autouse=True)
def quiet_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Worlds tell their own story."""
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("first", range(1, SEEDS + 1, BLOCK))
@pytest.mark.parametrize("kind", Kind)
def test_one_server_in_any_order_ends_well(kind: Kind, first: int) -> None:
    broken = [line for seed in range(first, first + BLOCK) for line in broken_in(kind, seed)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(("kind", "seed"), ONCE_BROKEN)
def test_what_was_once_broken_ends_well(kind: Kind, seed: int) -> None:
    assert not (broken := broken_in(kind, seed)), "\n".join(broken)


def test_a_delete_that_deletes_nothing_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a writer that only says that it deletes
    def delete(_: AllocationWriter, effect: DeleteAllocation) -> AllocationDeleted:
        return AllocationDeleted(effect.claim_id, True, cause=effect.cause)

    monkeypatch.setattr(AllocationWriter, "delete", delete)
    # when some worlds run
    exit_code = main(["--kind", "build", "--seeds", "20"])
    # then each that is broken is told in one line, with the command that runs it again
    *lines, summary = capsys.readouterr().out.splitlines()
    assert exit_code == 1 and summary == f"20 worlds, {len(lines)} violations"
    assert lines and all(line.startswith(Law.UNHEARD_IS_TAKEN_BACK) for line in lines)
    # and that command tells the story of the world
    command = lines[0].partition("one_server ")[2].split()
    assert main(command) == 1
    assert f"BROKEN: {Law.UNHEARD_IS_TAKEN_BACK}" in capsys.readouterr().out

# SPDX-License-Identifier: Apache-2.0
"""The state that an agent keeps over restarts, in files that are replaced atomically."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compute_agent.effects import KeptClaim
from compute_agent.service.state_directory import StateDirectory, StateError
from tests.unit.compute_agent.node_facts import NODE, claim


class TestState:
    def test_epochs_grow_even_if_the_clock_jumps_back(self, tmp_path: Path) -> None:
        state = StateDirectory(str(tmp_path))

        epochs = [state.next_epoch(lambda at=at: at) for at in (2000.0, 1000.0, 1000.0, 3000.0)]  # type: ignore[misc]

        assert epochs == [2_000_000, 2_000_001, 2_000_002, 3_000_000]

    def test_a_kept_epoch_is_exceeded_by_the_next_start(self, tmp_path: Path) -> None:
        state = StateDirectory(str(tmp_path))
        state.next_epoch(lambda: 1000.0)

        state.keep_epoch(5_000_000)
        state.keep_epoch(4_000_000)  # another node of this host: the greatest counts

        assert state.next_epoch(lambda: 1000.0) == 5_000_001

    @pytest.mark.parametrize("text", ["", "-5", "seven", "9" * 40, str(2**63 - 1)])
    def test_an_epoch_that_cannot_be_one_is_replaced_by_the_clock(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "epoch").write_text(text)

        assert StateDirectory(str(tmp_path)).next_epoch(lambda: 2000.0) == 2_000_000

    def test_a_second_agent_is_refused_with_the_process_id_of_the_first(self, tmp_path: Path) -> None:
        first = StateDirectory(str(tmp_path))

        with pytest.raises(StateError, match="another agent"):
            StateDirectory(str(tmp_path))

        first.close()
        StateDirectory(str(tmp_path)).close()

    def test_claims_come_back_as_they_were(self, tmp_path: Path) -> None:
        kept = KeptClaim(claim("c1", "vm-1", topology="1"), frozenset({"instance"}))
        first = StateDirectory(str(tmp_path))
        first.keep(NODE, (kept,), {})
        first.close()

        assert StateDirectory(str(tmp_path)).kept() == {NODE: (kept,)}

    def test_groups_survive_restarts_until_the_node_is_removed(self, tmp_path: Path) -> None:
        first = StateDirectory(str(tmp_path))
        first.keep(NODE, (), {"vm-1": "group"})
        first.close()

        second = StateDirectory(str(tmp_path))
        assert second.groups(NODE) == {"vm-1": "group"}
        second.forget(NODE)
        second.close()
        assert StateDirectory(str(tmp_path)).groups(NODE) == {}

    def test_groups_that_a_full_disk_did_not_take_are_kept_when_there_is_room(self, tmp_path: Path) -> None:
        """They once waited for the next change of a group, and were unknown after a restart until then."""
        # given a claim of a group, accepted while the disk is full
        state = StateDirectory(str(tmp_path))
        (tmp_path / "groups.new").symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left"):
            state.keep(NODE, (), {"vm-1": "group"})
        # when there is room, and another claim is accepted
        (tmp_path / "groups.new").unlink()
        state.keep(NODE, (), {"vm-1": "group"})
        state.close()
        # then the next run knows the group
        assert StateDirectory(str(tmp_path)).groups(NODE) == {"vm-1": "group"}

    def test_claims_are_kept_although_groups_cannot_be(self, tmp_path: Path) -> None:
        kept = KeptClaim(claim("c1", "vm-1", topology="1"), frozenset({"instance"}))
        state = StateDirectory(str(tmp_path))
        (tmp_path / "groups.new").mkdir()  # as root, rights are no obstacle
        with pytest.raises(OSError, match="groups"):
            state.keep(NODE, (kept,), {"vm-1": "group"})
        state.close()

        assert StateDirectory(str(tmp_path)).kept() == {NODE: (kept,)}

    def test_a_node_that_a_full_disk_did_not_let_go_leaves_when_there_is_room(self, tmp_path: Path) -> None:
        state = StateDirectory(str(tmp_path))
        state.keep(NODE, (), {"vm-1": "group"})
        (tmp_path / "groups.new").symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left"):
            state.forget(NODE)

        (tmp_path / "groups.new").unlink()
        state.keep("another node", (), {})
        state.close()

        next_run = StateDirectory(str(tmp_path))
        assert next_run.groups(NODE) == {} and list(next_run.kept()) == ["another node"]

    @pytest.mark.parametrize("content", [b"", b"\xc1", b"\x81\xa1x\x91\x01"])
    def test_groups_that_cannot_be_read_are_learnt_again(
        self, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "groups").write_bytes(content)

        assert StateDirectory(str(tmp_path)).groups(NODE) == {}
        assert "server groups kept" in caplog.text

    @pytest.mark.parametrize("content", [b"", b"\xc1", b"\x81\xa1x\x91\x92\xc4\x01x\x90"])
    def test_the_agent_starts_in_spite_of_an_unreadable_file(
        self, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "claims").write_bytes(content)

        assert StateDirectory(str(tmp_path)).kept() == {}
        assert "cannot be read" in caplog.text

    def test_a_read_only_directory_is_reported_with_a_remedy(self, tmp_path: Path) -> None:
        (tmp_path / "epoch.new").mkdir()  # as root, rights are no obstacle
        state = StateDirectory(str(tmp_path))
        with pytest.raises(StateError, match=r"state_path = .*cannot be used.*give the agent's user"):
            state.next_epoch(time.time)
        state.close()

    def test_a_disk_without_room_for_the_process_id_is_reported_with_a_remedy(self, tmp_path: Path) -> None:
        """It once ended the agent with a traceback."""
        with no_room():
            state = StateDirectory(str(tmp_path))
            with pytest.raises(StateError, match=r"state_path = .*cannot be used"):
                state.next_epoch(time.time)
        state.close()

    def test_a_directory_that_cannot_be_created_is_reported_with_a_remedy(self) -> None:
        with pytest.raises(StateError, match=r"state_path = /proc/nothing cannot be used"):
            StateDirectory("/proc/nothing")


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process may grow, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

# SPDX-License-Identifier: Apache-2.0
"""The connection that is kept between queries."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from shared_scheduler.sync import kept_connection
from shared_scheduler.sync.kept_connection import KeptConnection

WAIT_S = 60.0


def test_the_end_of_a_connection_does_not_wait_for_a_database_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a connection that rests, to a database that was lost unnoticed
    monkeypatch.setattr(kept_connection, "NOT_KEPT", "none")
    engine, answer = sa.create_engine(f"sqlite:///{tmp_path}/cell.db"), threading.Event()
    sut = KeptConnection(lambda: engine)
    assert sut.column(sa.select(sa.literal(7)), {}) == [7]

    def hang(_connection: Any) -> None:
        answer.wait(WAIT_S)

    monkeypatch.setattr(engine.dialect, "do_rollback", hang)
    # when it is closed, which SQLAlchemy does with a ROLLBACK
    closing = threading.Thread(target=sut.close, daemon=True)
    closing.start()
    closing.join(WAIT_S / 2)
    # then nobody waits for the answer
    waits = closing.is_alive()
    answer.set()
    assert not waits

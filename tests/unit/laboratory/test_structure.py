# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.structure`` finds names by a word."""

from __future__ import annotations

from tools.structure import modules_of, names_with

FILES = {"shared_scheduler/core/write_queue.py": "class WriteQueue:\n    def drop_late(self): ...\n"}


def test_a_word_finds_names_however_they_are_joined() -> None:
    assert list(names_with("write_queue", modules_of(FILES))) == [
        "shared_scheduler.core.write_queue", "shared_scheduler.core.write_queue:WriteQueue",
    ]  # fmt: skip
    assert list(names_with("droplate", modules_of(FILES))) == ["shared_scheduler.core.write_queue:drop_late"]

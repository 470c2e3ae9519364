# SPDX-License-Identifier: Apache-2.0
"""A Guru Meditation Report tells what the process does, also when the process hangs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from shared_scheduler.daemon import guru_meditation
from shared_scheduler.daemon.guru_meditation import Product, in_another_thread, section
from shared_scheduler.release import release


def text(answer: Any) -> str:
    answer.set_current_view_type("text")
    return str(answer)


def test_the_answer_is_a_section() -> None:
    shown = text(section(lambda: {"windows": {"live": 3}, "queues": {"requests": 1}}))

    assert "live = 3" in shown and "requests = 1" in shown


def test_an_error_is_reported_in_its_section_and_does_not_end_the_report() -> None:
    def broken() -> Mapping[str, Any]:
        raise ValueError("no table")

    assert "not available = ValueError: no table" in text(section(broken))
    assert "ValueError" in text(section(in_another_thread(broken)))


def test_a_process_that_hangs_is_reported_after_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guru_meditation, "ANSWER_TIMEOUT_S", 0.01)
    end = threading.Event()

    def hangs() -> Mapping[str, Any]:
        end.wait()
        return {}

    shown = text(section(in_another_thread(hangs)))
    end.set()

    assert "not available = TimeoutError" in shown


def test_the_report_contains_our_release_and_that_of_nova() -> None:
    product = Product("compute-agent", "34.0.0")

    assert product.product_string() == "compute-agent"
    assert product.version_string_with_package() == f"{release()} with nova 34.0.0"

# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a place for records when the scheduler starts."""

from __future__ import annotations


class RecordsError(Exception):
    """Records cannot be kept where the configuration says; the text names the option."""

    def __init__(self, option: str, error: BaseException, remedy: str) -> None:
        super().__init__(f"[shared_scheduler] {option}: {error}; {remedy}")

# SPDX-License-Identifier: Apache-2.0
"""The error of a file or database for records that cannot be used when the scheduler starts."""

from __future__ import annotations


class RecordsError(Exception):
    """Records cannot be stored as configured; the text names the option and a remedy."""

    def __init__(self, option: str, error: BaseException, remedy: str) -> None:
        super().__init__(f"[shared_scheduler] {option}: {error}; {remedy}")

# SPDX-License-Identifier: Apache-2.0
"""The error of a store of records that is configured wrongly, or that cannot be read."""

from __future__ import annotations


class RecordsError(Exception):
    """Records cannot be stored or read as configured; the text names the option and a remedy."""

    def __init__(self, option: str, error: BaseException, remedy: str) -> None:
        super().__init__(f"[shared_scheduler] {option}: {error}; {remedy}")

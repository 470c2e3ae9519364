# SPDX-License-Identifier: Apache-2.0
"""The errors of stores of records, and of what is done with records."""

from __future__ import annotations

FILE, CONNECTION = "[shared_scheduler] records_file", "[shared_scheduler] records_connection"


class RecordsError(Exception):
    """Records cannot be stored or read; the text names the option, argument or file, and a remedy."""

    def __init__(self, where: str, error: BaseException, remedy: str) -> None:
        super().__init__(f"{where}: {error}; {remedy}")


class RecordRefused(Exception):
    """The store works, but does not accept a record; nothing of the batch is kept.  Others may be accepted."""


class CannotReplayError(Exception):
    """A record does not hold what is needed to decide its request again; the text says what."""

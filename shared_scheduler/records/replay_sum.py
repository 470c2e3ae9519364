# SPDX-License-Identifier: Apache-2.0
"""The sum of many requests that were decided again."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from shared_scheduler.records.reweigh import CANNOT, DIFFERS, SAME, Replayed

#: Differences that are listed, and reasons why a request cannot be decided again that are counted apart.
DIFFERENCES_MAX, REASONS_MAX = 1_000, 50
OTHER_REASONS = "other reasons"
#: with what the choices are compared: the records, or the choices with --config-file alone
RECORDED, CONFIG_FILE = "recorded", "config_file"


class ReplaySum:
    """Counts verdicts and keeps the first differences."""

    def __init__(self, state: str, compared_with: str = RECORDED) -> None:
        """``state``: on which state the requests were decided; ``compared_with``: ``RECORDED`` or ``CONFIG_FILE``."""
        self._state, self._compared_with = state, compared_with
        self._choice: list[str] = []
        self._verdicts: Counter[str] = Counter()
        self._differences: list[dict[str, Any]] = []
        self._reasons: Counter[str] = Counter()

    def add(self, replayed: Replayed) -> None:
        """Count one request."""
        self._verdicts[replayed.verdict] += 1
        if replayed.verdict == SAME:
            self._choice = list(replayed.now)
        if replayed.verdict == DIFFERS and len(self._differences) < DIFFERENCES_MAX:
            shown = {name: value for name, value in asdict(replayed).items() if name != "verdict"}
            self._differences.append({**shown, "was": list(replayed.was), "now": list(replayed.now)})
        if replayed.verdict == CANNOT:
            known = replayed.why in self._reasons or len(self._reasons) < REASONS_MAX
            self._reasons[replayed.why if known else OTHER_REASONS] += 1

    @property
    def result(self) -> str:
        """``differs`` if any request does; otherwise ``cannot`` if any could not be decided, or there is none."""
        if self._verdicts[DIFFERS]:
            return DIFFERS
        return CANNOT if self._verdicts[CANNOT] or not self._verdicts[SAME] else SAME

    def as_dict(self, took_s: float) -> dict[str, Any]:
        """Plain values of the shape ``answers.shapes.Replay``."""
        only_one = self._verdicts.total() == self._verdicts[SAME] == 1
        return {
            "state": self._state,
            "compared_with": self._compared_with,
            **({"choice": self._choice} if only_one else {}),
            "result": self.result,
            "requests": self._verdicts.total(),
            "same": self._verdicts[SAME],
            "differ": self._verdicts[DIFFERS],
            "cannot": self._verdicts[CANNOT],
            "differences": self._differences,
            "cannot_reasons": dict(self._reasons.most_common()),
            "took_s": round(took_s, 3),
        }

# SPDX-License-Identifier: Apache-2.0
"""How many examples a property test draws, if it needs another number than most."""

from __future__ import annotations

from hypothesis import settings

#: of the profiles of the complete run
USUAL = 100


def examples(count: int) -> int:
    """``count`` in the complete run; the same part of it that ``tools/test --quick`` draws of all others."""
    return max(1, count * settings.default.max_examples // USUAL)

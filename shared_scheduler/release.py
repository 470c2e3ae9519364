# SPDX-License-Identifier: Apache-2.0
"""The release of this project, which schedulers and agents send to each other and show to operators."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "shared-scheduler"
#: of programs that run from a source tree, and of peers of releases that did not send theirs
UNKNOWN = "unknown"


@cache
def release() -> str:
    """The installed release, for example ``0.1.0``."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return UNKNOWN

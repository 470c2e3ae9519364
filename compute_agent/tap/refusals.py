# SPDX-License-Identifier: Apache-2.0
"""The claims of Nova's ResourceTracker, and what a refused one tells the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compute_agent.tap.wire import ClaimFailed

#: All take (context, instance, ...).
CLAIMS = ("instance_claim", "rebuild_claim", "resize_claim", "live_migration_claim")
#: A refusal's text is for people.
TEXT_MAX_CHARS = 500


def refused(kind: str, error: Exception, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ClaimFailed:
    """``kind`` of claim was called with these, without the tracker itself, and raised ``error``."""
    text = f"{type(error).__name__}: {error}"[:TEXT_MAX_CHARS]
    return ClaimFailed(instance_uuid(args, kwargs), kind, text)


def instance_uuid(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """For whom a claim is."""
    instance = kwargs["instance"] if "instance" in kwargs else args[1]
    return str(instance.uuid)

# SPDX-License-Identifier: Apache-2.0
"""Where casts on a state channel go."""

from __future__ import annotations


def agent_address(host: str) -> str:
    """Where casts to the agent of nova-compute service ``host`` go: the same in each of its lives."""
    return f"ssched.agent.{host}"

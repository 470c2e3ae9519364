# SPDX-License-Identifier: Apache-2.0
"""What Nova's services table says of the nova-compute service of one host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """The nova-compute service record of one host (Nova's services table)."""

    host: str
    disabled: bool = False
    forced_down: bool = False
    up: bool = True  # by Nova's rule: heard of within service_down_time
    version: int = 0
    #: the columns that Nova's HostState.service shows, as its own filters read them
    record: Mapping[str, object] = field(default_factory=dict)

    @property
    def takes_servers(self) -> bool:
        """What Nova's ComputeFilter asks: enabled, not forced down, heard of."""
        return self.up and not self.disabled and not self.forced_down

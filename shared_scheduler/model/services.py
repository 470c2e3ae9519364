# SPDX-License-Identifier: Apache-2.0
"""What Nova's services table says of the nova-compute service of one host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: columns of a record that each heartbeat moves, and that nothing is derived from
HEARTBEAT = frozenset({"report_count", "last_seen_up", "updated_at"})


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

    def has_only_beaten(self, since: ServiceFacts) -> bool:
        """Whether nothing but its heartbeat has moved ``since``."""
        if self._flags() != since._flags() or self.record.keys() != since.record.keys():
            return False
        known = since.record
        return all(known[name] == value for name, value in self.record.items() if name not in HEARTBEAT)

    def _flags(self) -> tuple[object, ...]:
        return self.host, self.disabled, self.forced_down, self.up, self.version

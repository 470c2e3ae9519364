# SPDX-License-Identifier: Apache-2.0
"""The record of a nova-compute service in Nova's services table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: nova-compute gives this trait to its node while the service is disabled
DISABLED_TRAIT = "COMPUTE_STATUS_DISABLED"
#: columns of a record that each heartbeat changes; no data is derived from them
HEARTBEAT = frozenset({"report_count", "last_seen_up", "updated_at"})


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """The nova-compute service record of one host (Nova's services table)."""

    host: str
    disabled: bool = False
    forced_down: bool = False
    up: bool = True  # by Nova's rule: its last heartbeat is at most service_down_time old
    version: int = 0
    #: the columns of Nova's HostState.service, which its own filters read
    record: Mapping[str, object] = field(default_factory=dict)

    @property
    def takes_servers(self) -> bool:
        """Whether Nova's ComputeFilter passes it: enabled, not forced down, and up."""
        return self.up and not self.disabled and not self.forced_down

    @property
    def disabled_reason(self) -> str:
        """Why it is disabled; empty if it is not, or if Nova keeps no reason."""
        return str(self.record.get("disabled_reason") or "") if self.disabled else ""

    def differs_only_in_heartbeat(self, since: ServiceFacts) -> bool:
        """Whether only its heartbeat has changed ``since``."""
        if self._flags() != since._flags() or self.record.keys() != since.record.keys():
            return False
        known = since.record
        return all(known[name] == value for name, value in self.record.items() if name not in HEARTBEAT)

    def _flags(self) -> tuple[object, ...]:
        return self.host, self.disabled, self.forced_down, self.up, self.version

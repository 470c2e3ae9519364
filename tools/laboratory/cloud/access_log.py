# SPDX-License-Identifier: Apache-2.0
"""The requests that an API has answered, from the log of uwsgi (`services.ACCESS_FORMAT`)."""

from dataclasses import dataclass
from pathlib import Path

FIELDS = 9


@dataclass(frozen=True)
class Request:
    """One HTTP request. `request_id`: the id that the caller sent ("" if none), `agent`: the caller's library."""

    at_ms: int
    pid: int
    method: str
    uri: str
    status: int
    duration_us: int
    size_bytes: int
    request_id: str
    agent: str

    @property
    def path(self) -> str:
        return self.uri.partition("?")[0]

    @property
    def began_at_s(self) -> float:
        """Seconds since the epoch."""
        return self.at_ms / 1000

    @property
    def ended_at_s(self) -> float:
        return self.began_at_s + self.duration_us / 1_000_000

    def writes_one_allocation(self) -> bool:
        """Whether it is a PUT /allocations/{consumer}, with which nova-scheduler claims."""
        return self.method == "PUT" and self.path.startswith("/allocations/")

    def writes_allocations(self) -> bool:
        """Whether it is a PUT for one consumer or a POST for several."""
        return self.writes_one_allocation() or (self.method == "POST" and self.path == "/allocations")


def parse(line: str) -> Request | None:
    """A line of the log; None if it is not a request."""
    parts = line.rstrip("\n").split(" ", FIELDS - 1)
    if len(parts) < FIELDS or not (parts[0].isdigit() and parts[4].isdigit()):
        return None
    at_ms, pid, method, uri, status, duration_us, size, request_id, agent = parts
    return Request(int(at_ms), int(pid), method, uri, int(status), int(duration_us), int(size),
                   "" if request_id == "-" else request_id, agent)  # fmt: skip


def read(path: Path, offset: int = 0) -> list[Request]:
    """Every request logged after `offset` bytes."""
    if not path.exists():
        return []
    with path.open(errors="replace") as log:
        log.seek(offset)
        return [request for line in log if (request := parse(line)) is not None]

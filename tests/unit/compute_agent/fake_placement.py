# SPDX-License-Identifier: Apache-2.0
"""A Placement with one provider, or two: as a transport in the process, or on a loopback port."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from shared_scheduler.placement.connection import Reply, reply_from
from tests.unit.compute_agent.node_facts import HOST, NODE


class FakePlacement:
    """A Placement with one provider, and one below it if ``child`` names it; counts its calls."""

    def __init__(self, vcpus: int = 2) -> None:
        self.vcpus, self.generation, self.status = vcpus, 1, 200
        self.parent: str | None = None
        self.child: str | None = None
        self.aggregates: list[str] = []
        self.gone = False
        self.consumers: dict[str, dict[str, int]] = {}
        self.asked: list[str] = []

    def call(self, _method: str, path: str, *_: Any) -> Reply:
        self.asked.append(path)
        if self.status != 200:
            return reply_from(self.status, {"errors": [{"detail": "out of order"}]})
        if path.endswith("/allocations") and path.split("/")[2] not in (NODE, self.child):
            return reply_from(404, {"errors": [{"detail": "no such provider"}]})
        return reply_from(200, self._body(path))

    def _body(self, path: str) -> dict[str, Any]:
        if "in_tree" in path:
            row = {
                "uuid": NODE, "name": HOST, "generation": self.generation,
                "parent_provider_uuid": self.parent,
                "root_provider_uuid": self.parent or NODE,
            }  # fmt: skip
            child = {
                "uuid": self.child,
                "name": "below",
                "generation": 1,
                "parent_provider_uuid": NODE,
                "root_provider_uuid": NODE,
            }
            rows = [row, child] if self.child else [row]
            return {"resource_providers": [] if self.gone else rows}
        if path.endswith("/inventories"):
            unit = {"min_unit": 1, "max_unit": 9999, "step_size": 1, "allocation_ratio": 1.0, "reserved": 0}
            return {"inventories": {"VCPU": {"total": self.vcpus} | unit, "MEMORY_MB": {"total": 9999} | unit}}
        if path.endswith("/allocations"):
            rows = {key: {"resources": held, "consumer_generation": 1} for key, held in self.consumers.items()}
            return {"allocations": rows}
        return {"traits": ["COMPUTE_NODE"]} if path.endswith("/traits") else {"aggregates": self.aggregates}


@contextmanager
def served(placement: FakePlacement) -> Iterator[str]:
    """Answers over HTTP; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = placement.call("GET", self.path)
            body = json.dumps(answer.body).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """The test asks ``placement.asked``."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

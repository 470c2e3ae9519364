# SPDX-License-Identifier: Apache-2.0
"""The cost of the write alone: puts allocations into Placement for hosts that are selected at random.

A scheduler that claims one server at a time cannot be cheaper.
"""

import http.client
import json
import random
from typing import Any

from tools.laboratory.fleet.hosts import Host

MICROVERSION = "placement 1.36"
CREATED = 204


class Writer:
    """Writes one allocation for each call, for a new consumer on a random host."""

    def __init__(self, endpoint: str, hosts: int, project: str, user: str) -> None:
        self._address = endpoint.removeprefix("http://")
        self._hosts = hosts
        self._owner = {"project_id": project, "user_id": user}

    def write(self, consumer: str, resources: dict[str, int]) -> str:
        """Returns the name of the host; a RuntimeError contains Placement's answer if it is not 204."""
        host = Host(random.randint(1, self._hosts))
        body = {"allocations": {host.node: {"resources": resources}}, "consumer_generation": None, **self._owner}
        self._put(f"/allocations/{consumer}", body)
        return host.name

    def _put(self, path: str, body: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/json", "OpenStack-API-Version": MICROVERSION, "X-Auth-Token": "admin"}
        connection = http.client.HTTPConnection(self._address)
        try:
            connection.request("PUT", path, json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        if answer.status != CREATED:
            raise RuntimeError(f"HTTP {answer.status}: {text[:200]}")

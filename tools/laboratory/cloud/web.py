# SPDX-License-Identifier: Apache-2.0
"""HTTP with JSON, standard library only."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.laboratory.errors import LabError

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Answer:
    """Status, headers and the decoded body (JSON, otherwise text; None if empty)."""

    status: int
    headers: Mapping[str, str]
    body: Any

    def expect(self, *statuses: int) -> Any:
        """The body if the status is one of these, otherwise a `LabError` with the answer."""
        if self.status not in statuses:
            raise LabError(f"HTTP {self.status}, expected {'/'.join(map(str, statuses))}: {str(self.body)[:400]}")
        return self.body


def call(method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None,
         timeout_s: float = TIMEOUT_S) -> Answer:  # fmt: skip
    """One request. `body` is sent as it is if bytes, else as JSON. Every HTTP status is an answer."""
    request = urllib.request.Request(url, method=method, headers=dict(headers or {}))
    if body is not None:
        raw = isinstance(body, bytes)
        request.data = body if raw else json.dumps(body).encode()
        kind = "application/octet-stream" if raw else "application/json"
        request.add_header("Content-Type", kind)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            return Answer(reply.status, dict(reply.headers), _decode(reply.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, dict(error.headers), _decode(error.read()))
    except (OSError, http.client.HTTPException) as error:
        raise LabError(f"{method} {url}: {error}; is the service up? (`tools/lab cloud status`)") from None


def _decode(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")

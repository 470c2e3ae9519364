# SPDX-License-Identifier: Apache-2.0
"""One request to Placement and its answer: what the client needs of HTTP, and what an answer means.

The scheduler, and an agent inside nova-compute, go through Nova's report client (``novalib/report_client.py``), an
agent of its own process through keystoneauth (``KeystoneTransport``).  The meaning is read from the HTTP status and
from Placement's error ``code``, never from its text, because texts are for people and change.
Where a code is not enough (which generation conflicted, which provider is unknown) the caller reads Placement again
(source: placement/errors.py, handlers/allocation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from keystoneauth1 import exceptions as ks_exceptions

SERVICE_TYPE = "placement"
MICROVERSION = "1.36"
CONCURRENT_UPDATE = "placement.concurrent_update"
#: Statuses of a proxy or server in trouble: whether the request was carried out is unknown.
_IN_TROUBLE = 500
#: Longest error text that is kept.
DETAIL_CHARS = 500


class Meaning(StrEnum):
    """What an answer to a write means."""

    DONE = "done"
    NO_CAPACITY = "no_capacity"  # 409 that is no conflict: capacity, units, or no such inventory
    CONFLICT = "conflict"  # 409 concurrent_update: a consumer's or a provider's generation
    BAD_REQUEST = "bad_request"  # 400: an unknown provider or class, or nonsense
    DENIED = "denied"  # 401, 403: nothing was done
    ODD = "odd"  # 404, 406 and the like: no Placement at this address, nothing was done
    UNKNOWN = "unknown"  # no answer, or 5xx: it may have been carried out


@dataclass(frozen=True, slots=True)
class Reply:
    """``status`` 0 means that nothing came back; ``detail`` then says why."""

    status: int
    body: Any = None
    code: str = ""
    detail: str = ""

    @property
    def meaning(self) -> Meaning:
        """See ``Meaning``."""
        if self.status == 0 or self.status >= _IN_TROUBLE:
            return Meaning.UNKNOWN
        if self.status < 300:
            return Meaning.DONE
        if self.status == 409:
            conflict = self.code == CONCURRENT_UPDATE
            return Meaning.CONFLICT if conflict else Meaning.NO_CAPACITY
        if self.status == 400:
            return Meaning.BAD_REQUEST
        return Meaning.DENIED if self.status in (401, 403) else Meaning.ODD

    def describe(self) -> str:
        """One line for people."""
        if self.status == 0:
            return f"Placement did not answer: {self.detail}"
        return f"Placement answered HTTP {self.status} {self.code}: {self.detail}"


def reply_from(status: int, body: Any) -> Reply:
    """Make a reply of a status and a decoded JSON body (None if there was none)."""
    if status < 400:
        return Reply(status, body)
    error = _first_error(body)
    detail = str(error.get("detail") or error.get("title") or "").strip()
    return Reply(status, body, str(error.get("code", "")), " ".join(detail.split())[:DETAIL_CHARS])


def no_reply(detail: str) -> Reply:
    """Nothing came back."""
    return Reply(0, None, "", " ".join(detail.split())[:DETAIL_CHARS])


def _first_error(body: Any) -> dict[str, Any]:
    errors = body.get("errors") if isinstance(body, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else {}
    return first if isinstance(first, dict) else {}


class PlacementError(Exception):
    """A read brought nothing; one line that says why."""


class UnreachableError(PlacementError):
    """No answer, or a server in trouble: it may be different soon."""


class RefusedError(PlacementError):
    """Placement understood and said no.  ``status`` is the HTTP status."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.describe())
        self.status = reply.status


def data_of(reply: Reply) -> Any:
    """What the answer to a read holds.

    :raises UnreachableError: when nothing was learned
    :raises RefusedError: when Placement said no
    """
    meaning = reply.meaning
    if meaning is Meaning.DONE:
        if isinstance(reply.body, dict):
            return reply.body
        raise UnreachableError("the answer from Placement's address is not JSON")
    if meaning in (Meaning.UNKNOWN, Meaning.DENIED):
        raise UnreachableError(reply.describe())
    raise RefusedError(reply)


class Transport(Protocol):
    """What the client needs of HTTP."""

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> Reply:
        """One request; never raises for what happens on the way.  ``timeout_s`` None: what the operator has set."""


class KeystoneTransport:
    """HTTP through a keystoneauth1 adapter: its session pools connections and renews tokens."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> Reply:
        """See ``Transport``."""
        extra: dict[str, Any] = {} if body is None else {"json": body}
        if request_id:
            extra["global_request_id"] = request_id
        if timeout_s is not None:
            extra["timeout"] = timeout_s
        return reply_of(lambda: self._adapter.request(
            path, method, raise_exc=False, microversion=MICROVERSION, headers={"Accept": "application/json"}, **extra,
        ))  # fmt: skip


def reply_of(send: Callable[[], Any], no_answer: tuple[type[Exception], ...] = ()) -> Reply:
    """Carry one request out, whatever happens on the way.

    ``no_answer``: what ``send`` raises for an answer that never came, besides keystoneauth's own.
    """
    try:
        response = send()
    except ks_exceptions.Unauthorized as error:
        return Reply(401, None, "", f"Keystone refused the [placement] credentials: {error}")
    except (ks_exceptions.ClientException, *no_answer) as error:
        return no_reply(str(error) or type(error).__name__)
    return reply_from(response.status_code, _decoded(response))


def _decoded(response: Any) -> Any:
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError:
        return None

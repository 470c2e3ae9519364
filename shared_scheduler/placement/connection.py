# SPDX-License-Identifier: Apache-2.0
"""One request to Placement and its answer: the HTTP interface, and the meaning of an answer.

The scheduler, and an agent inside nova-compute, use Nova's report client (``novalib/report_client.py``); an agent in a
separate process uses keystoneauth (``KeystoneTransport``).  The meaning follows from the HTTP status and from
Placement's error ``code``, never from its text, because texts are for people and change.
If a code is not enough (which generation conflicted, which provider is unknown), the caller reads Placement again
(source: placement/errors.py, handlers/allocation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from enum import StrEnum
from typing import Any, Protocol

from keystoneauth1 import exceptions as ks_exceptions
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

SERVICE_TYPE = "placement"
MICROVERSION = "1.36"
CONCURRENT_UPDATE = "placement.concurrent_update"
#: Statuses of a failing proxy or server: it is unknown whether the request was carried out.
_IN_TROUBLE = 500
#: Statuses of a proxy that did not wait for the server's answer: the request may be carried out later.
_NOT_AWAITED = (502, 504)
#: Placement may have made the records of new consumers, and leaves them (``consumer_conflicts``).
_LEAVES_RECORDS = (400, 500)
NOT_CONNECTED = (NewConnectionError, ConnectTimeoutError)
#: What keystoneauth1 raises without a call to Placement: Keystone gave no token, or named no address.  It raises no
#: status of Placement.
_NOT_CALLED = (
    ks_exceptions.HttpError,
    ks_exceptions.AuthorizationFailure,
    ks_exceptions.AuthPluginException,
    ks_exceptions.CatalogException,
    ks_exceptions.DiscoveryFailure,
)
#: The header, and its value, with which Placement announces that racing writes do not over-commit a provider
#: (``shared_scheduler.placement_app``, which runs elsewhere and has a definition of its own).
ANNOUNCEMENT, ANNOUNCED = "OpenStack-Shared-Scheduler-Writes", "1"
#: Longest error text that is kept.
DETAIL_CHARS = 500


class Meaning(StrEnum):
    """The meaning of the answer to a write."""

    DONE = "done"
    NO_CAPACITY = "no_capacity"  # 409 without a conflict: capacity, units, or no such inventory
    CONFLICT = "conflict"  # 409 concurrent_update: a consumer's or a provider's generation
    BAD_REQUEST = "bad_request"  # 400: an unknown provider or class, or a malformed request
    DENIED = "denied"  # 401, 403: nothing was done
    ODD = "odd"  # 404, 406 and similar: no Placement at this address, nothing was done
    UNKNOWN = "unknown"  # no answer, or 5xx: it may have been carried out


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of Placement.  ``status`` 0 means that there was none; ``detail`` contains the reason.

    ``sent`` is False if no connection was made, or Keystone was in the way.  ``guards_capacity``: this Placement lets
    no racing writes over-commit.
    """

    status: int
    body: Any = None
    code: str = ""
    detail: str = ""
    sent: bool = True
    guards_capacity: bool = False

    @property
    def may_arrive(self) -> bool:
        """Whether Placement may carry the request out later."""
        return self.sent and (self.status == 0 or self.status in _NOT_AWAITED)

    @property
    def leaves_records(self) -> bool:
        """Whether a write of new consumers may leave their records without allocations, now or later."""
        return self.status in _LEAVES_RECORDS or self.may_arrive

    @property
    def meaning(self) -> Meaning:
        """The ``Meaning`` of the answer."""
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
        """One line for log messages."""
        if self.status == 0:
            return f"Placement did not answer: {self.detail}"
        return f"Placement answered HTTP {self.status} {self.code}: {self.detail}"


def reply_from(status: int, body: Any, headers: Mapping[str, str] | Message | None = None) -> Reply:
    """Create a reply from a status, a decoded JSON body (None if there was none) and the headers."""
    guards = headers is not None and headers.get(ANNOUNCEMENT) == ANNOUNCED
    if status < 400:
        return Reply(status, body, guards_capacity=guards)
    error = _first_error(body)
    detail = str(error.get("detail") or error.get("title") or "").strip()
    text = " ".join(detail.split())[:DETAIL_CHARS]
    return Reply(status, body, str(error.get("code", "")), text, guards_capacity=guards)


def no_reply(detail: str, sent: bool = True) -> Reply:
    """The reply for a missing answer."""
    return Reply(0, None, "", " ".join(detail.split())[:DETAIL_CHARS], sent)


def _was_sent(error: BaseException | None) -> bool:
    """Whether a request that raised ``error`` may have left this machine: not without a token, or a connection.

    keystoneauth1 raises the same exception with and without one; the cause is in those of requests and urllib3.
    """
    if isinstance(error, _NOT_CALLED):
        return False
    while error is not None:
        reasons = (error, *(getattr(arg, "reason", None) for arg in error.args))
        if any(isinstance(reason, NOT_CONNECTED) for reason in reasons):
            return False
        error = error.__cause__ or error.__context__
    return True


def _first_error(body: Any) -> dict[str, Any]:
    errors = body.get("errors") if isinstance(body, dict) else None
    first = errors[0] if isinstance(errors, list) and errors else {}
    return first if isinstance(first, dict) else {}


class PlacementError(Exception):
    """A read failed; the text is one line with the reason."""


class UnreachableError(PlacementError):
    """There was no answer, or a server error; a later read may succeed."""


class RefusedError(PlacementError):
    """Placement refused the request.  ``status`` is the HTTP status."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.describe())
        self.status = reply.status


def data_of(reply: Reply) -> Any:
    """The data in the answer to a read.

    :raises UnreachableError: when there was no usable answer
    :raises RefusedError: when Placement refused the request
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
    """The HTTP interface that the client uses."""

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> Reply:
        """Send one request; errors of the connection are returned as a ``Reply``.

        ``timeout_s`` None: the timeout of the configuration.
        """


class KeystoneTransport:
    """HTTP with a keystoneauth1 adapter, whose session pools connections and renews tokens."""

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
    """Send one request, and return errors of the connection as a ``Reply``.

    ``no_answer``: exceptions of ``send`` for a missing answer, besides those of keystoneauth1.
    """
    try:
        response = send()
    except ks_exceptions.Unauthorized as error:
        return Reply(401, None, "", f"Keystone refused the [placement] credentials: {error}")
    except (ks_exceptions.ClientException, *no_answer) as error:
        return no_reply(str(error) or type(error).__name__, _was_sent(error))
    return reply_from(response.status_code, _decoded(response), response.headers)


def _decoded(response: Any) -> Any:
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError:
        return None

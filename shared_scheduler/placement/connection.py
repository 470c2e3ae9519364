# SPDX-License-Identifier: Apache-2.0
"""What the client needs of HTTP: one call that never raises.

The service goes through Nova's report client (``shared_scheduler/nova/placement_transport.py``); here is
the plain way, for a Placement with ``auth_strategy = noauth2``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from keystoneauth1 import adapter as ks_adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import session as ks_session
from keystoneauth1 import token_endpoint

from shared_scheduler.placement.reply import Reply, no_reply, reply_from

SERVICE_TYPE = "placement"
MICROVERSION = "1.36"
#: Nova's HTTP header for the global request id, set by the adapter.
USER_AGENT = "shared-scheduler"


class Transport(Protocol):
    """What the client needs of HTTP."""

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        request_id: str = "",
        timeout_s: float = ...,
    ) -> Reply:
        """One request; never raises for what happens on the way."""


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
        timeout_s: float = 10.0,
    ) -> Reply:
        """See ``Transport``."""
        extra: dict[str, Any] = {} if body is None else {"json": body}
        if request_id:
            extra["global_request_id"] = request_id
        return reply_of(lambda: self._adapter.request(
            path, method, raise_exc=False, microversion=MICROVERSION, timeout=timeout_s,
            headers={"Accept": "application/json"}, connect_retries=0, **extra,
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


def transport_to(endpoint: str, token: str = "admin", session: Any = None) -> KeystoneTransport:
    """A fixed address and token, for a Placement with ``auth_strategy = noauth2``."""
    auth = token_endpoint.Token(endpoint, token)
    adapter = ks_adapter.Adapter(
        session or ks_session.Session(user_agent=USER_AGENT), auth=auth,
        service_type=SERVICE_TYPE, raise_exc=False,
    )  # fmt: skip
    return KeystoneTransport(adapter)

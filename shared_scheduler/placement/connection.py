# SPDX-License-Identifier: Apache-2.0
"""A keystoneauth adapter for Placement, and one call over it that never raises.

Options are Nova's own ``[placement]`` (session, auth and adapter options of keystoneauth1), so that the
scheduler works with the nova.conf that is there.  ``auth_type = admin_token`` or ``none`` with an
``endpoint`` serves a Placement with ``auth_strategy = noauth2``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from keystoneauth1 import adapter as ks_adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading as ks_loading
from keystoneauth1 import session as ks_session
from keystoneauth1 import token_endpoint

from shared_scheduler.placement.reply import Reply, no_reply, reply_from

GROUP = "placement"
SERVICE_TYPE = "placement"
MICROVERSION = "1.36"
#: Nova's HTTP header for the global request id, set by the adapter.
USER_AGENT = "shared-scheduler"


class ConnectionOptionsError(Exception):
    """The ``[placement]`` section cannot be used; says what to do."""


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


def register_options(conf: Any, group: str = GROUP) -> None:
    """Register keystoneauth's options where Nova has not done so."""
    if group in conf and "valid_interfaces" in conf[group]:
        return
    ks_loading.register_session_conf_options(conf, group)
    ks_loading.register_auth_conf_options(conf, group)
    ks_loading.register_adapter_conf_options(conf, group, include_deprecated=False)
    conf.set_default("service_type", SERVICE_TYPE, group=group)
    conf.set_default("valid_interfaces", ["internal", "public"], group=group)


def transport_from_conf(conf: Any, group: str = GROUP) -> KeystoneTransport:
    """Make one from the options of ``group``.  Raises ``ConnectionOptionsError``."""
    register_options(conf, group)
    try:
        auth = ks_loading.load_auth_from_conf_options(conf, group)
        session = ks_loading.load_session_from_conf_options(conf, group, auth=auth)
        adapter = ks_loading.load_adapter_from_conf_options(
            conf, group, session=session, auth=auth, raise_exc=False
        )
    except Exception as error:  # oslo.config's and keystoneauth's own families
        raise ConnectionOptionsError(f"[{group}] in nova.conf is not usable: {error}") from error
    if auth is None:
        raise ConnectionOptionsError(
            f"[{group}] auth_type is not set: give the credentials of Nova's service user there"
        )
    return KeystoneTransport(adapter)


def transport_to(endpoint: str, token: str = "admin", session: Any = None) -> KeystoneTransport:
    """A fixed address and token, for a Placement with ``auth_strategy = noauth2``."""
    auth = token_endpoint.Token(endpoint, token)
    adapter = ks_adapter.Adapter(
        session or ks_session.Session(user_agent=USER_AGENT), auth=auth,
        service_type=SERVICE_TYPE, raise_exc=False,
    )  # fmt: skip
    return KeystoneTransport(adapter)

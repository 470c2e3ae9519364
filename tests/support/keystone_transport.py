# SPDX-License-Identifier: Apache-2.0
"""The plain way to a Placement with ``auth_strategy = noauth2``, where there is no nova.conf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keystoneauth1 import adapter as ks_adapter
from keystoneauth1 import session as ks_session
from keystoneauth1 import token_endpoint

from shared_scheduler.placement.connection import MICROVERSION, SERVICE_TYPE, Reply, reply_of

USER_AGENT = "shared-scheduler"


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


def transport_to(endpoint: str, token: str = "admin", session: Any = None) -> KeystoneTransport:
    """A fixed address and token, for a Placement with ``auth_strategy = noauth2``."""
    auth = token_endpoint.Token(endpoint, token)
    adapter = ks_adapter.Adapter(
        session or ks_session.Session(user_agent=USER_AGENT), auth=auth,
        service_type=SERVICE_TYPE, raise_exc=False,
    )  # fmt: skip
    return KeystoneTransport(adapter)

# SPDX-License-Identifier: Apache-2.0
"""A connection to a Placement with ``auth_strategy = noauth2``, without a nova.conf."""

from __future__ import annotations

from typing import Any

from keystoneauth1 import adapter as ks_adapter
from keystoneauth1 import session as ks_session
from keystoneauth1 import token_endpoint

from shared_scheduler.placement.connection import SERVICE_TYPE, KeystoneTransport

USER_AGENT = "shared-scheduler"


def transport_to(endpoint: str, token: str = "admin", session: Any = None) -> KeystoneTransport:
    """A fixed address and token, for a Placement with ``auth_strategy = noauth2``."""
    auth = token_endpoint.Token(endpoint, token)
    adapter = ks_adapter.Adapter(
        session or ks_session.Session(user_agent=USER_AGENT), auth=auth,
        service_type=SERVICE_TYPE, raise_exc=False,
    )  # fmt: skip
    return KeystoneTransport(adapter)

# SPDX-License-Identifier: Apache-2.0
"""Calls Placement with Nova's own report client, its options, credentials and user agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openstack import exceptions as sdk_exceptions

from shared_scheduler.placement.connection import MICROVERSION, Reply, reply_of


class NovaTransport:
    """The ``placement.connection.Transport`` of an agent inside nova-compute; the timeout is that of the client."""

    def __init__(self, client: Any) -> None:
        """``client``: a ``SchedulerReportClient``."""
        self._client = client

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> Reply:
        """See ``Transport``."""
        extra: dict[str, Any] = {} if body is None else {"data": body}

        def send() -> Any:
            return getattr(self._connected(timeout_s), method.lower())(
                path, version=MICROVERSION, global_request_id=request_id or None, **extra
            )

        return reply_of(send, (sdk_exceptions.SDKException,))

    def _connected(self, timeout_s: float | None) -> Any:
        return self._client

# SPDX-License-Identifier: Apache-2.0
"""Calls Placement with Nova's own report client: its options, credentials and user agent.

``placement.client`` passes a timeout with each call.  Nova's methods do not accept one, so the calling
thread passes it to the adapter below them.
"""

from __future__ import annotations

import threading
from typing import Any

import nova.conf
from nova import utils
from nova.scheduler.client import report
from openstack import exceptions as sdk_exceptions

from shared_scheduler.novalib.report_client import NovaTransport

CONF = nova.conf.CONF

#: Seconds for requests that the libraries send on their own (a token from Keystone, the versions of
#: Placement) if ``[placement] timeout`` is not set, because they would wait without limit.
FIRST_TIMEOUT_S = 10


class _TimedAdapter:
    """An adapter that adds the calling thread's timeout to each request."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.local = threading.local()

    @property
    def additional_headers(self) -> Any:
        """Headers of every request; the report client sets them."""
        return self._adapter.additional_headers

    @additional_headers.setter
    def additional_headers(self, headers: Any) -> None:
        self._adapter.additional_headers = headers

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._adapter, name)
        if name not in ("get", "put", "post", "delete"):
            return method

        def timed(*args: Any, **kwargs: Any) -> Any:
            return method(*args, timeout=getattr(self.local, "timeout_s", None), **kwargs)

        return timed


class ReportClientTransport(NovaTransport):
    """The ``placement.connection.Transport`` of the scheduler.

    It sends nothing to Keystone or Placement before the first call.  An outage at that time is returned as a
    reply, like any other failure.
    """

    def __init__(self) -> None:
        super().__init__(None)
        self._lock = threading.Lock()
        self._timed: Any = None

    def _connected(self, timeout_s: float | None) -> Any:
        if not self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise sdk_exceptions.SDKException("another thread is still waiting for the first reply")
        try:
            if self._client is None:
                CONF.set_default("timeout", FIRST_TIMEOUT_S, group="placement")
                self._timed = _TimedAdapter(utils.get_sdk_adapter("placement", admin=True))
                self._client = report.SchedulerReportClient(adapter=self._timed)
        finally:
            self._lock.release()
        self._timed.local.timeout_s = timeout_s
        return self._client

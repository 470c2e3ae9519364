# SPDX-License-Identifier: Apache-2.0
"""Uses nova-compute's own client of Placement, for an agent that runs in its process."""

from __future__ import annotations

from typing import Any

from openstack import exceptions as sdk_exceptions

from shared_scheduler.placement.reader import MICROVERSION, PlacementError


class ReportClientAdapter:
    """``PlacementReader``'s adapter over Nova's ``SchedulerReportClient``."""

    def __init__(self, report_client: Any) -> None:
        self._client = report_client

    def get(self, path: str, raise_exc: bool = False) -> Any:
        """The response, whatever its status.

        :raises PlacementError: when there is no response
        """
        try:
            return self._client.get(path, version=MICROVERSION)
        except sdk_exceptions.SDKException as error:
            raise PlacementError(f"GET {path}: {type(error).__name__}: {error}") from error

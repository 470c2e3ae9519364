# SPDX-License-Identifier: Apache-2.0
"""``scheduler.select_destinations.start`` and ``.end``, in Nova's two formats.

Nova builds both payloads for each request, even if no driver is configured.  Here they are built only when
a notification driver is configured.
"""

from __future__ import annotations

from typing import Any

import nova.conf
from nova import rpc
from nova.compute import utils as compute_utils
from nova.objects import fields

CONF = nova.conf.CONF


class Notifications:
    """Notifies of the start and the end of requests."""

    def __init__(self, legacy_notifier: Any) -> None:
        self._legacy = legacy_notifier

    def start(self, context: Any, spec: Any) -> None:
        """The request is being scheduled."""
        self._notify(context, spec, fields.NotificationPhase.START)

    def end(self, context: Any, spec: Any) -> None:
        """Hosts were selected and claimed."""
        self._notify(context, spec, fields.NotificationPhase.END)

    def _notify(self, context: Any, spec: Any, phase: str) -> None:
        if not CONF.oslo_messaging_notifications.driver:
            return  # without a driver, Nova's default, is_enabled() is still true
        if rpc.LEGACY_NOTIFIER.is_enabled():
            self._legacy.info(
                context,
                f"scheduler.select_destinations.{phase}",
                {"request_spec": spec.to_legacy_request_spec_dict()},
            )
        if rpc.NOTIFIER.is_enabled() and CONF.notifications.notification_format != "unversioned":
            compute_utils.notify_about_scheduler_action(
                context=context,
                request_spec=spec,
                action=fields.NotificationAction.SELECT_DESTINATIONS,
                phase=phase,
            )

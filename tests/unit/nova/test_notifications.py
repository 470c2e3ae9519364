# SPDX-License-Identifier: Apache-2.0
"""Payloads are made for listeners only; Nova makes them at each request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import oslo_messaging
import pytest
from nova import context, rpc
from nova.conf import CONF

from shared_scheduler.nova.notifications import Notifications

GROUP = "oslo_messaging_notifications"


class Spec:
    """Counts how often its payload was made."""

    def __init__(self) -> None:
        self.payloads = 0

    def to_legacy_request_spec_dict(self) -> dict[str, Any]:
        self.payloads += 1
        return {"num_instances": 1}


class NotificationListener:
    """The messages that a listener of the legacy format receives."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def info(self, _context: Any, event: str, payload: Any) -> None:
        self.heard.append((event, payload))


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[NotificationListener]:
    """The notifiers that ``rpc.init`` makes by default: without a driver, and one for nobody."""
    transport = oslo_messaging.get_notification_transport(CONF, "fake:///")
    monkeypatch.setattr(rpc, "LEGACY_NOTIFIER", oslo_messaging.Notifier(transport))
    monkeypatch.setattr(rpc, "NOTIFIER", oslo_messaging.Notifier(transport, driver="noop"))
    yield NotificationListener()
    CONF.clear_override("driver", GROUP)


def tell(listener: NotificationListener) -> Spec:
    spec = Spec()
    notifications = Notifications(listener)
    notifications.start(context.get_admin_context(), spec)
    notifications.end(context.get_admin_context(), spec)
    return spec


def test_without_a_driver_nothing_is_made(listener: NotificationListener) -> None:
    assert rpc.LEGACY_NOTIFIER.is_enabled()  # what makes the case special
    assert (tell(listener).payloads, listener.heard) == (0, [])


def test_with_a_driver_both_phases_are_notified(listener: NotificationListener) -> None:
    CONF.set_override("driver", ["messagingv2"], GROUP)
    assert tell(listener).payloads == 2
    start, end = (f"scheduler.select_destinations.{phase}" for phase in ("start", "end"))
    assert listener.heard == [
        (start, {"request_spec": {"num_instances": 1}}),
        (end, {"request_spec": {"num_instances": 1}}),
    ]

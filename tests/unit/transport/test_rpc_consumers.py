# SPDX-License-Identifier: Apache-2.0
"""The end of delivery to an RPC server, if the broker does not carry out what it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from shared_scheduler.transport.rpc_consumers import cancel_consumers


class Consumer:
    """Is cancelled, or fails as on a connection that has gone."""

    def __init__(self, error: Exception | None = None, type: str = "topic") -> None:
        self.error = error
        self.type = type
        self.cancelled: list[str] = []

    def cancel(self, tag: str) -> None:
        if self.error is not None:
            raise self.error
        self.cancelled.append(tag)


def server(consumers: dict[Consumer, str], run: Callable[[Callable[[], None]], None]) -> Any:
    """With the attributes of oslo.messaging's RPC server on RabbitMQ; ``run`` is its polling thread."""
    connection = SimpleNamespace(_consumers=consumers)
    listener = SimpleNamespace(conn=connection, _message_operations_handler=SimpleNamespace(do=run))
    return SimpleNamespace(listener=SimpleNamespace(_poll_style_listener=listener))


def test_every_consumer_is_cancelled_by_its_tag(caplog: pytest.LogCaptureFixture) -> None:
    topic, fanout = Consumer(), Consumer()
    assert cancel_consumers(server({topic: "1", fanout: "2"}, lambda operation: operation()), 60.0)
    assert (topic.cancelled, fanout.cancelled) == (["1"], ["2"])
    assert caplog.records == []


def test_casts_may_be_kept_and_a_reconnect_does_not_bring_requests_back(caplog: pytest.LogCaptureFixture) -> None:
    topic, fanout = Consumer(), Consumer(type="fanout")
    consumers = {topic: "1", fanout: "2"}
    assert cancel_consumers(server(consumers, lambda operation: operation()), 60.0, keep_fanout=True)
    assert (topic.cancelled, fanout.cancelled, list(consumers)) == (["1"], [], [fanout])
    assert caplog.records == []


def test_a_connection_that_has_gone_ends_the_wait_at_once_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    gone = Consumer(ConnectionResetError("by peer"))
    assert not cancel_consumers(server({gone: "1"}, lambda operation: operation()), 60.0)
    [warning] = [record.getMessage() for record in caplog.records]
    assert "may be lost: by peer" in warning


def test_a_broker_that_does_not_answer_is_waited_for_no_longer_than_allowed(caplog: pytest.LogCaptureFixture) -> None:
    silent = Consumer()
    cancel_consumers(server({silent: "1"}, lambda operation: None), 0.01)
    [warning] = [record.getMessage() for record in caplog.records]
    assert "no answer from the broker" in warning and silent.cancelled == []


def test_a_driver_without_consumers_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    cancel_consumers(SimpleNamespace(listener=None), 60.0)
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []

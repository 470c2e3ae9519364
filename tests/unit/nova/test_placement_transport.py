# SPDX-License-Identifier: Apache-2.0
"""Placement through Nova's report client: an outage is an answer like any other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared_scheduler.nova import placement_transport
from shared_scheduler.nova.placement_transport import ReportClientTransport
from shared_scheduler.placement.connection import Meaning


@pytest.fixture
def placement_at(conf: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ReportClientTransport]]:
    """A transport to this address; ``[placement]`` is put back afterwards."""

    def at(url: str) -> ReportClientTransport:
        conf.set_override("auth_type", "none", group="placement")
        conf.set_override("endpoint_override", url, group="placement")
        return ReportClientTransport()

    monkeypatch.setattr(placement_transport, "FIRST_TIMEOUT_S", 1)
    yield at
    for name in ("auth_type", "endpoint_override"):
        conf.clear_override(name, group="placement")
    conf.clear_default("timeout", group="placement")


def test_a_refused_connection_is_unreachable(
    placement_at: Callable[[str], ReportClientTransport],
) -> None:
    reply = placement_at("http://127.0.0.1:9").call("GET", "/traits", timeout_s=5.0)
    assert (reply.status, reply.meaning) == (0, Meaning.UNKNOWN)
    assert "127.0.0.1" in reply.describe()


def test_a_timeout_is_unreachable(
    placement_at: Callable[[str], ReportClientTransport],
) -> None:
    """Not before the first answer either, when versions are asked for: nova.conf bounds nothing there."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = placement_at(f"http://127.0.0.1:{silent.getsockname()[1]}")
        for method, body in (("GET", None), ("PUT", {"allocations": {}})):
            reply = transport.call(method, "/allocations/c", body, timeout_s=0.2)
            assert (reply.status, reply.meaning) == (0, Meaning.UNKNOWN)


def test_a_write_that_waits_in_vain_until_another_thread_finds_placement_was_not_sent(
    placement_at: Callable[[str], ReportClientTransport],
) -> None:
    # given a thread that makes the first call, and waits for the versions of Placement
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = placement_at(f"http://127.0.0.1:{silent.getsockname()[1]}")
        first = threading.Thread(target=transport.call, args=("GET", "/traits"))
        first.start()
        connection, _ = silent.accept()
        # when the time of a write is over before that has an answer
        reply = transport.call("PUT", "/allocations/c", {"allocations": {}}, timeout_s=0.1)
        # then it cannot be carried out any more
        assert (reply.status, reply.may_arrive) == (0, False)
        connection.close()
        first.join()


def test_options_that_cannot_be_used_are_no_answer_either(conf: Any) -> None:
    conf.set_override("auth_type", "no-such-plugin", group="placement")
    try:
        reply = ReportClientTransport().call("GET", "/traits", timeout_s=1.0)
    finally:
        conf.clear_override("auth_type", group="placement")
    assert reply.meaning is Meaning.UNKNOWN

# SPDX-License-Identifier: Apache-2.0
"""Lets an RPC server of oslo.messaging wait for its next request.

After each message, oslo.messaging's listener waits for 1 ms, then for 2, 4 and so on, and looks between two waits
whether a message has to be acknowledged.  A listener for notifications needs that.  An RPC server has acknowledged each
request when it has read it, so these looks find nothing: with 60 requests a second, there are four for each request.
After a stop, a thread looks each millisecond until the last request is answered.
"""

from __future__ import annotations

import logging
from typing import Any

from shared_scheduler.transport.transport_settings import RPC_WAIT_S

LOG = logging.getLogger(__name__)


def listener_of(server: Any) -> Any:
    """The part of a started RPC server that reads messages, None if the driver has another structure.

    oslo.messaging has no public way to it.
    """
    listener: Any = getattr(getattr(server, "listener", None), "_poll_style_listener", None)
    has_consumers = hasattr(getattr(listener, "conn", None), "_consumers")
    return listener if has_consumers and hasattr(listener, "_message_operations_handler") else None


def wait_longer(server: Any) -> None:
    """Let each wait of this RPC server, which was started, last ``RPC_WAIT_S`` unless a message arrives."""
    listener = listener_of(server)
    if listener is None:
        LOG.debug("The messaging driver has no waits that can be changed")
        return
    consume = listener.conn.consume
    listener.conn.consume = lambda timeout=None: consume(timeout=RPC_WAIT_S)


def look_no_more(server: Any) -> None:
    """End the thread that looks for acknowledgements, after the stop of this RPC server."""
    listener = listener_of(server)
    if listener is not None:
        listener._message_operations_handler.stop()

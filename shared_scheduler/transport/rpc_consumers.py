# SPDX-License-Identifier: Apache-2.0
"""Ends the delivery of requests to an RPC server of oslo.messaging before the server stops.

``MessageHandlingServer.stop`` stops reading, but leaves the consumers at the broker until ``wait`` has ended, which
takes as long as the last request.  Messages that the broker delivers meanwhile wait in the socket.  When ``wait``
closes the connection, it first deletes the fanout queue, and reads from the socket until the broker has confirmed that.
The requests that it reads are acknowledged and put into a list that is not read any more, so the callers time out.  A
consumer that is cancelled first gets no such requests: the broker keeps them for another server.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from shared_scheduler.transport.rpc_waiting import listener_of

LOG = logging.getLogger(__name__)

#: the type of a consumer of casts to all servers
FANOUT = "fanout"


def cancel_consumers(server: Any, timeout_s: float, keep_fanout: bool = False) -> bool:
    """Cancel all consumers of this RPC server.  Requests that were delivered before are still served.

    With ``keep_fanout``, the server goes on to get casts to all servers.  Its fanout queue keeps the exchange alive, to
    which nova-compute sends: the exchange is deleted with its last queue, and then the sender fails.  Returns whether
    the broker has confirmed all of this.

    The connection belongs to the thread that polls it, so the consumers are cancelled there, after its present wait.
    ``stop_consuming`` would not end that wait, and after it the connection reads nothing more.  oslo.messaging has no
    public function for this; if its driver has another structure, nothing is done.

    :param server: an oslo_messaging.RPCServer that was started
    :param timeout_s: how long to wait for the polling thread
    """
    listener = listener_of(server)
    if listener is None:
        LOG.debug("The messaging driver has no consumers that can be cancelled")
        return False
    ended, cancelled = threading.Event(), threading.Event()
    listener._message_operations_handler.do(lambda: _cancel(listener.conn, keep_fanout, ended, cancelled))
    if not ended.wait(timeout_s):
        _warn("no answer from the broker")
    return cancelled.is_set()


def _cancel(connection: Any, keep_fanout: bool, ended: threading.Event, cancelled: threading.Event) -> None:
    # an exception would reach oslo.messaging's loop, which would retry without end
    try:
        for consumer, tag in list(connection._consumers.items()):
            if keep_fanout and consumer.type == FANOUT:
                continue
            consumer.cancel(tag=tag)
            if keep_fanout:
                del connection._consumers[consumer]  # after a reconnect it would be declared again
        cancelled.set()
    except Exception as error:
        _warn(error)
    finally:
        ended.set()


def _warn(why: object) -> None:
    LOG.warning("The consumers are not cancelled, and requests that arrive during the stop may be lost: %s", why)

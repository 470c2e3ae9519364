# SPDX-License-Identifier: Apache-2.0
"""The tap's end of the socket: one peer, one sending thread, one bounded queue.

A thread that holds Nova's lock only appends to the queue.  The sending thread sends.  A peer that does not read for
``PEER_STUCK_S`` is disconnected; it connects again and gets complete reports.  When the queue is full, it is emptied
and filled with the nodes that are gone, with complete reports, and with the nodes whose provider trees were written:
memory stays bounded, and the state of no node is lost.

=============  ===============================  ==================================================
state          event                            next
=============  ===============================  ==================================================
NOT_BOUND      first message                    ALONE: the thread starts and binds the socket
ALONE          a peer connects                  TELLING: hello, then a complete report of each node
ALONE          a message                        ALONE: dropped, because the snapshots contain it, and
                                                an agent that connects reads the provider trees
ALONE          somebody has removed the socket  ALONE: bound again
TELLING        a message                        TELLING: queued
TELLING        the queue is full                TELLING: queue emptied; gone nodes, complete reports
                                                and written trees queued
TELLING        another peer connects            TELLING: the other peer gets Busy
TELLING        the peer closes, fails, hangs    ALONE
=============  ===============================  ==================================================

Only ``threading``, ``socket`` and ``selectors`` of the standard library: the same code runs under
nova-compute's native threads and under eventlet.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence

from compute_agent.tap_wire import Busy, NodeGone, TapMessage, TreeWritten, frames
from shared_scheduler.transport.unix_sockets import remove_socket

LOG = logging.getLogger(__name__)

#: Messages that wait for the thread.
QUEUE_MAX_MESSAGES = 1024
#: A peer that does not read for so long is disconnected.
PEER_STUCK_S = 5.0
#: The pause between two attempts to bind the socket, and after an unexpected error.
RETRY_S = 5.0
#: The longest time between two looks whether the socket is there.
LOOK_S = 5.0
SOCKET_MODE = 0o660
DIRECTORY_MODE = 0o750


class TapChannel:
    """A sink of the hooks.  ``everything`` returns hello and a complete report of each node; called with
    ``lock`` held, when a peer connects and when the queue is full."""

    needs_everything = False

    def __init__(self, path: str, everything: Callable[[], Sequence[TapMessage]]) -> None:
        self.path = path
        #: held while snapshots change and messages are queued, never while anything is sent
        self.lock = threading.RLock()
        self._everything = everything
        self._queue: deque[TapMessage] = deque()
        self._peer: socket.socket | None = None
        self._thread_of_pid = 0
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)

    def put(self, message: TapMessage) -> None:
        """Queue a message for the peer, if there is one.  Call with ``lock`` held.  Never blocks."""
        self._start()
        if self._peer is None:
            return
        if len(self._queue) >= QUEUE_MAX_MESSAGES:
            self._shorten(message)
        else:
            self._queue.append(message)
        self._wake()

    def _start(self) -> None:
        """Start the thread in the process that serves.  One that was started before a fork does not exist there."""
        if self._thread_of_pid == os.getpid():
            return
        self._thread_of_pid = os.getpid()
        threading.Thread(target=self._run, name="compute-agent-tap", daemon=True).start()

    def _shorten(self, message: TapMessage) -> None:
        """Replace what waits, and the message, by complete reports and what no report contains."""
        waiting = (*self._queue, message)
        self._report_everything()
        gone = dict.fromkeys(one for one in waiting if isinstance(one, NodeGone))
        self._queue.extendleft(gone)  # before the reports: a node may have come back
        self._queue.extend(dict.fromkeys(one for one in waiting if isinstance(one, TreeWritten)))

    def _report_everything(self) -> None:
        self._queue.clear()
        self._queue.extend(self._everything())

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the thread is awake already
            self._wake_write.send(b"!")

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            listener = self._listening(selector)
            while True:
                try:
                    if self._is_lost():
                        selector.unregister(listener)
                        listener.close()
                        listener = self._listening(selector)
                    self._turn(selector, listener)
                except Exception:
                    LOG.exception("compute-agent tap: dropping the agent's connection")
                    self._drop(selector)
                    threading.Event().wait(RETRY_S)

    def _listening(self, selector: selectors.BaseSelector) -> socket.socket:
        listener = self._bind_at_last()
        selector.register(listener, selectors.EVENT_READ)
        return listener

    def _is_lost(self) -> bool:
        """Whether no agent can connect, because somebody has removed the socket."""
        return self._peer is None and not os.path.exists(self.path)

    def _bind_at_last(self) -> socket.socket:
        waiting = threading.Event()
        said = False
        while True:
            try:
                return bind(self.path)
            except OSError as error:
                if not said:
                    LOG.error(
                        "compute-agent tap: cannot listen on %s: %s. Check [compute_agent] tap_socket "
                        "and the permissions of its directory; nova-compute is not affected.",
                        self.path, error,
                    )  # fmt: skip
                said = True
                waiting.wait(RETRY_S)

    def _turn(self, selector: selectors.BaseSelector, listener: socket.socket) -> None:
        for key, _ in selector.select(LOOK_S):
            if key.fileobj is self._wake_read:
                self._drain()
            elif key.fileobj is listener:
                self._accept(selector, listener)
            elif key.fileobj is self._peer:
                self._receive(selector)
        self._send(selector)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_read.recv(4096):
                pass

    def _accept(self, selector: selectors.BaseSelector, listener: socket.socket) -> None:
        peer, _ = listener.accept()
        peer.settimeout(PEER_STUCK_S)
        if self._peer is not None:
            with contextlib.suppress(OSError):
                send(peer, Busy())
            peer.close()
            return
        with self.lock:
            self._peer = peer
            self._report_everything()
        selector.register(peer, selectors.EVENT_READ)
        LOG.info("compute-agent tap: an agent is connected")

    def _receive(self, selector: selectors.BaseSelector) -> None:
        """Detect the end of the connection.  The agent sends nothing else."""
        try:
            gone = self._peer is not None and not self._peer.recv(64)
        except OSError:
            gone = True
        if gone:
            LOG.info("compute-agent tap: the agent has disconnected")
            self._drop(selector)

    def _send(self, selector: selectors.BaseSelector) -> None:
        while self._peer is not None:
            with self.lock:
                message = self._queue.popleft() if self._queue else None
            if message is None:
                return
            try:
                send(self._peer, message)
            except OSError as error:
                LOG.info("compute-agent tap: the agent has disconnected (%s)", error)
                self._drop(selector)

    def _drop(self, selector: selectors.BaseSelector) -> None:
        with self.lock:
            peer, self._peer = self._peer, None
            self._queue.clear()
        if peer is not None:
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(peer)
            peer.close()


def bind(path: str) -> socket.socket:
    """Listen on ``path``.  A socket file on which no process listens is replaced.

    :raises OSError: when it cannot be bound, in particular when another process serves it, or it is no socket
    """
    os.makedirs(os.path.dirname(path), mode=DIRECTORY_MODE, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        if somebody_listens(path):
            raise OSError(f"another process listens on {path}")
        remove_socket(path)
        listener.bind(path)
        os.chmod(path, SOCKET_MODE)
        listener.listen(4)
    except BaseException:
        listener.close()
        raise
    return listener


def somebody_listens(path: str) -> bool:
    """Whether a process listens on ``path``.  (``connect_ex`` is not used because it raises under eventlet.)"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True


def send(peer: socket.socket, message: TapMessage) -> None:
    """One message, frame by frame.

    :raises OSError: when it cannot be sent; TimeoutError when the peer does not read
    """
    for frame in frames(message):
        peer.send(frame)

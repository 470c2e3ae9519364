# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy on loopback that passes on, drops, delays or cuts: a network partition on one machine."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from enum import StrEnum

CHUNK_BYTES = 64 * 1024
#: Pieces up to this size are not halved.  A larger one has several small messages, the last of which is cut.
SMALL_BYTES = 4 * 1024
BACKLOG = 128
LOOK_S = 0.05
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes close() send a reset."""


class Mode(StrEnum):
    """What the proxy does with data."""

    PASS = "pass"
    DROP = "drop"  # connections stay, no data arrives, new connections are not answered
    DELAY = "delay"  # each piece takes `delay_s` longer
    HALVE = "halve"  # of the next large piece one half arrives, then as with DROP
    CUT = "cut"  # connections are reset, new ones at once


class Proxy:
    """Listens on `port`, and connects each client to the broker.

    `counters`: connections that were `reset`, pieces that were `held` (dropped), their `held_bytes`, and pieces that
    were `delayed`.
    """

    def __init__(self, target_port: int, delay_s: float = 0.3) -> None:
        self.mode = Mode.PASS
        self.counters: Counter[str] = Counter()
        self._delay_s = delay_s
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, name=f"proxy {self.port}", daemon=True).start()

    def set(self, mode: Mode) -> None:
        """Set the mode from now on."""
        self.mode = mode
        if mode is Mode.CUT:
            with self._lock:
                cut, self._open = self._open, set()
            for each in cut:
                self._reset(each)

    def close(self) -> None:
        self.set(Mode.CUT)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            if self.mode is Mode.CUT:
                self._reset(client)
                continue
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            self._wait_while_dropping()
            server = socket.create_connection(self._target, 5.0)
        except OSError:
            self._reset(client)
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while chunk := source.recv(CHUNK_BYTES):
                if self.mode is Mode.HALVE and len(chunk) > SMALL_BYTES:
                    chunk = self._halve(chunk, sink)
                self._count_held(chunk)
                self._wait_while_dropping()
                if self.mode is Mode.DELAY:
                    self.counters["delayed"] += 1
                    time.sleep(self._delay_s)
                sink.sendall(chunk)
        except OSError:
            pass  # one end has closed
        self._wait_while_dropping()  # the end of a connection is delayed too
        for each in (source, sink):
            with self._lock:
                self._open.discard(each)
            each.close()

    def _halve(self, chunk: bytes, sink: socket.socket) -> bytes:
        sink.sendall(chunk[: len(chunk) // 2])
        self.mode = Mode.DROP
        return chunk[len(chunk) // 2 :]

    def _count_held(self, chunk: bytes) -> None:
        if self.mode is Mode.DROP:
            self.counters["held"] += 1
            self.counters["held_bytes"] += len(chunk)

    def _wait_while_dropping(self) -> None:
        """Data that are delayed here are sent after the fault, as TCP's retransmissions would be."""
        while self.mode is Mode.DROP:
            time.sleep(LOOK_S)

    def _reset(self, connection: socket.socket) -> None:
        self.counters["reset"] += 1
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already
        connection.close()

# SPDX-License-Identifier: Apache-2.0
"""Questions to a process of this project and its answers: one line of JSON each, on a local socket.

The process serves each connection in its own thread, so a question that takes long delays no other.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.laboratory.errors import LabError

ANSWER_TIMEOUT_S = 60.0
BACKLOG = 128
PARENT_INTERVAL_S = 1.0

Handlers = Mapping[str, Callable[[Mapping[str, Any]], Any]]


class ControlError(LabError):
    """The process does not answer, or answers with an error."""


class NoAnswerError(ControlError):
    """No answer arrived in time."""


def serve(path: Path, questions: Handlers) -> None:
    """Answer on this socket in a thread; end this process when its parent has ended."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), name="parent", daemon=True).start()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(path))
    listener.listen(BACKLOG)
    threading.Thread(target=_accept, args=(listener, questions), name="control", daemon=True).start()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_INTERVAL_S)
    os._exit(0)


def _accept(listener: socket.socket, questions: Handlers) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_answer_all, args=(client, questions), daemon=True).start()


def _answer_all(client: socket.socket, questions: Handlers) -> None:
    with client, client.makefile("rwb") as stream:
        for line in stream:
            try:
                stream.write(json.dumps(_answer(json.loads(line), questions)).encode() + b"\n")
                stream.flush()
            except OSError:
                return  # the caller has ended


def _answer(question: Mapping[str, Any], questions: Handlers) -> dict[str, Any]:
    try:
        return {"answer": questions[question["ask"]](question)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


class Line:
    """A connection to one process, for one thread at a time; connects when it is used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._stream: Any = None

    def ask(self, question: str, timeout_s: float | None = ANSWER_TIMEOUT_S, **fields: Any) -> Any:
        """The answer; without a timeout, the wait ends with that process.

        :raises NoAnswerError: when no answer arrives in time
        :raises ControlError: when the process answers with an error
        """
        try:
            self._connect()
            assert self._socket is not None
            self._socket.settimeout(timeout_s)
            self._stream.write(json.dumps({"ask": question, **fields}).encode() + b"\n")
            self._stream.flush()
            reply = json.loads(self._stream.readline())
        except (OSError, ValueError) as error:
            self.close()
            raise NoAnswerError(f"{self._path.name}: {question}: {error}") from error
        if "error" in reply:
            raise ControlError(f"{self._path.name}: {question}: {reply['error']}")
        return reply["answer"]

    def _connect(self) -> None:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(ANSWER_TIMEOUT_S)
            self._socket.connect(os.fspath(self._path))
            self._stream = self._socket.makefile("rwb")

    def close(self) -> None:
        """Close the connection; the next question connects again."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._stream = None

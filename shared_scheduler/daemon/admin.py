# SPDX-License-Identifier: Apache-2.0
"""The admin socket: the operator of a host queries a running scheduler or agent through it.

Each scheduler process listens on its own Unix socket (mode 0660) in one directory.  A client sends one line of JSON,
``{"ask": <question>, ...}``, and gets one line back: ``{"answer": ...}`` or ``{"error": "..."}``.  All
questions read, but one of schedulers: ``resync`` (``resync_orders.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from shared_scheduler.transport.unix_sockets import remove_own, remove_socket

QUESTION_BYTES_MAX = 64 * 1024
ANSWER_BYTES_MAX = 256 * 1024 * 1024
#: How long a client waits for the answer, and how long it may take to read it.
ANSWER_TIMEOUT_S = 30.0
#: How long one client may take to send its question, and to read each chunk of the answer.
CLIENT_TIMEOUT_S = 2.0
CHUNK_BYTES = 64 * 1024
#: Clients that are answered at the same time, and those that wait to be accepted.
CLIENTS_MAX, WAITING_MAX = 32, 64
#: The pause of a client that finds no place among those that wait.
CONNECT_PAUSE_S = 0.1
#: The pause after an error of ``accept``.
ACCEPT_PAUSE_S = 1.0
#: How long ``stop`` waits for the thread that accepts, which may itself wait until one client less is answered.
JOIN_S = 2.0
#: Needs no descriptor, and knows no greatest one; eventlet has only its own.
SELECTOR = getattr(selectors, "PollSelector", selectors.DefaultSelector)
SOCKET_PATH_BYTES_MAX = 107
SUFFIX = ".sock"
#: The name of a socket of a scheduler: that of the scheduler, and the id of its process.
NAME = re.compile(rf".+-[0-9]+{re.escape(SUFFIX)}")
DIRECTORY_OPTION = "[shared_scheduler] admin_socket_dir"

#: returns the answer to the fields of a question
Handler = Callable[[Mapping[str, Any]], Any]
#: answers by the name of the question
Handlers = Mapping[str, Handler]


class AdminError(Exception):
    """The socket cannot be used; the text contains the reason and the remedy."""


class AdminServer:
    """Answers questions on one Unix socket, each client in a thread, because some answers take seconds."""

    def __init__(self, path: Path, questions: Handlers, option: str = DIRECTORY_OPTION) -> None:
        """``option``: the one that sets the directory of the socket."""
        self._path = path
        self._questions = questions
        self._option = option
        self._listener: socket.socket | None = None
        self._bound: os.stat_result | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._free = threading.BoundedSemaphore(CLIENTS_MAX)

    def start(self) -> None:
        """Bind the socket, and answer in a thread.

        :raises AdminError: when the directory cannot be written, every user may write it, or the path is too long for a
            socket
        """
        self._listener = self._bind()
        self._thread = threading.Thread(target=self._serve, args=(self._listener,), name="admin", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close and remove the socket.  Idempotent."""
        listener, self._listener = self._listener, None
        if listener is None or self._bound is None or self._thread is None:
            return
        self._stopped.set()
        remove_own(self._path, self._bound)  # before nobody listens, or `killed` would find it
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(JOIN_S)  # before the close, which nobody who waits under eventlet notices
        listener.close()

    def _bind(self) -> socket.socket:
        if len(os.fsencode(self._path)) > SOCKET_PATH_BYTES_MAX:
            raise AdminError(
                f"admin socket {self._path}: the path is longer than {SOCKET_PATH_BYTES_MAX} bytes; "
                f"set {self._option} to a shorter directory"
            )
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _refuse_public(self._path.parent, self._option)
            remove_socket(self._path)
            _remove_left_behind(self._path)
            listener.bind(os.fspath(self._path))
            self._bound = os.lstat(self._path)
            self._path.chmod(0o660)
        except AdminError:
            listener.close()
            raise
        except FileExistsError as error:
            listener.close()
            text = f"admin socket {error.filename}: {error.strerror}; remove it, or set {self._option}"
            raise AdminError(text) from error
        except OSError as error:
            listener.close()
            raise AdminError(
                f"admin socket {self._path}: {error.strerror}; make its directory writable for this service, or set "
                f"{self._option}"
            ) from error
        listener.listen(WAITING_MAX)
        return listener

    def _serve(self, listener: socket.socket) -> None:
        with SELECTOR() as clients:  # stop() ends its wait; under eventlet it does not end that of `accept`
            clients.register(listener, selectors.EVENT_READ)
            clients.select()
            while not self._stopped.is_set():
                self._accept(listener)
                clients.select()

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # no descriptor is free at present
            self._stopped.wait(ACCEPT_PAUSE_S)
            return
        self._free.acquire()
        try:
            threading.Thread(target=self._answer, args=(client,), name="admin-client", daemon=True).start()
        except RuntimeError:  # no thread is free at present
            self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        try:
            self.answer_one(client)
        finally:
            self._free.release()

    def answer_one(self, client: socket.socket) -> None:
        """Read a question, answer it, and close the connection."""
        with client, contextlib.suppress(OSError):
            _send(client, self._encoded(self._reply(_read_line(client))))

    @staticmethod
    def _encoded(reply: dict[str, Any]) -> bytes:
        try:
            return json.dumps(reply).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            text = f"the answer cannot be encoded as JSON: {error}"
            return json.dumps({"error": text}).encode() + b"\n"

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            question = json.loads(line)
            answer = self._questions[question["ask"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            known = ", ".join(sorted(self._questions))
            return {"error": f'send one line of JSON, {{"ask": one of {known}}}'}
        try:
            return {"answer": answer(question)}
        except Exception as error:
            return {"error": _told(error)}


def _told(error: Exception) -> str:
    """The text of an error.  Those of this project are sentences; others say little without the name of their class."""
    is_ours = type(error).__module__.partition(".")[0] == __name__.partition(".")[0]
    return str(error) if is_ours and str(error) else f"{type(error).__name__}: {error}"


def _read_line(client: socket.socket) -> bytes:
    """One line, or the bytes up to the bound or the end."""
    line = b""
    until_s = time.monotonic() + CLIENT_TIMEOUT_S
    while len(line) < QUESTION_BYTES_MAX and not line.endswith(b"\n"):
        client.settimeout(max(0.001, until_s - time.monotonic()))
        chunk = client.recv(QUESTION_BYTES_MAX - len(line))
        if not chunk:
            break
        line += chunk
    return line


def _send(client: socket.socket, answer: bytes) -> None:
    whole, until_s = memoryview(answer), time.monotonic() + ANSWER_TIMEOUT_S
    for start in range(0, len(whole), CHUNK_BYTES):
        client.settimeout(max(0.001, min(CLIENT_TIMEOUT_S, until_s - time.monotonic())))
        client.sendall(whole[start : start + CHUNK_BYTES])


def _remove_left_behind(path: Path) -> None:
    """Remove sockets of earlier processes of this scheduler (``<name>-<process id>``) that no process serves."""
    name = path.stem.rpartition("-")[0]
    for other in sockets(path.parent):
        if other != path and name and other.stem.rpartition("-")[0] == name and _is_dead(other):
            other.unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:  # it is busy, or permission is denied
            return False
    return False


def _refuse_public(directory: Path, option: str = DIRECTORY_OPTION) -> None:
    """Refuse a directory in which any user could place a socket that answers in the name of a scheduler.

    :raises AdminError: when every user may write it
    """
    if directory.is_dir() and directory.stat().st_mode & stat.S_IWOTH:
        raise AdminError(
            f"every user may write {directory}, and could answer in the name of a scheduler; use another directory "
            f"({option}), or chmod o-w {directory}"
        )


def sockets(directory: Path) -> Iterator[Path]:
    """The admin sockets of the schedulers on this machine, including those of dead processes.

    Sockets with other names are those of other programs.

    :raises AdminError: when every user may write the directory
    """
    _refuse_public(directory)
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if NAME.fullmatch(path.name) and not os.path.isfile(path) and not os.path.isdir(path):
            yield path


def ask(path: Path, question: str, **fields: Any) -> Any:
    """Send a question to a running scheduler.

    :raises AdminError: when no scheduler listens there, or it answers with an error
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(ANSWER_TIMEOUT_S)
        try:
            _connect(client, path)
            client.sendall(json.dumps({"ask": question, **fields}).encode() + b"\n")
            with client.makefile("rb") as stream:
                line = stream.readline(ANSWER_BYTES_MAX)
                if len(line) < ANSWER_BYTES_MAX and not line.endswith(b"\n"):
                    raise AdminError(f"{path}: it has ended before it has answered; ask again")
                reply = json.loads(line)
        except (OSError, ValueError, RecursionError) as error:
            raise AdminError(f"{path}: nothing answers there ({error}); is the service running?") from error
    match reply:
        case {"error": error}:
            raise AdminError(f"{path}: {error}")
        case {"answer": answer}:
            return answer
    raise AdminError(f"{path}: what answers there is no scheduler or agent of this project; remove it, or restart it")


def _connect(client: socket.socket, path: Path) -> None:
    until_s = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            client.connect(os.fspath(path))
            return
        except BlockingIOError:  # so many others wait that the kernel keeps no more
            if time.monotonic() >= until_s:
                raise
            time.sleep(CONNECT_PAUSE_S)


def ask_each(directory: Path, question: str, **fields: Any) -> tuple[list[Any], list[AdminError]]:
    """The answers of the schedulers that run in ``directory``, and the errors of the others.

    Sockets of killed processes are skipped.

    :raises AdminError: when no scheduler runs there
    """
    answers, silent = list[Any](), list[AdminError]()
    asked = [(path, _asked(path, question, fields)) for path in sockets(directory)]
    for path, answer in asked:
        try:
            answers.append(answer.result())
        except AdminError as error:
            if not _is_dead(path):
                silent.append(error)
    if not answers and not silent:
        raise _nobody(directory)
    return answers, silent


def _asked(path: Path, question: str, fields: Mapping[str, Any]) -> Future[Any]:
    """The answer of a scheduler that is asked in a thread, so that those that hang are waited for together."""
    found: Future[Any] = Future()

    def put() -> None:
        try:
            found.set_result(ask(path, question, **fields))
        except Exception as error:
            found.set_exception(error)

    threading.Thread(target=put, name="admin-question", daemon=True).start()  # Control-C need not wait for it
    return found


def killed(directory: Path, scheduler: str = "") -> list[AdminError]:
    """An error for each socket that no process serves: of all, or of the scheduler with this name or process id.

    A scheduler that stops in order removes its socket, and one that starts again removes that of its earlier process.

    :raises AdminError: when every user may write the directory
    """
    found = list[AdminError]()
    for path in sockets(directory):
        name, _, process = path.stem.rpartition("-")
        if scheduler in ("", name, process) and _is_dead(path) and path.exists():
            text = f"{name} (process {process}) has ended without an orderly stop; see its log and start it again; "
            found.append(AdminError(f"{text}if it shall not run here any more, delete {path}"))
    return found


def ask_first(directory: Path, question: str, **fields: Any) -> Any:
    """The answer of the first scheduler in ``directory`` that gives one.

    :raises AdminError: when none does; the text is that of the first error
    """
    silent: list[AdminError] = []
    for path in sockets(directory):
        try:
            return ask(path, question, **fields)
        except AdminError as error:
            if not _is_dead(path):
                silent.append(error)
    raise silent[0] if silent else _nobody(directory)


def first_answering(directory: Path) -> Path:
    """The socket of the first scheduler in ``directory`` that answers.

    :raises AdminError: when none does
    """
    for path in sockets(directory):
        if not _is_dead(path):
            return path
    raise _nobody(directory)


def _nobody(directory: Path) -> AdminError:
    return AdminError(
        f"no scheduler of this machine answers in {directory}; is shared-scheduler running, and is "
        f"{DIRECTORY_OPTION} the same for both?"
    )


def ask_all(directory: Path, question: str) -> list[Any]:
    """The answers of all schedulers that run in ``directory``.

    :raises AdminError: when no scheduler runs there, or one does not answer
    """
    answers, silent = ask_each(directory, question)
    if silent:
        raise silent[0]
    return answers

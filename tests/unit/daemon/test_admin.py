# SPDX-License-Identifier: Apache-2.0
"""An operator queries a running scheduler through its local socket."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shared_scheduler.daemon import admin
from shared_scheduler.decision.what_if import WhatIfError

#: characters; more than the kernel keeps for a client
LONG_ANSWER = 2**22


def broken(question: object) -> None:
    raise RuntimeError("the table is on fire")


def circle(question: object) -> object:
    found: list[object] = []
    found.append(found)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "run" / "sched1-17.sock"
    server = admin.AdminServer(
        path,
        {
            "status": lambda question: {"nodes": 3, "asked": question.get("cell")},
            "burn": broken,
            "odd": lambda _: {1, 2},
            "deep": circle,
            "long": lambda _: "x" * LONG_ANSWER,
        },
    )
    server.start()
    yield path
    server.stop()
    server.stop()  # idempotent
    assert not path.exists()


def test_a_question_is_answered_again_and_again(path: Path) -> None:
    assert admin.ask(path, "status") == {"nodes": 3, "asked": None}
    assert admin.ask(path, "status", cell="c1") == {"nodes": 3, "asked": "c1"}


def test_only_owner_and_group_may_ask(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_an_unknown_question_names_the_known_ones(path: Path) -> None:
    with pytest.raises(admin.AdminError, match="one of burn, deep, long, odd, status"):
        admin.ask(path, "tell me everything")


def test_a_failed_answer_is_reported_and_the_next_one_works(path: Path) -> None:
    with pytest.raises(admin.AdminError, match="RuntimeError: the table is on fire"):
        admin.ask(path, "burn")
    assert admin.ask(path, "status")["nodes"] == 3


def test_what_is_wrong_with_a_question_is_told_without_the_name_of_a_class(tmp_path: Path) -> None:
    def refuses(_: Mapping[str, Any]) -> Any:
        raise WhatIfError("flavor: there is no flavor 'm1'")

    server = admin.AdminServer(tmp_path / "c-1.sock", {"fit": refuses})
    server.start()
    try:
        with pytest.raises(admin.AdminError, match=r"c-1\.sock: flavor: there is no flavor"):
            admin.ask(tmp_path / "c-1.sock", "fit")
    finally:
        server.stop()


@pytest.mark.parametrize("question", ["odd", "deep"])
def test_an_answer_that_json_cannot_encode_is_reported_and_the_next_one_works(path: Path, question: str) -> None:
    with pytest.raises(admin.AdminError, match="cannot be encoded as JSON"):
        admin.ask(path, question)
    assert admin.ask(path, "status")["nodes"] == 3


def test_a_silent_client_does_not_keep_others_waiting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "CLIENT_TIMEOUT_S", 600.0)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        assert admin.ask(path, "status")["nodes"] == 3


def test_a_client_that_does_not_read_does_not_keep_others_waiting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a client that leaves an answer unread, and a server that waits longer for it than others wait for theirs
    monkeypatch.setattr(admin, "CLIENT_TIMEOUT_S", 600.0)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(path))
        slow.sendall(b'{"ask": "long"}\n')
        assert slow.recv(1)

        assert admin.ask(path, "status")["nodes"] == 3


def test_a_silent_client_is_turned_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "CLIENT_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        assert silent.recv(1000) == b""


def test_a_client_that_reads_slowly_is_turned_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a time for an answer that is shorter than this client takes, which reads in time each time
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", 0.2)
    received = 0
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(path))
        slow.sendall(b'{"ask": "long"}\n')
        while chunk := slow.recv(LONG_ANSWER // 64):
            received += len(chunk)
            time.sleep(0.02)

    # then it does not get the whole answer
    assert 0 < received < LONG_ANSWER


def test_the_server_continues_after_it_ran_out_of_descriptors(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [OSError(errno.EMFILE, "Too many open files")]
    accept = socket.socket.accept

    def accept_later(listener: socket.socket) -> object:
        if errors:
            raise errors.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accept_later)
    for _ in range(3):
        assert admin.ask(path, "status")["nodes"] == 3
    assert not errors


def test_clients_are_answered_although_no_thread_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a machine that has no thread for a while
    refused = [RuntimeError("can't start new thread")] * (admin.CLIENTS_MAX + 1)
    start = threading.Thread.start

    def flaky(thread: threading.Thread) -> None:
        if thread.name == "admin-client" and refused:
            raise refused.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", flaky)
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", 10.0)
    # when more clients ask than may be answered at the same time, then each gets its answer
    while refused:
        assert admin.ask(path, "status")["nodes"] == 3
    # and later ones do, too
    assert admin.ask(path, "status")["nodes"] == 3


def test_a_client_waits_while_the_queue_of_the_socket_is_full(tmp_path: Path) -> None:
    # given a scheduler that is busy with so many clients that the kernel keeps no more of them
    path, others = tmp_path / "busy-17.sock", [socket.socket(socket.AF_UNIX) for _ in range(4)]
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(str(path))
        listener.listen(0)
        for other in others:
            stack.enter_context(other).setblocking(False)
        assert any(other.connect_ex(str(path)) for other in others)

        # when they go away
        def go() -> None:
            stack.close()
            for _ in others:
                client, _ = listener.accept()
                with client:
                    if line := client.recv(1000):
                        client.sendall(json.dumps({"answer": json.loads(line)["ask"]}).encode() + b"\n")
                        return

        threading.Timer(0.2, go).start()
        # then the next one is answered
        assert admin.ask(path, "status") == "status"


def test_only_dead_sockets_of_the_same_scheduler_are_removed(path: Path) -> None:
    left, others = (path.with_name(f"{name}.sock") for name in ("sched1-5", "sched2-5"))
    for each in (left, others):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(each))

    again = admin.AdminServer(path.with_name("sched1-18.sock"), {"status": lambda _: "new"})
    again.start()

    assert set(admin.sockets(path.parent)) == {path, path.with_name("sched1-18.sock"), others}
    assert admin.ask(path, "status")["nodes"] == 3
    again.stop()


def test_the_socket_of_another_program_is_no_scheduler(path: Path) -> None:
    """The page may be served from the same directory."""
    # given a socket that answers something else, one of a program that has ended, and a killed worker
    names = ("page", "page-of-cloud", "sched1-x", "-5", "sched1.worker3-5")
    page, *ended = (path.with_name(f"{name}.sock") for name in names)
    for each in ended:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(each))

    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(page))
        served.listen()

        # then only the schedulers are asked and missed
        assert set(admin.sockets(path.parent)) == {path, ended[-1]}
        assert len(admin.ask_all(path.parent, "status")) == 1
        [missed] = admin.killed(path.parent)
        assert str(missed).startswith("sched1.worker3 (process 5)")
    assert all(each.exists() for each in (page, *ended))


def test_what_is_no_socket_is_kept_and_is_no_killed_scheduler(path: Path) -> None:
    """A scheduler once removed files that had the name of a socket, and did not listen beside a directory of one."""
    # given a directory and a file beside a scheduler
    directory, file = path.with_name("sched1-5.sock"), path.with_name("sched1-6.sock")
    directory.mkdir()
    file.write_text("precious")

    # when another process of the scheduler starts
    again = admin.AdminServer(path.with_name("sched1-18.sock"), {"status": lambda _: "new"})
    again.start()

    # then it listens, and they are no schedulers
    assert admin.ask_all(path.parent, "status") == [{"nodes": 3, "asked": None}, "new"]
    assert admin.killed(path.parent) == []
    assert directory.is_dir() and file.read_text() == "precious"
    again.stop()


@pytest.mark.parametrize("noise", [b"", b"\n", b"not json\n", b"[1]\n", b"[" * 4000 + b"\n", b"\xff" * 9000 + b"\n"])
def test_invalid_questions_have_no_effect(path: Path, noise: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(noise)
        client.shutdown(socket.SHUT_WR)
        try:
            assert b"error" in client.recv(1000)
        except ConnectionResetError:
            pass  # what was beyond the bound was never read
    assert admin.ask(path, "status")["nodes"] == 3


def test_a_missing_scheduler_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(admin.AdminError, match="is the service running"):
        admin.ask(tmp_path / "nobody.sock", "status")


def test_a_path_too_long_for_a_socket_is_reported_with_the_option(tmp_path: Path) -> None:
    server = admin.AdminServer(tmp_path / ("x" * 120 + ".sock"), {})
    with pytest.raises(admin.AdminError, match="admin_socket_dir to a shorter directory"):
        server.start()


def test_a_socket_left_by_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    left = tmp_path / "a-17.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    server = admin.AdminServer(left, {"status": lambda question: "alive"})
    server.start()
    assert list(admin.sockets(tmp_path)) == [left]
    assert admin.ask(left, "status") == "alive"
    server.stop()


@pytest.fixture
def frozen(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scheduler that takes questions and answers none, beside one that answers and is waited for."""
    frozen = path.with_name("sched2-18.sock")
    impatient_with(frozen, monkeypatch)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(frozen))
        listener.listen()
        yield frozen


def impatient_with(frozen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for this scheduler; the others have all their time, for the machine may be busy."""
    ask = admin.ask

    def impatient(path: Path, question: str, **fields: Any) -> Any:
        with monkeypatch.context() as limits:
            if path == frozen:
                limits.setattr(admin, "ANSWER_TIMEOUT_S", 0.2)
            return ask(path, question, **fields)

    monkeypatch.setattr(admin, "ask", impatient)


def test_a_scheduler_that_does_not_answer_is_not_passed_over(path: Path, frozen: Path) -> None:
    """Or a comparison would find no difference to what it never saw."""
    with pytest.raises(admin.AdminError, match=r"sched2-18\.sock: nothing answers there"):
        admin.ask_all(path.parent, "status")


def test_sockets_of_the_dead_are_passed_over(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path.with_name("sched2-18.sock")))
    assert admin.ask_all(path.parent, "status") == [{"nodes": 3, "asked": None}]


def test_a_scheduler_that_stops_in_order_is_at_no_moment_taken_for_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = admin.AdminServer(tmp_path / "sched1-17.sock", {})
    server.start()
    assert server._listener is not None
    listener, seen = server._listener, list[admin.AdminError]()

    class Closing:
        """The listener; another process looks for killed schedulers as soon as it is closed."""

        def shutdown(self, how: int) -> None:
            listener.shutdown(how)

        def close(self) -> None:
            listener.close()
            seen.extend(admin.killed(tmp_path))

    monkeypatch.setattr(server, "_listener", Closing())
    server.stop()

    assert seen == []


def test_its_thread_ends_at_stop(tmp_path: Path) -> None:
    """A thread of eventlet that waits for a socket does not notice that another one closes it."""
    # given a server that waits for clients
    others = {*threading.enumerate()}
    server = admin.AdminServer(tmp_path / "sched1-17.sock", {"status": lambda _: "here"})
    server.start()
    assert admin.ask(tmp_path / "sched1-17.sock", "status") == "here"
    time.sleep(0.01)  # eventlet changes threads here

    server.stop()

    assert [thread.name for thread in threading.enumerate() if thread not in others and thread.name == "admin"] == []


def test_a_stop_ends_all_although_the_file_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Or the parts that are stopped afterwards would not be: an agent would not take leave."""
    path = tmp_path / "sched1-17.sock"
    server = admin.AdminServer(path, {"status": lambda _: "here"})
    server.start()

    def refuses(file: object, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    with monkeypatch.context() as directory:
        directory.setattr(os, "unlink", refuses)
        server.stop()

    assert "sched1-17.sock cannot be removed (Permission denied); delete it" in caplog.text
    with pytest.raises(admin.AdminError, match="nothing answers there"):
        admin.ask(path, "status")


def test_a_stop_keeps_the_socket_that_another_process_has_bound_meanwhile(tmp_path: Path) -> None:
    """A new agent may start as soon as the old one has released the state directory, in which the socket is."""
    before, after = (admin.AdminServer(tmp_path / "status.sock", {"who": lambda _, w=who: w}) for who in ("old", "new"))
    before.start()
    after.start()

    before.stop()

    assert admin.ask(tmp_path / "status.sock", "who") == "new"
    after.stop()
    assert not (tmp_path / "status.sock").exists()


def test_a_stop_keeps_a_directory_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / "status.sock"
    server = admin.AdminServer(path, {})
    server.start()
    path.unlink()
    path.mkdir()

    server.stop()

    assert path.is_dir()


@pytest.mark.parametrize("begun", [b"", b'{"answer": {"nodes": ["node-1", "no'], ids=["nothing", "half"])
def test_a_process_that_ends_before_it_has_answered_is_told(tmp_path: Path, begun: bytes) -> None:
    """It stopped while this client was served."""
    path = tmp_path / "sched1-17.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def end() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(begun)

        threading.Thread(target=end).start()
        with pytest.raises(admin.AdminError, match="sock: it has ended before it has answered; ask again"):
            admin.ask(path, "status")


def test_a_client_that_is_served_at_a_stop_gets_its_answer_while_the_process_runs(tmp_path: Path) -> None:
    # given a client that waits for its answer
    asked, may_answer, answers = threading.Event(), threading.Event(), queue.Queue[Any]()

    def answer(_: Mapping[str, Any]) -> str:
        asked.set()
        may_answer.wait(60)
        return "late"

    server = admin.AdminServer(tmp_path / "sched1-17.sock", {"status": answer})
    server.start()
    threading.Thread(target=lambda: answers.put(admin.ask(tmp_path / "sched1-17.sock", "status"))).start()
    assert asked.wait(60)
    # when the server stops, which does not wait for the client
    server.stop()
    # then the client gets its answer
    may_answer.set()
    assert answers.get(timeout=60) == "late"


def test_a_socket_that_is_removed_meanwhile_is_of_no_killed_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "sockets", lambda directory: iter([directory / "sched1-17.sock"]))

    assert admin.killed(tmp_path) == []


def test_schedulers_that_answer_late_are_waited_for_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a machine without memory hang together; each once cost half a minute of its own."""
    # given schedulers of which none answers before all are asked
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", 2.0)
    asked = threading.Barrier(3)
    paths = [tmp_path / f"sched{number}-{number}.sock" for number in range(3)]
    servers = [admin.AdminServer(path, {"status": lambda _: asked.wait(60)}) for path in paths]
    for server in servers:
        server.start()
    # when they are asked
    answers, silent = admin.ask_each(tmp_path, "status")
    # then all have answered
    assert (sorted(answers), silent) == ([0, 1, 2], [])
    for server in servers:
        server.stop()


@pytest.mark.parametrize(
    "reply",
    [b"7", b"[]", b"null", b'"error"', b"{}", b"[" * 100_000, b"\xff\xfe"],
    ids=["number", "list", "null", "text", "nothing", "deep", "bytes"],
)
def test_what_is_no_answer_is_told_and_hides_no_other(path: Path, reply: bytes) -> None:
    """Another program may listen there, or a scheduler of another release."""
    # given something beside a scheduler that answers otherwise
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path.parent / "another-1.sock"))
        listener.listen()

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(reply + b"\n")

        answering = threading.Thread(target=answer)
        answering.start()
        # when both are asked
        answers, silent = admin.ask_each(path.parent, "status")
        answering.join()
    # then one answer is there, and one line of what is wrong
    assert answers == [{"nodes": 3, "asked": None}]
    assert [str(error).partition(":")[0] for error in silent] == [str(path.parent / "another-1.sock")]


def test_the_absence_of_schedulers_is_reported_with_the_option(tmp_path: Path) -> None:
    with pytest.raises(admin.AdminError, match=r"is shared-scheduler running, and is .* admin_socket_dir"):
        admin.ask_all(tmp_path, "status")

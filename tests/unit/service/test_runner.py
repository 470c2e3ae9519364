# SPDX-License-Identifier: Apache-2.0
"""Signals reach a real process as an operator sends them; nothing here is in-process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0

#: A service that says what happens to it, one word a line.
SERVICE = """
import logging, os, sys, threading, time
{patch}
from shared_scheduler.service.runner import Runner

def say(*words):
    os.write(1, (" ".join(str(word) for word in words) + "\\n").encode())

class Service:
    def start(self):
        self.table = ["kept"]
        {start}
        say("started", os.getpid())

    def stop(self):
        say("stopping")
        {stop}
        say("stopped")

service = Service()

def reload():
    {reload}
    say("reloaded", service.table[0])

sys.exit(Runner(service, reload, drain_timeout_s={drain}).run())
"""

EVENTLET = "import eventlet; eventlet.monkey_patch()"


def program(patch: str = "", start: str = "pass", stop: str = "pass", reload: str = "pass", drain: float = 30.0) -> str:
    return textwrap.dedent(SERVICE).format(patch=patch, start=start, stop=stop, reload=reload, drain=drain)


class Running:
    """A child that is read line by line."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)

    def line(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().split()

    def rest(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.read().decode().split()

    def send(self, number: int) -> None:
        self.process.send_signal(number)


@pytest.fixture
def start() -> Iterator[type[Running]]:
    begun: list[Running] = []

    class Started(Running):
        def __init__(self, *command: str) -> None:
            super().__init__(*command)
            begun.append(self)

    yield Started
    for running in begun:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()
        assert running.process.stdout is not None
        running.process.stdout.close()


@pytest.mark.parametrize("patch", ["", EVENTLET], ids=["threading", "eventlet"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_drains_and_exits_with_0(start: type[Running], patch: str, number: int) -> None:
    child = start(sys.executable, "-c", program(patch))
    assert child.line()[0] == "started"

    child.send(number)

    assert child.rest() == ["stopping", "stopped"]
    assert child.process.wait() == 0


@pytest.mark.parametrize("patch", ["", EVENTLET], ids=["threading", "eventlet"])
def test_a_reload_keeps_process_and_state(start: type[Running], patch: str) -> None:
    child = start(sys.executable, "-c", program(patch))
    assert child.line() == ["started", str(child.process.pid)]

    child.send(signal.SIGHUP)
    assert child.line() == ["reloaded", "kept"]
    child.send(signal.SIGHUP)
    assert child.line() == ["reloaded", "kept"]

    child.send(signal.SIGTERM)
    assert child.process.wait() == 0


def test_two_signals_during_the_start_drain_once(start: type[Running]) -> None:
    """A service manager signals the whole group, and a supervisor its workers: each is told twice."""
    child = start(sys.executable, "-c", program(
        start="say('starting'); time.sleep(3600)",
        stop="os.kill(os.getpid(), __import__('signal').SIGTERM); time.sleep(0.1)",
    ))  # fmt: skip
    assert child.line() == ["starting"]

    child.send(signal.SIGTERM)

    assert child.rest() == ["stopping", "stopped"]
    assert child.process.wait() == 0


def test_a_reload_that_fails_changes_nothing(start: type[Running]) -> None:
    child = start(
        sys.executable,
        "-c",
        program(reload="say('trying'); raise RuntimeError('no such filter')"),
    )
    assert child.line()[0] == "started"

    child.send(signal.SIGHUP)
    assert child.line() == ["trying"]
    child.send(signal.SIGTERM)

    assert child.rest() == ["stopping", "stopped"]


@pytest.mark.parametrize("patch", ["", EVENTLET], ids=["threading", "eventlet"])
def test_a_stop_does_not_wait_for_a_reload_that_hangs(start: type[Running], patch: str) -> None:
    """A reload reads databases.  One that hangs must not cost the requests under way, which need to drain."""
    child = start(sys.executable, "-c", program(patch, reload="say('hanging'); time.sleep(3600)", drain=PATIENCE_S))
    assert child.line()[0] == "started"
    child.send(signal.SIGHUP)
    assert child.line() == ["hanging"]

    child.send(signal.SIGTERM)

    assert child.process.wait(PATIENCE_S) == 0
    assert child.rest() == ["stopping", "stopped"]


def test_a_reload_that_is_requested_during_another_one_follows_it(start: type[Running]) -> None:
    again = "os.kill(os.getpid(), __import__('signal').SIGHUP) if len(service.table) == 1 else None"
    child = start(sys.executable, "-c", program(reload=f"{again}; time.sleep(0.1); service.table.append('again')"))
    assert child.line()[0] == "started"

    child.send(signal.SIGHUP)

    assert child.line() == ["reloaded", "kept"]
    assert child.line() == ["reloaded", "kept"]


def test_draining_that_does_not_end_is_ended(start: type[Running]) -> None:
    child = start(sys.executable, "-c", program(stop="time.sleep(3600)", drain=0.2))
    assert child.line()[0] == "started"

    child.send(signal.SIGTERM)

    # in time for it to say that it stops, or not
    assert "stopped" not in child.rest()
    assert child.process.wait() == 1


#: The same file is supervisor and worker, as the console script is.
SUPERVISED = """
import os, sys, time
from shared_scheduler.service import runner

if runner.WORKER_NUMBER in os.environ:
    number = os.environ[runner.WORKER_NUMBER]
    def say(word):
        os.write(1, f"{{word}} {{number}} {{os.getpid()}}\\n".encode())
    def refuse_after(path, status=78):
        while not os.path.exists(path):
            time.sleep(0.01)
        sys.exit(status)
    class Service:
        def start(self):
            {start}
            say("started")
        def stop(self):
            say("stopped")
    sys.exit(runner.Runner(Service(), lambda: say("reloaded"), 10.0).run())
runner.HEALTHY_AFTER_S = {healthy_after_s}
{supervisor}
sys.exit(runner.Supervisor([sys.executable, __file__], 2, 10.0).run())
"""


def supervised(tmp_path: Path, start: str = "pass", healthy_after_s: float = 60.0, supervisor: str = "") -> str:
    """``supervisor``: what the supervisor does at first."""
    path = tmp_path / "supervised.py"
    text = textwrap.dedent(SUPERVISED)
    values = {"start": start, "healthy_after_s": healthy_after_s, "supervisor": supervisor}
    path.write_text(text.format(**values))
    return str(path)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_two_workers_start_reload_and_stop_together(start: type[Running], tmp_path: Path) -> None:
    parent = start(sys.executable, supervised(tmp_path))
    workers = {parent.line()[1], parent.line()[1]}
    assert workers == {"0", "1"}

    parent.send(signal.SIGHUP)
    assert sorted([parent.line()[:2], parent.line()[:2]]) == [["reloaded", "0"], ["reloaded", "1"]]

    parent.send(signal.SIGTERM)
    assert sorted([parent.line()[:2], parent.line()[:2]]) == [["stopped", "0"], ["stopped", "1"]]
    assert parent.process.wait() == 0


def test_a_killed_worker_is_restarted_as_a_new_process(start: type[Running], tmp_path: Path) -> None:
    parent = start(sys.executable, supervised(tmp_path))
    began = {number: pid for _, number, pid in (parent.line(), parent.line())}

    os.kill(int(began["1"]), signal.SIGKILL)

    word, number, pid = parent.line()
    assert (word, number) == ("started", "1")
    assert pid != began["1"]


#: The machine has no room for a third process at first.
NO_ROOM_FOR_A_THIRD = """
calls, popen = [], runner.subprocess.Popen
def spawn(*command, **options):
    calls.append(command)
    if len(calls) == 3:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return popen(*command, **options)
runner.subprocess.Popen = spawn
"""


def test_a_worker_that_cannot_be_started_again_at_once_leaves_the_others_alone(
    start: type[Running], tmp_path: Path
) -> None:
    parent = start(sys.executable, supervised(tmp_path, supervisor=NO_ROOM_FOR_A_THIRD))
    began = {number: pid for _, number, pid in (parent.line(), parent.line())}

    os.kill(int(began["1"]), signal.SIGKILL)

    assert parent.line()[:2] == ["started", "1"]  # and no worker has stopped
    parent.send(signal.SIGTERM)
    assert parent.process.wait() == 0


def test_workers_do_not_outlive_their_supervisor(start: type[Running], tmp_path: Path) -> None:
    parent = start(sys.executable, supervised(tmp_path))
    parent.line(), parent.line()

    parent.send(signal.SIGKILL)

    assert sorted([parent.line()[:2], parent.line()[:2]]) == [["stopped", "0"], ["stopped", "1"]]


@pytest.mark.parametrize("status", [os.EX_CONFIG, os.EX_TEMPFAIL])
def test_a_worker_that_refuses_to_start_ends_all(start: type[Running], tmp_path: Path, status: int) -> None:
    """The status of the worker tells systemd whether to start all of them again."""
    # worker 1 refuses once worker 0 serves, so that there is somebody to end
    served = str(tmp_path / "served")
    either = f"open({served!r}, 'w').close() if number == '0' else refuse_after({served!r}, {status})"
    parent = start(sys.executable, supervised(tmp_path, start=either))

    assert parent.process.wait(PATIENCE_S) == status
    assert "stopped" in parent.rest()


#: What the supervisor logs is among what its workers say.
LOG_IS_SAID = "import logging; logging.basicConfig(stream=sys.stdout)"


def test_no_start_is_announced_of_a_worker_that_ends_all(start: type[Running], tmp_path: Path) -> None:
    served = str(tmp_path / "served")
    either = f"open({served!r}, 'w').close() if number == '0' else refuse_after({served!r})"
    parent = start(sys.executable, supervised(tmp_path, start=either, supervisor=LOG_IS_SAID))

    said = " ".join(parent.rest())

    assert "Worker 1 ended with status 78" in said
    assert "restarted" not in said


def test_a_worker_that_cannot_come_back_leaves_those_that_serve_alone(start: type[Running], tmp_path: Path) -> None:
    """A database may be away when one worker is started again; the others decide from memory."""
    served, refused = str(tmp_path / "served"), str(tmp_path / "refused")
    starts = (
        f"open({served!r}, 'w').close() if number == '0' else None if os.path.exists({refused!r}) "
        f"else (open({refused!r}, 'w').close(), refuse_after({served!r}))"
    )
    parent = start(sys.executable, supervised(tmp_path, starts, healthy_after_s=0.0))
    began = sorted([parent.line()[:2], parent.line()[:2]])

    assert began == [["started", "0"], ["started", "1"]]
    parent.send(signal.SIGTERM)
    assert sorted([parent.line()[:2], parent.line()[:2]]) == [["stopped", "0"], ["stopped", "1"]]
    assert parent.process.wait() == 0

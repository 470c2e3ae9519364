# SPDX-License-Identifier: Apache-2.0
"""Control-C while a program waits ends it at once, without a traceback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shared_scheduler.daemon.endings import INTERRUPTED
from tests.unit.cmd.waiting import WAIT_S


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(WAIT_S)
        yield server


def interrupted(module: str, conf: Path, silent: socket.socket, *words: str) -> tuple[int, str]:
    """Exit code and error output of a program that is interrupted once it waits for the server."""
    command = [sys.executable, "-m", module, "--config-file", str(conf), *words]
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        with closing(silent.accept()[0]):
            program.send_signal(signal.SIGINT)
            said = program.communicate(timeout=WAIT_S)[1]
        return program.returncode, said
    finally:
        program.kill()
        program.wait()


@pytest.mark.parametrize(
    ("module", "words"),
    [("shared_scheduler.cmd.upgrade", ("upgrade", "check")), ("shared_scheduler.cmd.scheduler", ())],
)
def test_control_c_ends_what_waits_for_a_database(
    module: str, words: tuple[str, ...], silent: socket.socket, tmp_path: Path
) -> None:
    database = f"mysql+pymysql://nova:nova@127.0.0.1:{silent.getsockname()[1]}/nova_api"
    conf = tmp_path / "nova.conf"
    conf.write_text(
        f"[api_database]\nconnection = {database}\n[database]\nconnection = {database}\n"
        "[placement]\nauth_type = password\nauth_url = http://127.0.0.1:9\n"
    )

    code, said = interrupted(module, conf, silent, *words)

    assert code == INTERRUPTED
    assert "Traceback" not in said


def test_control_c_ends_the_question_to_an_agent_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "compute-agent").mkdir()
    conf = tmp_path / "nova.conf"
    conf.write_text(f"[DEFAULT]\ntransport_url = rabbit://nova:nova@127.0.0.1:9/\nstate_path = {tmp_path}\n")
    with closing(socket.socket(socket.AF_UNIX)) as hangs:
        hangs.settimeout(WAIT_S)
        hangs.bind(str(tmp_path / "compute-agent" / "status.sock"))
        hangs.listen()

        code, said = interrupted("compute_agent.cmd.status", conf, hangs)

    assert (code, said) == (INTERRUPTED, "")

# SPDX-License-Identifier: Apache-2.0
"""SIGHUP while a service starts: there is nothing to reload, and the service must not end.

A service manager regards a death by SIGHUP as a clean end, after which it does not restart the service.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.unit.cmd.waiting import WAIT_S, eventually
from tests.unit.compute_agent.test_process import Process


def test_a_scheduler_that_waits_for_its_database_waits_on(tmp_path: Path) -> None:
    conf, log = tmp_path / "nova.conf", tmp_path / "log"
    conf.write_text(
        f"[DEFAULT]\nlog_file = {log}\n[shared_scheduler]\nstartup_wait_s = 600\n"
        "[api_database]\nconnection = mysql+pymysql://nova:nova@127.0.0.1:9/nova_api\n"
        "[database]\nconnection = mysql+pymysql://nova:nova@127.0.0.1:9/nova_cell0\n"
        "[placement]\nauth_type = password\nauth_url = http://127.0.0.1:9\n"
    )
    command = [sys.executable, "-m", "shared_scheduler.cmd.scheduler", "--config-file", str(conf)]
    scheduler = subprocess.Popen(command)
    try:
        eventually(lambda: log.exists() and "Waiting for the API database" in log.read_text())

        scheduler.send_signal(signal.SIGHUP)
        scheduler.send_signal(signal.SIGTERM)

        assert scheduler.wait(WAIT_S) == -signal.SIGTERM
    finally:
        scheduler.kill()
        scheduler.wait()


def test_an_agent_begins_all_the_same(tmp_path: Path) -> None:
    # given an agent that still reads its keys
    keys = tmp_path / "keys"
    os.mkfifo(keys)
    agent = Process(tmp_path, "http://127.0.0.1:9")
    agent.configure(signing="warn", signing_keys_file=keys)
    child = agent.start()
    try:
        writer = eventually(lambda: _opened(keys))

        child.send_signal(signal.SIGHUP)
        os.write(writer, b"k1:" + b"ab" * 32)
        os.close(writer)

        agent.wait(lambda: agent.lines("runs (source"))
        assert agent.end() == 0
    finally:
        agent.close()


def _opened(fifo: Path) -> int | None:
    """To be written, once somebody reads."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None

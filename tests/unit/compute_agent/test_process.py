# SPDX-License-Identifier: Apache-2.0
"""The real ``compute-agent`` process: its configuration, its signals.  Only Placement is played here;
the broker is one that does not answer, and nova-compute is away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgpack
import pytest

from compute_agent.cmd import status
from compute_agent.effects import KeptClaim
from compute_agent.service.agent import AgentFacts, NodeFacts
from compute_agent.service.state_directory import StateDirectory
from compute_agent.service.status_socket import problems
from shared_scheduler.release import release
from tests.support.unix_http import OverUnixSocket, get, listens
from tests.unit.compute_agent.fake_placement import FakePlacement, served
from tests.unit.compute_agent.node_facts import HOST, NODE, claim

WAIT_S = 300.0
READ_INTERVAL_S = 0.05
ROOT = Path(__file__).resolve().parents[3]
#: the exit code EX_TEMPFAIL
EXIT_TEMPORARY = 75
#: the discard port: nobody listens
NO_BROKER = "rabbit://guest:guest@127.0.0.1:9/"
SLOW = {"claim_check_after_s": "3600", "placement_poll_s": "3600"}


class Process:
    """One agent process with a nova.conf of its own."""

    def __init__(self, home: Path, placement_url: str, transport_url: str = NO_BROKER) -> None:
        self.home = home
        self.placement_url, self.transport_url = placement_url, transport_url
        self.conf, self.log = home / "nova.conf", home / "agent.log"
        self.child: subprocess.Popen[str] | None = None

    def configure(self, **options: Any) -> None:
        """Write nova.conf; ``options`` are those of ``[compute_agent]``."""
        lines = [
            "[DEFAULT]", f"host = {HOST}", f"transport_url = {self.transport_url}",
            f"state_path = {self.home}", f"log_file = {self.log}",
            "[placement]", "auth_type = none", f"endpoint_override = {self.placement_url}",
            "[compute_agent]", "source = tap",
            *(f"{name} = {value}" for name, value in options.items()),
        ]  # fmt: skip
        self.conf.write_text("\n".join(lines) + "\n")

    def start(self, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        # -P: the code is what PYTHONPATH names, not that in the working directory
        command = [sys.executable, *(["-P"] if env else []), "-m", "compute_agent.cmd.agent"]
        command += ["--config-file", str(self.conf)]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        return self.child

    def hangup(self) -> None:
        assert self.child is not None
        os.kill(self.child.pid, signal.SIGHUP)

    def end(self) -> int:
        """SIGTERM; the exit code."""
        assert self.child is not None
        self.child.terminate()
        return self.child.wait(WAIT_S)

    def close(self) -> None:
        """Whatever happened, nothing is left running."""
        if self.child is not None:
            if self.child.poll() is None:
                self.child.kill()
            self.child.communicate()

    def logged(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def lines(self, text: str) -> list[str]:
        return [line for line in self.logged().splitlines() if text in line]

    def kept(self) -> list[str]:
        """Consumers of the pending claims that the agent keeps."""
        content = msgpack.unpackb((self.home / "compute-agent" / "claims").read_bytes())
        return [known for known in content.get(NODE, [])]

    def wait(self, true: Callable[[], object]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not true():
            assert self.child is not None and self.child.poll() is None, self.child
            assert time.monotonic() < end_s, self.logged()
            time.sleep(READ_INTERVAL_S)


@pytest.fixture
def placement() -> FakePlacement:
    return FakePlacement()


@pytest.fixture
def process(tmp_path: Path, placement: FakePlacement) -> Iterator[Process]:
    with served(placement) as url:
        made = Process(tmp_path, url)
        yield made
        made.close()


def keep_a_claim(home: Path) -> None:
    """What an earlier life accepted."""
    state = StateDirectory(str(home / "compute-agent"))
    state.keep(NODE, (KeptClaim(claim("c1", "vm-1")),), {})
    state.close()


def test_a_hangup_applies_new_durations_and_a_claim_whose_allocation_was_deleted_ends(
    process: Process, placement: FakePlacement, tmp_path: Path
) -> None:
    keep_a_claim(tmp_path)
    placement.consumers["vm-1"] = dict(claim("c1", "vm-1").allocations[NODE])
    process.configure(**SLOW)
    process.start()
    process.wait(lambda: any(path.endswith("/allocations") for path in placement.asked))
    assert len(process.kept()) == 1

    placement.consumers.clear()
    process.configure(**SLOW | {"placement_poll_s": "5"})
    process.hangup()

    process.wait(lambda: not process.kept())
    assert len(process.lines("configuration read again")) == 1
    assert process.end() == 0


def test_a_hangup_with_an_invalid_configuration_is_logged_and_changes_nothing(process: Process, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    process.configure(**SLOW)
    process.start()
    process.wait(lambda: process.lines("runs (source"))

    process.configure(claim_check_after_s="often")
    process.hangup()
    process.wait(lambda: process.lines("claim_check_after_s"))
    assert "nothing has changed" in process.lines("claim_check_after_s")[0]

    process.configure(**SLOW, signing="enforce", signing_keys_file=keys)
    process.hangup()
    process.wait(lambda: process.lines(f"signing_keys_file = {keys}: cannot be read"))
    assert process.lines("signing stays off")

    keys.write_text("k1:" + "ab" * 32)
    process.hangup()
    process.wait(lambda: process.lines("signing is enforce"))
    assert "Traceback" not in process.logged()
    assert process.end() == 0


def test_keys_that_cannot_be_used_end_it_with_one_line(process: Process, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("k1:" + "ab" * 32 + "\nk2:rubbish\n")
    process.configure(signing="warn", signing_keys_file=keys)

    said, _ = process.start().communicate(timeout=WAIT_S)

    (line,) = [one for one in said.splitlines() if "signing_keys_file" in one]
    assert f"{keys}: keyring line 2" in line and "rubbish" not in said
    assert "Traceback" not in said
    assert process.child is not None and process.child.returncode == 78


def test_another_agent_that_still_runs_ends_it_so_that_it_is_started_again(process: Process, tmp_path: Path) -> None:
    """An embedded agent ends with its nova-compute, perhaps after systemd has started this one."""
    other = StateDirectory(str(tmp_path / "compute-agent"))
    process.configure()

    child = process.start()

    said, _ = child.communicate(timeout=WAIT_S)
    other.close()
    assert child.returncode == EXIT_TEMPORARY
    assert "another agent" in said and said.count("\n") == 1


def test_a_full_disk_ends_it_so_that_it_is_started_again(process: Process, tmp_path: Path) -> None:
    """systemd starts no agent again whose configuration cannot be used, and a node without one would stay so."""
    state = tmp_path / "compute-agent"
    state.mkdir()
    (state / "epoch.new").symlink_to("/dev/full")
    process.configure()

    said, _ = process.start().communicate(timeout=WAIT_S)

    (line,) = [one for one in said.splitlines() if "state_path" in one]
    assert "No space left on device" in line and "make room" in line
    assert "Traceback" not in said
    assert process.child is not None and process.child.returncode == EXIT_TEMPORARY
    assert EXIT_TEMPORARY not in never_started_again()


def never_started_again() -> set[int]:
    """The exit codes after which systemd does not start the agent again."""
    unit = (ROOT / "etc/systemd/compute-agent.service").read_text()
    (codes,) = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("RestartPreventExitStatus=")]
    return set(map(int, codes.split()))


def test_without_broker_and_placement_the_agent_logs_that_and_continues(tmp_path: Path) -> None:
    # given an agent that has something to look for in Placement, and nobody answers anywhere
    keep_a_claim(tmp_path)
    process = Process(tmp_path, "http://127.0.0.1:9")
    process.configure(placement_poll_s="5")
    try:
        process.start()
        process.wait(lambda: process.lines("cannot reach the message queue"))
        process.wait(lambda: process.lines("Placement"))
        # then it says what to do, stays up, and ends in order
        assert "Check transport_url" in process.lines("cannot reach the message queue")[0]
        assert "Traceback" not in process.logged()
        assert len(process.kept()) == 1, "what nobody could look up is not let go"
        assert process.end() == 0
    finally:
        process.close()


def test_metrics_and_health_are_served_at_the_configured_address(process: Process, tmp_path: Path) -> None:
    # given an agent without broker and nova-compute
    path = tmp_path / "metrics.sock"
    process.configure(metrics_listen=path)
    process.start()
    process.wait(lambda: listens(path))

    status, text = get(OverUnixSocket(path), "/metrics")

    assert status == 200
    assert "compute_agent_channel_connected 0.0" in text
    assert f'compute_agent_info{{release="{release()}"}} 1.0' in text
    assert get(OverUnixSocket(path), "/live") == (200, "ok\n")
    status, text = get(OverUnixSocket(path), "/ready")
    assert status == 503
    assert text.splitlines() == ["the state channel is not connected", "nova-compute has not reported a node yet"]
    assert process.end() == 0
    assert not path.exists()


def test_the_status_command_prints_no_warning_of_a_library(tmp_path: Path) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_text(f"[DEFAULT]\ntransport_url = {NO_BROKER}\nstate_path = {tmp_path}\n")
    command = [sys.executable, "-m", "compute_agent.cmd.status", "--config-file", str(conf)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("compute-agent-status: ")


def test_the_status_of_the_agent_names_what_is_missing(
    process: Process, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given no agent
    process.configure()
    asked = ["--config-file", str(process.conf)]
    assert status.main(asked) == 2
    assert "nothing answers there" in capsys.readouterr().err

    # when it runs, without broker and nova-compute
    process.start()
    process.wait(lambda: listens(tmp_path / "compute-agent" / "status.sock"))

    assert status.main(asked) == 1
    told = capsys.readouterr().out
    assert f"compute-agent {release()} of host {HOST}" in told
    assert "channel    NOT CONNECTED" in told and "tap        NOT CONNECTED" in told
    assert "PROBLEM    nova-compute has not reported a node yet" in told
    assert status.main([*asked, "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0] == "the state channel is not connected"
    assert process.end() == 0
    assert not (tmp_path / "compute-agent" / "status.sock").exists()


def test_an_agent_without_a_status_socket_names_the_reason_and_its_own_option(process: Process, tmp_path: Path) -> None:
    # given a directory where the socket shall be
    taken = tmp_path / "compute-agent" / "status.sock"
    taken.mkdir(parents=True)
    process.configure()
    # when the agent starts, it works without the socket
    process.start()
    process.wait(lambda: bool(process.lines("compute-agent-status cannot ask this agent")))
    # then the operator learns what to do
    [line] = process.lines("compute-agent-status cannot ask this agent")
    assert line.endswith(f"{taken}: is not a socket, and is kept; remove it, or set [compute_agent] state_path")
    assert process.end() == 0
    assert taken.is_dir()


def test_a_ready_agent_has_no_problems() -> None:
    ready = AgentFacts(7, True, True, 0, {"sent": 3, "received": 0}, {}, {NODE: NodeFacts(True, "", 2)})

    assert problems(ready) == []
    told = "\n".join(status.lines({**asdict(ready), "host": HOST, "release": "1.0", "problems": []}))
    assert f"node {NODE}: ready; 2 claims pending" in told
    assert "counters   sent 3" in told


@pytest.mark.parametrize(("place", "status"), [
    ("9191", os.EX_CONFIG),  # no address
    ("192.0.2.7:9191", os.EX_TEMPFAIL),  # this machine has not this address at present
    ("{home}/no/metrics.sock", os.EX_TEMPFAIL),  # another unit may make this directory
    ("{home}/nova.conf", os.EX_CONFIG),  # is no socket
])  # fmt: skip
def test_a_place_for_metrics_that_cannot_be_used_ends_it_with_one_line(
    process: Process, tmp_path: Path, place: str, status: int
) -> None:
    process.configure(metrics_listen=place.format(home=tmp_path))

    child = process.start()

    said, _ = child.communicate(timeout=WAIT_S)
    assert child.returncode == status
    assert "metrics_listen" in said and said.count("\n") == 1


def test_a_report_contains_our_release_and_the_state_of_the_agent(process: Process, tmp_path: Path) -> None:
    process.configure(**SLOW)
    with process.conf.open("a") as conf:
        conf.write(f"[oslo_reports]\nlog_dir = {tmp_path}\n")
    process.start()
    process.wait(lambda: process.lines("runs (source"))
    assert process.child is not None

    os.kill(process.child.pid, signal.SIGUSR2)
    process.wait(lambda: [path for path in tmp_path.glob("*gurumeditation*") if "waiting = " in path.read_text()])

    [report] = [path.read_text() for path in tmp_path.glob("*gurumeditation*")]
    assert f"{release()} with nova" in report
    assert all(f"{name} = " in report for name in ("epoch", "connected", "waiting"))
    assert process.end() == 0

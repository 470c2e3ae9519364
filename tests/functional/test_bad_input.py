# SPDX-License-Identifier: Apache-2.0
"""Bad input at start and in messages: one clear line with the remedy, no traceback, no hang.

``tests/longer/test_bad_input.py`` has more of each kind.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import kombu
import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.ports import is_free

START_TIMEOUT_S = 300
NOBODY_LISTENS = 9  # the discard port


@pytest.fixture(scope="module", autouse=True)
def cloud_is_up(cloud: Cloud) -> None:
    assert is_free(NOBODY_LISTENS)
    cloud_state.begin(cloud)


@pytest.fixture
def extra(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "extra.conf"
    path.write_text("[DEFAULT]\nhost = wrong1\n")
    yield path


def run(cloud: Cloud, program: str, extra: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Start a service with more configuration; it has to end by itself, and soon."""
    with extra.open("a") as conf:
        conf.write(text)
    base = cloud.layout.nova_conf()
    if program == "compute-agent":
        base = cloud.layout.compute_dir("c1") / "nova.conf"
    return subprocess.run(
        [str(cloud.layout.nova / "bin" / program), "--config-file", str(base), "--config-file", str(extra)],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )


def assert_one_clear_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    assert "Traceback" not in said, said
    clear = [line for line in said.splitlines() if all(word in line for word in words)]
    assert len(clear) >= 1, said


SCHEDULER_MISTAKES = {
    "not a number": ("[shared_scheduler]\nworkers = many\n", ("workers", "many")),
    "out of range": ("[shared_scheduler]\nworkers = -1\n", ("workers",)),
    "unknown filter": ("[filter_scheduler]\nenabled_filters = NoSuchFilter\n", ("NoSuchFilter", "enabled_filters")),
    "unknown weigher": (
        "[filter_scheduler]\nweight_classes = nova.scheduler.weights.nothing.NoSuchWeigher\n",
        ("NoSuchWeigher", "weight_classes"),
    ),
    "no API database": (
        f"[api_database]\nconnection = mysql+pymysql://a:b@127.0.0.1:{NOBODY_LISTENS}/nova_api\n",
        ("[api_database] connection",),
    ),
    "no broker": (
        f"[DEFAULT]\ntransport_url = rabbit://guest:guest@127.0.0.1:{NOBODY_LISTENS}/cell1\n",
        ("transport_url",),
    ),
    "no Placement": (
        "[placement]\nauth_type = admin_token\ntoken = admin\n"
        f"endpoint = http://127.0.0.1:{NOBODY_LISTENS}\nendpoint_override = http://127.0.0.1:{NOBODY_LISTENS}\n",
        ("Placement", "[placement]"),
    ),
}

#: how long a start may wait for what it needs; the tests do not want Nova's patience
IMPATIENT = "[shared_scheduler]\nstartup_wait_s = 3\n"

#: of the mistakes of a kind, one is enough here
MORE_MISTAKES = ("out of range", "unknown weigher", "no API database")


@pytest.mark.parametrize("mistake", [name for name in SCHEDULER_MISTAKES if name not in MORE_MISTAKES])
def test_a_scheduler_that_cannot_start_logs_the_reason(cloud: Cloud, extra: Path, mistake: str) -> None:
    assert_a_scheduler_logs_the_reason(cloud, extra, mistake)


def assert_a_scheduler_logs_the_reason(cloud: Cloud, extra: Path, mistake: str) -> None:
    """Start it with this mistake."""
    text, words = SCHEDULER_MISTAKES[mistake]
    assert_one_clear_line(run(cloud, "shared-scheduler", extra, IMPATIENT + text), *words)


AGENT_MISTAKES = {
    "not a number": ("[compute_agent]\nbeat_interval_s = often\n", ("heartbeat_interval_s", "often")),
    "no place for its state": ("[compute_agent]\nstate_path = /proc/nothing\n", ("state_path", "/proc/nothing")),
}


@pytest.mark.parametrize("mistake", list(AGENT_MISTAKES))
def test_an_agent_that_cannot_start_logs_the_reason(cloud: Cloud, extra: Path, mistake: str) -> None:
    text, words = AGENT_MISTAKES[mistake]
    assert_one_clear_line(run(cloud, "compute-agent", extra, text), *words)


def test_a_second_agent_for_one_compute_is_refused_with_the_reason(cloud: Cloud, extra: Path) -> None:
    extra.write_text("")
    done = run(cloud, "compute-agent", extra, "")
    assert_one_clear_line(done, "another agent")


MALFORMED = {
    "empty": b"",
    "zeros": b"\x00" * 64,
    "reserved": b"\xc1" * 300,
    "text": b"{" * 5000,
    "huge map": b"\xdf\xff\xff\xff\xff",
    "oversized": b"x" * 3_000_000,
}
#: ``tests/unit/protocol`` decodes thousands of others
MORE_MALFORMED = ("empty", "reserved", "text", "huge map")


@pytest.mark.parametrize("what", [name for name in MALFORMED if name not in MORE_MALFORMED])
def test_a_malformed_message_is_rejected_and_counted_without_other_effects(cloud: Cloud, what: str) -> None:
    assert_rejected_and_counted(cloud, MALFORMED[what])


def assert_rejected_and_counted(cloud: Cloud, body: bytes) -> None:
    """Send it to all schedulers; they count it, and serve."""
    cloud_state.wait_fresh(cloud, {"c1", "c2", "c3"})
    before = cloud_state.counter(cloud, "messages_rejected")

    url = cloud.layout.transport_url(1).replace("rabbit://", "amqp://")
    with kombu.Connection(url) as connection, connection.channel() as channel:
        exchange = kombu.Exchange("ssched.state.nova", type="fanout", durable=True)
        producer = kombu.Producer(channel, exchange=exchange)
        producer.publish(body, content_type="application/octet-stream", content_encoding="binary")

    cloud.wait(lambda: cloud_state.counter(cloud, "messages_rejected") == before + 1, "the rejection to be counted")
    cloud.wait_active(cloud.boot(1))
    cloud.reset()


@pytest.mark.parametrize("command", [["compare"], ["status"]])
def test_a_command_without_a_scheduler_reports_that(cloud: Cloud, tmp_path: Path, command: list[str]) -> None:
    nowhere = tmp_path / "nowhere.conf"
    nowhere.write_text(f"[shared_scheduler]\nadmin_socket_dir = {tmp_path}\n")
    done = cloud_state.manage(cloud, *command, "--config-file", str(nowhere))
    assert_one_clear_line(done, "no scheduler")

# SPDX-License-Identifier: Apache-2.0
"""A scheduler that stops in order loses no request, on a real RabbitMQ.

oslo.messaging acknowledges a request when it reads it from the connection. While a server waits for its last requests,
the broker continues to send requests to it, so requests that are read after that must not be acknowledged.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import oslo_messaging as messaging
import pytest
from oslo_config import cfg
from oslo_messaging.conffixture import ConfFixture

from shared_scheduler.nova.process import LosslessStop
from shared_scheduler.nova.serving import Gate
from tests.unit.transport.mailbox import PATIENCE_S, eventually
from tools.laboratory.cloud.rabbitmq import PrivateRabbit
from tools.laboratory.fire.proxy import Mode, Proxy

TOPIC = "scheduler"
LATE_CALLS = 5
#: time for a stop
SHORT_S = 2.0


class Endpoint:
    """Answers with the number that it is asked for, once `may_answer` is set."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.told: list[int] = []

    def echo(self, _context: object, number: int) -> int:
        self.asked.set()
        self.may_answer.wait(PATIENCE_S)
        return number

    def tell(self, _context: object, number: int) -> None:
        """A cast."""
        self.told.append(number)


class Manager:
    """The methods of Nova's manager that LosslessStop calls."""

    def __init__(self) -> None:
        self.cleaned = threading.Event()

    def set_shutdown_in_progress(self) -> None:
        """Nothing of Nova's is running here."""

    def stop_within(self, timeout_s: float) -> None:
        """The requests of this test end when the test wants."""

    def drain(self, timeout_s: float) -> None:
        """Nothing is written."""

    def cleanup_host(self) -> None:
        """Nothing to clean."""
        self.cleaned.set()


class Server:
    """An RPC server on the topic, with the attributes of Nova's Service."""

    def __init__(self, conf: cfg.ConfigOpts, url: str, name: str) -> None:
        self.endpoint = Endpoint()
        self.manager = Manager()
        self.transport = messaging.get_rpc_transport(conf, url)
        target = messaging.Target(topic=TOPIC, server=name)
        self.served: Any = messaging.get_rpc_server(self.transport, target, [self.endpoint])
        another = partial(messaging.get_rpc_server, self.transport, target, [self.endpoint])
        self.rpcserver = Gate(self.served, is_open=True, another=another)

    def start(self) -> None:
        self.rpcserver.start()

    def stop(self) -> None:
        """As Nova's Service: the RPC server was stopped before."""


class Callers:
    """Conductors: each call waits in a thread of its own."""

    def __init__(self, conf: cfg.ConfigOpts, url: str) -> None:
        self.transport = messaging.get_rpc_transport(conf, url)
        self._client = messaging.get_rpc_client(self.transport, messaging.Target(topic=TOPIC), timeout=PATIENCE_S)
        self._threads = ThreadPoolExecutor(LATE_CALLS + 1)

    def call(self, number: int) -> Future[int]:
        return self._threads.submit(self._client.call, {}, "echo", number=number)

    def cast(self, number: int) -> None:
        """Tell every scheduler, as nova-compute does when a server is built or deleted."""
        self._client.prepare(fanout=True).cast({}, "tell", number=number)


@pytest.fixture
def conf() -> Iterator[cfg.ConfigOpts]:
    conf = cfg.ConfigOpts()
    conf([])
    with ConfFixture(conf):
        yield conf


def cpu_s(thread: threading.Thread) -> float:
    """The CPU time that a thread of this process has taken."""
    fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_background(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_calls_that_come_while_the_last_request_is_served_go_to_the_other_scheduler(
    shared_rabbit: PrivateRabbit, conf: cfg.ConfigOpts
) -> None:
    # given a scheduler that stops, and whose last request takes its time
    first, second = Server(conf, shared_rabbit.url, "one"), Server(conf, shared_rabbit.url, "two")
    callers = Callers(conf, shared_rabbit.url)
    lossless = LosslessStop(first, PATIENCE_S)
    lossless.start()
    slow = callers.call(0)
    assert first.endpoint.asked.wait(PATIENCE_S)
    stopping = in_background(lossless.stop)
    polling = first.served.listener._listen_thread
    eventually(lambda: not polling.is_alive(), "the server reads no more requests")

    # when more calls come, and only then it is done
    late = [callers.call(number) for number in range(1, LATE_CALLS + 1)]
    eventually(lambda: shared_rabbit.queues()[TOPIC] == str(LATE_CALLS), "the late calls are in the queue")
    first.endpoint.may_answer.set()
    stopping.join(PATIENCE_S)

    # then the other scheduler serves them
    second.endpoint.may_answer.set()
    second.start()
    assert slow.result(PATIENCE_S) == 0
    assert [each.result(PATIENCE_S) for each in late] == [1, 2, 3, 4, 5]
    LosslessStop(second, PATIENCE_S).stop()
    for each in (first, second, callers):
        each.transport.cleanup()


def test_a_stop_waits_for_an_answer_that_cannot_be_sent_no_longer_than_it_may(conf: cfg.ConfigOpts) -> None:
    # given a scheduler that cannot answer a request, because the broker went away
    with PrivateRabbit() as rabbit:
        only, callers = Server(conf, rabbit.url, "only"), Callers(conf, rabbit.url)
        lossless = LosslessStop(only, SHORT_S)
        lossless.start()
        asked = callers.call(7)
        assert only.endpoint.asked.wait(PATIENCE_S)
        rabbit.end_broker()
        only.endpoint.may_answer.set()

        # when it stops, then its claims and threads are ended nevertheless
        stopping = in_background(lossless.stop)
        assert only.manager.cleaned.wait(PATIENCE_S)

        # and the answer is sent if the broker comes back before the process ends
        rabbit.start_broker()
        assert asked.result(PATIENCE_S) == 7
        stopping.join(PATIENCE_S)
        for each in (only, callers):
            each.transport.cleanup()


def test_a_stop_does_not_wait_for_a_broker_that_hangs(conf: cfg.ConfigOpts) -> None:
    # given a scheduler whose connection carries nothing any more, and which waits long for an answer
    conf.set_override("heartbeat_timeout_threshold", round(10 * PATIENCE_S), "oslo_messaging_rabbit")
    with PrivateRabbit() as rabbit:
        way = Proxy(rabbit.port)
        only = Server(conf, f"rabbit://guest:guest@127.0.0.1:{way.port}/", "only")
        lossless = LosslessStop(only, SHORT_S)
        lossless.start()
        way.set(Mode.DROP)

        # when it stops, then its claims and threads are ended nevertheless
        stopping = in_background(lossless.stop)
        is_cleaned = only.manager.cleaned.wait(PATIENCE_S)
        way.close()  # the connection is lost
        stopping.join(PATIENCE_S)
        assert is_cleaned


def test_a_scheduler_that_serves_no_requests_hears_casts_and_waits_for_them_idly(
    shared_rabbit: PrivateRabbit, conf: cfg.ConfigOpts
) -> None:
    # given a scheduler that has served, and serves no requests for a while
    only, compute = Server(conf, shared_rabbit.url, "only"), Callers(conf, shared_rabbit.url)
    only.endpoint.may_answer.set()
    only.start()
    assert compute.call(1).result(PATIENCE_S) == 1
    only.rpcserver.set_open(False)

    # when a nova-compute tells it something, then it arrives
    compute.cast(2)
    eventually(lambda: only.endpoint.told == [2], "the cast arrives")

    # and its thread waits: of some seconds it computes for a small part
    thread = only.served.listener._listen_thread
    before_s = cpu_s(thread)
    time.sleep(SHORT_S)
    assert cpu_s(thread) - before_s < SHORT_S / 4
    only.rpcserver.stop()
    only.rpcserver.wait()
    for each in (only, compute):
        each.transport.cleanup()


def test_casts_of_computes_do_not_fail_while_the_only_scheduler_changes_its_mode(
    shared_rabbit: PrivateRabbit, conf: cfg.ConfigOpts
) -> None:
    # given a scheduler and a nova-compute that has told it something
    only, compute = Server(conf, shared_rabbit.url, "only"), Callers(conf, shared_rabbit.url)
    only.endpoint.may_answer.set()
    only.start()
    compute.cast(0)
    eventually(lambda: only.endpoint.told == [0], "the first cast arrives")

    # when the scheduler serves no requests for a while, and then with new threads
    only.rpcserver.set_open(False)
    waiting = compute.call(7)
    compute.cast(1)
    eventually(lambda: shared_rabbit.queues()[TOPIC] == "1", "the call is left in the queue")
    assert not waiting.done()
    only.rpcserver.set_open(True)
    compute.cast(2)
    only.rpcserver.renew()
    compute.cast(3)

    # then no cast has failed, and each has arrived
    eventually(lambda: {0, 1, 2, 3} <= set(only.endpoint.told), "all casts arrive")
    assert waiting.result(PATIENCE_S) == 7

    # and a scheduler that has stopped takes neither
    only.rpcserver.stop()
    only.rpcserver.wait()
    eventually(lambda: TOPIC not in shared_rabbit.queues() or shared_rabbit.queues()[TOPIC] == "0", "nothing waits")
    assert not [name for name in shared_rabbit.queues() if "fanout" in name]
    for each in (only, compute):
        each.transport.cleanup()

# SPDX-License-Identifier: Apache-2.0
"""Runs the service in this process, or in N worker processes, and forwards signals to it.

oslo.service's launcher is not used, because with native threads it always forks, never calls ``reset``, and kills the
worker at SIGHUP, which would lose the table.  Here a single worker runs in this process, with both concurrency
backends:

=========  ==================================================================
SIGTERM    drain: take no new requests, end those in flight, send Leave
SIGINT     the same
SIGHUP     ``reload``, in place: the table stays; a stop does not wait for it
SIGUSR2    left to the guru meditation report, which installs its own handler
=========  ==================================================================

Each of several workers is a scheduler of its own: a new interpreter with its own table, queue and identity.  The
supervisor restarts workers that end or could not be started, with increasing pauses.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shared_scheduler.daemon.service_manager import READY, STOPPING, Watchdog, notify
from shared_scheduler.service.reloads import Reloads
from shared_scheduler.service.signals import Interrupted, SignalQueue

LOG = logging.getLogger(__name__)

#: Exit status of a process that could not start because of an option (EX_CONFIG); a restart would not help.
REFUSED_TO_START = 78
#: Exit status of a process that could not start because a server does not answer at present (EX_TEMPFAIL).
TRY_AGAIN = 75
#: Exit status when the time for draining is over.
GAVE_UP = 1

#: Environment variables of a worker: its number, and the pipe that closes when its supervisor has ended.
WORKER_NUMBER = "SHARED_SCHEDULER_WORKER"
SUPERVISOR_PIPE = "SHARED_SCHEDULER_SUPERVISOR_PIPE"

#: A worker that has run for this time is healthy.
HEALTHY_AFTER_S = 60.0
#: The longest pause before a worker that ends repeatedly is restarted.
RESTART_PAUSE_MAX_S = 30.0


class Service(Protocol):
    """The service: Nova's own Service object, or one with the same methods."""

    def start(self) -> None:
        """Begin to serve; returns when requests are served."""

    def stop(self) -> None:
        """Drain and stop."""


class Runner:
    """One worker, in this process."""

    def __init__(
        self,
        service: Service,
        reload: Callable[[], None],
        drain_timeout_s: float,
        alive: Callable[[], object] = lambda: None,
    ) -> None:
        """``alive`` returns while the service handles events; it hangs or raises otherwise."""
        self._service = service
        self._reloads = Reloads(reload)
        self._drain_timeout_s = drain_timeout_s
        self._watchdog = Watchdog(alive)

    def run(self) -> int:
        """Start and serve; returns the exit status after a signal to stop."""
        ends = (signal.SIGTERM, signal.SIGINT)
        signals = SignalQueue((*ends, signal.SIGHUP), interrupting=ends)
        try:
            self._service.start()
            signals.interrupting = frozenset()  # from here on signals wait in the queue
        except Interrupted:
            return self._drain()
        watch_supervisor()
        notify(READY)
        self._watchdog.start()
        while not self._handle(signals.wait()):
            pass
        return self._drain()

    def _handle(self, arrived: Sequence[int]) -> bool:
        """Whether the service must stop."""
        if signal.SIGTERM in arrived or signal.SIGINT in arrived:
            return True
        if signal.SIGHUP in arrived:
            self._reloads.request()
        return False

    def _drain(self) -> int:
        # The timer runs to the very end, because threads of libraries may delay the interpreter's exit.
        guard = threading.Timer(self._drain_timeout_s, self._give_up)
        guard.daemon = True
        guard.start()
        self._reloads.stop()
        notify(STOPPING)
        LOG.info("Draining for at most %.0f seconds", self._drain_timeout_s)
        self._service.stop()
        return 0

    def _give_up(self) -> None:
        LOG.error("Not drained within %.0f seconds; exiting", self._drain_timeout_s)
        logging.shutdown()
        os._exit(GAVE_UP)


def watch_supervisor() -> None:
    """End this worker when its supervisor has ended, for any reason."""
    pipe = os.environ.get(SUPERVISOR_PIPE)
    if pipe is None:
        return

    def wait_for_end() -> None:
        with os.fdopen(int(pipe), "rb", buffering=0) as closed_when_gone:
            closed_when_gone.read(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_end, name="supervisor-watch", daemon=True).start()


@dataclass
class _Worker:
    number: int
    process: subprocess.Popen[bytes] | None = None
    started_at_s: float = 0.0
    deaths: int = 0
    restart_at_s: float = field(default=0.0)


class Supervisor:
    """Several workers: starts and restarts them, forwards signals, and ends with them.

    A worker that cannot start (``REFUSED_TO_START``, ``TRY_AGAIN``) ends all workers with its exit status.  If others
    have served for ``HEALTHY_AFTER_S``, it is restarted instead, because then a database is down, or somebody edits the
    configuration.
    """

    def __init__(self, command: Sequence[str], workers: int, drain_timeout_s: float) -> None:
        self._command = list(command)
        self._workers = [_Worker(number) for number in range(workers)]
        self._drain_timeout_s = drain_timeout_s
        self._pipe_for_workers, self._pipe_kept = os.pipe()

    def run(self) -> int:
        """Run until a signal, or until a worker cannot start."""
        signals = SignalQueue((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD))
        while True:
            now_s = time.monotonic()
            self._start_due(now_s)
            arrived = signals.wait(self._pause_s(now_s))
            if signal.SIGTERM in arrived or signal.SIGINT in arrived:
                return self._end_all(0)
            for number in (signal.SIGHUP, signal.SIGUSR2):
                if number in arrived:
                    self._signal_all(number)
            refused = self._reap(time.monotonic())
            if refused is not None:
                return self._end_all(refused)

    def _start_due(self, now_s: float) -> None:
        for worker in self._workers:
            if worker.process is None and worker.restart_at_s <= now_s:
                self._start(worker, now_s)

    def _start(self, worker: _Worker, now_s: float) -> None:
        """Start a worker; later, if the machine has no room for another process, because the others serve."""
        try:
            worker.process = self._spawn(worker.number)
            worker.started_at_s = now_s
        except OSError as error:
            pause_s = self._pause_worker(worker, now_s)
            LOG.error("Worker %d cannot be started: %s; retrying in %.1f seconds", worker.number, error, pause_s)

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            WORKER_NUMBER: str(number),
            SUPERVISOR_PIPE: str(self._pipe_for_workers),
        }
        process = subprocess.Popen(self._command, env=environment, pass_fds=(self._pipe_for_workers,))
        LOG.info("Worker %d runs as process %d", number, process.pid)
        return process

    def _pause_s(self, now_s: float) -> float | None:
        due = [w.restart_at_s - now_s for w in self._workers if w.process is None]
        return max(0.01, min(due)) if due else None

    def _reap(self, now_s: float) -> int | None:
        """Plan the next starts of the workers that have ended.

        Returns the exit status of one that could not start and ends all, that of a wrong option before another; None if
        all go on.
        """
        ended = [(worker, status) for worker in self._workers if (status := self._status_of_ended(worker)) is not None]
        statuses = {status for _, status in ended}
        refused = next((status for status in (REFUSED_TO_START, TRY_AGAIN) if status in statuses), None)
        if refused is not None and self._is_anyone_healthy(now_s):
            refused = None
        for worker, status in ended:
            self._plan_restart(worker, status, now_s, is_last=refused is not None)
        return refused

    @staticmethod
    def _status_of_ended(worker: _Worker) -> int | None:
        status = worker.process.poll() if worker.process is not None else None
        if status is not None:
            worker.process = None
        return status

    def _plan_restart(self, worker: _Worker, status: int, now_s: float, is_last: bool) -> None:
        lived_s = now_s - worker.started_at_s
        if lived_s >= HEALTHY_AFTER_S:
            worker.deaths = 0
        pause_s = self._pause_worker(worker, now_s)
        what_next = "all workers end" if is_last else f"it is restarted in {pause_s:.1f} seconds"
        LOG.error("Worker %d ended with status %d after %.0f seconds; %s", worker.number, status, lived_s, what_next)

    @staticmethod
    def _pause_worker(worker: _Worker, now_s: float) -> float:
        """The pause before the next start of a worker."""
        worker.deaths += 1
        pause_s = min(RESTART_PAUSE_MAX_S, 0.5 * 2.0 ** (worker.deaths - 1))
        worker.restart_at_s = now_s + pause_s
        return pause_s

    def _is_anyone_healthy(self, now_s: float) -> bool:
        lives = (w.started_at_s for w in self._workers if w.process is not None)
        return any(now_s - started_at_s >= HEALTHY_AFTER_S for started_at_s in lives)

    def _signal_all(self, number: int) -> None:
        for worker in self._workers:
            if worker.process is not None:
                worker.process.send_signal(number)

    def _end_all(self, status: int) -> int:
        self._signal_all(signal.SIGTERM)
        until_s = time.monotonic() + self._drain_timeout_s + 5.0
        for worker in self._workers:
            if worker.process is None:
                continue
            try:
                worker.process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                LOG.error("Worker %d did not exit in time; killing it", worker.number)
                worker.process.kill()
                worker.process.wait()
        return status

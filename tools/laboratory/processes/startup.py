# SPDX-License-Identifier: Apache-2.0
"""Starts services and runs steps in the order of their dependencies, independent ones in parallel.

A *step* is a function that may run any number of times (databases, cell mappings, catalog ...); a *service* is a
process that is started unless it already runs with the present configuration. Each has a thread that waits for its
needs and then runs. The first failure ends all waits; processes that were started stay recorded for the next `up` or
`down`.
"""

import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.laboratory.errors import LabError
from tools.laboratory.processes.table import Process, ProcessTable

READY_TIMEOUT_S = 300.0
POLL_S = 0.15
QUICK_STOP_S = 10.0
FORK_TIMEOUT_S = 120.0
END_EARLY_S = 60.0
"""How long an interrupted start waits for the steps that are under way."""
LOG_LINES = 40

Say = Callable[[str], None]
Probe = Callable[[], bool]


@dataclass(frozen=True)
class Service:
    """One process to run. `needs` are names of other services and of steps (see `startup`)."""

    name: str
    kind: str
    """mariadb, epmd, rabbitmq, api, conductor, scheduler-shared, scheduler-nova, launcher, compute, agent."""
    argv: tuple[str, ...]
    log: Path
    needs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    """The configuration that it reads when it starts; after a change it must be restarted."""
    ignores: tuple[str, ...] = ()
    """Sections of these files that it does not read: it runs on after a change in them."""
    ready: Callable[[], bool] = lambda: True
    stop_grace_s: float = QUICK_STOP_S
    forked_by: Path | None = None
    """Socket of the launcher that forks it; otherwise it is started directly."""

    def fingerprint(self) -> str:
        digest = hashlib.sha256(json.dumps([self.argv, dict(self.env)]).encode())
        for path in self.files:
            data = path.read_bytes() if path.exists() else b"-"
            digest.update(_without(data.decode(), self.ignores).encode() if self.ignores else data)
        return digest.hexdigest()[:16]


def _without(text: str, sections: Collection[str]) -> str:
    """The text of an oslo.config file without these sections, wherever they stand."""
    parts = [part.strip() for part in re.split(r"^(?=\[)", text, flags=re.MULTILINE)]
    return "\n".join(part for part in parts if part.partition("]")[0].removeprefix("[") not in sections)


@dataclass(frozen=True)
class Step:
    """A function to run once all of `needs` are ready."""

    name: str
    needs: tuple[str, ...]
    act: Callable[[], object]


class Startup:
    """One run over a set of steps and services. Needs that are not in the set count as met."""

    def __init__(self, processes: ProcessTable, steps: Iterable[Step], services: Mapping[str, Service],
                 say: Say) -> None:  # fmt: skip
        self._processes = processes
        self._work: dict[str, Step | Service] = {step.name: step for step in steps}
        self._work.update(services)
        self._done = {name: threading.Event() for name in self._work}
        self._failures: list[str] = []
        self._stop = threading.Event()
        self._say = say
        self.started: list[str] = []

    def run(self) -> None:
        """Run everything; a `LabError` names the first failure."""
        threads = [threading.Thread(target=self._guard, args=(name,), daemon=True) for name in self._work]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self._end_early(threads)
            raise LabError("interrupted; `up` continues, `down` ends the running processes") from None
        if self._failures:
            raise LabError(self._failures[0])

    def _end_early(self, threads: Iterable[threading.Thread]) -> None:
        """Start nothing more, and wait for starts that are under way, because the caller stops the recorded
        processes."""
        self._stop.set()
        until_s = time.monotonic() + END_EARLY_S
        for thread in filter(threading.Thread.is_alive, threads):
            thread.join(max(0.0, until_s - time.monotonic()))

    def _guard(self, name: str) -> None:
        try:
            self._wait_for_needs(self._work[name])
            if self._stop.is_set():
                return
            self._do(self._work[name])
            self._done[name].set()
        except Exception as error:
            self._failures.append(f"{name}: {error}")
            self._stop.set()

    def _wait_for_needs(self, work: Step | Service) -> None:
        for need in work.needs:
            if need in self._done:
                while not self._done[need].wait(0.1) and not self._stop.is_set():
                    pass

    def _do(self, work: Step | Service) -> None:
        began = time.monotonic()
        if isinstance(work, Step):
            work.act()
            return
        if self.ensure(work):
            self._say(f"{work.name:12} ready after {time.monotonic() - began:.1f} s")

    def ensure(self, service: Service) -> bool:
        """Start `service` if necessary, and wait until it is ready; returns whether it had to be started."""
        process = self._processes.alive(service.name)
        fresh = process is None or process.fingerprint != service.fingerprint()
        if process is not None and fresh:
            self._say(f"{service.name:12} restarts: its configuration has changed")
            self._processes.stop([service.name], service.stop_grace_s)
        log_from = service.log.stat().st_size if service.log.exists() else 0
        if fresh:
            launch(self._processes, service)
            self.started.append(service.name)
        self._wait_ready(service, log_from)
        return fresh

    def _wait_ready(self, service: Service, log_from: int) -> None:
        def hopeless() -> bool:
            return self._stop.is_set() or self._processes.alive(service.name) is None

        try:
            wait_for(service.kind, service.ready, READY_TIMEOUT_S, hopeless)
        except LabError as error:
            raise LabError(f"{error}; see {service.log}: {last_words(service, log_from)}") from None


def last_words(service: Service, log_from: int) -> str:
    """The line of the log after this byte that most likely contains the error."""
    with service.log.open(errors="replace") as log:
        log.seek(log_from)
        lines = log.read().strip().splitlines()[-LOG_LINES:]
    telling = [line for line in lines if re.search(r"error|fail|critical", line, re.IGNORECASE)]
    return (telling or lines or ["(empty)"])[-1].strip()[:300]


def launch(processes: ProcessTable, service: Service) -> Process:
    """Start a service's process, directly or by its launcher."""
    fingerprint = service.fingerprint()
    if service.forked_by is None:
        try:
            return processes.spawn(service.name, service.argv, service.env, service.log, service.kind, fingerprint)
        except FileNotFoundError as error:
            raise LabError(f"{error.filename} does not exist; run tools/install") from None
    program, *arguments = service.argv
    request = {
        "name": service.name, "log": str(service.log), "program": Path(program).name, "arguments": arguments,
        "hardware": str(service.files[-1]),
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(FORK_TIMEOUT_S)
        connection.connect(str(service.forked_by))
        connection.sendall(json.dumps(request).encode() + b"\n")
        reply = connection.makefile("r").readline()
    if not reply:
        raise LabError(f"the launcher did not fork {service.name}; see its log")
    return processes.adopt(service.name, json.loads(reply)["pid"], service.kind, fingerprint)


def wait_for(what: str, probe: Probe, timeout_s: float, gave_up: Probe = lambda: False) -> None:
    """Repeat the probe until it is true.

    :raises LabError: when `gave_up` returns that it cannot become true (its process has ended), or after `timeout_s`
    """
    deadline = time.monotonic() + timeout_s
    while not probe():
        if gave_up():
            raise LabError(f"{what}: the process ended")
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not ready after {timeout_s:.0f} s")
        time.sleep(POLL_S)

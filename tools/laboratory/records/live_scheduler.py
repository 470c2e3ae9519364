# SPDX-License-Identifier: Apache-2.0
"""A scheduler with a table of many hosts with agents, which answers on its control socket.

It has the core, the table and the questions of production, but neither Nova nor a message queue; Nova's filters, which
verify a host before it is claimed, accept every host.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from shared_scheduler.conf.mode import CurrentMode, Mode
from shared_scheduler.core.events import Candidate
from shared_scheduler.core.planner import Approval
from shared_scheduler.daemon.admin import SUFFIX, AdminServer, Handlers
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.what_if import WhatIf
from shared_scheduler.protocol.messages import Reason
from shared_scheduler.service.engine import Sinks
from shared_scheduler.service.fit import FitAnswerer
from shared_scheduler.service.host_answers import HostAnswerer
from shared_scheduler.service.inspection import questions
from tools.laboratory.decide import workloads
from tools.laboratory.decide.burst import Idle, learn, make_engine
from tools.laboratory.decide.workloads import Workload

NAME = "controller-1"
#: a server that no host is too small for, as made_records has it
RESOURCES = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}
#: hosts that are looked at again with Nova's filters before a request fails
LAST_WORDS_MAX = 50


class AcceptAll:
    """In the place of Nova's filters."""

    def verify(self, request: Request, index: int, view: Any, candidates: Sequence[Candidate]) -> Approval | Reason:
        """Approve the host."""
        return Approval(candidates[0] if candidates else None, request.topology)


class LiveScheduler:
    """Its hosts are ``compute0`` and so on; ``directory`` is that of its socket."""

    def __init__(self, directory: Path, hosts: int) -> None:
        self.directory = directory
        self._engine, decider = make_engine()
        self._engine.start(Sinks(Idle(), Idle()))
        learn(self._engine, hosts, Random(1))
        self._server = AdminServer(directory / f"{NAME}-{os.getpid()}{SUFFIX}", self._questions(decider))

    def __enter__(self) -> "LiveScheduler":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()
        self._engine.stop()

    def _questions(self, decider: Decider) -> Handlers:
        fit = FitAnswerer(
            self._engine, NAME, request_of, lambda table: (Decider(table, rng=Random(0)), AcceptAll()), _no_placement,
            lambda names, _: names, LAST_WORDS_MAX,
        )  # fmt: skip
        hosts = HostAnswerer(self._engine, decider, NAME, request_of)
        queues = {name: lambda: 0 for name in ("requests", "placement_writes", "records")}
        asked = questions(self._engine, NAME, dict, list, dict, CurrentMode(Mode.ACTIVE), queues)
        return {**asked, "fit": fit.answer, "hosts": hosts.answer}


def request_of(asked: WhatIf, servers: int, known: Sequence[str] = ()) -> Request:
    """The request for servers of these sizes: those with the uuids ``known``, or new ones."""
    sizes = {"VCPU": asked.vcpus, "MEMORY_MB": asked.memory_mb, "DISK_GB": asked.root_gb}
    resources = {name: RESOURCES[name] if size is None else size for name, size in sizes.items()}
    made = workloads.make_request(Workload("asked", [], {"resources": resources, "instances": servers}), 0, "")
    return replace(made, instance_uuids=tuple(known)) if known else made


def _no_placement(_: Any) -> Any:
    raise AssertionError("the root providers have all that is asked for")

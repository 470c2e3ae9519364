# SPDX-License-Identifier: Apache-2.0
"""The near end of `client`: a process of its own that calls, so that our measuring costs it nothing."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..realcloud.errors import CloudError
from ..realcloud.layout import ROOT
from ..realcloud.processes import clean_environment
from .world import World


class Client:
    """A started client process that answers commands."""

    def __init__(self, process: "subprocess.Popen[str]", log: str) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid
        self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CloudError(f"the client process ended; see {self._log}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._read()

    def call(self, callers: int, seconds: float, least: int) -> dict[str, Any]:
        """Call for so long and at least so often; see `client.Tally`."""
        return self._ask(do="call", callers=callers, seconds=seconds, least=least)

    def write(self, endpoint: str, hosts: int, callers: int, seconds: float, least: int) -> dict[str, Any]:
        """Write to Placement without a scheduler; otherwise as `call`."""
        return self._ask(do="write", endpoint=endpoint, hosts=hosts, callers=callers, seconds=seconds, least=least)

    def sync(self, hosts: list[str], rounds: int) -> None:
        self._ask(do="sync", hosts=hosts, rounds=rounds)


@contextmanager
def client(world: World) -> Iterator[Client]:
    """A client process, ended afterwards."""
    log = world.layout.log_of("client")
    argv = [str(world.layout.nova / "bin" / "python"), "-m", "tools.benchmarks.client", str(world.nova_conf)]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            env=clean_environment() | {"PYTHONPATH": str(ROOT)}, cwd=world.layout.run,
        )  # fmt: skip
    try:
        yield Client(process, str(log))
    finally:
        process.kill()
        process.communicate()

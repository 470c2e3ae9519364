#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forks a Python service of the cloud for each request on a Unix socket.

    launcher.py SOCKET

Nova is imported once, which saves two to three CPU seconds and 50 MB for each service; each service still has its own
process, session, arguments and configuration. Run it with the Python of the environment that contains Nova, and with
native threads: a service that runs under eventlet, or starts processes, is started directly.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.laboratory.cloud import fake_compute

REQUEST_MAX_BYTES = 65536
COMPUTE = "nova-compute"
PROGRAMS = {"shared-scheduler": "shared_scheduler.cmd.scheduler", "compute-agent": "compute_agent.cmd.agent"}
"""Console scripts of this project -> the modules of their `main`."""

SHARED = (
    "nova.cmd.compute", "compute_agent.service.process", "compute_agent.sources.nova_conf",
    "shared_scheduler.nova.process",
)  # fmt: skip
"""The modules that the services import. Nova's managers are not among them, because they read the spacing of periodic
tasks from the configuration when they are imported."""


def main_of(request: dict[str, Any]) -> Callable[[], Any]:
    """The program of the request."""
    if request["program"] == COMPUTE:
        return lambda: fake_compute.run(request["hardware"], request["arguments"])
    found: Callable[[], Any] = importlib.import_module(PROGRAMS[request["program"]]).main
    return found


def become(request: dict[str, Any]) -> None:
    """In the forked child: create a session, redirect the output, set a name, and run the program."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    Path("/proc/self/comm").write_text(request["name"][:15])
    sys.argv = [request["program"], *request["arguments"]]
    code = 1
    try:
        code = main_of(request)() or 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve(path: str) -> None:
    """Fork a service for each request: one JSON object in, one with its process id out."""
    for module in SHARED:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for: none may become a zombie
    gc.freeze()
    Path(path).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(64)
    while True:
        connection, _ = server.accept()
        with connection:
            request = connection.makefile("r").readline(REQUEST_MAX_BYTES)
            if not request:
                continue  # a probe, which only connects
            child = os.fork()
            if child == 0:
                connection.close()
                server.close()
                become(json.loads(request))
            connection.sendall(json.dumps({"pid": child}).encode() + b"\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    serve(sys.argv[1])

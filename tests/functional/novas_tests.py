# SPDX-License-Identifier: Apache-2.0
"""Nova's own functional tests, as shipped in its package, with another manager where they start nova-scheduler.

``not_green`` runs some in a process of their own, because Nova's test package patches its process: that is
``python -m tests.functional.novas_tests FILE MANAGER PATIENCE TEST ...``, which appends a line of JSON for each test.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "nova.tests.functional"
OURS = "shared_scheduler.nova.manager.SharedSchedulerManager"
BROKEN = "tests.functional.no_host_manager.NoHostManager"
RUN_TIMEOUT_S = 3000
TEST_TIMEOUT_S = 300
TAIL = 4000
#: How many times as long as Nova's tests wait, in the first try and in each further one.
PATIENCE, MORE_PATIENCE = 1, 8
#: as Nova's tox.ini sets them for its functional tests
ENVIRONMENT = {
    "LC_ALL": "C.UTF-8", "LANGUAGE": "en_US", "OS_STDOUT_CAPTURE": "1", "OS_STDERR_CAPTURE": "1",
    "OS_TEST_TIMEOUT": str(TEST_TIMEOUT_S), "NOVA_RAISE_ON_GREENLET_LEAK": "True",
}  # fmt: skip
NO_END = "it did not come to an end; the run says:\n"

NotGreen = dict[str, str]
"""Of each test why it is not green; nothing where it is."""


def not_green(tests: Iterable[str], manager: str = OURS, eventlet: bool = False, tries: int = 2) -> NotGreen:
    """Run them; again, alone and with more patience, what was not green.

    Their own waits of five seconds run out on a busy machine, with nova-scheduler as well.
    """
    found = _run(tuple(tests), manager, eventlet, PATIENCE)
    for _ in range(tries - 1):
        for test in [test for test, why in found.items() if why]:
            found |= _run((test,), manager, eventlet, MORE_PATIENCE)
    return found


def _run(tests: tuple[str, ...], manager: str, eventlet: bool, patience: int) -> NotGreen:
    """One after the other; what a test that takes its process along has left, in another one."""
    found: NotGreen = {}
    while left := tests[len(found) :]:
        told, said = _in_a_process(left, manager, eventlet, patience)
        found |= told
        if len(told) < len(left):
            found[left[len(told)]] = NO_END + said
    return found


def _in_a_process(tests: tuple[str, ...], manager: str, eventlet: bool, patience: int) -> tuple[NotGreen, str]:
    with tempfile.TemporaryDirectory(prefix="novas-") as name:
        home, out = Path(name), Path(name) / "out"
        environment = os.environ | ENVIRONMENT | {
            "OS_NOVA_DISABLE_EVENTLET_PATCHING": str(not eventlet),
            "PYTHONPATH": os.pathsep.join([str(_tree(home)), str(ROOT)]),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", __name__, str(out), manager, str(patience), *tests],
            cwd=home, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False,
        )  # fmt: skip
        rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return dict(rows), f"status {done.returncode}\n{done.stdout[-TAIL:]}{done.stderr[-TAIL:]}"


def _tree(home: Path) -> Path:
    """Nova as it is in its sources, where the tests look for its ``etc``: beside the package."""
    spec = importlib.util.find_spec("nova")
    assert spec is not None and spec.submodule_search_locations is not None
    tree = home / "tree"
    tree.mkdir()
    (tree / "nova").symlink_to(spec.submodule_search_locations[0])
    (tree / "etc").symlink_to(Path(sys.prefix) / "etc")
    return tree


# -- in the process of its own


def main(out: str, manager: str, patience: str, *tests: str) -> None:
    importlib.import_module(PACKAGE)  # patches, first of all
    _put_in_place(manager)
    _wait_longer(int(patience))
    with open(out, "a", buffering=1) as file:
        for test in tests:
            file.write(json.dumps([test, _complaint(test)]) + "\n")


def _put_in_place(manager: str) -> None:
    """Use the manager for nova-scheduler, and embed its agents in the computes of each test."""
    from nova import service, test

    from tests.support import one_process

    service.SERVICE_MANAGERS["nova-scheduler"] = manager
    set_up = test.TestCase.setUp

    def with_agents(self: Any) -> None:
        one_process.attach(self)
        set_up(self)

    test.TestCase.setUp = with_agents


def _wait_longer(times: int) -> None:
    """Lengthen the pauses in which Nova's tests wait for a server or a migration; that module uses only ``sleep``."""
    from nova.tests.functional import integrated_helpers

    integrated_helpers.time = SimpleNamespace(sleep=lambda pause_s: time.sleep(times * pause_s))


def _complaint(name: str) -> str:
    module, case, method = f"{PACKAGE}.{name}".rsplit(".", 2)
    result = unittest.TestResult()
    getattr(importlib.import_module(module), case)(method).run(result)
    texts = [text for _, text in (*result.errors, *result.failures)]
    texts += [f"skipped: {why}" for _, why in result.skipped]
    return "\n".join(texts)[-TAIL:]


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # threads that a test has left running

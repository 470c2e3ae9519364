# SPDX-License-Identifier: Apache-2.0
"""The same seed gives the same trace in every process, however Python happens to order its sets there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: a little of everything that a world can have, changes by others at its end included
ASKED = (
    "simulate --seed 2 --nodes 8 --schedulers 3 --duration 15 --loss 10% --duplicates 5% --late 20% --garbled 2% "
    "--topologies 0.4 --migrations 1 --newer 0.3 --agentless 0.2 --fault-every 2"
).split()


@pytest.mark.long
def test_the_trace_is_the_same_byte_for_byte_in_another_process(tmp_path: Path) -> None:
    traces = []
    for seed_of_hashes in ("0", "1", "4242"):
        file = tmp_path / f"trace-{seed_of_hashes}.txt"
        subprocess.run(
            [sys.executable, "-m", "shared_scheduler.cmd.manage", *ASKED, "--trace", file],
            env={**os.environ, "PYTHONHASHSEED": seed_of_hashes}, stdout=subprocess.DEVNULL, check=True, timeout=1500,
        )  # fmt: skip
        traces.append(file.read_bytes())
    assert len(traces[0].splitlines()) > 1_000
    assert traces[0] == traces[1] == traces[2]

# SPDX-License-Identifier: Apache-2.0
"""The tap of a nova-compute with one node; runs with the code of the tree in PYTHONPATH, until it is ended.

python tap.py SOCKET HOST NODE
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

#: where a release has ``TapChannel``; the first name is of 7736e85.  Older names come first: where this project is
#: installed in editable mode, the newer module is found beside the package of the earlier release too.
CHANNELS = ("compute_agent.tap.channel", "compute_agent.tap.tap_channel")
#: where a release has the messages of the tap; the first name is of 7736e85
MESSAGES = ("compute_agent.tap.wire", "compute_agent.tap_wire")

LEAVES = {
    "cn.vcpus": 4, "cn.vcpus_used": 0, "cn.memory_mb": 8192, "cn.memory_mb_used": 0, "cn.free_ram_mb": 8192,
    "cn.local_gb": 100, "cn.local_gb_used": 0, "cn.free_disk_gb": 100, "cn.disk_available_least": 100,
    "cn.cpu_allocation_ratio": 1.0, "cn.ram_allocation_ratio": 1.0, "cn.disk_allocation_ratio": 1.0,
    "cn.running_vms": 0, "stats.num_instances": 0,
}  # fmt: skip


def first_of(names: Sequence[str]) -> Any:
    """The first of these modules that the release has."""
    return import_module(next(name for name in names if find_spec(name)))


def main(path: str, host: str, node: str) -> None:
    """Speak to the agent that connects."""
    messages = first_of(MESSAGES)
    hello, told = messages.TapHello(host, 1), messages.NodeReported(node, LEAVES, {}, complete=True, ready=True)
    tap = first_of(CHANNELS).TapChannel(path, lambda: [hello, told])
    with tap.lock:
        tap.put(hello)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])

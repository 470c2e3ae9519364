# SPDX-License-Identifier: Apache-2.0
"""The tap of a nova-compute with one node; runs with the code of the tree in PYTHONPATH, until it is ended.

python tap.py SOCKET HOST NODE
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from importlib.util import find_spec

from compute_agent.tap.wire import NodeReported, TapHello

#: where a release has ``TapChannel``; the older name is of 7736e85
MODULES = ("compute_agent.tap.tap_channel", "compute_agent.tap.channel")

LEAVES = {
    "cn.vcpus": 4, "cn.vcpus_used": 0, "cn.memory_mb": 8192, "cn.memory_mb_used": 0, "cn.free_ram_mb": 8192,
    "cn.local_gb": 100, "cn.local_gb_used": 0, "cn.free_disk_gb": 100, "cn.disk_available_least": 100,
    "cn.cpu_allocation_ratio": 1.0, "cn.ram_allocation_ratio": 1.0, "cn.disk_allocation_ratio": 1.0,
    "cn.running_vms": 0, "stats.num_instances": 0,
}  # fmt: skip


def main(path: str, host: str, node: str) -> None:
    """Speak to the agent that connects."""
    hello, told = TapHello(host, 1), NodeReported(node, LEAVES, {}, complete=True, ready=True)
    tap = import_module(next(name for name in MODULES if find_spec(name))).TapChannel(path, lambda: [hello, told])
    with tap.lock:
        tap.put(hello)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])

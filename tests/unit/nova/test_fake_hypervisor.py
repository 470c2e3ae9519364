# SPDX-License-Identifier: Apache-2.0
"""The fake hypervisor of our real cloud keeps the promises of a real one."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

from tools.laboratory.cloud import fake_compute

#: a process may be slow to import Nova on a busy machine
WAIT_S = 600
SERVER = "b3cf41dd-bfaf-4422-a9c1-65aac6d46216"
HARDWARE: dict[str, Any] = {
    "vcpus": 8, "memory_mb": 8192, "local_gb": 100, "numa_cells": 0, "gpus": 0, "vfs": 0, "refuses_builds": "",
}  # fmt: skip


def live_migrates_away(state_path: str) -> None:
    """In a process of its own, for the sizes are put into Nova's classes."""
    import nova.conf
    from nova import objects
    from nova.virt import fake

    nova.conf.CONF([], default_config_files=[], project="nova")
    nova.conf.CONF.set_override("state_path", state_path)
    objects.register_all()
    fake_compute.install(HARDWARE)
    driver = fake.FakeDriverWithoutFakeNodes(virtapi=None)
    server = objects.Instance(uuid=SERVER, flavor=objects.Flavor(vcpus=1, memory_mb=512, root_gb=1))
    driver.instances[SERVER] = fake.FakeInstance("a server", 1, SERVER)
    driver.post_live_migration(None, server, {}, None)


def test_a_live_migrated_server_is_removed_from_its_source(tmp_path: Path) -> None:
    # given a guest here, when Nova has moved it away alive
    process = multiprocessing.get_context("spawn").Process(target=live_migrates_away, args=(str(tmp_path),))
    process.start()
    process.join(WAIT_S)

    # then it is gone from here, and may come back at an evacuation
    assert process.exitcode == 0
    assert json.loads((tmp_path / "guests.json").read_text()) == {}

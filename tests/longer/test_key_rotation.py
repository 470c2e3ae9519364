# SPDX-License-Identifier: Apache-2.0
"""Host keys are rotated by the documented commands, while one scheduler is in ``shadow`` and one serves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from shared_scheduler.service.mode import Mode
from tests.functional import cloud_state, modes
from tests.functional.modes import Behind, users, wait_for_servers
from tests.functional.test_host_keys import Controller, commands
from tools.laboratory.cloud.cloud import Cloud

COMPARES, SERVES = "sched1", "sched2"
COMPUTES = ("c1", "c2", "c3")
WAIT_S = 60


class Fleet:
    """The schedulers and agents of a cloud, with the files that the operator has copied to them."""

    def __init__(self, home: Path) -> None:
        self._controller = Controller(home, COMPUTES)
        self._agents = home / "computes"
        self._agents.mkdir()
        for line in commands()[0]:
            self._controller.run(line)
        self._copy("schedulers")
        self._copy("computes")

    def options(self) -> dict[str, dict[str, str]]:
        """Those of all programs, for ``nova.conf``."""
        own = {"host_keys": "require", "host_keys_file": f"{self._agents}/${{host}}.keys"}
        return {"compute_agent": own, "shared_scheduler": {**own, "host_keys_file": str(self._controller.file)}}

    def rotate(self, cloud: Cloud) -> Iterator[str]:
        """The commands in their order; each is yielded once it has come into force."""
        for line, who in commands()[1]:
            self._controller.run(line)
            self._copy(who)
            names = cloud.names("agent" if who == "computes" else "scheduler-shared")
            sizes = {name: cloud.log_size(name) for name in names}
            for name in names:
                cloud.hangup(name)
            for name, size in sizes.items():
                cloud.wait(partial(_has_loaded, cloud, name, size), f"{name} to load its keys", WAIT_S)
            yield line

    def _copy(self, who: str) -> None:
        if who == "schedulers":
            shutil.copy(self._controller.master, self._controller.file)
            return
        for host in COMPUTES:
            shutil.copy(self._controller.hosts / f"{host}.keys", self._agents)


def _has_loaded(cloud: Cloud, name: str, offset: int) -> bool:
    return "host_keys is require" in cloud.logs(name, offset)


def counters(cloud: Cloud, name: str) -> dict[str, int]:
    """Scheduler -> a counter."""
    return {row["scheduler"]: row["counters"].get(name, 0) for row in cloud_state.status(cloud)}


def test_keys_are_rotated_while_one_scheduler_compares_and_one_serves(cloud: Cloud, tmp_path: Path) -> None:
    # given host keys that every program requires
    fleet = Fleet(tmp_path)
    cloud_state.begin(cloud, schedulers=2, allocation_conflict_retry_count=1, nova_options=fleet.options())
    behind = Behind(cloud, "behind1")
    behind.start()
    try:
        modes.reload(cloud, COMPARES, Mode.SHADOW)
        wanted = {COMPARES: "shadow", SERVES: "active"}
        cloud.wait(lambda: modes.modes(cloud) == wanted, "the modes", WAIT_S)

        # when they are rotated under load, then no server fails (``users``) at any step
        with users(cloud) as crowd:
            for _ in fleet.rotate(cloud):
                wait_for_servers(cloud, crowd, 6)
        assert modes.modes(cloud) == wanted
        assert counters(cloud, "messages_rejected") == {COMPARES: 0, SERVES: 0}
        assert counters(cloud, "requests_previewed")[COMPARES] > 0
        assert counters(cloud, "requests_answered")[SERVES] > 0
        assert not [name for name in cloud.names("agent") if "a message is dropped" in cloud.logs(name)]
    finally:
        modes.reload(cloud, COMPARES, Mode.ACTIVE)
        behind.stop()
    cloud_state.assert_consistent(cloud)

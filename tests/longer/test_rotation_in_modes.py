# SPDX-License-Identifier: Apache-2.0
"""Host keys are rotated while one scheduler serves, one is in shadow and one observes.

The commands are those of the page on security. The two that do not serve cast no claims, so a mistake would stay
unseen until they do; but they read the messages of agents, ask them for snapshots, and send Hellos, and all of that
has to be believed after each step.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_scheduler.conf.mode import Mode
from tests.functional import cloud_state, modes
from tests.functional.modes import Behind, users, wait_for_servers
from tests.functional.test_host_keys import Controller, commands
from tools.laboratory.cloud.cloud import Cloud

HOSTS = ("c1", "c2", "c3")
SERVING, SHADOW, OBSERVING = SCHEDULERS = ("sched1", "sched2", "sched3")
MODES = {SERVING: "active", SHADOW: "shadow", OBSERVING: "observe"}
#: a host is read by order at most once in ten seconds
AGAIN_S = 60


class Fleet:
    """Three schedulers with one master, and the agents of three computes, each with its own keys."""

    def __init__(self, cloud: Cloud, controller: Controller) -> None:
        self._cloud = cloud
        self._controller = controller

    def give_computes_keys(self, mode: str) -> None:
        """Set the options of the agents, and send SIGHUP."""
        for host in HOSTS:
            file = self._cloud.layout.etc / "nova" / host / "nova.conf"
            options = f"[compute_agent]\nhost_keys = {mode}\nhost_keys_file = {self._keys_of(host)}\n"
            lines = [line for line in file.read_text().splitlines(keepends=True) if not line.startswith("host_keys")]
            file.write_text("".join(lines).replace("[compute_agent]\n", options))
        self.distribute("computes")

    def require(self) -> None:
        """Schedulers believe only who proves who it is."""
        file = self._cloud.layout.nova_conf()
        file.write_text(file.read_text().replace("host_keys = accept", "host_keys = require"))
        self.distribute("schedulers")

    def rotate(self, line: str, who: str) -> None:
        """Carry out one line of the page, and give its files to who gets them."""
        self._controller.run(line)
        self.distribute(who)

    def distribute(self, who: str) -> None:
        """Copy the files to one side, send SIGHUP, and return when each program has reloaded."""
        if who == "schedulers":
            shutil.copy(self._controller.master, self._controller.file)
            programs, told = list(SCHEDULERS), "Reloaded"
        else:
            for host in HOSTS:
                shutil.copy(self._controller.hosts / f"{host}.keys", self._keys_of(host))
            programs, told = [f"agent-{host}" for host in HOSTS], "host_keys is"
        for program in programs:
            offset = self._cloud.log_size(program)
            self._cloud.hangup(program)
            self._cloud.wait(lambda: told in self._cloud.logs(program, offset), f"{program} to reload")  # noqa: B023

    def _keys_of(self, host: str) -> Path:
        return self._controller.hosts.parent / f"{host}.in-use.keys"

    def assert_believed(self, host: str) -> None:
        """Each scheduler asks the agent for a snapshot, and believes it; nothing was dropped until now."""
        done = cloud_state.manage(self._cloud, "resync", host, "--wait", str(AGAIN_S), "--format", "json")
        answers = json.loads(done.stdout)
        assert {answer["scheduler"] for answer in answers} == set(SCHEDULERS)
        told = [(node["source"], node["result"]) for answer in answers for node in answer["nodes"]]
        assert told == [("agent", "read")] * len(SCHEDULERS), done.stdout
        rejected = {
            row["scheduler"]: row["counters"].get("messages_rejected", 0) for row in cloud_state.status(self._cloud)
        }
        assert rejected == dict.fromkeys(SCHEDULERS, 0)
        assert not [one for one in HOSTS if "is dropped" in self._cloud.logs(f"agent-{one}", self._begun[one])]

    def remember_logs(self) -> None:
        """From now on, agents drop nothing."""
        self._begun = {host: self._cloud.log_size(f"agent-{host}") for host in HOSTS}


@pytest.fixture
def behind(cloud: Cloud) -> Iterator[Behind]:
    """A nova-scheduler that is ready to start behind."""
    made = Behind(cloud, "behind1")
    yield made
    made.stop()


@pytest.fixture
def fleet(cloud: Cloud, behind: Behind, tmp_path: Path) -> Fleet:
    """All require host keys; each scheduler is in another mode."""
    controller = Controller(tmp_path, HOSTS)
    for line in commands()[0]:
        controller.run(line)
    shutil.copy(controller.master, controller.file)
    options = {"host_keys": "accept", "host_keys_file": str(controller.file)}
    cloud_state.begin(
        cloud, schedulers=3, allocation_conflict_retry_count=1, nova_options={"shared_scheduler": options}
    )
    made = Fleet(cloud, controller)
    made.remember_logs()
    made.give_computes_keys("accept")
    made.require()
    made.give_computes_keys("require")
    behind.start()
    for scheduler, mode in MODES.items():
        modes.reload(cloud, scheduler, Mode(mode))
    cloud.wait(lambda: modes.modes(cloud) == MODES, "each scheduler to be in its mode")
    return made


def test_keys_are_rotated_while_schedulers_are_in_different_modes(cloud: Cloud, fleet: Fleet, behind: Behind) -> None:
    # given users at work, whose requests are decided by ours and by nova-scheduler
    with users(cloud, modes.MANY_USERS) as crowd:
        wait_for_servers(cloud, crowd, 3)
        fleet.assert_believed(HOSTS[0])

        # when the keys are replaced, then after each step each scheduler is answered, and nothing is dropped
        for number, (line, who) in enumerate(commands()[1], start=1):
            fleet.rotate(line, who)
            wait_for_servers(cloud, crowd, 3)
            fleet.assert_believed(HOSTS[number % len(HOSTS)])
    assert modes.modes(cloud) == MODES
    cloud_state.assert_consistent(cloud)

    # and the two serve with the new keys, one of them after a restart
    behind.stop()
    modes.write_mode(cloud, OBSERVING, Mode.ACTIVE)
    modes.reload(cloud, SHADOW, Mode.ACTIVE)
    for scheduler in (SERVING, OBSERVING):
        cloud.stop(scheduler)
    cloud.start(OBSERVING)
    cloud.wait(lambda: set(modes.modes(cloud).values()) == {"active"}, "both to serve")
    cloud_state.ask_all(cloud, "status")
    servers = cloud.boot(6, parallel=3)
    cloud.wait_active(servers)
    cloud.start(SERVING)
    cloud_state.wait_fresh(cloud, set(HOSTS))
    cloud_state.assert_consistent(cloud)

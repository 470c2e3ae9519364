# SPDX-License-Identifier: Apache-2.0
"""A new compute is schedulable within two seconds of its agent's first snapshot."""

from __future__ import annotations

import threading
import time

from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud

READ_INTERVAL_S = 0.02
#: in two seconds, each with the time that its answer takes
LOOKS_MAX = 80


def test_a_new_compute_is_used_before_any_periodic_task(cloud: Cloud) -> None:
    # given a cloud whose periodic reads are far apart, so that they cannot be what finds the node
    slow = {"shared_scheduler": {"nodes_poll_interval_s": "3600"}}
    cloud_state.begin(cloud, computes=2, compute_slots=(1,), nova_options=slow)
    cloud.wait_active(cloud.boot(2, parallel=2))

    # when a third one joins
    watch = Watch(cloud)
    cloud.up(computes=3)
    cloud_state.wait_fresh(cloud, {"c1", "c2", "c3"})

    # then it could have taken a server within two seconds, and it does
    assert watch.reads_from_snapshot_to_choice() <= LOOKS_MAX
    assert list(cloud.wait_active(cloud.boot(1)).values()) == ["c3"]


class Watch:
    """Reads c3's row periodically in another thread.

    The reads are its clock: if the machine delays the scheduler, it also delays a read, which the scheduler answers.
    """

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._reads = 0
        self._moments: dict[str, int] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        until_s = time.monotonic() + cloud_state.SETTLE_S
        while "choosable" not in self._moments and time.monotonic() < until_s:
            self._reads += 1
            [table] = cloud_state.tables(self._cloud).values()
            row = table.get("c3")
            if row and row["epoch"]:
                self._moments.setdefault("snapshot", self._reads)
                if row["choosable"]:
                    self._moments["choosable"] = self._reads
            time.sleep(READ_INTERVAL_S)

    def reads_from_snapshot_to_choice(self) -> int:
        """How often it was read in between."""
        self._thread.join()
        return self._moments["choosable"] - self._moments["snapshot"]


def test_an_unmapped_compute_is_mapped_to_its_cell_by_the_scheduler(cloud: Cloud) -> None:
    # given a cloud without c3, which went while nobody discovers hosts: that could map it again before it is gone
    cloud_state.begin(cloud, computes=2)
    mapped = "SELECT host FROM host_mappings WHERE host = 'c3'"
    assert not cloud.sql("nova_api", mapped)

    cloud.up(computes=3, premap=False)

    cloud.wait(lambda: bool(cloud.sql("nova_api", mapped)), "c3 to be mapped")
    cloud_state.wait_fresh(cloud, {"c1", "c2", "c3"})
    assert list(cloud.wait_active(cloud.boot(1, availability_zone="nova:c3")).values()) == ["c3"]

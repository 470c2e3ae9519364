# SPDX-License-Identifier: Apache-2.0
"""A hundred switches of two schedulers in front of two nova-schedulers, under load, and back to stock."""

from __future__ import annotations

from itertools import cycle, islice

from shared_scheduler.service.mode import Mode
from tests.functional import cloud_state, modes
from tests.functional.modes import Behind, switch, users, wait_for_servers
from tools.laboratory.cloud.cloud import Cloud

SWITCHES = 100
#: each mode follows each other
ORDER = (Mode.SHADOW, Mode.ACTIVE, Mode.OBSERVE, Mode.ACTIVE, Mode.SHADOW, Mode.OBSERVE)


OURS, STOCK = ("sched1", "sched2"), ("sched3", "sched4")


def test_a_hundred_switches_and_back_to_stock(cloud: Cloud) -> None:
    # given two schedulers that serve, and a nova-scheduler behind each
    cloud_state.begin(cloud, scheduler="both", schedulers=2, allocation_conflict_retry_count=1)
    for stock in STOCK:
        cloud.stop(stock)
    behind = [Behind(cloud, "behind1"), Behind(cloud, "behind2")]
    try:
        for one in behind:
            one.start()
        with users(cloud) as crowd:
            # when their modes change all the time
            for mode in islice(cycle(ORDER), SWITCHES):
                switch(cloud, mode)
                modes.pause()
            print(f"{SWITCHES} switches, {crowd.ended.total()} servers")

            # and the cloud goes back to stock
            for stock in STOCK:
                cloud.start(stock)
            switch(cloud, Mode.OBSERVE)
            for scheduler in OURS:
                cloud.stop(scheduler)
            for one in behind:
                one.stop()
            wait_for_servers(cloud, crowd, 6)
    finally:
        for one in behind:
            one.stop()

    # then each server was built (``users``), and tables, agents, Placement and databases agree
    for scheduler in OURS:
        modes.write_mode(cloud, scheduler, Mode.ACTIVE)
        cloud.start(scheduler)
    cloud_state.assert_consistent(cloud)

# SPDX-License-Identifier: Apache-2.0
"""A hundred switches of two schedulers in front of two nova-schedulers, under load."""

from __future__ import annotations

from itertools import cycle, islice

from shared_scheduler.service.mode import Mode
from tests.functional import cloud_state, modes
from tests.functional.modes import Behind, switch, users
from tools.laboratory.cloud.cloud import Cloud

SWITCHES = 100
#: each mode follows each other
ORDER = (Mode.SHADOW, Mode.ACTIVE, Mode.OBSERVE, Mode.ACTIVE, Mode.SHADOW, Mode.OBSERVE)


def test_a_hundred_switches(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=2, allocation_conflict_retry_count=1)
    stocks = [Behind(cloud, "behind1"), Behind(cloud, "behind2")]
    try:
        for stock in stocks:
            stock.start()
        with users(cloud) as crowd:
            for mode in islice(cycle(ORDER), SWITCHES):
                switch(cloud, mode)
                modes.pause()
            switch(cloud, Mode.ACTIVE)
        print(f"{SWITCHES} switches, {crowd.ended.total()} servers")
    finally:
        for stock in stocks:
            stock.stop()
    cloud_state.assert_consistent(cloud)

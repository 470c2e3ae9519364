# SPDX-License-Identifier: Apache-2.0
"""Every fault of a real broker once, at small size: schedulers, agents and requests get over it by themselves.

One broker and one set of processes for all; the drill itself compares all tables, agents, Placement and what users
were promised after each fault. The same at full size is `tools/fire`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.firedrill.drill import Drill
from tools.firedrill.faults import Fault, faults
from tools.firedrill.ground import Ground, Sizes
from tools.firedrill.pace import HURRIED

#: a fault may take as long as the drill gives it to heal and to come to the truth
pytestmark = pytest.mark.timeout(900)

SIZES = Sizes(agents=24, schedulers=2, processes=1, rate_per_s=4.0)
#: what may become of a request besides its answer: a failure that its caller is told, or, where its scheduler is
#: dead or frozen, the end of the RPC's time
CLEAR_FAILURES = {"timed_out", "no_valid_host", "placement_unreachable"}
NOBODY_ANSWERS = {"killed-scheduler": {"no_reply"}, "frozen-scheduler": {"no_reply", "late"}}


@pytest.fixture(scope="module")
def drill() -> Iterator[Drill]:
    with Ground(SIZES, HURRIED, print) as ground:
        drill = Drill(ground, print)
        assert drill.join().wrong == []
        yield drill
        drill.end()


@pytest.mark.parametrize("fault", faults(HURRIED), ids=lambda fault: fault.name)
def test_what_a_broker_can_do_is_seen_and_got_over(drill: Drill, fault: Fault) -> None:
    found = drill.suffer(fault)

    assert found.wrong == []
    assert found.requests["answered"] > 0
    allowed = CLEAR_FAILURES | NOBODY_ANSWERS.get(fault.name, set()) | {"answered"}
    assert found.requests.keys() <= allowed

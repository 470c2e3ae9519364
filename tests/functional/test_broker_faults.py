# SPDX-License-Identifier: Apache-2.0
"""Every fault of a real broker once, at small size: schedulers, agents and requests get over it by themselves.

One broker and one set of processes for all; the drill itself compares all tables, agents, Placement and what users
were promised after each fault, and waits for what each fault must do to those it strikes (`tools/firedrill/signs.py`).
The same at full size is `tools/fire`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tools.firedrill import drill as drills
from tools.firedrill.drill import Drill
from tools.firedrill.faults import Fault, faults, nothing
from tools.firedrill.ground import Ground, Sizes
from tools.firedrill.pace import HURRIED
from tools.firedrill.signs import no_sign, seen

#: a fault may take as long as the drill gives it to heal and to come to the truth
pytestmark = pytest.mark.timeout(900)

SIZES = Sizes(agents=24, schedulers=2, processes=1, rate_per_s=4.0)
#: what may become of a request besides its answer: a failure that its caller is told, or, where its scheduler is
#: dead or frozen, the end of the RPC's time
CLEAR_FAILURES = {"timed_out", "no_valid_host", "placement_unreachable"}
NOBODY_ANSWERS = {"killed-scheduler": {"no_reply"}, "frozen-scheduler": {"no_reply", "late"}}


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with Ground(SIZES, HURRIED, print) as ground:
        yield ground


@pytest.fixture(scope="module")
def drill(ground: Ground) -> Iterator[Drill]:
    drill = Drill(ground, print)
    assert drill.join().wrong == []
    yield drill
    drill.end()


@pytest.mark.parametrize("fault", faults(HURRIED), ids=lambda fault: fault.name)
def test_what_a_broker_can_do_is_seen_and_got_over(drill: Drill, fault: Fault) -> None:
    found = drill.suffer(fault)

    assert found.wrong == []
    assert found.unseen == []
    assert found.requests["answered"] > 0
    allowed = CLEAR_FAILURES | NOBODY_ANSWERS.get(fault.name, set()) | {"answered"}
    assert found.requests.keys() <= allowed


@pytest.mark.parametrize("fault", faults(HURRIED), ids=lambda fault: fault.name)
def test_nothing_is_taken_for_a_fault(drill: Drill, ground: Ground, fault: Fault) -> None:
    # given that everybody is well
    signs = [sign for sign in (fault.does, fault.leaves) if sign is not no_sign]
    before = seen(ground)
    # then each of its signs is missing
    assert signs and all(sign(ground, before) for sign in signs)


def test_a_fault_that_does_nothing_is_told(drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a restart of the broker that does not happen, and nobody who waits for it
    monkeypatch.setattr(drills, "SIGN_TIMEOUT_S", 0.0)
    harmless = replace(faults(HURRIED)[0], strike=nothing, heal=nothing)
    # then the drill says whom it should have struck
    (missing,) = drill.suffer(harmless).unseen
    assert missing.startswith(f"{SIZES.agents + SIZES.schedulers} lost nothing: scheduler-1, scheduler-2, drill-00001")

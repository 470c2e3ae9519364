# SPDX-License-Identifier: Apache-2.0
"""Faults of a real broker, at small size: schedulers, agents and requests recover without an operator.

``tests/longer/test_broker_faults.py`` has the others, most of which strike in the same way as one of these.
One broker and one set of processes for all; the drill itself compares all tables, agents, Placement and what users
were promised after each fault, and waits for what each fault must do to those it strikes
(`tools/laboratory/fire/fault_effects.py`).
The same at full size is `tools/lab fire`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tools.laboratory.fire import drill as drills
from tools.laboratory.fire.drill import Drill
from tools.laboratory.fire.environment import Environment, Sizes
from tools.laboratory.fire.fault_effects import no_effect, observed
from tools.laboratory.fire.faults import Fault, faults, nothing
from tools.laboratory.fire.pace import HURRIED

#: a fault may take as long as the drill gives it to recover
pytestmark = pytest.mark.timeout(900)

SIZES = Sizes(agents=24, schedulers=2, processes=1, rate_per_s=4.0)
#: what may become of a request besides its answer: a failure that its caller is told, or, where its scheduler is
#: dead, frozen or busy for as long as it takes to fill its queue, the end of its own time or of the RPC's
CLEAR_FAILURES = {"timed_out", "no_valid_host", "no_candidates", "placement_unreachable"}
UNANSWERED = {"no_reply", "late", "overdue"}
NOBODY_ANSWERS = {
    "killed-scheduler": {"no_reply"},
    "cold-start": {"no_reply"},
    "frozen-scheduler": UNANSWERED,
    "overflow": UNANSWERED,
}
#: these take long, or are much like others: a broker that is killed does not even say farewell; packets that are
#: dropped make agents silent, and end connections; a queue overflows in the same way when nobody can read, and an
#: agent's is deleted as a scheduler's is; ``test_transport_rabbitmq.py`` closes connections, and ``test_crashes.py``
#: kills schedulers
LONGER = {
    "restart", "stop-app", "close-connections", "delete-agent-queue", "killed-scheduler", "frozen-agent",
    "frozen-scheduler", "cut", "delay", "cold-start",
}  # fmt: skip
HERE = [fault for fault in faults(HURRIED) if fault.name not in LONGER]


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with Environment(SIZES, HURRIED, print) as environment:
        yield environment


@pytest.fixture(scope="module")
def drill(environment: Environment) -> Iterator[Drill]:
    drill = Drill(environment, print)
    assert drill.join().wrong == []
    yield drill
    drill.end()


@pytest.mark.parametrize("fault", HERE, ids=lambda fault: fault.name)
def test_every_fault_of_a_broker_is_detected_and_recovered(drill: Drill, fault: Fault) -> None:
    assert_recovered(drill, fault)


def assert_recovered(drill: Drill, fault: Fault) -> None:
    """Inflict a fault, and assert that it was noticed and that all is well again."""
    found = drill.inflict(fault)

    assert found.wrong == []
    assert found.unseen == []
    assert found.requests["answered"] > 0
    allowed = CLEAR_FAILURES | NOBODY_ANSWERS.get(fault.name, set()) | {"answered"}
    assert found.requests.keys() <= allowed


@pytest.mark.parametrize("fault", faults(HURRIED), ids=lambda fault: fault.name)
def test_nothing_is_taken_for_a_fault(drill: Drill, environment: Environment, fault: Fault) -> None:
    # given that everybody is well
    effects = [effect for effect in (fault.effect, fault.effect_after) if effect is not no_effect]
    before = observed(environment)
    # then each of its effects is missing
    assert effects and all(effect(environment, before) for effect in effects)


def test_a_fault_without_an_effect_is_reported(drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a restart of the broker that does not happen, and nobody who waits for it
    monkeypatch.setattr(drills, "EFFECT_TIMEOUT_S", 0.0)
    harmless = replace(faults(HURRIED)[0], begin=nothing, end=nothing)
    # then the drill says whom it should have struck
    (missing,) = drill.inflict(harmless).unseen
    assert missing.startswith(f"{SIZES.agents + SIZES.schedulers} lost nothing: scheduler-1, scheduler-2, lab-00001")

# SPDX-License-Identifier: Apache-2.0
"""What a planted bug is, and how a machine is asked whether it notices."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

Patch = Callable[[pytest.MonkeyPatch], None]

#: many more than most need, for what ran before in the process changes the examples; it ends at the first that
#: notices, and no time is spent on shrinking
TRIES = settings(
    max_examples=4000,
    stateful_step_count=60,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Planted:
    """A bug: what is wrong, the patch, and the machine that must notice."""

    name: str
    patch: Patch
    machine: type[RuleBasedStateMachine]


def bug(machine: type[RuleBasedStateMachine]) -> Callable[[Patch], Planted]:
    """Make a planted bug of a patch; its docstring says what is wrong."""
    return lambda patch: Planted(patch.__name__, patch, machine)


def notices(machine: type[RuleBasedStateMachine]) -> Exception | None:
    """What the machine's model finds to be wrong; None where it believes everything."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            run_state_machine_as_test(machine, settings=TRIES)
        except Exception as found:
            return found
    return None

# SPDX-License-Identifier: Apache-2.0
"""Runs every script beside this file and compares what it prints."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.scenario.cloud import Cloud
from tests.scenario.language import World
from tests.scenario.stage import Stage

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
RULE = "----"


@dataclass
class Step:
    """A command, the comments before it, and its expected output."""

    comments: list[str]
    command: str = ""
    expected: list[str] = field(default_factory=list)


def parse(text: str) -> list[Step]:
    """Blocks divided by empty lines: comments, a command, a rule, what it prints."""
    steps = []
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        body = [line for line in lines if not line.startswith("#")]
        comments = [line for line in lines if line.startswith("#")]
        if not body:
            steps.append(Step(comments))
            continue
        assert body[1:2] in ([], [RULE]), f"{RULE} must follow {body[0]!r}"
        steps.append(Step(comments, body[0], body[2:]))
    return steps


def rewritten(steps: list[Step], printed: list[list[str]]) -> str:
    blocks = []
    for step, lines in zip(steps, printed, strict=True):
        command = [step.command, RULE, *lines] if step.command else []
        blocks.append("\n".join([*step.comments, *command]))
    return "\n\n".join(blocks) + "\n"


def stage_for(steps: list[Step]) -> Stage:
    """Scripts that begin with ``cloud`` speak the language of clouds, others that of one node."""
    first = next(step.command for step in steps if step.command)
    return Cloud() if first.startswith("cloud ") else World()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    steps = parse(path.read_text())
    world = stage_for(steps)
    printed = [world.run(step.command) if step.command else [] for step in steps]
    if os.environ.get("SCENARIO_REWRITE"):
        path.write_text(rewritten(steps, printed))
        return
    for step, lines in zip(steps, printed, strict=True):
        assert lines == step.expected, f"{path.name}: {step.command}"


def test_every_script_opens_with_its_story() -> None:
    assert len(SCRIPTS) >= 40
    for path in SCRIPTS:
        assert path.read_text().startswith("# "), path.name


def told() -> set[str]:
    return {path.stem.split("_")[0] for path in SCRIPTS}


def test_every_weakness_of_the_prototype_that_concerns_us_has_its_script() -> None:
    # the others are of the RPC contract, speed, types, metrics and tests
    others = {13, 23, 28, 29, 30}
    assert {f"w{number:02}" for number in range(1, 28) if number not in others} <= told()


def test_every_row_of_the_designs_failure_table_has_its_script() -> None:
    assert {f"d{number}" for number in range(1, 10)} <= told()

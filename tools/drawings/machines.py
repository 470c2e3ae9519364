# SPDX-License-Identifier: Apache-2.0
"""Draws each state machine of the product from the table at the head of its module.

The window runs on a table that is data (``protocol/phases.py``); its part is drawn from that.  The others are code
with a table in the docstring of the module; that table is copied.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docutils.parsers.rst.tableparser import SimpleTableParser, TableMarkupError
from docutils.statemachine import StringList

from shared_scheduler.protocol.phases import ASKING, FRESHNESS, TRANSITIONS, Cause, WindowPhase
from tools.drawings import claim_life, increment_life
from tools.drawings.rst_tables import table

REFERENCE = Path(__file__).resolve().parents[2] / "doc" / "source" / "reference"
DOCUMENT = REFERENCE / "state_machines.rst"
HEAD = """\
==============
State machines
==============

``tools/draw`` generates this page from the code, and a test fails when the two differ.  The docstring of each
module explains its table.  A state in parentheses has no value in the code: the object does not exist yet, or was
removed.
"""

#: above a table's head, below it, and at the table's end
RULER = re.compile(r"^=+( +=+)+$")


class MalformedTable(Exception):
    """The table at the head of a module is not valid reStructuredText."""


@dataclass(frozen=True)
class Machine:
    """A machine: its title, its module, and which table of the module shows it."""

    title: str
    module: str
    table: int = 0  # which of the module's tables


MACHINES = (
    Machine("A request", "shared_scheduler.core.requests"),
    Machine("A scheduler's claim", "shared_scheduler.core.claims"),
    Machine("A confirmed claim until its node shows it", "shared_scheduler.core.confirmed_claims"),
    Machine("The last write of a consumer", "shared_scheduler.core.own_writes"),
    Machine("A claim in the host table: when a part counts", "shared_scheduler.table.assumed_claims"),
    Machine("A claim in the host table: from assume to forget", "shared_scheduler.table.assumed_claims", 1),
    Machine("The freshness of a node", "shared_scheduler.core.nodes"),
    Machine('The recheck of "no valid host"', "shared_scheduler.core.recheck"),
    Machine("An agent's readiness", "compute_agent.core"),
    Machine("A claim on its node", "compute_agent.claim_ledger"),
    Machine("A periodic read", "shared_scheduler.model.read_schedule"),
    Machine("The epoch of an agent", "compute_agent.epochs"),
    Machine("Signatures", "shared_scheduler.protocol.signing"),
)


def tables_of(module: str) -> list[str]:
    """The tables in a module's docstring, as reStructuredText.

    :raises MalformedTable: when a table cannot be parsed
    """
    lines = (importlib.import_module(module).__doc__ or "").splitlines()
    return [checked(module, lines[start : end + 1]) for start, end in spans(lines)]


def checked(module: str, lines: list[str]) -> str:
    """The table, if docutils can parse it.

    :raises MalformedTable: when it cannot, or when a row has no state
    """
    try:
        _, _, rows = SimpleTableParser().parse(StringList(lines))
    except TableMarkupError as error:
        raise MalformedTable(f"{module}: {error.args[0]}") from error
    for row in rows:
        if not "".join(row[0][3]).strip() or not any("".join(cell[3]).strip() for cell in row[1:]):
            raise MalformedTable(f"{module}: a row of its table has only one cell: {[list(cell[3]) for cell in row]}")
    return "\n".join(lines)


def spans(lines: list[str]) -> Iterator[tuple[int, int]]:
    """First and last line of each table: three rulers that are alike."""
    rulers = [at for at, line in enumerate(lines) if RULER.match(line)]
    for start, _, end in zip(rulers[::3], rulers[1::3], rulers[2::3], strict=True):
        yield start, end


def window() -> str:
    """The phases of the window and all its steps."""
    meaning = [("phase", "the row is", "asks"), *(
        (phase.value, FRESHNESS[phase].value, "yes" if phase in ASKING else "no") for phase in WindowPhase
    )]  # fmt: skip
    steps = [("phase", "event", "next")]
    for phase in WindowPhase:
        happens = [(cause, TRANSITIONS[phase, cause]) for cause in Cause if (phase, cause) in TRANSITIONS]
        steps += [(phase.value, cause.value, after.value) for cause, after in happens]
    return f"{table(meaning)}\n\nA pair that is not in this table cannot occur.\n\n{table(steps)}"


def section(title: str, module: str, body: str) -> str:
    """One machine."""
    path = module.replace(".", "/") + ".py"
    return f"{title}\n{'=' * len(title)}\n\n``{path}``\n\n{body}\n"


def document() -> str:
    """All of ``doc/source/reference/state_machines.rst``."""
    first = section("A node's messages: the window", "shared_scheduler.protocol.phases", window())
    others = (section(m.title, m.module, tables_of(m.module)[m.table]) for m in MACHINES)
    return "\n".join([HEAD, first, *others])


def main() -> int:
    """Write this page, and the pages of the life of a claim and of an increment."""
    DOCUMENT.write_text(document())
    (REFERENCE / "claim_life.rst").write_text(claim_life.page())
    (REFERENCE / "increment_life.rst").write_text(increment_life.page())
    return 0

# SPDX-License-Identifier: Apache-2.0
"""Each state machine of the product as the table at the head of its module tells it.

The window runs on a table that is data (``protocol/phases.py``); its part is drawn from that.  The others
are code beside a table in the module's docstring; that table is taken as it stands.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared_scheduler.protocol.phases import ASKING, FRESHNESS, TRANSITIONS, Cause, Phase

DOCUMENT = Path(__file__).resolve().parents[2] / "doc" / "state_machines.rst"
HEAD = """\
==============
State machines
==============

Drawn from the code by ``tools/state-machines``; a test fails where the two differ.  Each module tells
the theory behind its table at its head.
"""

#: above a table's head, below it, and at the table's end
RULER = re.compile(r"^=+( +=+)+$")


@dataclass(frozen=True)
class Machine:
    """A machine: what people call it, where it lives, and the table of its module that shows it."""

    title: str
    module: str
    table: int = 0  # which of the module's tables


MACHINES = (
    Machine("A request", "shared_scheduler.core.requests"),
    Machine("A scheduler's claim", "shared_scheduler.core.claims"),
    Machine("A confirmed claim, until its node shows it", "shared_scheduler.core.watch"),
    Machine("A claim in the host table: when a part counts", "shared_scheduler.state.claims"),
    Machine("A claim in the host table: its life", "shared_scheduler.state.claims", 1),
    Machine("A node, as the schedulers see it", "shared_scheduler.core.nodes"),
    Machine('A "No" that is checked', "shared_scheduler.core.doubt"),
    Machine("An agent's readiness", "compute_agent.core"),
    Machine("A claim on its node", "compute_agent.claims"),
    Machine("An agent's reads of Placement", "compute_agent.lookout"),
    Machine("The epoch of an agent", "compute_agent.epochs"),
    Machine("Signatures", "shared_scheduler.protocol.signing"),
)


def tables_of(module: str) -> list[str]:
    """The tables in a module's docstring, as reStructuredText."""
    lines = (importlib.import_module(module).__doc__ or "").splitlines()
    return ["\n".join(lines[start : end + 1]) for start, end in spans(lines)]


def spans(lines: list[str]) -> Iterator[tuple[int, int]]:
    """First and last line of each table: three rulers that are alike."""
    rulers = [at for at, line in enumerate(lines) if RULER.match(line)]
    for start, _, end in zip(rulers[::3], rulers[1::3], rulers[2::3], strict=True):
        yield start, end


def table(rows: list[tuple[str, ...]]) -> str:
    """A simple table; the first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    ruler = "  ".join("=" * width for width in widths)
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([ruler, lines[0].rstrip(), ruler, *(ln.rstrip() for ln in lines[1:]), ruler])


def window() -> str:
    """The window's phases and every step that there is."""
    meaning = [("phase", "the row is", "asks"), *(
        (phase.value, FRESHNESS[phase].value, "yes" if phase in ASKING else "no") for phase in Phase
    )]  # fmt: skip
    steps = [("phase", "what happens", "next")]
    for phase in Phase:
        happens = [(cause, TRANSITIONS[phase, cause]) for cause in Cause if (phase, cause) in TRANSITIONS]
        steps += [(phase.value, cause.value, after.value) for cause, after in happens]
    return f"{table(meaning)}\n\nA pair that is not here cannot happen.\n\n{table(steps)}"


def section(title: str, module: str, body: str) -> str:
    """One machine."""
    path = module.replace(".", "/") + ".py"
    return f"{title}\n{'=' * len(title)}\n\n``{path}``\n\n{body}\n"


def document() -> str:
    """All of ``doc/state_machines.rst``."""
    first = section("A node's messages: the window", "shared_scheduler.protocol.phases", window())
    others = (section(m.title, m.module, tables_of(m.module)[m.table]) for m in MACHINES)
    return "\n".join([HEAD, first, *others])


def main() -> int:
    """Write it."""
    DOCUMENT.write_text(document())
    return 0

# SPDX-License-Identifier: Apache-2.0
"""The laws of *Imports* in ``doc/source/contributor/design.rst``, read from every import statement of both packages.

protocol <- model <- table <- decision <- core <- sim, pure; edges may import what is pure, never the
reverse; ``nova`` is imported in four rooms only, Placement's own code in one; both programs import the shared
rooms and neither imports the other; the agent needs no database.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: the pure part of the agent
AGENT_PURE = tuple(
    f"compute_agent.{module}"
    for module in (
        "agent_settings claim_ledger core effects ends_of_builds epochs events fair_memory "
        "group_ledger pending_deallocations placement_mirror publisher tap_wire".split()
    )
)

#: each pure package and what it may import of our own, besides itself
ORDER = ("protocol", "model", "table", "decision", "core")
PURE: dict[str, tuple[str, ...]] = {
    f"shared_scheduler.{room}": tuple(f"shared_scheduler.{below}" for below in ORDER[:position])
    for position, room in enumerate(ORDER)
}
PURE["shared_scheduler.independent"] = tuple(f"shared_scheduler.{below}" for below in ORDER[:-1])
#: the rules of the writer, which the simulator's writer follows too
WRITER_PURE = tuple(
    f"shared_scheduler.placement.{module}"
    for module in (
        "conflict_patience consumer_conflicts consumer_write in_doubt_writes "
        "late_writes overcommit_rules own_records write_course delete_course".split()
    )
)
#: the rules of the reads and of the search for orphans, which the simulator follows too
READER_PURE = tuple(
    f"shared_scheduler.sync.{module}" for module in "orphan_search read_registry refusal_ages shared_read".split()
)
PURE["shared_scheduler.sim"] = (*PURE, *AGENT_PURE, *WRITER_PURE, *READER_PURE)
PURE.update(dict.fromkeys(WRITER_PURE, tuple(f"shared_scheduler.{below}" for below in ORDER) + WRITER_PURE))
PURE.update(
    dict.fromkeys(READER_PURE, tuple(f"shared_scheduler.{below}" for below in ORDER) + WRITER_PURE + READER_PURE)
)
PURE.update(dict.fromkeys(AGENT_PURE, ("shared_scheduler.protocol", "shared_scheduler.model", *AGENT_PURE)))

#: no I/O, no clock, no threads, no global configuration, no database
IMPURE = frozenset(
    "asyncio eventlet keystoneauth1 kombu logging multiprocessing nova os oslo_config oslo_log "
    "oslo_messaging pathlib pymysql queue requests select selectors shutil signal socket sqlalchemy "
    "subprocess tempfile threading time urllib".split()
)

MAY_IMPORT_NOVA = (
    "shared_scheduler.nova",
    "shared_scheduler.novalib",
    "compute_agent.tap",
    "compute_agent.sources",
)

#: Placement's own code runs in Placement's process only: a scheduler or an agent that imported it would need its
#: database, and a change in its internals would break them
IN_PLACEMENT = "shared_scheduler.placement_app"

#: rooms that both programs use; they import nothing but one another
SHARED = (
    "shared_scheduler.protocol",
    "shared_scheduler.model",
    "shared_scheduler.transport",
    "shared_scheduler.novalib",
    "shared_scheduler.placement.connection",
    "shared_scheduler.placement.reader",
    "shared_scheduler.release",
    "shared_scheduler.daemon",
)

#: a simulated world holds both programs
MAY_IMPORT_BOTH = ("shared_scheduler.sim",)


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    """Each module of the two packages, parsed once for all tests."""
    return tuple(parsed())


def parsed() -> Iterator[tuple[str, ast.Module]]:
    for package in ("shared_scheduler", "compute_agent"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield name, ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import; ``from a import b`` counts as ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def under(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def pure_package(module: str) -> str | None:
    return next((package for package in PURE if under(module, package)), None)


def violations() -> list[str]:
    found = []
    for module, tree in modules():
        for line, name in imports(tree):
            found += [f"{module}:{line} {law}: {name}" for law in broken_laws(module, name)]
    return found


def broken_laws(module: str, name: str) -> Iterator[str]:
    home = pure_package(module)
    ours = under(name, "shared_scheduler") or under(name, "compute_agent")
    if home is not None:
        if name.split(".")[0] in IMPURE:
            yield "a pure package imports an edge of the world"
        if ours and not any(under(name, allowed) for allowed in (home, *PURE[home])):
            yield "imports run one way"
    if under(name, "nova") and not any(under(module, room) for room in MAY_IMPORT_NOVA):
        yield "nova is imported outside its rooms"
    yield from broken_laws_of_placements_process(module, name)
    if under(module, "compute_agent"):
        if under(name, "shared_scheduler") and not is_shared(name):
            yield "the agent imports a room of the scheduler"
        if under(name, "sqlalchemy"):
            yield "the agent needs a database library"
    elif under(name, "compute_agent") and not any(under(module, room) for room in MAY_IMPORT_BOTH):
        yield "the scheduler imports the agent"
    if is_shared(module) and ours and not is_shared(name):
        yield "a shared room imports a room of one program"


def broken_laws_of_placements_process(module: str, name: str) -> Iterator[str]:
    runs_there, names_it = under(module, IN_PLACEMENT), under(name, IN_PLACEMENT)
    if (names_it or under(name, "placement")) and not runs_there:
        yield "Placement's own code is imported outside its process"
    if runs_there and under(name, "shared_scheduler") and not names_it:
        yield "what runs in Placement's process needs another room"


def is_shared(name: str) -> bool:
    return any(under(name, room) for room in SHARED)


def test_every_import_obeys_the_laws() -> None:
    assert violations() == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("shared_scheduler.protocol.window", "shared_scheduler.table.host_table"),
        ("shared_scheduler.table.host_table", "shared_scheduler.decision.pipeline"),
        ("shared_scheduler.core.scheduler", "time.monotonic"),
        ("shared_scheduler.core.scheduler", "shared_scheduler.transport.bus"),
        ("shared_scheduler.placement.client", "nova.conf"),
        ("compute_agent.service.process", "shared_scheduler.placement.client"),
        ("compute_agent.service.process", "sqlalchemy"),
        ("compute_agent.claim_ledger", "shared_scheduler.table.row"),
        ("shared_scheduler.nova.manager", "compute_agent.core"),
        ("shared_scheduler.transport.bus", "shared_scheduler.core.events"),
        ("shared_scheduler.model.leaves", "shared_scheduler.table.row"),
        ("compute_agent.claim_ledger", "threading"),
        ("shared_scheduler.independent.scheduler", "shared_scheduler.core.claims"),
        ("shared_scheduler.independent.scheduler", "nova.objects"),
        ("shared_scheduler.core.claims", "shared_scheduler.independent.scheduler"),
        ("shared_scheduler.sim.writers", "shared_scheduler.placement.client"),
        ("shared_scheduler.sim.orphan_sweeps", "shared_scheduler.sync.orphan_sweeper"),
        ("shared_scheduler.sync.orphan_search", "shared_scheduler.sync.databases"),
        ("shared_scheduler.sync.shared_read", "shared_scheduler.sync.flight"),
        ("shared_scheduler.placement.late_writes", "threading"),
        ("shared_scheduler.placement.client", "placement.util"),
        ("shared_scheduler.service.engine", "shared_scheduler.placement_app.assembly"),
        ("shared_scheduler.placement_app.handler", "shared_scheduler.conf.opts"),
    ],
)
def test_the_laws_can_be_broken(module: str, name: str) -> None:
    assert list(broken_laws(module, name)) != []


def rooms_imported() -> dict[str, set[str]]:
    """Room -> the other rooms that it imports; imports inside functions count."""
    trees = dict(modules())
    found: dict[str, set[str]] = {}
    for module, tree in trees.items():
        names = (name if name in trees else name.rpartition(".")[0] for _, name in imports(tree))
        found.setdefault(room_of(module), set()).update(room_of(name) for name in names if name in trees)
    return {room: others - {room} for room, others in found.items()}


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def rooms_in_circles(imported: Mapping[str, set[str]]) -> set[str]:
    """The rooms that import themselves through others: what is left when those that import nothing left are removed."""
    left = dict(imported)
    while ends := [room for room, others in left.items() if not others & left.keys()]:
        for room in ends:
            del left[room]
    while roofs := left.keys() - set().union(*left.values()):
        for room in roofs:
            del left[room]
    return set(left)


def test_rooms_form_no_circle() -> None:
    assert rooms_in_circles(rooms_imported()) == set()


def test_a_circle_of_rooms_is_found() -> None:
    imported = {"roof": {"a"}, "a": {"b"}, "b": {"a", "floor"}, "floor": set()}
    assert rooms_in_circles(imported) == {"a", "b"}


def global_chances(tree: ast.Module) -> Iterator[int]:
    """Lines that draw from the module-wide generator, or read the clock through datetime."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "random" and node.attr != "Random":
                yield node.lineno
            if node.value.id in ("datetime", "date") and node.attr in ("now", "utcnow", "today"):
                yield node.lineno


def test_pure_packages_draw_from_given_generators_and_clocks_only() -> None:
    found = [f"{module}:{line}" for module, tree in modules() if pure_package(module) for line in global_chances(tree)]
    assert found == []


def test_the_agent_starts_where_sqlalchemy_is_not_installed() -> None:
    # nova's own modules may want it; ours must not
    script = """
import sys
sys.modules["sqlalchemy"] = None
sys.modules["nova"] = None
import compute_agent.core, compute_agent.claim_ledger, compute_agent.conf
import shared_scheduler.transport.kombu_bus
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr

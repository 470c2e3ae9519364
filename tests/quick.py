# SPDX-License-Identifier: Apache-2.0
"""Which test files ``tools/test --quick`` leaves out: those that need Nova, Placement or the programs around them.

It is read from the imports, so that a file that moves, or that begins to need Nova, needs no entry in a list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("shared_scheduler", "compute_agent", "tools", "tests")
#: top packages that come with Nova, Placement and the documentation, and not with the extra ``quick``
ABSENT = frozenset(
    "ddt docutils eventlet fastjsonschema gabbi nova oslo_db oslo_messaging oslotest placement wsgi_intercept".split()
)
#: these run programs that need it, import by name, or read what is installed
NEED_ALL = frozenset(
    {
        "tests/unit/cmd/test_hangup_at_start.py",
        "tests/unit/cmd/test_interrupted.py",
        "tests/unit/cmd/test_reader.py",
        "tests/unit/cmd/test_replay.py",
        "tests/unit/cmd/test_tool_ends.py",
        "tests/unit/cmd/test_unusable_configuration.py",
        "tests/unit/compute_agent/test_process.py",
        "tests/unit/laboratory/test_command.py",
        "tests/unit/daemon/test_guru_meditation.py",
        "tests/unit/test_dependencies.py",
        "tests/unit/test_documentation.py",
        "tests/unit/test_quick.py",
    }
)


def is_left_out(path: Path) -> bool:
    """Whether this test file needs what is absent: it imports that, directly or not, or is known to."""
    if str(path.relative_to(ROOT)) in NEED_ALL:
        return True
    todo, seen = list(_imports(path, everywhere=True)), {path}
    while todo:
        name = todo.pop()
        if name.partition(".")[0] in ABSENT:
            return True
        for module in _files(name):
            if module not in seen:
                seen.add(module)
                todo += _imports(module, everywhere=False)
    return False


@cache
def _imports(path: Path, everywhere: bool) -> tuple[str, ...]:
    """Dotted names that are imported: when the module is, or also within its functions."""
    tree = ast.parse(path.read_text())
    return tuple(_named(ast.walk(tree) if everywhere else _at_once(tree)))


def _named(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _at_once(tree: ast.AST) -> Iterator[ast.AST]:
    """Statements that run when the module is imported: not those of functions, nor those for a type checker."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from _at_once(node)


@cache
def _files(name: str) -> tuple[Path, ...]:
    """Modules of ours that an import of this name runs: each package on the way, and the module itself."""
    parts = name.split(".")
    if parts[0] not in OURS:
        return ()
    places = [ROOT.joinpath(*parts[:length]) for length in range(1, len(parts) + 1)]
    paths = [path for place in places for path in (place / "__init__.py", place.with_suffix(".py"))]
    return tuple(path for path in paths if path.is_file())

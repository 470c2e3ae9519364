# SPDX-License-Identifier: Apache-2.0
"""Every distribution that the product imports is declared in setup.cfg, for the program that imports it."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: what ``pip install`` of the program installs: base and its extra
EXTRA = {
    "shared_scheduler": "scheduler", "compute_agent": "agent", "shared_scheduler/placement_app": "placement_app",
}  # fmt: skip
#: rooms of ``shared_scheduler`` that the agent imports too (``test_import_laws.SHARED``)
OURS = frozenset({"shared_scheduler", "compute_agent"})


def declared(extra: str) -> set[str]:
    """Names of the distributions that ``setup.cfg`` asks for."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"] + setup["options.extras_require"][extra]
    return {normal(re.split(r"[\[<>=!~ ;]", line, maxsplit=1)[0]) for line in lines.split("\n") if line}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(package: str) -> dict[str, str]:
    """Distribution -> a file that imports it."""
    owners, found = packages_distributions(), dict[str, str]()
    for path in files(package):
        for top in imports_of(path):
            for distribution in owners.get(top, [top]):
                found.setdefault(normal(distribution), str(path.relative_to(ROOT)))
    return found


def files(package: str) -> list[Path]:
    """Its modules, without those of a room that is installed by another extra."""
    others = [ROOT / other for other in EXTRA if other.startswith(f"{package}/")]
    found = sorted((ROOT / package).rglob("*.py"))
    return [path for path in found if not any(path.is_relative_to(other) for other in others)]


def imports_of(path: Path) -> set[str]:
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    tops = {name.split(".")[0] for name in names}
    return tops - OURS - set(sys.stdlib_module_names)


@pytest.mark.parametrize("package", EXTRA)
def test_each_direct_import_is_a_declared_dependency(package: str) -> None:
    known = declared(EXTRA[package])

    missing = {name: where for name, where in imported(package).items() if name not in known}

    assert missing == {}

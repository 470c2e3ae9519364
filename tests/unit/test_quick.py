# SPDX-License-Identifier: Apache-2.0
"""``tools/test --quick`` collects its tests in an environment that has only the extra ``quick``."""

from __future__ import annotations

import ast
import configparser
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement

from tests.quick import ROOT

COLLECT_TIMEOUT_S = 1500
#: collects with these modules missing, as if they were not installed
CODE = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    names = frozenset({names!r}.split())

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {{fullname!r}}", name=fullname)

sys.meta_path.insert(0, Missing())
import pytest
sys.exit(pytest.main("--quick --collect-only -q -n 0 -p no:cacheprovider tests/unit tests/scenario".split()))
"""


def declared(section: str, option: str) -> list[str]:
    """Lines of a list in ``setup.cfg``."""
    parser = configparser.RawConfigParser()
    parser.read(ROOT / "setup.cfg")
    return [line for line in parser.get(section, option).splitlines() if line]


def installed_with(requirements: list[str]) -> set[str]:
    """Names of the distributions that pip installs for these, with what they require themselves."""
    todo, found = list(requirements), set()
    while todo:
        requirement = Requirement(todo.pop())
        extras = {"", *requirement.extras}
        key = (requirement.name.lower().replace("_", "-"), frozenset(extras))
        if key not in found:
            found.add(key)
            todo += [one for one in metadata.requires(requirement.name) or [] if wanted(one, extras)]
    return {name for name, _ in found}


def wanted(requirement: str, extras: set[str]) -> bool:
    marker = Requirement(requirement).marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def absent() -> Iterator[str]:
    """Top packages of this environment that the extra ``quick`` does not bring."""
    brought = installed_with(declared("options", "install_requires") + declared("options.extras_require", "quick"))
    for module, distributions in metadata.packages_distributions().items():
        names = {name.lower().replace("_", "-") for name in distributions}
        if not names & (brought | {"pip", "setuptools", "shared-scheduler"}):
            yield module


def test_the_quick_part_is_collected_without_what_its_environment_lacks() -> None:
    names = set(absent())
    assert {"nova", "placement", "oslo_db"} <= names, "the environment of this test has to have more than the quick one"

    # a distribution that is missing has no plug-in of hypothesis either, and trio, which selenium needs, has one
    environment = {**os.environ, "HYPOTHESIS_NO_PLUGINS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(names=" ".join(sorted(names)))], cwd=ROOT, env=environment,
        capture_output=True, text=True, timeout=COLLECT_TIMEOUT_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " tests collected" in done.stdout


def imported() -> Iterator[str]:
    """Top packages that the code which mypy checks imports."""
    for folder in ("shared_scheduler", "compute_agent", "tools/laboratory", "tools/examples"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield node.module.partition(".")[0]


def test_types_are_checked_without_what_the_quick_environment_lacks() -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    may_be_missing = {
        module.removesuffix(".*")
        for override in overrides
        if override.get("ignore_missing_imports")
        for module in override["module"]
    }

    lacking = set(imported()) & set(absent())

    assert "nova" in lacking
    assert lacking <= may_be_missing, "mypy of tools/test --quick reports these as missing"

# SPDX-License-Identifier: Apache-2.0
"""The documentation builds without a warning, and each file and module that it names exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from shared_scheduler.protocol import limits

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.rst", *sorted((ROOT / "doc" / "source").rglob("*.rst")), *ROOT.glob("CONTRIBUTING.rst")]

#: folders whose files the pages name by their path from the root
FOLDERS = ("shared_scheduler", "compute_agent", "tools", "tests", "doc", "etc")

#: a path from the root, wherever it stands
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./*-]+")
#: the end of a path, between double backquotes: ``core/planner.py``
PATH_END = re.compile(r"``([\w./-]+\.(?:py|rst))``")
#: a module, a class or a function, between double backquotes: ``shared_scheduler.nova.manager:SharedSchedulerManager``
DOTTED = re.compile(r"``((?:shared_scheduler|compute_agent)\.[\w.:]+)``")
#: a commit of this repository, in a page or in the result of a benchmark
COMMIT = re.compile(r"""\bcommits?"?:?\s+"?([0-9a-f]{7,40})\b|\((?=[0-9]*[a-f])([0-9a-f]{7,12})\)""")
#: what a reader has to replace
PLACEHOLDER = re.compile(r"\b(?:NAME|DIR|FILE)\b")


def files() -> list[str]:
    """Every file below the folders, and in the root, from the root."""
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    return [f"/{path.relative_to(ROOT)}" for path in [*below, *ROOT.glob("*")]]


def named(page: Path) -> Iterator[str]:
    """Paths that a page names and that do not exist."""
    text, there = page.read_text(), files()
    for path in PATH.findall(text):
        if not PLACEHOLDER.search(path) and not any(ROOT.glob(path.rstrip("./"))):
            yield path
    for end in PATH_END.findall(text):
        if not any(path.endswith(f"/{end}") for path in there):
            yield end


def exists(name: str) -> bool:
    """Whether this is a package, a module, or what a module defines: ``a.b``, ``a.b.Name``, ``a.b:Name.name``."""
    module, _, defined = name.partition(":")
    path = ROOT / module.replace(".", "/")
    if not defined and not path.is_dir() and not path.with_suffix(".py").is_file():
        path, defined = path.parent, path.name
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not source.is_file():
        return False
    text = source.read_text()
    return all(re.search(rf"^\s*(?:class |def )?{part}\b", text, re.MULTILINE) for part in defined.split(".") if part)


def code() -> Iterator[Path]:
    """The modules and tools of this tree, and this module's neighbours."""
    for folder in ("shared_scheduler", "compute_agent", "tools", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in ("", ".py") and path.is_file():
                yield path


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "doc/source", str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    assert list(named(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    assert [name for name in DOTTED.findall(page.read_text()) if not exists(name)] == []


def test_every_page_that_the_code_names_exists() -> None:
    pages = {(path, page) for path in code() for page in re.findall(r"\bdoc/[\w/-]+\.rst", path.read_text())}

    assert [f"{path}: {page}" for path, page in sorted(pages) if not (ROOT / page).is_file()] == []


def commits(text: str) -> set[str]:
    """The commits that a text names."""
    return {first or second for first, second in COMMIT.findall(text)}


def history() -> list[str]:
    """The commits up to the present one; empty without them, in an unpacked archive or a shallow clone."""
    told = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.split() if shallow.stdout.strip() == "false" else []


def test_every_commit_that_the_documentation_names_is_in_the_history() -> None:
    known = history()
    if not known:
        pytest.skip("there is no history here")
    texts = [*PAGES, *sorted((ROOT / "doc" / "benchmarks").glob("*.json")), *(ROOT / "releasenotes").rglob("*.yaml")]
    named = {(str(path.relative_to(ROOT)), commit) for path in texts for commit in commits(path.read_text())}

    assert len(named) > 20
    assert [one for one in sorted(named) if not any(commit.startswith(one[1]) for commit in known)] == []


def test_commits_are_found_in_prose_lists_and_results() -> None:
    text = 'At commit\n0123abc, and with commits 1234abc; a fix (abcdef12), not (1323357580). "commit": "fedcba987654"'

    assert commits(text) == {"0123abc", "1234abc", "abcdef12", "fedcba987654"}


def test_every_message_that_the_operators_page_quotes_is_logged() -> None:
    page = (ROOT / "doc" / "source" / "admin" / "operation.rst").read_text()
    quoted = [text for line in re.findall(r'^"[^\n]*"$', page, re.MULTILINE) for text in re.findall(r'"([^"]+)"', line)]
    product = [path for folder in FOLDERS[:2] for path in (ROOT / folder).rglob("*.py")]
    texts = [node.value for path in product for node in ast.walk(ast.parse(path.read_text())) if is_text(node)]

    assert len(quoted) > 5
    assert [text for text in quoted if not any(text in one for one in texts)] == []


def test_the_heartbeats_that_a_broker_gets_follow_from_their_interval() -> None:
    page = (ROOT / "doc" / "source" / "admin" / "broker.rst").read_text()
    mean_s = limits.QUIET_INTERVALS * limits.HEARTBEAT_INTERVAL_S * (1 - limits.QUIET_JITTER / 2)

    for what, copies in (("published", 1), ("delivered", 3)):
        [told] = re.findall(rf"heartbeats that are {what} +([\d,]+) a second +([\d,]+) a second", page)
        assert [int(number.replace(",", "")) for number in told] == [
            round(copies * computes / mean_s) for computes in (1_000, 10_000)
        ]


def test_exceptions_are_documented_in_one_style() -> None:
    product = [path for folder in FOLDERS[:2] for path in (ROOT / folder).rglob("*.py")]
    texts = [(path, node.value) for path in product for node in ast.walk(ast.parse(path.read_text())) if is_text(node)]
    other = re.compile(r"\bRaises ``|:raises (?![\w.]+: when )")

    assert [f"{path}: {text}" for path, text in texts if other.search(text)] == []


def is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_a_path_and_a_module_that_do_not_exist_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.rst"
    page.write_text("See ``core/no_such_file.py`` and tools/no-such-tool, not tools/test.\n")

    assert list(named(page)) == ["tools/no-such-tool", "core/no_such_file.py"]
    assert not exists("shared_scheduler.core.no_such_module")
    assert not exists("shared_scheduler.core.scheduler:NoSuchClass")
    assert exists("shared_scheduler.core.scheduler:SchedulerCore")

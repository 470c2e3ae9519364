# SPDX-License-Identifier: Apache-2.0
"""Measures the structure of the code at some commits: ``python -m tools.structure COMMIT...``.

Prints one table, which ``doc/source/contributor/structure.rst`` shows.  Reads the commits from git, not the work tree.
``--fragments`` lists small modules that may belong to their importer, ``--names WORD`` the names that contain a word.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PRODUCT = ("shared_scheduler", "compute_agent")
PARTS = (*PRODUCT, "tools", "tests")

#: path from the root -> its text
Files = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Module:
    """One module of the product; ``imports``: the modules of the product that it imports."""

    tree: ast.Module
    imports: frozenset[str]


def files_of(commit: str) -> Files:
    """The Python files of a commit, without empty ones."""
    archive = subprocess.run(["git", "archive", commit, *PARTS], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = [member for member in tar if member.isfile()]
        texts = {member.name: tar.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    return {name: text.decode() for name, text in texts.items() if _is_python(name, text) and text.strip()}


def _is_python(name: str, text: bytes) -> bool:
    return name.endswith(".py") or text.startswith(b"#!/usr/bin/env python")


def modules_of(files: Files) -> dict[str, Module]:
    """The modules of the product by dotted name."""
    trees = {name_of(path): ast.parse(text) for path, text in files.items() if path.startswith(PRODUCT)}
    return {name: Module(tree, frozenset(_imported(tree, trees)) - {name}) for name, tree in trees.items()}


def name_of(path: str) -> str:
    """The dotted name of a module."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(tree: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    """The known modules that the statements at the top of a module import."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in (*inner, node.module) if name in known)


def circles(modules: Mapping[str, Module]) -> int:
    """The number of modules that import themselves through others."""
    return sum(name in _reached(name, modules) for name in modules)


def _reached(start: str, modules: Mapping[str, Module]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = modules[waiting.pop()].imports - found
        found |= new
        waiting += new
    return found


def fragments(modules: Mapping[str, Module]) -> list[str]:
    """Modules without a class that only one other module of the product imports."""
    importers = Counter(name for module in modules.values() for name in module.imports)
    return [
        name
        for name, module in modules.items()
        if importers[name] == 1 and not any(isinstance(node, ast.ClassDef) for node in module.tree.body)
    ]


def function_lines(modules: Mapping[str, Module]) -> list[int]:
    """The lines of each function, sorted."""
    nodes = (node for module in modules.values() for node in ast.walk(module.tree))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return sorted((node.end_lineno or node.lineno) - node.lineno + 1 for node in functions)


def class_names(modules: Mapping[str, Module]) -> Counter[str]:
    """How many modules define a class of a name; names with an underscore are private."""
    found = (node.name for module in modules.values() for node in module.tree.body if isinstance(node, ast.ClassDef))
    return Counter(name for name in found if not name.startswith("_"))


def names_with(word: str, modules: Mapping[str, Module]) -> Iterator[str]:
    """Modules, classes and functions of the product whose name contains a word, as ``module`` or ``module:name``.

    Underscores and case do not matter: ``write_queue`` also finds ``WriteQueue``.
    """
    wanted = _joined(word)
    for name, module in modules.items():
        if wanted in _joined(name.rsplit(".", 1)[-1]):
            yield name
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and wanted in _joined(node.name):
                yield f"{name}:{node.name}"


def _joined(name: str) -> str:
    return name.replace("_", "").lower()


def figures(files: Files) -> dict[str, str]:
    """The rows of the table."""
    modules = modules_of(files)
    sizes, lines = function_lines(modules), {part: 0 for part in PARTS}
    for path, text in files.items():
        lines[path.split("/")[0]] += text.count("\n")
    product = [path for path in files if path.startswith(PRODUCT)]
    stems = Counter(path.rsplit("/", 1)[-1] for path in product if not path.endswith("__init__.py"))
    longest = max(product, key=lambda path: files[path].count("\n"))
    return {
        **{f"lines: {part}": f"{count:,}" for part, count in lines.items()},
        "product: files": f"{len(product)}",
        "product: files below 100 lines": f"{sum(files[path].count(chr(10)) < 100 for path in product)}",
        "product: files per 1,000 lines": f"{1000 * len(product) / sum(lines[part] for part in PRODUCT):.1f}",
        "product: lines of the longest file": f"{files[longest].count(chr(10))}",
        "functions": f"{len(sizes):,}",
        "functions: median, 90th percentile, maximum lines": (
            f"{statistics.median(sizes):.0f}, {sizes[len(sizes) * 9 // 10]}, {sizes[-1]}"
        ),
        "modules in an import circle": f"{circles(modules)}",
        "modules without a class and with one importer": f"{len(fragments(modules))}",
        "public class names that several modules define": f"{sum(n > 1 for n in class_names(modules).values())}",
        "file names that several packages have": f"{sum(count > 1 for count in stems.values())}",
        'lines of the product with the word "look"': f"{_lines_with(files, 'look')}",
    }


def _lines_with(files: Files, word: str) -> int:
    texts = (text for path, text in files.items() if path.startswith(PRODUCT))
    return sum(word in line.lower() for text in texts for line in text.splitlines())


def table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """The figures of each commit as a table of reStructuredText."""
    names = list(next(iter(columns.values())))
    rows = [["", *columns], *([name, *(column[name] for column in columns.values())] for name in names)]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        lines += [f"   {' ' if number else '*'} - {cell}".rstrip() for number, cell in enumerate(row)]
    return "\n".join(lines)


def main() -> int:
    """Print the table, or the fragments of the last commit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    parser.add_argument("--fragments", action="store_true", help="list the modules without a class and one importer")
    parser.add_argument("--names", metavar="WORD", help="list the names that contain a word")
    asked = parser.parse_args()
    if asked.fragments:
        print("\n".join(fragments(modules_of(files_of(asked.commits[-1])))))
    elif asked.names:
        print("\n".join(names_with(asked.names, modules_of(files_of(asked.commits[-1])))))
    else:
        print(table({commit: figures(files_of(commit)) for commit in asked.commits}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""A copy of the repository, in which one mistake at a time is planted."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

from tools.laboratory.errors import LabError
from tools.laboratory.mutate.catalog import Mistake

ROOT = Path(__file__).resolve().parents[3]
#: what git lists: tracked files, and new ones that are not ignored
LIST_FILES = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")


class Tree:
    """The copy in ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def with_mistake(self, mistake: Mistake) -> Iterator[None]:
        """Plant a mistake, and remove it at the end.

        :raises LabError: when its text does not occur exactly once
        """
        file = self.path / mistake.file
        text = file.read_text()
        self._write(file, mistake.planted_in(text))
        try:
            yield
        finally:
            self._write(file, text)

    @staticmethod
    def _write(file: Path, text: str) -> None:
        """Write a module, and remove its compiled form: times of files may be too coarse to show that it is old."""
        file.write_text(text)
        Path(cache_from_source(str(file))).unlink(missing_ok=True)


@contextmanager
def copied(root: Path = ROOT) -> Iterator[Tree]:
    """A copy of the files that git lists, as they are now; it is removed at the end.

    :raises LabError: when ``root`` is no repository of git
    """
    listed = subprocess.run(LIST_FILES, cwd=root, capture_output=True, check=False)
    if listed.returncode:
        raise LabError(f"{root} is no repository: {listed.stderr.decode().strip()}; run this in a clone")
    with tempfile.TemporaryDirectory(prefix="mutate-") as temporary:
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = root / name, Path(temporary) / name
            if source.is_file():  # otherwise it was deleted, and git was not told
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        yield Tree(Path(temporary))

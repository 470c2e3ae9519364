# SPDX-License-Identifier: Apache-2.0
"""Prints pip constraints with the lowest version that setup.cfg allows of each direct dependency.

    python -m tools.lowest scheduler agent placement_app quick > lowest.txt
    pip install -c lowest.txt '.[scheduler,agent,placement-app,quick]'

``tox -e lowest`` installs this set, and what only the tests need, and runs the quick tests with it.  Packages that Nova
or Placement need, and we do not, have the newest versions.
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]+\])?>=(?P<version>[\d.]+)")


def constraints(extras: Iterable[str]) -> Iterator[str]:
    """``name==version`` for the base and these extras.

    :raises ValueError: when a requirement has no lower bound
    """
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    texts = [setup["options"]["install_requires"], *(setup["options.extras_require"][extra] for extra in extras)]
    for line in sorted({line for text in texts for line in text.strip().splitlines()}):
        found = REQUIREMENT.match(line)
        if found is None:
            raise ValueError(f"setup.cfg: {line!r} has no lower bound")
        yield f"{found['name']}=={found['version']}"


def main(arguments: Sequence[str]) -> int:
    """Print the constraints of the extras."""
    print("\n".join(constraints(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

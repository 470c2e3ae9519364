# SPDX-License-Identifier: Apache-2.0
"""Releases of dependencies with known holes are not installed."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

SETUP = Path(__file__).resolve().parents[3] / "setup.cfg"
#: package -> its last release with the hole
HOLES = {
    "PyMySQL": "1.1.0",  # CVE-2024-36039: SQL injection
    "eventlet": "0.40.2",  # CVE-2025-58068: request smuggling
    "Jinja2": "3.1.5",  # CVE-2024-34064, CVE-2025-27516: attributes of HTML, and the sandbox
    "requests": "2.32.3",  # CVE-2024-47081: credentials of another host
}


@pytest.mark.parametrize("package", HOLES)
def test_no_list_of_requirements_allows_them(package: str) -> None:
    setup = ConfigParser(interpolation=None)
    setup.read(SETUP)
    lists = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    lines = [line for each in lists for line in each.split("\n") if line and not line.startswith("%")]
    found = [each for line in lines if (each := Requirement(line)).name == package]

    assert found
    assert not [each for each in found if each.specifier.contains(HOLES[package])]

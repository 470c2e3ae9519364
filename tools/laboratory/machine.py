# SPDX-License-Identifier: Apache-2.0
"""Describes the machine of a benchmark, without which its figures have no meaning."""

import os
import platform
import re
import subprocess
import time
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from tools.laboratory import ROOT

PACKAGES = ("nova", "openstack-placement", "oslo.messaging", "SQLAlchemy", "PyMySQL", "numpy", "kombu", "msgpack")
LOOP_TURNS, LOOP_STEPS = 7, 200_000
RABBITMQ_VERSIONS = Path("/usr/lib/rabbitmq/lib")


def describe() -> dict[str, Any]:
    """Commit, versions and hardware; load averages show whether the machine was idle."""
    return {
        "commit": commit(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_loop_ms": python_loop_ms(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "mariadb": _first_match(_output("mariadbd", "--version"), r"Ver (\S+)"),
        "rabbitmq": _first_match(" ".join(path.name for path in RABBITMQ_VERSIONS.glob("*")), r"-(\d[\d.]+)"),
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def python_loop_ms() -> float:
    """CPU time of a fixed piece of Python: the median of some turns.

    Builds of one version differ by half: distributions compile theirs with profiles of a run, and tools that compile
    Python on the machine often do not. A busy or slow machine shows too."""
    return round(median(_loop_s() for _ in range(LOOP_TURNS)) * 1000, 1)


def _loop_s() -> float:
    begun_s, counts = time.process_time(), dict.fromkeys(range(100), 0)
    for number in range(LOOP_STEPS):
        counts[number % 100] += len(str(number))
    return time.process_time() - begun_s


def commit(*measured: str) -> str:
    """The commit that runs, with a plus if product code, or `measured`, differs from it."""
    head = _output("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD").strip()
    paths = ("shared_scheduler", "compute_agent", *measured)
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", *paths)
    return (head or "unknown") + ("+" if changed.strip() else "")


def _processor() -> str:
    return _first_match(Path("/proc/cpuinfo").read_text(), r"model name\s*:\s*(.+)") or platform.machine()


def _output(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def _first_match(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""

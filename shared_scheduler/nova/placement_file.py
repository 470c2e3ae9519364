# SPDX-License-Identifier: Apache-2.0
"""``placement.conf``, if it is on this machine: the one option of Placement on which over-commit depends.

Placement does not show its configuration over its API.  doc/source/admin/placement.rst explains the option.
"""

from __future__ import annotations

from pathlib import Path

from oslo_config import cfg

#: where packages and installers put it
USUAL_FILE = Path("/etc/placement/placement.conf")
RETRIES = "[placement] allocation_conflict_retry_count"
#: with this value, Placement answers a lost race with a conflict
RETRIES_WANTED = 1
#: what Placement has if its file does not say it (placement/conf/placement.py)
RETRIES_DEFAULT = 10


def conflict_retries(file: Path) -> int:
    """How often Placement repeats a write inside the transaction of an attempt that lost a race.

    :raises FileNotFoundError: when there is no such file
    :raises cfg.Error: when the file or the value cannot be used
    """
    if not file.exists():
        raise FileNotFoundError(file)
    probe = cfg.ConfigOpts()
    probe.register_opt(cfg.IntOpt("allocation_conflict_retry_count", default=RETRIES_DEFAULT), group="placement")
    probe(args=[], default_config_files=[str(file)], default_config_dirs=[])
    return int(probe.placement.allocation_conflict_retry_count)


def over_commit_warning(file: Path) -> str:
    """What an operator has to correct; empty if the value is right, or cannot be read on this machine."""
    try:
        retries = conflict_retries(file)
    except (cfg.Error, ValueError, OSError):
        return ""
    if retries == RETRIES_WANTED:
        return ""
    return (
        f"{RETRIES} is {retries} in {file}: Placement then accepts writes that race for the last resources of a host, "
        f"and over-commits it.  Set it to {RETRIES_WANTED} and restart Placement."
    )

# SPDX-License-Identifier: Apache-2.0
"""The figures of a run, and their tables."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.laboratory import machine
from tools.laboratory.errors import LabError
from tools.laboratory.fire.drill import Finding
from tools.laboratory.fire.environment import Environment
from tools.laboratory.report import Table

FAILED_SHOWN_MAX = 4

Column = tuple[str, Callable[[Finding], str]]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _lost(finding: Finding) -> str:
    if finding.lost_to_schedulers is None:
        return "-"
    return f"{finding.lost_to_schedulers:,} of {finding.published:,}; {finding.lost_to_agents:,}"


def _requests(finding: Finding) -> str:
    answered = finding.requests.get("answered", 0)
    others = [f"{count} {name}" for name, count in sorted(finding.requests.items()) if name != "answered"]
    if not finding.requests:
        return "none"
    return ", ".join([f"{answered} of {sum(finding.requests.values())} answered", *others[:FAILED_SHOWN_MAX]])


def _cpu(finding: Finding) -> str:
    return ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in finding.cpu_s.items()) or "-"


COLUMNS: Sequence[Column] = (
    ("fault", lambda one: one.fault),
    ("lasted s", lambda one: _seconds(one.lasted_s)),
    ("detected s", lambda one: _seconds(one.detected_s)),
    ("healed s", lambda one: _seconds(one.healed_s)),
    ("messages lost", _lost),
    ("snapshots", lambda one: f"{one.snapshots:,}"),
    ("resyncs", lambda one: f"{one.resyncs:,}"),
    ("requests", _requests),
    ("slowest s", lambda one: _seconds(one.slowest_s)),
    ("CPU s", _cpu),
    ("wrong", lambda one: "; ".join([*one.wrong, *(f"not seen: {effect}" for effect in one.unseen)]) or "nothing"),
)


@dataclass(frozen=True)
class Results:
    """`about`: sizes, commit and machine; `peaks`: the maximum memory and CPU time of a process."""

    about: dict[str, Any]
    findings: list[Finding]
    peaks: dict[str, Any]

    @classmethod
    def of(cls, environment: Environment, findings: list[Finding]) -> Results:
        schedulers = [said for said in environment.all_schedulers("status") if said is not None]
        peaks = {
            "scheduler_memory_mb": max(said["memory_mb"] for said in schedulers),
            "scheduler_cpu_s": max(said["cpu_s"] for said in schedulers),
            "agents_memory_mb": max(said["memory_mb"] for said in environment.all_agents("status")),
        }
        about = {
            **asdict(environment.sizes), "pace": environment.pace.as_dict(), "commit": machine.commit(),
            "cores": os.cpu_count(), "load": [round(load, 1) for load in os.getloadavg()],
        }  # fmt: skip
        return cls(about, findings, peaks)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def wrong(self) -> bool:
        return any(finding.wrong or finding.unseen for finding in self.findings)

    @property
    def title(self) -> str:
        return f"{self.about['agents']:,} agents, {self.about['schedulers']} schedulers"

    def parts(self) -> list[str | Table]:
        """Title, circumstances, a table, and a description of each fault."""
        about, peaks = self.about, self.peaks
        said = (
            f"Commit {about['commit']}; {about['cores']} cores, load average at the end "
            f"{', '.join(map(str, about['load']))}; {about['rate_per_s']:g} requests a second; heartbeats every "
            f"{about['pace']['heartbeat_s']:g} s, AMQP heartbeats every {about['pace']['amqp_heartbeat_s']} s. "
            f"Most memory of a scheduler {peaks['scheduler_memory_mb']:.0f} MB, CPU {peaks['scheduler_cpu_s']:.0f} s."
        )  # fmt: skip
        rows = [[show(each) for _, show in COLUMNS] for each in self.findings]
        stories = "\n".join(f"{each.fault}\n    {each.story}" for each in self.findings)
        return [
            f"{self.title}\n{'-' * len(self.title)}", said,
            Table([name for name, _ in COLUMNS], rows, left=(0, 4, 7, 9, 10)), stories,
        ]  # fmt: skip


def read(path: Path) -> Results:
    """The figures of an earlier run.

    :raises LabError: when the file contains none
    """
    try:
        found = json.loads(path.read_text())
        return Results(found["about"], [Finding(**each) for each in found["findings"]], found["peaks"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path}: no results of this drill ({error})") from None

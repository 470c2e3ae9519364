# SPDX-License-Identifier: Apache-2.0
"""The figures of a run as JSON and as a table."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .drill import Finding
from .ground import ROOT, Ground

MARKER = ".. Everything below is written by tools/fire --show RESULTS --page PAGE"
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
    ("wrong", lambda one: "; ".join([*one.wrong, *(f"not seen: {sign}" for sign in one.unseen)]) or "nothing"),
)


@dataclass(frozen=True)
class Report:
    """`about` says on what, `peaks` what processes took."""

    about: dict[str, Any]
    findings: list[Finding]
    peaks: dict[str, Any]

    @classmethod
    def of(cls, ground: Ground, findings: list[Finding]) -> Report:
        schedulers = [said for said in ground.all_schedulers("status") if said is not None]
        peaks = {
            "scheduler_memory_mb": max(said["memory_mb"] for said in schedulers),
            "scheduler_cpu_s": max(said["cpu_s"] for said in schedulers),
            "agents_memory_mb": max(said["memory_mb"] for said in ground.all_agents("status")),
        }
        about = {
            **asdict(ground.sizes), "pace": ground.pace.as_dict(), "commit": _commit(), "cores": os.cpu_count(),
            "load": [round(load, 1) for load in os.getloadavg()],
        }  # fmt: skip
        return cls(about, findings, peaks)

    @classmethod
    def read(cls, path: Path) -> Report:
        found = json.loads(path.read_text())
        return cls(found["about"], [Finding(**each) for each in found["findings"]], found["peaks"])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def wrong(self) -> bool:
        return any(finding.wrong or finding.unseen for finding in self.findings)

    @property
    def title(self) -> str:
        return f"{self.about['agents']:,} agents, {self.about['schedulers']} schedulers"

    def text(self) -> str:
        """Title, circumstances, a list-table."""
        about, peaks = self.about, self.peaks
        said = (
            f"Commit {about['commit']}; {about['cores']} cores, load average at the end "
            f"{', '.join(map(str, about['load']))}; {about['rate_per_s']:g} requests a second; beats every "
            f"{about['pace']['beat_s']:g} s, heartbeats every {about['pace']['heartbeat_s']} s. "
            f"Most memory of a scheduler {peaks['scheduler_memory_mb']:.0f} MB, CPU {peaks['scheduler_cpu_s']:.0f} s."
        )  # fmt: skip
        stories = "\n".join(f"{each.fault}\n    {each.story}" for each in self.findings)
        return "\n\n".join([f"{self.title}\n{'-' * len(self.title)}", said, _table(self.findings), stories]) + "\n"


def _table(findings: Sequence[Finding]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for cells in [[name for name, _ in COLUMNS], *([show(each) for _, show in COLUMNS] for each in findings)]:
        lines += [f"   {'*' if number == 0 else ' '} - {cell}" for number, cell in enumerate(cells)]
    return "\n".join(lines)


def page_of(page: str, reports: Sequence[Report]) -> str:
    """The page with everything below its marker made anew."""
    head, marker, _ = page.partition(MARKER)
    return "\n".join([head + (marker or MARKER), "", *(report.text() for report in reports)])


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"

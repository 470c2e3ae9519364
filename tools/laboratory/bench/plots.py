# SPDX-License-Identifier: Apache-2.0
"""Requests a second and CPU time a request over hosts, schedulers and callers, as SVG."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.laboratory.bench.report import ALONE, SYSTEM, cpu, people, per_second
from tools.laboratory.bench.results import Figure, Results
from tools.laboratory.plot import Series, svg


@dataclass(frozen=True)
class Point:
    """One measurement: its place on each axis, and its value."""

    contestant: str
    hosts: int
    schedulers: int
    callers: int
    value: float

    def line(self, axis: str) -> str:
        """The name of the line to which it belongs in the plot over `axis`."""
        others = {
            "hosts": f"{self.hosts:,} hosts",
            "schedulers": f"{self.schedulers} schedulers" if self.schedulers > 1 else "",
            "callers": people(self.callers),
        }
        return ", ".join([self.contestant, *(text for name, text in others.items() if text and name != axis)])


FIGURES: dict[str, tuple[str, Figure]] = {
    "requests": ("requests a second", per_second),
    "cpu": ("CPU ms a request, all processes", cpu(*SYSTEM)),
}
AXES = ("hosts", "schedulers", "callers")


def plots(results: list[Results]) -> Iterator[tuple[str, str]]:
    """(name of the file, SVG) of each plot that has a line of at least two points."""
    for name, (title, figure) in FIGURES.items():
        points = [point for one in results for point in _points(one, figure)]
        for axis in AXES:
            lines = _lines(points, axis)
            if lines:
                yield f"{name}-over-{axis}.svg", svg(title, axis, title, lines)


def _points(results: Results, figure: Figure) -> Iterator[Point]:
    for one in results.rounds:
        base, _, workers = one.contestant.rpartition(" x")
        schedulers = int(workers) if base and workers.isdigit() else 1
        for measurement in one.measurements:
            value = figure(measurement)
            if measurement.answered and value > 0 and one.contestant != ALONE:
                yield Point(base or one.contestant, one.hosts, schedulers, measurement.callers, value)


def _lines(points: list[Point], axis: str) -> Series:
    """Line -> the medians of the repeats; lines of one point show nothing and are left out."""
    values: defaultdict[str, defaultdict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        values[point.line(axis)][float(getattr(point, axis))].append(point.value)
    return {
        name: [(at, statistics.median(found)) for at, found in sorted(line.items())]
        for name, line in sorted(values.items())
        if len(line) > 1
    }


def write(results: list[Results], directory: Path) -> list[Path]:
    """Write the plots; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in plots(results):
        written.append(directory / name)
        written[-1].write_text(text)
    return written

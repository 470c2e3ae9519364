# SPDX-License-Identifier: Apache-2.0
"""A plot of some lines as SVG, both axes logarithmic."""

import math
from collections.abc import Callable, Sequence

WIDTH, HEIGHT, MARGIN = 720, 420, 60
COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#5d6d7e", "#117a65", "#a04000", "#000")

FEW_DECADES = 4
"""With so many powers of ten, the lines between them are drawn as well."""

Series = dict[str, list[tuple[float, float]]]


def svg(title: str, x_name: str, y_name: str, series: Series) -> str:
    """A line with dots for each of ``series``: name -> points."""
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    x_of = _scale([x for x, _ in points], MARGIN, WIDTH - MARGIN * 2.5)
    y_of = _scale([y for _, y in points], HEIGHT - MARGIN, MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="{MARGIN}" y="24" font-size="15">{title}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}">{x_name}</text>',
        f'<text x="8" y="{MARGIN - 14}">{y_name}</text>',
    ]
    for tick in _ticks([y for _, y in points]):
        y = y_of(tick)
        parts.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="8" y="{y + 4}">{tick:g}</text>')
    for tick in sorted({x for x, _ in points}):
        parts.append(f'<text x="{x_of(tick) - 12}" y="{HEIGHT - MARGIN + 18}">{tick:g}</text>')
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts += _line([(x_of(x), y_of(y)) for x, y in sorted(line)], colour, name)
    return "\n".join([*parts, "</svg>", ""])


def _line(points: Sequence[tuple[float, float]], colour: str, name: str) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    x, y = points[-1]
    label = f'<text x="{x + 6:.1f}" y="{y + 4:.1f}" fill="{colour}">{name}</text>'
    return [f'<polyline points="{path}" fill="none" stroke="{colour}"/>', *dots, label]


def _scale(values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    span = (high - low) or 1.0
    return lambda value: start + (math.log10(value) - low) / span * (end - start)


def _ticks(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times each power of ten that the values span; the powers alone where they span many."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= FEW_DECADES else (1,)
    return [tick for power in powers for step in steps if low <= (tick := step * 10.0**power) <= high]

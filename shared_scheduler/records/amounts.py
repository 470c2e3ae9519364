# SPDX-License-Identifier: Apache-2.0
"""Amounts of a resource class in words, with their unit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shared_scheduler.records.plain_text import listed

#: units of memory, largest first -> how many MB one of them is
MB_PER = {"TiB": 1024 * 1024, "GiB": 1024, "MB": 1}
#: from here on, a number is shown without a fraction
WHOLE_FROM = 100
#: the end of the name of a resource class -> its unit; others are counted, and named as they are
UNITS = {"MB": "MB", "GB": "GB"}
#: how the reason for lack of room begins, before the resource class
NO_ROOM = "no_room:"

#: what a decision writes of the hosts that it has rejected: ``traits: 3, no_room:VCPU: 1``
REJECTED = re.compile(r"(?<=rejected: )[^\s,;]+: \d+(?:, [^\s,;]+: \d+)*")


def counts_first(text: str) -> str:
    """The text of a failure with the hosts of each reason as all screens have them: ``3 traits, 1 no_room:VCPU``."""
    return REJECTED.sub(lambda found: re.sub(r"([^\s,]+): (\d+)", r"\2 \1", found[0]), text)


def amount(resource_class: str, value: float) -> str:
    """For example ``512 MB``, ``20 GiB``, ``1.5 TiB``, ``100 GB``, ``3 VCPU``, ``1,000,000 CUSTOM_TOKEN``."""
    unit = unit_of(resource_class) or resource_class
    if unit == "MB":
        unit = next((name for name, size in MB_PER.items() if value >= size), "MB")
        value /= MB_PER[unit]
    return f"{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    """Three digits, or all before the point; never with an exponent."""
    return f"{value:,.0f}" if value >= WHOLE_FROM or value % 1 == 0 else f"{value:.3g}"


def unit_of(resource_class: str) -> str:
    """``MB`` or ``GB``; empty for what is counted."""
    return UNITS.get(resource_class.rpartition("_")[2], "")


def held_text(allocations: Mapping[str, Mapping[str, int]], generation: int | None) -> str:
    """What a consumer has: ``3: node-1 VCPU:2``; its generation comes first, ``?`` if there is none."""
    if not allocations:
        return "nothing"
    held = "; ".join(f"{provider} {_amounts(amounts)}" for provider, amounts in sorted(allocations.items()))
    return f"{'?' if generation is None else generation}: {held}"


def _amounts(amounts: Mapping[str, int]) -> str:
    return " ".join(f"{name}:{value}" for name, value in amounts.items())


def span(resource_class: str, least: float, most: float) -> str:
    """One amount, or two if they differ."""
    first, last = amount(resource_class, least), amount(resource_class, most)
    return first if first == last else f"{first} to {last}"


def short_by(detail: Mapping[str, Any]) -> float | None:
    """How much more than is free was asked of a host, by the numbers that a reason has; None without these."""
    if not {"asked", "used", "capacity"} <= detail.keys():
        return None
    return float(detail["used"] + detail["asked"] - detail["capacity"])


def short_of(code: str, hosts: int, least: float, most: float) -> str:
    """What hosts lack that a reason for lack of room has rejected."""
    return _short_of("1 host is" if hosts == 1 else f"{hosts} hosts are", code, least, most)


def named_short_of(code: str, hosts: Sequence[str], least: float, most: float) -> str:
    """The same of these hosts."""
    return _short_of(f"{listed(hosts)} {'is' if len(hosts) == 1 else 'are'}", code, least, most)


def _short_of(who: str, code: str, least: float, most: float) -> str:
    resource_class = code.removeprefix(NO_ROOM)
    return f"{who} short of {resource_class} by {span(resource_class, least, most)}"


def too_much(code: str, asked: float, most: float, where: str) -> str:
    """That hosts for which a reason for lack of room was given are too small even if they are empty; ``where``: which
    ones."""
    resource_class = code.removeprefix(NO_ROOM)
    unit = unit_of(resource_class)
    wanted, gets = (f"{value} {unit}".rstrip() for value in (asked, most))
    return f"asked {wanted} of {resource_class}; one server gets at most {gets} on {where}"

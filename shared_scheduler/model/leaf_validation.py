# SPDX-License-Identifier: Apache-2.0
"""Checks that leaves have the kinds of values that the table needs.

The codec checks that a message is well formed, not the meaning of its leaves.  This module finds a leaf of a wrong kind
before its message changes anything, because a row must not be partly updated.

Only values that the table or a decision computes with are checked (``model/leaves.py`` has their kinds); texts that are
shown or compared may have any value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from shared_scheduler.model.interning import Pool
from shared_scheduler.model.leaves import (
    AGENT_RELEASE,
    COMPUTE_NODE,
    IMAGE_PROPERTY,
    NUMA,
    NUMA_STATIC,
    PCI,
    PCI_STATIC,
    PROVIDER,
    STATS,
)
from shared_scheduler.model.providers import MalformedProviderError, Provider
from shared_scheduler.protocol import limits
from shared_scheduler.protocol.memo import Memo
from shared_scheduler.protocol.messages import Leaf

#: the largest number of a node (columns have 64 bits, and amounts are multiplied)
NUMBER_MAX: Final = 2**40
#: size in KiB, total, reserved
PAGE_FACTS: Final = 3
#: The highest number of a CPU, which Linux has, and NUMA cells of a node; large machines have 16 or 32.
CPU_MAX: Final = 2**13 - 1
CELLS_PER_NODE_MAX: Final = 64
#: the number of its decimal digits
DIGITS_MAX: Final = 12

#: Resource classes, traits and aggregates of all providers of a node: the table has columns for each.  Real nodes have
#: at most some dozens of classes and aggregates and a few hundred traits.
CLASSES_PER_NODE_MAX: Final = 128
TRAITS_PER_NODE_MAX: Final = 1024
AGGREGATES_PER_NODE_MAX: Final = 1024
NAMES_PER_NODE_MAX: Final = {
    "inventories": CLASSES_PER_NODE_MAX,
    "traits": TRAITS_PER_NODE_MAX,
    "aggregates": AGGREGATES_PER_NODE_MAX,
}

#: fields of a compute node that are computed with
NUMBERS = (
    "vcpus", "vcpus_used", "memory_mb_used", "free_ram_mb", "local_gb_used", "free_disk_gb",
    "disk_available_least", "running_vms", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "hypervisor_version",
)  # fmt: skip
#: keys of ``stats`` that are computed with; Nova stores them as texts or as numbers
TALLIES = ("num_instances", "io_workload", "failed_builds")
#: prefixes of further counts of instances in ``stats``
COUNTS = STATS + "num_"

#: the keys of a provider's leaf that are parsed; the generation, which each allocation changes, is not among them
PARSED = ("inventories", "traits", "aggregates", "parent", "name")


Check = Callable[[Any], bool]


def find_invalid_leaf(
    new: Mapping[str, Leaf], known: Callable[[], Mapping[str, Leaf]], pool: Pool | None = None
) -> str:
    """The first leaf of ``new`` that is unusable, empty if there is none.

    ``known`` returns the present leaves of the row, which have been checked already.  With ``pool``, parts of providers
    that equal those of other nodes are parsed once.
    """
    checked = dict[str, Mapping[str, Any]]()  # providers that have changed
    checks = _CHECKS
    for name, value in new.items():
        check = checks.get(name) or checks.learn(name, _check_of(name))
        if check is _is_anything or value is None:
            continue
        if check is not _is_some_provider:
            if not check(value):
                return name
        elif not _is_unchanged(value, known().get(name)):
            if not _is_provider(name, value, pool):
                return name
            assert isinstance(value, Mapping)
            checked[name] = value
    return next(iter(checked)) if checked and _are_too_many({**known(), **checked}) else ""


def _are_too_many(leaves: Mapping[str, Any]) -> bool:
    """Whether the providers among these leaves have more names than the table has columns for."""
    trees = [value for name, value in leaves.items() if name.startswith(PROVIDER) and isinstance(value, Mapping)]
    return any(_has_more([one.get(part) or () for one in trees], most) for part, most in NAMES_PER_NODE_MAX.items())


def _has_more(parts: Sequence[Collection[Any]], most: int) -> bool:
    """Whether these have more than ``most`` different names together; usually their number answers that."""
    return sum(map(len, parts)) > most and len({name for part in parts for name in part}) > most


def _check_of(name: str) -> Check:
    """The check of the values of a leaf; a name determines it, and most names are equal on all nodes."""
    found = EXACT.get(name)
    if found is not None:
        return found
    return _is_some_provider if name.startswith(PROVIDER) else _by_prefix(name) or _is_anything


def _is_anything(_value: Any) -> bool:
    return True


def _is_some_provider(value: Any) -> bool:
    return isinstance(value, Mapping)


def _by_prefix(name: str) -> Check | None:
    if name.startswith(NUMA):
        return _is_cell_use
    if name.startswith(COUNTS):
        return _is_tally
    if name.startswith(IMAGE_PROPERTY):
        return _is_number
    if name.startswith(PCI) and not name.startswith(PCI_STATIC):
        return _is_number
    return None


def _is_number(value: Any) -> bool:
    """Whether a value is a number within the bounds of a node.  NaN compares false; a boolean is not a number."""
    kind = type(value)
    return (kind is int or kind is float) and -NUMBER_MAX < value < NUMBER_MAX


def _is_tally(value: Any) -> bool:
    """Whether a value can be counted; one that is not a number counts 0, see ``table/numbers.py``."""
    if isinstance(value, int | float):
        return _is_number(value)
    return not isinstance(value, str) or len(value) <= DIGITS_MAX


def _is_cell_use(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 4:
        return False
    cpus, memory_mb, pinned, pages = value
    if not (_is_number(cpus) and _is_number(memory_mb) and isinstance(pages, Mapping)):
        return False
    return _is_bitmap(pinned) and all(_is_number(used) for used in pages.values())


def _is_bitmap(value: Any) -> bool:
    try:
        return int(value, 16) >> (CPU_MAX + 1) == 0
    except (TypeError, ValueError):
        return False


def _is_cells(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) <= CELLS_PER_NODE_MAX and all(map(_is_cell, value))


def _is_cell(cell: Any) -> bool:
    return (
        isinstance(cell, Mapping)
        and _is_number(cell.get("id"))
        and _is_number(cell.get("memory"))
        and _are_cpus(cell.get("cpuset"))
        and _are_cpus(cell.get("pcpuset"))
        and _are_lists_of_numbers(cell.get("siblings"))
        and _are_lists_of_numbers(cell.get("mempages"))
        and all(len(page) == PAGE_FACTS and page[0] > 0 for page in cell["mempages"])
    )


def _are_cpus(value: Any) -> bool:
    return _are_numbers(value) and all(type(cpu) is int and 0 <= cpu <= CPU_MAX for cpu in value)


def _are_specs(value: Any) -> bool:
    """Whether a value is a list of supported instances: architecture, type of hypervisor, mode."""
    return isinstance(value, list | tuple) and all(map(_are_texts, value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(each is None or isinstance(each, str) for each in value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_number, value))


def _are_lists_of_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_are_numbers, value))


def _is_unchanged(value: Any, before: Leaf | None) -> bool:
    if not isinstance(value, Mapping) or not isinstance(before, Mapping):
        return False
    return _is_number(value.get("generation") or 0) and all(before.get(k) == value.get(k) for k in PARSED)


def _is_provider(name: str, value: Any, pool: Pool | None) -> bool:
    if not isinstance(value, Mapping) or not _is_number(value.get("generation") or 0):
        return False
    try:
        made = Provider.from_leaf(name, value, pool)
        rooms = [(i.capacity, i.max_unit, i.step_size) for i in made.inventories.values()]
    except (MalformedProviderError, ValueError, OverflowError):
        return False
    return all(-NUMBER_MAX < number < NUMBER_MAX for room in rooms for number in room)


def _is_release(value: Any) -> bool:
    """As in a Hello; logs and terminals show it."""
    return isinstance(value, str) and len(value) <= limits.RELEASE_MAX_CHARS and value.isprintable()


EXACT: Final[Mapping[str, Check]] = {
    **{COMPUTE_NODE + field: _is_number for field in NUMBERS},
    **{STATS + key: _is_tally for key in TALLIES},
    NUMA_STATIC: _is_cells,
    AGENT_RELEASE: _is_release,
    COMPUTE_NODE + "supported_hv_specs": _are_specs,
}

#: name of a leaf -> its check
_CHECKS: Final[Memo[str, Check]] = Memo(limits.REPEATED_TEXTS_MAX)

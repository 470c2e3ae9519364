# SPDX-License-Identifier: Apache-2.0
"""The filter for properties of the image: architecture, hypervisor type, virtual machine mode."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.filters.base import NativeFilter
from shared_scheduler.decision.masks import RowTest
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView
from shared_scheduler.table.row import Row

#: how Nova's fields canonicalise each position, for hosts whose records have another spelling
_SAME: tuple[Mapping[str, str], ...] = (
    {
        "amd64": "x86_64",
        "i386": "i686",
        "i486": "i686",
        "i586": "i686",
        "x86_32": "i686",
        "x86_32p": "i686",
    },
    {"xapi": "xen"},
    {"pv": "xen", "hv": "hvm", "baremetal": "hvm"},
)

#: image properties that are compared with the supported instances of a host, in their order
_FEATURES = ("hw_architecture", "img_hv_type", "hw_vm_mode")
#: image properties that are compared only together with one of those
_OTHERS = ("img_hv_requested_version", "hw_maxphysaddr_bits")

_PREDICATE = re.compile(r"^\s*(<=|>=|<|>|!=|==)\s*(\d+(?:\.\d+)*)\s*$")
_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "!=": operator.ne,
}
#: hypervisor versions are numbers in base 1000: 8002000 is 8.2.0
_VERSION_BASE = 1000


@dataclass(frozen=True, slots=True)
class WantedImage:
    """The requirements of an image."""

    features: tuple[str | None, ...]  # architecture, hypervisor type, mode
    version: str | None
    address_bits: int | None


def wanted_by(properties: Mapping[str, Any], default_architecture: str | None) -> WantedImage:
    """The requirements from the properties of an image."""
    version, address_bits = (properties.get(name) or None for name in _OTHERS)
    features = _features(properties, default_architecture)
    return WantedImage(_canonical(features), version, address_bits)


def _features(properties: Mapping[str, Any], default_architecture: str | None) -> tuple[str | None, ...]:
    architecture, *others = _FEATURES
    default = properties.get(architecture, default_architecture)
    return (default, *map(properties.get, others))


def _canonical(features: Sequence[str | None]) -> tuple[str | None, ...]:
    """The features in Nova's canonical spelling."""
    return tuple(
        name if name is None else same.get(name.lower(), name.lower())
        for name, same in zip(features, _SAME, strict=False)
    )


class ImagePropertiesFilter(NativeFilter):
    """A supported instance type of the host has every feature, and the versions match.

    Nova fails on ``hw_maxphysaddr_bits``, because it uses the JSON text of ``cpu_info`` as a dict.  This filter reads
    the number from the text.
    """

    code = "ImagePropertiesFilter"
    once = True
    selects = True
    on_rebuild = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        properties = context.request.image_properties
        features = _features(properties, context.settings.image_properties_default_architecture)
        if not any(features):  # Nova compares versions and address bits only together with one of these
            return None
        key = (self.code, features, *map(properties.get, _OTHERS))
        kinds = context.columns.hypervisors
        return context.masks.kinds(context.table, key, kinds, lambda: _test(self._wanted(context)))

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        wanted = self._wanted(context)
        return {
            "required": list(wanted.features),
            "required_version": wanted.version,
            "required_address_bits": wanted.address_bits,
            "supported": view.leaves.get("cn.supported_hv_specs"),
            "hypervisor_version": view.leaves.get("cn.hypervisor_version"),
        }

    @staticmethod
    def _wanted(context: DecisionContext) -> WantedImage:
        default = context.settings.image_properties_default_architecture
        return wanted_by(context.request.image_properties, default)


def _test(wanted: WantedImage) -> RowTest:
    version_fits = _version_test(wanted.version)

    def test(row: Row) -> bool:
        get = row.leaves.get
        return (
            _has_features(wanted, get("cn.supported_hv_specs") or [])
            and version_fits(get("cn.hypervisor_version"))
            and _has_address_bits(wanted.address_bits, get("cn.cpu_info"))
        )

    return test


def _has_features(wanted: WantedImage, supported: Any) -> bool:
    needed = {feature for feature in wanted.features if feature}
    return any(needed <= set(_canonical(kind)) for kind in supported)


def _version_test(required: str | None) -> Callable[[Any], bool]:
    if not required:
        return lambda version: True
    predicates = [_predicate(part) for part in required.split(",")]

    def fits(version: Any) -> bool:
        if not version:
            return True
        if version < 0:  # not a version, and Nova's own loop would never end with it
            return False
        parts = _parts(int(version))
        return all(compare(parts, wanted) for compare, wanted in predicates)

    return fits


def _predicate(text: str) -> tuple[Callable[[Any, Any], bool], tuple[int, ...]]:
    found = _PREDICATE.match(text)
    if found is None:
        raise DecisionError(
            f"image property img_hv_requested_version: {text!r} is not a version predicate, "
            "write for example '>=8.0, <9.0'"
        )
    numbers = [int(part) for part in found[2].split(".")]
    return _COMPARE[found[1]], _stripped(numbers)


def _parts(version: int) -> tuple[int, ...]:
    numbers: list[int] = []
    while version:
        version, low = divmod(version, _VERSION_BASE)
        numbers.insert(0, low)
    return _stripped(numbers)


def _stripped(numbers: list[int]) -> tuple[int, ...]:
    """A version without zeros at its end: 8.2.0 equals 8.2."""
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _has_address_bits(required: int | None, cpu_info: Any) -> bool:
    if not required:
        return True
    try:
        bits = int(json.loads(cpu_info or "{}").get("maxphysaddr", {}).get("bits") or 0)
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        return True
    return not bits or bits >= int(required)

# SPDX-License-Identifier: Apache-2.0
"""A request that nobody has made, as plain values: what ``fit`` asks, and what a record holds of a request.

``shared_scheduler.nova.what_if_requests`` converts it to the request that Nova's API would have made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

#: Servers of one question.
SERVERS_MAX = 10_000
#: The largest size; a database of Nova stores no larger one.
SIZE_MAX = 2**31 - 1


class WhatIfError(ValueError):
    """The request cannot be made; the text says which field is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """``number`` servers of one flavor.

    The flavor is looked up by its name if ``vcpus`` and ``memory_mb`` are not given; otherwise the name is only a name.
    Given sizes and extra specs replace those of the flavor.  ``group`` is the uuid of a server group;
    ``group_policy`` makes a new one.
    """

    flavor: str = ""
    vcpus: int | None = None
    memory_mb: int | None = None
    root_gb: int | None = None
    ephemeral_gb: int | None = None
    swap_mb: int | None = None
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    traits: tuple[str, ...] = ()
    image: str = ""
    image_properties: Mapping[str, str] = field(default_factory=dict)
    number: int = 1
    group: str = ""
    group_policy: str = ""
    max_server_per_host: int = 1
    availability_zone: str = ""
    #: names or uuids of host aggregates; a host must be in all of them
    aggregates: tuple[str, ...] = ()
    #: the only service host that is considered
    host: str = ""
    project: str = ""
    user: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)
    ignore_hosts: tuple[str, ...] = ()
    force_hosts: tuple[str, ...] = ()
    force_nodes: tuple[str, ...] = ()
    boot_from_volume: bool = False

    @property
    def looks_up_flavor(self) -> bool:
        """Whether the sizes are those of the named flavor."""
        return self.vcpus is None or self.memory_mb is None


def what_if_of(given: Mapping[str, Any]) -> WhatIf:
    """The request from the fields of a JSON object; a field that is None is not given.

    :raises WhatIfError: when a field is unknown or has a wrong value
    """
    unknown = sorted(given.keys() - CHECKS.keys())
    if unknown:
        raise WhatIfError(f"{', '.join(unknown)}: not known; the fields are {', '.join(CHECKS)}")
    asked = WhatIf(**{name: CHECKS[name](name, value) for name, value in given.items() if value is not None})
    if asked.looks_up_flavor and not asked.flavor:
        raise WhatIfError("flavor: name a flavor, or give vcpus and memory_mb")
    if asked.group and asked.group_policy:
        raise WhatIfError("group, group_policy: give the uuid of a server group or the policy of a new one, not both")
    return asked


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise WhatIfError(f"{name}: {value!r} is not a text")
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise WhatIfError(f"{name}: {value!r} is not a list of texts")
    return tuple(_text(name, one) for one in value)


def _pairs(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise WhatIfError(f"{name}: {value!r} is not an object of texts")
    return {_text(name, key): _text(f"{name} {key}", one) for key, one in value.items()}


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise WhatIfError(f"{name}: {value!r} is neither true nor false")
    return value


def _whole(least: int, most: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise WhatIfError(f"{name}: {value!r} is not a whole number from {least} to {most}")
        return value

    return check


_OF_TYPE: Mapping[str, Callable[[str, Any], Any]] = {
    "str": _text,
    "tuple[str, ...]": _texts,
    "Mapping[str, str]": _pairs,
    "bool": _flag,
    "int | None": _whole(0, SIZE_MAX),
}
#: field -> its check, which returns the value
CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    **{each.name: _OF_TYPE[str(each.type)] for each in fields(WhatIf) if str(each.type) in _OF_TYPE},
    "number": _whole(1, SERVERS_MAX),
    "max_server_per_host": _whole(1, SERVERS_MAX),
}

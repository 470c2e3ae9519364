# SPDX-License-Identifier: Apache-2.0
"""Runs Nova's own unit tests of filters and weighers, and records their requests and results.

It is a separate program, because Nova's test package patches its process:
``python -m tests.oracle.record_vectors FILE``.  A row is JSON: facts of the hosts, the request, options, Nova's answer.
A test whose fake has no equivalent on a host (an attribute that HostState does not have, an answer of a mock that is
not plain data) produces no row; it is counted by reason.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
import sys
import unittest
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from unittest import mock

FILTER_TESTS = "nova.tests.unit.scheduler.filters"
WEIGHER_TESTS = "nova.tests.unit.scheduler.weights"

#: attributes of HostState that become numbers or texts of a compute node record
PLAIN = (
    "free_ram_mb", "free_disk_mb", "total_usable_ram_mb", "total_usable_disk_gb", "vcpus_total",
    "vcpus_used", "num_instances", "num_io_ops", "failed_builds", "cpu_allocation_ratio",
    "ram_allocation_ratio", "host_ip", "hypervisor_type", "hypervisor_version", "cpu_info",
    "supported_instances", "cell_uuid",
)  # fmt: skip
KNOWN = {
    *PLAIN, "host", "nodename", "uuid", "stats", "service", "instances", "aggregates", "metrics",
    "pci_stats", "numa_topology", "limits", "allocation_candidates", "updated", "_lock_name",
    "disk_mb_used", "hypervisor_hostname", "disk_allocation_ratio", "memory_mb", "id",
}  # fmt: skip


class FitUnknownError(Exception):
    """No host is like that."""


class Recorder:
    """Rows, and why some calls made none."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.left_out: Counter[str] = Counter()

    def filter(self, cls: type, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around ``host_passes``."""

        @functools.wraps(original)
        def host_passes(this: Any, host: Any, spec: Any) -> Any:
            given = self._tell(lambda: told(this, host, spec))
            answer = original(this, host, spec)
            if given is not None:
                host_facts, request, up = given
                host_facts["up"] = up
                self._add("filter", type(this).__name__, [host_facts], request, bool(answer))
            return answer

        return host_passes

    def weigh(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around ``get_weighed_objects``."""

        @functools.wraps(original)
        def get_weighed_objects(this: Any, weighers: Any, obj_list: Any, weighing_properties: Any) -> Any:
            hosts, spec = list(obj_list), weighing_properties
            names = [type(one).__name__ for one in weighers]
            given = self._tell(lambda: weighed(names, hosts, spec))
            found = original(this, weighers, hosts, spec)
            if given is not None:
                answer = [[one.obj.host, one.obj.nodename, one.weight] for one in found]
                self._add("weigher", names[0], given[0], given[1], answer)
            return found

        return get_weighed_objects

    def _tell(self, context: Callable[[], Any]) -> Any:
        try:
            return context()
        except FitUnknownError as error:
            self.left_out[str(error)] += 1
            return None

    def _add(self, kind: str, name: str, hosts: list[Any], request: Any, answer: Any) -> None:
        row = {
            "kind": kind,
            "name": name,
            "hosts": hosts,
            "request": request,
            "options": options(name),
            "answer": answer,
        }
        try:
            self.rows.append(json.loads(json.dumps(row)))
        except TypeError as error:
            self.left_out[f"not plain data: {error}"] += 1


def told(this: Any, host: Any, spec: Any) -> Any:
    """Facts of one host, the request, and whether the host's service is up."""
    request = asked(spec)
    if "$service" in str(request) and not hasattr(host, "service"):
        raise FitUnknownError("a host without a service")
    return facts(host), request, service_up(this, host)


def weighed(names: list[str], hosts: list[Any], spec: Any) -> Any:
    """Facts of hosts and request."""
    if names != ["ImagePropertiesWeigher"]:
        return [facts(host) for host in hosts], asked(spec)
    raise FitUnknownError("images of instances, which Nova reads from the database")


def facts(host: Any) -> dict[str, Any]:
    """A host as plain data."""
    if host is None:
        raise FitUnknownError("no host at all")
    strange = set(host.__dict__) - KNOWN
    if strange:
        raise FitUnknownError(f"attribute {', '.join(sorted(strange))}")
    values = {name: getattr(host, name, None) for name in PLAIN}
    if isinstance(values["cpu_info"], dict):
        raise FitUnknownError("cpu_info is no text")
    if any(isinstance(one, dict) for one in (getattr(host, "stats", None) or {}).values()):
        raise FitUnknownError("stats that are no text")
    topology = getattr(host, "numa_topology", None)
    pci = getattr(host, "pci_stats", None)
    return values | {
        "host": host.host,
        "nodename": host.nodename,
        "stats": dict(getattr(host, "stats", None) or {}),
        "service": {
            key: value
            for key, value in dict(getattr(host, "service", None) or {}).items()
            if key in ("disabled", "forced_down")
        },
        "instances": sorted(host.instances),
        "aggregates": aggregates_of(host),
        "metrics": None if host.metrics is None else metrics_of(host.metrics),
        "pools": None if pci is None else pools_of(pci),
        "numa": topology.obj_to_primitive() if topology else None,
    }


def pools_of(pci: Any) -> list[dict[str, Any]]:
    if is_fake(pci):
        raise FitUnknownError("pci_stats is a mock")
    return [dict(pool) for pool in pci.pools]


def metrics_of(metrics: Any) -> list[dict[str, Any]]:
    if any("value" not in one for one in metrics):
        raise FitUnknownError("a metric without a value")
    return [{"name": one.name, "value": one.value} for one in metrics]


def aggregates_of(host: Any) -> list[dict[str, str]]:
    """Metadata of the host's aggregates, or what the test says that they are."""
    from nova.scheduler.filters import utils

    metadata, values = utils.aggregate_metadata_get_by_host, utils.aggregate_values_from_key
    if is_fake(metadata):
        return [{key: ",".join(sorted(found)) for key, found in plain(metadata).items()}]
    if is_fake(values):
        found = plain(values)
        keys = ("instance_type", "max_io_ops_per_host", "max_instances_per_host")
        return [{key: value for key in keys} for value in sorted(found)]
    return [dict(one.metadata) for one in host.aggregates]


def is_fake(value: Any) -> bool:
    """A mock; one of a function is a function with a mock's attributes."""
    return isinstance(value, mock.NonCallableMock) or hasattr(value, "return_value")


def plain(fake: Any) -> Any:
    if fake.side_effect is not None or is_fake(fake.return_value):
        raise FitUnknownError("metadata is a mock without a fixed answer")
    return fake.return_value


def service_up(this: Any, host: Any) -> bool:
    """What the filter would hear of the service group."""
    api = getattr(this, "servicegroup_api", None)
    if api is None:
        return True
    answer = api.service_is_up
    return bool(answer.return_value if is_fake(answer) else answer(host.service))


def asked(spec: Any) -> dict[str, Any]:
    """A request as plain data; tests set only the fields that their filter reads."""
    if spec is None or isinstance(spec, dict):
        return {}
    found: dict[str, Any] = {}
    for name in ("project_id", "instance_uuid", "scheduler_hints"):
        if name in spec and getattr(spec, name) is not None:
            found[name] = getattr(spec, name)
    if "flavor" in spec:
        found["flavor"] = spec.flavor.name if "name" in spec.flavor else ""
        has = "extra_specs" in spec.flavor
        found["extra_specs"] = dict(spec.flavor.extra_specs) if has else {}
    if "image" in spec and spec.image is not None:
        found |= image_of(spec.image)
    if "instance_group" in spec and spec.instance_group is not None:
        found["group"] = group_of(spec.instance_group)
    if "requested_destination" in spec and spec.requested_destination is not None:
        found["preferred_cell"] = preferred_cell(spec.requested_destination)
    if "numa_topology" in spec and spec.numa_topology is not None:
        found["numa"] = spec.numa_topology.obj_to_primitive()
    if "pci_requests" in spec and spec.pci_requests is not None:
        found["pci"] = [one.obj_to_primitive() for one in spec.pci_requests.requests]
    return found


def image_of(image: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"image_id": image.id if "id" in image else ""}
    if "properties" in image:
        found["image"] = image.properties.to_dict()
    return found


def group_of(group: Any) -> dict[str, Any]:
    policy = group.policy if "policy" in group else None
    if policy is None and "policies" in group and group.policies:
        policy = group.policies[0]
    rules = (group._rules if "_rules" in group else None) or {}
    return {
        "policy": policy or "",
        "members": list(group.members if "members" in group and group.members else []),
        "hosts": list(group.hosts if "hosts" in group and group.hosts else []),
        "most": int(rules.get("max_server_per_host", 1)),
    }


def preferred_cell(destination: Any) -> str | None:
    if "cell" in destination and destination.cell and destination.allow_cross_cell_move:
        return str(destination.cell.uuid)
    return None


def options(name: str) -> dict[str, Any]:
    """Nova's options of now, as our settings."""
    from shared_scheduler.nova.configuration import decision_settings

    values = asdict(decision_settings([name], [name]))
    return {key: sorted(value) if isinstance(value, frozenset) else value for key, value in values.items()}


def tests_in(package: str) -> unittest.TestSuite:
    """Every test of a package's modules."""
    names = [name for _, name, _ in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    modules = [f"{package}.{name}" for name in names if name.startswith("test_")]
    return unittest.defaultTestLoader.loadTestsFromNames(modules)


def main(path: str) -> int:
    """Write the rows; 1 if a test of Nova's cannot be run or fails here."""
    import nova.tests.unit  # noqa: F401  (patches this process, first of all)
    from nova import weights
    from nova.conf import CONF
    from nova.scheduler import filters

    from shared_scheduler.conf import opts

    opts.register(CONF)
    recorder = Recorder()
    for cls in filters.HostFilterHandler().get_all_classes():
        for owner in cls.__mro__:
            original = owner.__dict__.get("host_passes")
            if original is not None and not hasattr(original, "__wrapped__"):
                owner.host_passes = recorder.filter(owner, original)
    handler = weights.BaseWeightHandler
    handler.get_weighed_objects = recorder.weigh(handler.get_weighed_objects)
    for package in (FILTER_TESTS, WEIGHER_TESTS):
        done = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(tests_in(package))
        if not done.wasSuccessful():
            return 1
    with open(path, "w") as file:
        json.dump({"rows": recorder.rows, "left_out": recorder.left_out}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

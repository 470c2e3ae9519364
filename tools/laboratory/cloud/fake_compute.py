#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nova-compute with a fake hypervisor whose sizes come from a file.

    fake_compute.py HARDWARE.json NOVA_COMPUTE_ARGUMENT...   becomes one nova-compute

Nova itself is not changed: sizes are class attributes of its fake driver. NUMA cells and PCI devices, which Nova's fake
drivers do not have, come from a subclass that replaces the driver; so does the memory of the guests, which survive
nova-compute like those of a real hypervisor. `launcher.py` forks the computes of a cloud. Run it with the Python of
the environment that contains Nova.
"""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

GPU_ADDRESS = "0000:{bus:02x}:00.0"
PF_ADDRESS = "0000:80:00.0"
VF_ADDRESS = "0000:80:{slot:02x}.{function}"


def numa_topology(hardware: dict[str, Any]) -> str:
    """Nova's NUMATopology as JSON: in each cell first the shared CPUs, then the dedicated ones, no SMT."""
    from nova.objects import network_metadata, numa

    shared, dedicated, count = (hardware[k] for k in ("cpus_per_cell", "pcpus_per_cell", "numa_cells"))
    cells = []
    for index in range(count):
        first = index * (shared + dedicated)
        cpus = set(range(first, first + shared))
        pcpus = set(range(first + shared, first + shared + dedicated))
        cells.append(numa.NUMACell(
            id=index, cpuset=cpus, pcpuset=pcpus, memory=hardware["memory_mb"] // count, cpu_usage=0, memory_usage=0,
            pinned_cpus=set(), siblings=[{cpu} for cpu in sorted(cpus | pcpus)], mempages=_pages(hardware),
            network_metadata=network_metadata.NetworkMetadata(physnets=set(), tunneled=False), socket=index,
        ))  # fmt: skip
    return str(numa.NUMATopology(cells=cells)._to_json())


def _pages(hardware: dict[str, Any]) -> list[Any]:
    """The requested huge pages; the rest of the memory in small pages."""
    from nova.objects import numa

    huge = {int(size_kb): int(count) for size_kb, count in hardware["pages"].items()}
    left_kb = hardware["memory_mb"] // hardware["numa_cells"] * 1024 - sum(s * n for s, n in huge.items())
    sizes = {4: max(0, left_kb // 4), **huge}
    return [numa.NUMAPagesTopology(size_kb=size, total=sizes[size], used=0, reserved=0) for size in sorted(sizes)]


def pci_devices(hardware: dict[str, Any]) -> list[dict[str, Any]]:
    """Devices as a virt driver reports them: GPUs, and one physical function's virtual functions."""
    cells = max(1, hardware["numa_cells"])
    gpus = [
        _device(GPU_ADDRESS.format(bus=1 + index), "10de", "2236", "type-PCI", None, index % cells)
        for index in range(hardware["gpus"])
    ]
    if not hardware["vfs"]:
        return gpus
    functions = [
        _device(VF_ADDRESS.format(slot=1 + index // 8, function=index % 8), "8086", "154c", "type-VF", PF_ADDRESS, 0)
        for index in range(hardware["vfs"])
    ]
    return [*gpus, _device(PF_ADDRESS, "8086", "154d", "type-PF", None, 0), *functions]


def _device(address: str, vendor: str, product: str, kind: str, parent: str | None, cell: int) -> dict[str, Any]:
    return {
        "address": address, "vendor_id": vendor, "product_id": product, "dev_type": kind, "parent_addr": parent,
        "numa_node": cell, "status": "available", "label": f"label_{vendor}_{product}",
        "dev_id": "pci_" + address.replace(":", "_").replace(".", "_"),
    }  # fmt: skip


def install(hardware: dict[str, Any]) -> None:
    """Give Nova's fake driver these sizes; with NUMA cells or PCI devices, replace it by a subclass."""
    from nova.virt import fake

    plain = fake.FakeDriverWithoutFakeNodes
    if hardware["numa_cells"]:
        plain.vcpus = hardware["numa_cells"] * hardware["cpus_per_cell"]
    else:
        plain.vcpus = hardware["vcpus"]
    plain.memory_mb, plain.local_gb = hardware["memory_mb"], hardware["local_gb"]
    driver = _remembering(plain)
    if hardware["refuses_builds"]:
        driver = _refusing(driver, hardware["refuses_builds"])
    if hardware["numa_cells"] or hardware["gpus"] or hardware["vfs"]:
        driver = _driver(driver, hardware)
    fake.FakeDriverWithoutFakeNodes = driver


class Guests(dict[str, Any]):
    """The guests of a hypervisor by uuid, stored in a file."""

    def __init__(self, path: Path, make: Callable[[str, int, str], Any]) -> None:
        kept = json.loads(path.read_text()) if path.exists() else {}
        super().__init__({uuid: make(name, state, uuid) for uuid, (name, state) in kept.items()})
        self._path = path
        self._lock = threading.Lock()  # nova-compute builds and deletes in threads

    def __setitem__(self, uuid: str, guest: Any) -> None:
        with self._lock:
            super().__setitem__(uuid, guest)
            self._keep()

    def __delitem__(self, uuid: str) -> None:
        with self._lock:
            super().__delitem__(uuid)
            self._keep()

    def _keep(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({uuid: (guest.name, guest.state) for uuid, guest in self.items()}))
        new.replace(self._path)


def _remembering(plain: Any) -> Any:
    import nova.conf
    from nova.virt import fake

    class FakeDriverThatRemembers(plain):  # type: ignore[misc]
        """A fake driver whose guests still exist after a restart of nova-compute."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.instances = Guests(Path(nova.conf.CONF.state_path) / "guests.json", fake.FakeInstance)

        def post_live_migration(self, context: Any, instance: Any, *args: Any, **kwargs: Any) -> None:
            """At the source: the guest runs elsewhere now, and may return."""
            self.destroy(context, instance, network_info=None)

    return FakeDriverThatRemembers


def _refusing(plain: Any, why: str) -> Any:
    from nova import exception

    class FakeDriverWithoutRoom(plain):  # type: ignore[misc]
        """A fake driver that gives every build back, like a hypervisor without free resources."""

        def spawn(self, *args: Any, **kwargs: Any) -> None:
            raise exception.ComputeResourcesUnavailable(reason=why)

    return FakeDriverWithoutRoom


def _driver(plain: Any, hardware: dict[str, Any]) -> Any:
    pcpus = hardware["numa_cells"] * hardware["pcpus_per_cell"]

    class FakeDriverWithTopology(plain):  # type: ignore[misc]
        """A fake driver with NUMA cells, dedicated CPUs and PCI devices."""

        capabilities = dict(plain.capabilities, supports_pcpus=True)  # noqa: RUF012

        def get_available_resource(self, nodename: str) -> dict[str, Any]:
            resources: dict[str, Any] = super().get_available_resource(nodename)
            if hardware["numa_cells"]:
                resources["numa_topology"] = numa_topology(hardware)
            resources["pci_passthrough_devices"] = json.dumps(pci_devices(hardware))
            return resources

        def update_provider_tree(self, provider_tree: Any, nodename: str, allocations: Any = None) -> None:
            super().update_provider_tree(provider_tree, nodename, allocations)
            if pcpus:
                inventory = dict(provider_tree.data(nodename).inventory)
                inventory["PCPU"] = {"total": pcpus, "min_unit": 1, "max_unit": pcpus, "step_size": 1,
                                     "allocation_ratio": 1.0, "reserved": 0}  # fmt: skip
                provider_tree.update_inventory(nodename, inventory)

    return FakeDriverWithTopology


def run(hardware_file: str, arguments: list[str]) -> None:
    """Become nova-compute; returns when it has ended."""
    hardware = json.loads(Path(hardware_file).read_text())
    sys.argv = ["nova-compute", *arguments]
    from nova.cmd import compute

    install(hardware)
    compute.main()


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    run(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    main()

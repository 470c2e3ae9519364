# SPDX-License-Identifier: Apache-2.0
"""The names of the leaves that describe a node.

=====================  ============================================================================
leaf                   value
=====================  ============================================================================
``cn.<field>``         a ComputeNode field of Nova: ``vcpus``, ``vcpus_used``, ``memory_mb``,
                       ``memory_mb_used``, ``free_ram_mb``, ``local_gb``, ``local_gb_used``,
                       ``free_disk_gb``, ``disk_available_least``, ``cpu_allocation_ratio``,
                       ``ram_allocation_ratio``, ``disk_allocation_ratio`` (numbers or None),
                       ``running_vms``, ``current_workload``, ``host``, ``hypervisor_hostname``,
                       ``hypervisor_type``, ``hypervisor_version``, ``host_ip``, ``cpu_info``
                       (JSON text), ``supported_hv_specs`` (list of [arch, hv_type, vm_mode]),
                       ``metrics`` (JSON text), ``uuid``, ``id``
``stats.<key>``        ComputeNode.stats: ``num_instances``, ``io_workload``, ``failed_builds``, ...
``numa.static``        list of cells ``{"id", "socket", "cpuset", "pcpuset", "siblings", "memory",
                       "mempages": [[size_kb, total, reserved], ...], "network_metadata"}``, sets as
                       sorted lists, memory in MiB; absent if the driver reports no topology
``numa.<cell id>``     ``[cpu_usage, memory_usage, pinned cpus as hex bitmap, {size_kb: used}]``
``pci.static.<pool>``  the key dict of a pool of devices (vendor_id, product_id, numa_node, tags)
``pci.<pool>``         free devices of that pool
``pci_order``          the pool ids in the order in which nova-compute tries them (tap only)
``rp.<uuid>``          a provider of the node's tree: ``{"name", "parent" (or None), "generation",
                       "inventories": {rc: [total, reserved, min_unit, max_unit, step_size,
                       allocation_ratio]}, "traits": sorted list, "aggregates": sorted list}``
``image.<prop>=<val>`` the number of the node's instances whose image has this property
                       (``model/image_properties.py``), for Nova's ImagePropertiesWeigher
``agent.mode``         "tap", "embedded" (inside nova-compute), or "fallback" (read through
                       nova-conductor: degraded)
``agent.release``      the release of the agent; absent if its release does not send it
``agent.groups``       True: the agent counts the members of server groups when it judges a claim
``agent.ready``        True while nova-compute runs and has audited: claims are accepted
=====================  ============================================================================

All leaves are *effective*: they include claims that the agent has accepted and that nova-compute does not count yet
(``protocol/messages.py``).
"""

from __future__ import annotations

COMPUTE_NODE = "cn."
#: the name of the node, which often is not its service host
NODENAME = COMPUTE_NODE + "hypervisor_hostname"
STATS = "stats."
NUMA_STATIC = "numa.static"
NUMA = "numa."
PCI_STATIC = "pci.static."
PCI = "pci."
PCI_ORDER = "pci_order"
PROVIDER = "rp."
IMAGE_PROPERTY = "image."
AGENT_MODE = "agent.mode"
AGENT_RELEASE = "agent.release"
AGENT_READY = "agent.ready"
AGENT_GROUPS = "agent.groups"

#: Fields with equal values on all hosts of one kind of hypervisor.  If an attribute is not set, capabilities are looked
#: up in the statistics, so statistics of the same name are included.
HYPERVISOR = tuple(
    prefix + name
    for name in ("hypervisor_type", "hypervisor_version", "supported_hv_specs", "cpu_info")
    for prefix in (COMPUTE_NODE, STATS)
)

# SPDX-License-Identifier: Apache-2.0
"""The configuration files of all services, as text that is generated from the settings."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tools.laboratory.cloud.cloud_settings import MAX_CELLS, CloudSettings, Hardware
from tools.laboratory.cloud.layout import PASSWORD, REGION, Layout, cell_database, vhost
from tools.laboratory.cloud.ports import LOOPBACK

Sections = dict[str, dict[str, str]]

DEFAULT_FILTERS = (
    "ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter", "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)  # fmt: skip
"""Nova's defaults; they do not include the filters for NUMA and PCI, which an operator adds if needed."""

AGENT_GROUP = "compute_agent"
"""Options that only agents read, beside nova-compute or in it."""
SCHEDULER_GROUP = "shared_scheduler"
"""Options that only our schedulers read, and commands."""

DISCOVERY_S = "5"
"""Where computes are not mapped before they start: how often a scheduler looks for new ones, in seconds."""

GPU = {"vendor_id": "10de", "product_id": "2236"}
VF = {"vendor_id": "8086", "product_id": "154c"}


def ini(sections: Mapping[str, Mapping[str, str]]) -> str:
    """The text of an oslo.config file. A value with line breaks is written as several lines of the option."""
    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        for name, value in options.items():
            lines += [f"{name} = {one}" for one in value.split("\n")]
        lines.append("")
    return "\n".join(lines)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def credentials(layout: Layout) -> dict[str, str]:
    """The options with which a service authenticates at Keystone."""
    return {
        "auth_type": "password", "auth_url": layout.endpoint("keystone"), "username": "admin",
        "password": PASSWORD, "project_name": "admin", "user_domain_id": "default", "project_domain_id": "default",
    }  # fmt: skip


def token_check(layout: Layout) -> dict[str, str]:
    """The options with which a service validates tokens."""
    return {
        **credentials(layout), "www_authenticate_uri": layout.endpoint("keystone"),
        "service_token_roles_required": "true",
    }  # fmt: skip


def rabbitmq(layout: Layout, settings: CloudSettings) -> dict[str, str]:
    """rabbitmq.conf and its definitions: one virtual host for each possible cell."""
    names = [vhost(cell) for cell in range(1, MAX_CELLS + 1)]
    definitions = {
        "vhosts": [{"name": name} for name in names],
        "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
        "permissions": [
            {"user": "guest", "vhost": name, "configure": ".*", "write": ".*", "read": ".*"} for name in names
        ],
    }
    path = layout.etc / "rabbitmq" / "definitions.json"
    options = {"listeners.tcp.1": f"{LOOPBACK}:{layout.ports['rabbitmq']}", "load_definitions": str(path),
               "log.console.level": "warning", **settings.rabbitmq_options}  # fmt: skip
    conf = "".join(f"{name} = {value}\n" for name, value in options.items())
    return {"rabbitmq.conf": conf, "definitions.json": json.dumps(definitions, indent=1),
            "enabled_plugins": "[].\n", "env.conf": ""}  # fmt: skip


def keystone(layout: Layout) -> str:
    return ini({
        "database": {"connection": layout.database_url("keystone")},
        # the lab has one user, so the 0.3 s that a secure hash takes for each password are not needed
        "identity": {"password_hash_rounds": "4"},
        "token": {"provider": "fernet", "expiration": "86400"},
        # in the memory of its one process; a check of a token takes 8 ms of CPU instead of 94
        "cache": {"enabled": "true", "backend": "dogpile.cache.memory"},
        "fernet_tokens": {"key_repository": str(layout.etc / "keystone" / "fernet")},
        "credential": {"key_repository": str(layout.etc / "keystone" / "credential")},
    })  # fmt: skip


def glance(layout: Layout) -> str:
    return ini({
        "DEFAULT": {"enabled_backends": "fs:file", "bind_host": LOOPBACK,
                    "worker_self_reference_url": layout.url("glance")},
        "glance_store": {"default_backend": "fs"},
        "fs": {"filesystem_store_datadir": str(layout.state / "images")},
        "database": {"connection": layout.database_url("glance")},
        "oslo_concurrency": {"lock_path": str(layout.run / "glance-lock")},
        "keystone_authtoken": token_check(layout),
        "paste_deploy": {"flavor": "keystone",
                         "config_file": str(layout.openstack / "etc" / "glance" / "glance-api-paste.ini")},
    })  # fmt: skip


def neutron(layout: Layout) -> str:
    """Neutron's API only: Nova requests ports and security groups from it, and there are none."""
    return ini({
        "DEFAULT": {
            "core_plugin": "ml2", "service_plugins": "", "auth_strategy": "keystone",
            "transport_url": layout.transport_url(1), "rpc_workers": "0",
            "notify_nova_on_port_status_changes": "false", "notify_nova_on_port_data_changes": "false",
            "api_paste_config": str(layout.openstack / "etc" / "neutron" / "api-paste.ini"),
            "state_path": str(layout.state / "neutron"),
        },
        "oslo_concurrency": {"lock_path": str(layout.run / "neutron-lock")},
        "database": {"connection": layout.database_url("neutron")},
        "keystone_authtoken": token_check(layout),
        "ml2": {"type_drivers": "local,flat", "tenant_network_types": "local", "mechanism_drivers": "",
                "extension_drivers": "port_security"},
    })  # fmt: skip


def placement(layout: Layout, settings: CloudSettings) -> str:
    sections = {
        "DEFAULT": {"debug": str(settings.debug).lower()},
        "api": {"auth_strategy": "keystone"},
        "placement_database": {"connection": layout.database_url("placement"), "max_pool_size": "10"},
        "keystone_authtoken": token_check(layout),
    }
    if settings.allocation_conflict_retry_count:
        sections["placement"] = {"allocation_conflict_retry_count": str(settings.allocation_conflict_retry_count)}
    return ini(sections)


def nova_common(layout: Layout, settings: CloudSettings, cell: int) -> Sections:
    """The options that all Nova services share."""
    login = {**credentials(layout), "region_name": REGION}
    sections: Sections = {
        "DEFAULT": {
            "transport_url": layout.transport_url(cell), "my_ip": LOOPBACK, "debug": str(settings.debug).lower(),
            "state_path": str(layout.state / "nova"), "use_rootwrap_daemon": "false",
            "heal_instance_info_cache_interval": "-1", "graceful_shutdown_timeout": "10",
            "report_interval": str(settings.report_interval_s),
            "service_down_time": str(settings.service_down_time_s),
        },
        "keystone_authtoken": token_check(layout),
        **{name: dict(login) for name in ("placement", "glance", "neutron", "cinder")},
        "barbican": {"auth_endpoint": layout.endpoint("keystone")},
        "oslo_concurrency": {"lock_path": str(layout.run / "nova-lock")},
        "vnc": {"enabled": "false"},
        "quota": {name: "-1" for name in ("instances", "cores", "ram", "server_groups", "server_group_members")},
        "pci": {"alias": "\n".join([
            json.dumps({"name": "gpu", "device_type": "type-PCI", "numa_policy": "preferred", **GPU}),
            json.dumps({"name": "vf", "device_type": "type-VF", "numa_policy": "preferred", **VF}),
        ])},
    }  # fmt: skip
    for group, options in settings.nova_options.items():
        if group != AGENT_GROUP:
            # in one order, because a changed file restarts its readers
            sections.setdefault(group, {}).update(sorted(options.items()))
    return sections


def nova(layout: Layout, settings: CloudSettings, cell: int) -> str:
    """nova.conf of the API, the conductor of a cell, and (first cell) the schedulers."""
    sections = nova_common(layout, settings, cell)
    sections["database"] = {"connection": layout.database_url(cell_database(cell))}
    sections["api_database"] = {"connection": layout.database_url("nova_api")}
    sections.setdefault("conductor", {})["workers"] = "1"
    sections.setdefault("scheduler", {})["workers"] = str(settings.scheduler_workers)
    sections[SCHEDULER_GROUP] = {
        "admin_socket_dir": str(layout.admin_sockets), "workers": str(settings.scheduler_workers),
    } | sections.get(SCHEDULER_GROUP, {})  # fmt: skip
    # services read the list of cells only when they start, so this file must change with the number of cells
    return f"# cells: {settings.cells}\n" + ini(sections)


def scheduler(settings: CloudSettings, host: str) -> str:
    """The options of one scheduler besides nova.conf: its name, the filters that the computes need, and whether it
    discovers them."""
    sections: Sections = {"DEFAULT": {
        "host": host, "concurrency_backend": settings.backend,
        # requests in flight may end: Nova reserves 10 s of the one and 20 s of the other for itself
        "graceful_shutdown_timeout": "40", "manager_shutdown_timeout": "30",
    }}  # fmt: skip
    computes = [settings.hardware_for(number) for number in range(1, settings.computes + 1)]
    more = ["NUMATopologyFilter"] * any(one.numa_cells for one in computes)
    more += ["PciPassthroughFilter"] * any(one.gpus or one.vfs for one in computes)
    if more and "enabled_filters" not in settings.nova_options.get("filter_scheduler", {}):
        sections["filter_scheduler"] = {"enabled_filters": ",".join([*DEFAULT_FILTERS, *more])}
    if not settings.premap:
        sections["scheduler"] = {"discover_hosts_in_cells_interval": DISCOVERY_S}
    return ini(sections)


def compute(layout: Layout, settings: CloudSettings, number: int) -> str:
    """nova.conf of one compute, which its agent reads too.

    Options that only they read are only in this file, so a change restarts neither the API, nor conductors, nor
    schedulers.
    """
    host = f"c{number}"
    sections = nova_common(layout, settings, settings.cell_of(number))
    state = layout.state / host
    sections["DEFAULT"] |= {
        "host": host, "state_path": str(state), "instances_path": str(state / "instances"),
        "compute_driver": "fake.FakeDriverWithoutFakeNodes",
        "update_resources_interval": str(settings.update_resources_interval_s),
        "reserved_host_memory_mb": "0", "reserved_host_disk_mb": "0",
        "ram_allocation_ratio": "1.0", "cpu_allocation_ratio": "1.0", "disk_allocation_ratio": "1.0",
        # of a new node until its second audit; with Nova's 4.0, new nodes and others would weigh differently
        "initial_cpu_allocation_ratio": "1.0",
    }  # fmt: skip
    sections["oslo_concurrency"]["lock_path"] = str(state / "lock")
    hardware = settings.hardware_for(number)
    if hardware.gpus or hardware.vfs:
        specs = [GPU] * bool(hardware.gpus) + [VF] * bool(hardware.vfs)
        sections["pci"]["device_spec"] = "\n".join(json.dumps(spec) for spec in specs)
    if number <= settings.agent_count():
        sections[AGENT_GROUP] = _agent(layout, settings, host) | settings.nova_options.get(AGENT_GROUP, {})
    return ini(sections)


def _agent(layout: Layout, settings: CloudSettings, host: str) -> dict[str, str]:
    if settings.embeds():
        return {"embedded": "true"}
    return {"tap_enabled": "true", "tap_socket": str(layout.tap_socket(host)),
            "state_path": str(layout.state / f"agent-{host}")}  # fmt: skip


def hardware(spec: Hardware) -> str:
    """The file that `fake_compute.py` reads."""
    return json.dumps(asdict(spec), indent=1, sort_keys=True) + "\n"


def write_all(layout: Layout, settings: CloudSettings) -> None:
    """Write every file of these settings that does not exist or differs."""
    etc = layout.etc
    for name, text in rabbitmq(layout, settings).items():
        write(etc / "rabbitmq" / name, text)
    write(etc / "keystone" / "keystone.conf", keystone(layout))
    write(etc / "glance" / "glance-api.conf", glance(layout))
    write(etc / "neutron" / "neutron.conf", neutron(layout))
    write(etc / "placement" / "placement.conf", placement(layout, settings))
    write(etc / "nova" / "api-paste.ini", (layout.nova / "etc" / "nova" / "api-paste.ini").read_text())
    for cell in range(1, settings.cells + 1):
        write(layout.nova_conf(cell), nova(layout, settings, cell))
    for index in range(1, settings.scheduler_total() + 1):
        write(etc / "nova" / f"sched{index}.conf", scheduler(settings, f"sched{index}"))
    for index in range(1, settings.conductors + 1):
        write(etc / "nova" / f"conductor{index}.conf", ini({"DEFAULT": {"host": f"conductor{index}"}}))
    for number in range(1, settings.computes + 1):
        write(layout.compute_dir(f"c{number}") / "nova.conf", compute(layout, settings, number))
        write(layout.compute_dir(f"c{number}") / "hardware.json", hardware(settings.hardware_for(number)))
    _make_directories(layout, settings)


def _make_directories(layout: Layout, settings: CloudSettings) -> None:
    names = ["images", "nova", "neutron"]
    for number in range(1, settings.computes + 1):
        names += [f"c{number}/instances", f"c{number}/lock", f"agent-c{number}"]
    for name in names:
        (layout.state / name).mkdir(parents=True, exist_ok=True)
    for name in ("glance-lock", "neutron-lock", "nova-lock"):
        (layout.run / name).mkdir(exist_ok=True)

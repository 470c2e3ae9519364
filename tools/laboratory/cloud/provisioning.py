# SPDX-License-Identifier: Apache-2.0
"""What users of the cloud need besides services: catalog entries, an image, flavors. All steps are idempotent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tools.laboratory.cloud.api import Api
from tools.laboratory.cloud.cloud_settings import SLOT_MB
from tools.laboratory.cloud.layout import REGION

SERVICES = {
    "identity": "keystone", "image": "glance", "network": "neutron", "placement": "placement", "compute": "nova-api",
}  # fmt: skip
"""Type in the catalog -> name here."""

IMAGE = "tiny"
IMAGE_BYTES = 1024


@dataclass(frozen=True)
class Flavor:
    """A flavor with its extra specs. Sizes: `ram_mb`, `disk_gb`."""

    name: str
    vcpus: int = 1
    ram_mb: int = SLOT_MB
    disk_gb: int = 1
    extra: dict[str, str] = field(default_factory=dict)


FLAVORS = (
    Flavor("m400"),
    Flavor("pinned", extra={"hw:cpu_policy": "dedicated"}),
    Flavor("pinned2", vcpus=2, extra={"hw:cpu_policy": "dedicated"}),
    Flavor("hugepage", extra={"hw:mem_page_size": "2048"}),
    Flavor("gpu", extra={"pci_passthrough:alias": "gpu:1"}),
    Flavor("vf", extra={"pci_passthrough:alias": "vf:1"}),
)


def ensure_catalog(api: Api) -> None:
    """Endpoints with the present addresses, and the role with which Nova sends service tokens."""
    role = api.keystone("GET", "/roles?name=service").expect(200)["roles"][0]["id"]
    api.keystone("PUT", f"/projects/{api.project_id()}/users/{api.user_id()}/roles/{role}").expect(204)
    services = {s["type"]: s["id"] for s in api.keystone("GET", "/services").expect(200)["services"]}
    endpoints = api.keystone("GET", "/endpoints").expect(200)["endpoints"]
    for kind, name in SERVICES.items():
        if kind not in services:
            body = {"service": {"type": kind, "name": kind}}
            services[kind] = api.keystone("POST", "/services", body).expect(201)["service"]["id"]
        known = {e["interface"]: e for e in endpoints if e["service_id"] == services[kind]}
        for interface in ("public", "internal", "admin"):
            _ensure_endpoint(api, services[kind], interface, api.layout.endpoint(name), known)


def _ensure_endpoint(api: Api, service: str, interface: str, url: str, known: dict[str, dict[str, str]]) -> None:
    old = known.get(interface)
    if old is None:
        body = {"service_id": service, "interface": interface, "url": url, "region_id": REGION}
        api.keystone("POST", "/endpoints", {"endpoint": body}).expect(201)
    elif old["url"] != url:
        api.keystone("PATCH", f"/endpoints/{old['id']}", {"endpoint": {"url": url}}).expect(200)


def ensure_image(api: Api, name: str = IMAGE, properties: Mapping[str, str] | None = None) -> str:
    """An active image with this name, which is created with these properties; returns its id."""
    images = api.glance("GET", f"/v2/images?name={name}").expect(200)["images"]
    if not images:
        body = {"name": name, "container_format": "bare", "disk_format": "raw", "visibility": "public",
                **(properties or {})}  # fmt: skip
        images = [api.glance("POST", "/v2/images", body).expect(201)]
    found = str(images[0]["id"])
    if images[0]["status"] != "active":
        api.glance("PUT", f"/v2/images/{found}/file", bytes(IMAGE_BYTES)).expect(204)
    return found


def ensure_zone(api: Api, zone: str, hosts: Iterable[str]) -> None:
    """An availability zone with exactly these hosts."""
    aggregates = {a["name"]: a for a in api.compute("GET", "/os-aggregates").expect(200)["aggregates"]}
    if zone not in aggregates:
        body = {"aggregate": {"name": zone, "availability_zone": zone}}
        aggregates[zone] = api.compute("POST", "/os-aggregates", body).expect(200)["aggregate"]
    have = set(aggregates[zone].get("hosts", ()))
    path = f"/os-aggregates/{aggregates[zone]['id']}"
    for host in sorted(set(hosts) - have):
        api.compute("POST", f"{path}/action", {"add_host": {"host": host}}).expect(200)
    for host in sorted(have - set(hosts)):
        api.compute("POST", f"{path}/action", {"remove_host": {"host": host}}).expect(200)


def remove_zone(api: Api, zone: str) -> None:
    """Remove the hosts from an availability zone, and delete it."""
    aggregates = {a["name"]: a["id"] for a in api.compute("GET", "/os-aggregates").expect(200)["aggregates"]}
    if zone in aggregates:
        ensure_zone(api, zone, ())
        api.compute("DELETE", f"/os-aggregates/{aggregates[zone]}").expect(200)


def ensure_flavors(api: Api) -> None:
    have = {flavor["name"] for flavor in api.compute("GET", "/flavors").expect(200)["flavors"]}
    for flavor in FLAVORS:
        if flavor.name not in have:
            add_flavor(api, flavor)


def add_flavor(api: Api, flavor: Flavor) -> str:
    """Create a flavor; returns its id."""
    body = {"name": flavor.name, "ram": flavor.ram_mb, "vcpus": flavor.vcpus, "disk": flavor.disk_gb}
    created: str = api.compute("POST", "/flavors", {"flavor": body}).expect(200)["flavor"]["id"]
    if flavor.extra:
        api.compute("POST", f"/flavors/{created}/os-extra_specs", {"extra_specs": flavor.extra}).expect(200)
    return created

# SPDX-License-Identifier: Apache-2.0
"""A process that calls `select_destinations` as Nova's conductor does.

`python -m tools.benchmarks.client NOVA_CONF`. It reads one JSON command a line and answers each with one JSON line:

=========================================================== ==================================================
command                                                     answer
=========================================================== ==================================================
`{"do": "call", "callers": 8, "seconds": 20, "least": 24}`  what `Tally` holds
`{"do": "write", "endpoint": ..., "hosts": 9, ...}`         the same, for writes to Placement and no scheduler
`{"do": "sync", "hosts": [...], "rounds": 2}`               `{}` once nova-compute's reports of what it runs
                                                            were cast for all hosts
=========================================================== ==================================================
"""

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from nova import monkey_patch

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"
monkey_patch.patch(backend="threading")

import nova.conf  # noqa: E402  (after the patch, as every service of Nova does)
from nova import config, context, objects  # noqa: E402
from nova.scheduler import rpcapi  # noqa: E402

from .floor import Writer  # noqa: E402
from .world import CLIENT_HOST  # noqa: E402

VCPUS, MEMORY_MB, ROOT_GB = 1, 512, 1
PROJECT, USER = "4bf5bdee42fa49968a3045fadbd7d6b6", "261e048e5aca43238b8871f6446857eb"
ERRORS_KEPT = 5


@dataclass
class Tally:
    """What the calls of one command came to. Times in seconds."""

    wall_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    hosts: dict[str, str] = field(default_factory=dict)
    """Instance to the host it was given."""
    alternates: int = 0
    failures: int = 0
    errors: list[str] = field(default_factory=list)
    """The first few failures in words."""


def request_spec(instance: str) -> Any:
    """One server of 1 VCPU, 512 MB, 1 GB: what the conductor sends for a plain boot."""
    return objects.RequestSpec(
        id=1, instance_uuid=instance, project_id=PROJECT, user_id=USER, num_instances=1, availability_zone=None,
        image=objects.ImageMeta(
            id=str(uuid.uuid4()), name="tiny", status="active", container_format="bare", disk_format="raw", size=1024,
            min_ram=0, min_disk=0, properties=objects.ImageMetaProps(),
        ),
        flavor=objects.Flavor(
            id=1, flavorid="1", name="m512", memory_mb=MEMORY_MB, vcpus=VCPUS, root_gb=ROOT_GB, ephemeral_gb=0, swap=0,
            rxtx_factor=1.0, vcpu_weight=0, disabled=False, is_public=True, extra_specs={},
        ),
        numa_topology=None, pci_requests=objects.InstancePCIRequests(instance_uuid=instance, requests=[]),
        ignore_hosts=None, force_hosts=None, force_nodes=None, requested_destination=None, retry=None,
        limits=objects.SchedulerLimits(), instance_group=None, scheduler_hints={},
        security_groups=objects.SecurityGroupList(objects=[]), is_bfv=False, requested_resources=[],
        network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False),
        request_level_params=objects.RequestLevelParams(),
        requested_networks=objects.NetworkRequestList(objects=[]),
    )  # fmt: skip


Act = Callable[[str], tuple[str, int]]
"""Takes an instance, returns the host it was given and the number of alternates."""


def scheduled() -> Act:
    """Ask the scheduler."""
    api = rpcapi.SchedulerAPI()

    def act(instance: str) -> tuple[str, int]:
        caller = context.RequestContext(USER, PROJECT, is_admin=True)
        choices = api.select_destinations(caller, request_spec(instance), [instance], True, True)[0]
        return choices[0].service_host, len(choices) - 1

    return act


def written(endpoint: str, hosts: int) -> Act:
    """Ask nobody, write to Placement."""
    writer = Writer(endpoint, hosts, PROJECT, USER)
    resources = {"VCPU": VCPUS, "MEMORY_MB": MEMORY_MB, "DISK_GB": ROOT_GB}
    return lambda instance: (writer.write(instance, resources), 0)


class Callers:
    """So many threads that act one after the other until it is enough."""

    def __init__(self, act: Act, count: int, seconds: float, least: int) -> None:
        self.tally = Tally()
        self._act = act
        self._lock = threading.Lock()
        self._left = least
        self._ends_at = time.monotonic() + seconds
        self._threads = [threading.Thread(target=self._call_on) for _ in range(count)]

    def run(self) -> Tally:
        """Call for at least the time and the number asked for; each call that was begun is counted."""
        began = time.monotonic()
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        self.tally.wall_s = time.monotonic() - began
        return self.tally

    def _call_on(self) -> None:
        while self._once_more():
            self._call_once()

    def _once_more(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0 or time.monotonic() < self._ends_at

    def _call_once(self) -> None:
        instance = str(uuid.uuid4())
        began = time.monotonic()
        try:
            host, alternates = self._act(instance)
        except Exception as error:
            self._failed(error)
            return
        self._answered(instance, time.monotonic() - began, host, alternates)

    def _answered(self, instance: str, latency_s: float, host: str, alternates: int) -> None:
        with self._lock:
            self.tally.latencies_s.append(latency_s)
            self.tally.hosts[instance] = host
            self.tally.alternates += alternates

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self.tally.failures += 1
            if len(self.tally.errors) < ERRORS_KEPT:
                self.tally.errors.append(f"{type(error).__name__}: {error}"[:300])


def sync(hosts: list[str], rounds: int) -> None:
    """What nova-computes tell every scheduler each two minutes; stock trusts its cache after two of them."""
    api, caller = rpcapi.SchedulerAPI(), context.get_admin_context()
    for _ in range(rounds):
        for host in hosts:
            api.sync_instance_info(caller, host, [])


def serve() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(obey(command)), flush=True)


def obey(command: dict[str, Any]) -> dict[str, Any]:
    """Carry out one command; returns its answer."""
    if command["do"] == "sync":
        sync(command["hosts"], command["rounds"])
        return {}
    act = scheduled() if command["do"] == "call" else written(command["endpoint"], command["hosts"])
    return asdict(Callers(act, command["callers"], command["seconds"], command["least"]).run())


def main() -> None:
    config.parse_args(["benchmark", "--config-file", sys.argv[1]])
    nova.conf.CONF.set_override("host", CLIENT_HOST)
    objects.register_all()
    print("{}", flush=True)
    serve()
    os._exit(0)  # threads of the messaging library would hold the process for some seconds


if __name__ == "__main__":
    main()

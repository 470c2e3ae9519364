# SPDX-License-Identifier: Apache-2.0
"""A process that calls `select_destinations` as Nova's conductor does, outside the processes that are measured.

`python -m tools.laboratory.bench.caller NOVA_CONF SOCKET`. It answers on its control socket:

========= ========================================= ==============================================================
question  fields                                    answer
========= ========================================= ==============================================================
call      callers, seconds, least, most_s           the fields of `Tally`
burst     servers                                   the same, of one request for that many servers
write     the same, endpoint, hosts                 the same, of writes to Placement without a scheduler
sync      hosts, rounds                             nothing, once nova-compute's reports of its instances were cast
                                                    for all hosts
========= ========================================= ==============================================================
"""

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nova import monkey_patch

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"
monkey_patch.patch(backend="threading")

import nova.conf  # noqa: E402  (after the patch, as every service of Nova does)
from nova import config, context, objects  # noqa: E402
from nova.scheduler import rpcapi  # noqa: E402

from tools.laboratory.bench.environment import CLIENT_HOST  # noqa: E402
from tools.laboratory.bench.floor import Writer  # noqa: E402
from tools.laboratory.processes.control import serve  # noqa: E402

VCPUS, MEMORY_MB, ROOT_GB = 1, 512, 1
PROJECT, USER = "4bf5bdee42fa49968a3045fadbd7d6b6", "261e048e5aca43238b8871f6446857eb"
ERRORS_KEPT = 5


@dataclass
class Tally:
    """The results of the calls of one command. Times in seconds."""

    wall_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    hosts: dict[str, str] = field(default_factory=dict)
    """Instance -> the selected host."""
    alternates: int = 0
    failures: int = 0
    errors: list[str] = field(default_factory=list)
    """The texts of the first few failures."""


def request_spec(instance: str, servers: int = 1) -> Any:
    """Servers of 1 VCPU, 512 MB, 1 GB, as the conductor requests a plain boot."""
    return objects.RequestSpec(
        id=1, instance_uuid=instance, project_id=PROJECT, user_id=USER, num_instances=servers, availability_zone=None,
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
"""Takes an instance, returns the selected host and the number of alternates."""


def scheduled() -> Act:
    """Call the scheduler."""
    api = rpcapi.SchedulerAPI()

    def act(instance: str) -> tuple[str, int]:
        caller = context.RequestContext(USER, PROJECT, is_admin=True)
        choices = api.select_destinations(caller, request_spec(instance), [instance], True, True)[0]
        return choices[0].service_host, len(choices) - 1

    return act


def written(endpoint: str, hosts: int) -> Act:
    """Write to Placement without a scheduler."""
    writer = Writer(endpoint, hosts, PROJECT, USER)
    resources = {"VCPU": VCPUS, "MEMORY_MB": MEMORY_MB, "DISK_GB": ROOT_GB}
    return lambda instance: (writer.write(instance, resources), 0)


class Callers:
    """A number of threads, each of which calls repeatedly until the limits are reached."""

    def __init__(self, act: Act, count: int, seconds: float, least: int, most_s: float) -> None:
        self.tally = Tally()
        self._act = act
        self._lock = threading.Lock()
        self._left = least
        self._ends_at = time.monotonic() + seconds
        self._gives_up_at = time.monotonic() + most_s
        self._threads = [threading.Thread(target=self._call_on) for _ in range(count)]

    def run(self) -> Tally:
        """Call for at least the time and the number that were requested, but begin no call after `most_s`; each call
        that was begun is counted."""
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
            now_s = time.monotonic()
            return now_s < self._gives_up_at and (self._left >= 0 or now_s < self._ends_at)

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
                self.tally.errors.append(_first_line(error))


def burst(servers: int) -> Tally:
    """One request for many servers."""
    instances, tally = [str(uuid.uuid4()) for _ in range(servers)], Tally()
    caller, began = context.RequestContext(USER, PROJECT, is_admin=True), time.monotonic()
    try:
        found = rpcapi.SchedulerAPI().select_destinations(
            caller, request_spec(instances[0], servers), instances, True, True
        )
        tally.hosts = {one: choices[0].service_host for one, choices in zip(instances, found, strict=True)}
        tally.alternates = sum(len(choices) - 1 for choices in found)
        tally.latencies_s = [time.monotonic() - began]
    except Exception as error:
        tally.failures, tally.errors = 1, [_first_line(error)]
    tally.wall_s = time.monotonic() - began
    return tally


def _first_line(error: Exception) -> str:
    """The error without the traceback of the remote side, which names paths of this machine."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def sync(hosts: list[str], rounds: int) -> None:
    """Cast the reports that nova-computes send every two minutes; nova-scheduler uses its cache after two of them."""
    api, caller = rpcapi.SchedulerAPI(), context.get_admin_context()
    for _ in range(rounds):
        for host in hosts:
            api.sync_instance_info(caller, host, [])


def measured(act: Act, asked: Mapping[str, Any]) -> dict[str, Any]:
    """One measurement."""
    return asdict(Callers(act, asked["callers"], asked["seconds"], asked["least"], asked["most_s"]).run())


def main() -> None:
    """Serve until the benchmark ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config.parse_args(["benchmark", "--config-file", sys.argv[1]])
    nova.conf.CONF.set_override("host", CLIENT_HOST)
    objects.register_all()
    serve(Path(sys.argv[2]), {
        "call": lambda asked: measured(scheduled(), asked),
        "burst": lambda asked: asdict(burst(asked["servers"])),
        "write": lambda asked: measured(written(asked["endpoint"], asked["hosts"]), asked),
        "sync": lambda asked: sync(asked["hosts"], asked["rounds"]),
    })  # fmt: skip
    threading.Event().wait()


if __name__ == "__main__":
    main()

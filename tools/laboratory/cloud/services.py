# SPDX-License-Identifier: Apache-2.0
"""Every service of the cloud as data: its command, the services that it needs, and the probe that it is ready."""

import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from tools.laboratory import ROOT
from tools.laboratory.cloud import brokers, configs, databases, fake_compute, launcher, probes
from tools.laboratory.cloud.cloud_settings import CloudSettings
from tools.laboratory.cloud.layout import Layout
from tools.laboratory.cloud.ports import LOOPBACK
from tools.laboratory.errors import LabError
from tools.laboratory.processes.startup import Service

ACCESS_FORMAT = (
    "%(tmsecs) %(pid) %(method) %(uri) %(status) %(micros) %(rsize) %(var.HTTP_X_OPENSTACK_REQUEST_ID) %(uagent)"
)
"""The format that `access_log.parse` reads."""

OUR_CODE = {"PYTHONPATH": str(ROOT)}
"""Virtual environments may be shared by clones of this project, so each clone sets the path to its own code."""

OF_SCHEDULERS = (configs.SCHEDULER_GROUP,)
"""What the other services ignore in the configuration that they share with our schedulers."""

PLACEMENT_MODULES = {False: "placement.wsgi.api", True: "shared_scheduler.placement_app.wsgi"}

SCHEDULER_STOP_S = 60.0
"""Longer than `graceful_shutdown_timeout` of a scheduler: one that is killed loses the requests that it ends."""
COMPUTE_STOP_S = 20.0
AGENT_STOP_S = 60.0
SLOW_STOP_S = 60.0


def check_installed(layout: Layout, rabbitmq: str, program: str) -> None:
    """Check the requirements of a cloud: `program` of Nova, the broker of this directory, uwsgi and MariaDB.

    :raises LabError: when something is missing; the text contains the remedy
    """
    for path in (layout.nova / "bin" / program, layout.openstack / "bin" / "uwsgi"):
        if not path.exists():
            raise LabError(f"{path} does not exist; run tools/install")
    if shutil.which("mariadbd") is None:
        raise LabError("mariadbd is not on the PATH; run tools/install")
    brokers.Programs(rabbitmq).check()


def plan(layout: Layout, settings: CloudSettings) -> dict[str, Service]:
    """All services of these settings, by name, in the order in which they are shown."""
    services = [
        *_infrastructure(layout, settings),
        *_apis(layout, settings), *_conductors(layout, settings), *_launchers(layout, settings),
        *(_scheduler(layout, settings, index) for index in range(1, settings.scheduler_total() + 1)),
        *_computes(layout, settings),
    ]  # fmt: skip
    return {service.name: service for service in services}


def _infrastructure(layout: Layout, settings: CloudSettings) -> list[Service]:
    ports = layout.ports
    place = brokers.Place(
        f"cloud-{layout.mark}@localhost", layout.data / "rabbitmq", layout.etc / "rabbitmq", layout.log,
        ports["rabbitmq"], ports["rabbitmq-dist"], ports["epmd"],
    )  # fmt: skip
    programs = brokers.Programs(settings.rabbitmq)
    argv = databases.server_argv(layout, settings.durable)
    mariadb = Service("mariadb", "mariadb", tuple(argv), layout.log_of("mariadb"),
                      ready=lambda: probes.database_answers(layout), needs=("databases",),
                      stop_grace_s=SLOW_STOP_S)  # fmt: skip
    return [mariadb, *brokers.services(programs, place, lambda: probes.broker_answers(layout), SLOW_STOP_S)]


def _uwsgi(layout: Layout, name: str, venv: Path, module: str, processes: int, threads: int,
           env: Mapping[str, str], files: tuple[Path, ...], needs: tuple[str, ...]) -> Service:  # fmt: skip
    argv = (
        str(layout.openstack / "bin" / "uwsgi"), "--virtualenv", str(venv),
        "--http11-socket", f"{LOOPBACK}:{layout.ports[name]}", "--module", module, "--callable", "application",
        "--pythonpath", str(Path(__file__).parent / "wsgi"), "--processes", str(processes),
        "--threads", str(threads), "--enable-threads", "--lazy-apps", "--master", "--die-on-term", "--need-app",
        # an idle connection that is kept open would block one of the few threads
        "--add-header", "Connection: close", "--buffer-size", "65535", "--thunder-lock", "--listen", "100",
        "--req-logger", f"file:{layout.access_log(name)}", "--log-format", ACCESS_FORMAT,
        "--stats", str(layout.uwsgi_stats(name)),
    )  # fmt: skip
    return Service(name, "api", argv, layout.log_of(name), needs, env, files, OF_SCHEDULERS,
                   ready=lambda: probes.uwsgi_answers(layout, name))  # fmt: skip


def _apis(layout: Layout, settings: CloudSettings) -> list[Service]:
    etc, openstack, nova = layout.etc, layout.openstack, layout.nova
    return [
        _uwsgi(layout, "keystone", openstack, "keystone.wsgi.api", 1, 8,
               {"OS_KEYSTONE_CONFIG_DIR": str(etc / "keystone")}, (etc / "keystone" / "keystone.conf",), ("mariadb",)),
        _uwsgi(layout, "placement", nova, PLACEMENT_MODULES[settings.placement_app], settings.placement_processes, 4,
               {"OS_PLACEMENT_CONFIG_DIR": str(etc / "placement"), **OUR_CODE},
               (etc / "placement" / "placement.conf",), ("mariadb",)),
        _uwsgi(layout, "nova-api", nova, "nova.wsgi.osapi_compute", 1, 8, {"OS_NOVA_CONFIG_DIR": str(etc / "nova")},
               (layout.nova_conf(),), ("cells",)),
        _uwsgi(layout, "glance", openstack, "glance.wsgi.api", 1, 2, {"OS_GLANCE_CONFIG_DIR": str(etc / "glance")},
               (etc / "glance" / "glance-api.conf",), ("mariadb",)),
        _uwsgi(layout, "neutron", openstack, "neutron_app", 1, 4,
               {"OS_NEUTRON_CONFIG_DIR": str(etc / "neutron"), "OS_NEUTRON_CONFIG_FILES": "neutron.conf"},
               (etc / "neutron" / "neutron.conf",), ("mariadb",)),
    ]  # fmt: skip


def _conductors(layout: Layout, settings: CloudSettings) -> list[Service]:
    """Conductors of the first cell also serve the API; every other cell has its own."""
    services = []
    for index in range(1, settings.conductors + 1):
        services.append(_conductor(layout, f"conductor{index}", 1, index))
    for cell in range(2, settings.cells + 1):
        services.append(_conductor(layout, f"conductor-cell{cell}", cell, 1))
    return services


def _conductor(layout: Layout, name: str, cell: int, index: int) -> Service:
    """It reads Placement's endpoint only when it starts, so the catalog must exist before."""
    files = (layout.nova_conf(cell), layout.etc / "nova" / f"conductor{index}.conf")
    argv = (str(layout.nova / "bin" / "nova-conductor"), *_config_files(files))
    return Service(name, "conductor", argv, layout.log_of(name), ("cells", "rabbitmq", "catalog"), files=files,
                   ignores=OF_SCHEDULERS,
                   ready=lambda: probes.consumers(layout, f"conductor.conductor{index}", cell) > 0)  # fmt: skip


def _config_files(files: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(part for path in files for part in ("--config-file", str(path)))


def _fork_server(layout: Layout) -> Path:
    return layout.run / "launcher.sock"


def _launchers(layout: Layout, settings: CloudSettings) -> list[Service]:
    """The process that forks computes, and our services if the settings require that."""
    if not settings.computes and not settings.forks_services():
        return []
    fork_server = _fork_server(layout)
    argv = (str(layout.nova / "bin" / "python"), "-P", launcher.__file__, str(fork_server))
    files = (Path(launcher.__file__), Path(fake_compute.__file__))
    return [Service("launcher", "launcher", argv, layout.log_of("launcher"), files=files,
                    env={**OUR_CODE, "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"},
                    ready=lambda: socket_answers(fork_server))]  # fmt: skip


def _forked(layout: Layout, settings: CloudSettings, kind: str) -> tuple[Path | None, tuple[str, ...]]:
    """The launcher of a service of this kind, and its needs; None if the service is started directly."""
    if kind == "scheduler-nova" or not settings.forks_services():
        return None, ()
    return _fork_server(layout), ("launcher",)


def _scheduler(layout: Layout, settings: CloudSettings, index: int) -> Service:
    """shared-scheduler or nova-scheduler, with the same arguments, queues and probe."""
    name, kind = f"sched{index}", settings.scheduler_kind(index)
    files = (layout.nova_conf(), layout.etc / "nova" / f"sched{index}.conf")
    program = {"shared": "shared-scheduler", "nova": "nova-scheduler"}[kind]
    argv = (str(layout.nova / "bin" / program), *_config_files(files))
    forked_by, first = _forked(layout, settings, f"scheduler-{kind}")
    return Service(
        name, f"scheduler-{kind}", argv, layout.log_of(name), files=files, env=OUR_CODE,
        stop_grace_s=SCHEDULER_STOP_S, forked_by=forked_by,
        needs=("cells", "rabbitmq", "placement", "catalog", *first),
        ready=lambda: probes.consumers(layout, f"scheduler.{name}") > 0,
    )  # fmt: skip


def _computes(layout: Layout, settings: CloudSettings) -> list[Service]:
    services = [_compute(layout, settings, number) for number in range(1, settings.computes + 1)]
    if not settings.embeds():
        services += [_agent(layout, settings, number) for number in range(1, settings.agent_count() + 1)]
    return services


def socket_answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(os.fspath(path)) == 0


def _compute(layout: Layout, settings: CloudSettings, number: int) -> Service:
    host, cell = f"c{number}", settings.cell_of(number)
    conductor = "conductor1" if cell == 1 else f"conductor-cell{cell}"
    files = (layout.compute_dir(host) / "nova.conf", layout.compute_dir(host) / "hardware.json")
    fresh_s = max(1, settings.service_down_time_s // 2)  # its next report may be late, and it must stay up until then

    def ready() -> bool:
        consumed = probes.consumers(layout, f"compute.{host}", cell) > 0
        if settings.embeds():
            consumed = consumed and _is_agent(layout, host, cell)
        return consumed and probes.inventoried(layout, host) and probes.seen_up(layout, host, cell, fresh_s)

    return Service(
        host, "compute", (launcher.COMPUTE, *_config_files(files[:1])), layout.log_of(host), files=files,
        ignores=OF_SCHEDULERS,
        needs=("launcher", "hosts", conductor, "placement", "catalog"), forked_by=_fork_server(layout), ready=ready,
        stop_grace_s=COMPUTE_STOP_S,
    )  # fmt: skip


def _agent(layout: Layout, settings: CloudSettings, number: int) -> Service:
    host = f"c{number}"
    files = (layout.compute_dir(host) / "nova.conf",)
    argv = (str(layout.nova / "bin" / "compute-agent"), *_config_files(files))
    forked_by, first = _forked(layout, settings, "agent")
    return Service(f"agent-{host}", "agent", argv, layout.log_of(f"agent-{host}"), files=files, env=OUR_CODE,
                   ignores=OF_SCHEDULERS,
                   needs=("rabbitmq", "placement", "catalog", "hosts", *first), forked_by=forked_by,
                   stop_grace_s=AGENT_STOP_S,
                   ready=lambda: _is_agent(layout, host, settings.cell_of(number)))  # fmt: skip


def _is_agent(layout: Layout, host: str, cell: int) -> bool:
    return probes.held(layout, f"ssched.agent.{host}", cell)

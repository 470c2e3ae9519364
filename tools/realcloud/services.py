# SPDX-License-Identifier: Apache-2.0
"""Every service of the cloud as data: its command, what it needs, how one sees that it is ready."""

import hashlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import databases, fake_compute, probes
from .brokers import Programs
from .layout import LOOPBACK, ROOT, Layout
from .settings import Settings

ACCESS_FORMAT = (
    "%(tmsecs) %(pid) %(method) %(uri) %(status) %(micros) %(rsize) %(var.HTTP_X_OPENSTACK_REQUEST_ID) %(uagent)"
)
"""What `access_log.parse` reads."""

QUICK_STOP_S = 10.0
OUR_CODE = {"PYTHONPATH": str(ROOT)}
"""Virtual environments may be shared by clones of this project: each runs its own code."""

SCHEDULER_STOP_S = 20.0
COMPUTE_STOP_S = 20.0
SLOW_STOP_S = 60.0


@dataclass(frozen=True)
class Service:
    """One process to run. `needs` are names of other services and of steps (see `startup`)."""

    name: str
    kind: str
    """mariadb, epmd, rabbitmq, api, conductor, scheduler-shared, scheduler-nova, launcher, compute, agent."""
    argv: tuple[str, ...]
    log: Path
    needs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    """Configuration that it reads when it starts: a change means a restart."""
    ready: Callable[[], bool] = lambda: True
    stop_grace_s: float = QUICK_STOP_S
    forked_by: Path | None = None
    """Socket of the launcher that forks it; else it is started directly."""

    def fingerprint(self) -> str:
        digest = hashlib.sha256(json.dumps([self.argv, dict(self.env)]).encode())
        for path in self.files:
            digest.update(path.read_bytes() if path.exists() else b"-")
        return digest.hexdigest()[:16]


def plan(layout: Layout, settings: Settings) -> dict[str, Service]:
    """All services that these settings ask for, by name, in the order to show them."""
    services = [
        *_infrastructure(layout, Programs(settings.rabbitmq)), *_apis(layout, settings), *_conductors(layout, settings),
        *(_scheduler(layout, settings, index) for index in range(1, settings.scheduler_total() + 1)),
        *_computes(layout, settings),
    ]  # fmt: skip
    return {service.name: service for service in services}


def _infrastructure(layout: Layout, broker: Programs) -> list[Service]:
    etc, home = layout.etc / "rabbitmq", layout.data / "rabbitmq"
    erlang = {"ERL_EPMD_PORT": str(layout.ports["epmd"]), "ERL_EPMD_ADDRESS": LOOPBACK, "HOME": str(home),
              "ERL_CRASH_DUMP": "/dev/null", **broker.environment}  # fmt: skip
    rabbit = {
        **erlang, "RABBITMQ_NODENAME": f"cloud-{layout.mark}@localhost",
        "RABBITMQ_MNESIA_BASE": str(home / broker.store), "RABBITMQ_LOG_BASE": str(layout.log), "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(etc / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(etc / "env.conf"), "RABBITMQ_ENABLED_PLUGINS_FILE": str(etc / "enabled_plugins"),
        "RABBITMQ_DIST_PORT": str(layout.ports["rabbitmq-dist"]), "RABBITMQ_NODE_PORT": str(layout.ports["rabbitmq"]),
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK, "RABBITMQ_PID_FILE": str(layout.run / "rabbitmq.pid"),
        # a busy-waiting Erlang virtual machine is no neighbour for everything else on two cores
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
    }  # fmt: skip
    return [
        Service("mariadb", "mariadb", tuple(databases.server_argv(layout)), layout.log_of("mariadb"),
                ready=lambda: probes.database_answers(layout), needs=("databases",), stop_grace_s=SLOW_STOP_S),
        # RabbitMQ would start this daemon itself, for everybody and for ever; ours is private and ends
        Service("epmd", "epmd", (broker.epmd(), "-port", str(layout.ports["epmd"]), "-address", LOOPBACK),
                layout.log_of("epmd"), env=erlang, ready=lambda: port_answers(layout.ports["epmd"])),
        Service("rabbitmq", "rabbitmq", (broker.server,), layout.log_of("rabbitmq"),
                env=rabbit, needs=("epmd",), ready=lambda: probes.broker_answers(layout), stop_grace_s=SLOW_STOP_S,
                files=(etc / "rabbitmq.conf",)),
    ]  # fmt: skip


def port_answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def _uwsgi(layout: Layout, name: str, venv: Path, module: str, processes: int, threads: int,
           env: Mapping[str, str], files: tuple[Path, ...], needs: tuple[str, ...]) -> Service:  # fmt: skip
    argv = (
        str(layout.openstack / "bin" / "uwsgi"), "--virtualenv", str(venv),
        "--http11-socket", f"{LOOPBACK}:{layout.ports[name]}", "--module", module, "--callable", "application",
        "--pythonpath", str(Path(__file__).parent / "wsgi"), "--processes", str(processes),
        "--threads", str(threads), "--enable-threads", "--lazy-apps", "--master", "--die-on-term", "--need-app",
        # an idle connection that is kept alive would hold one of the few threads
        "--add-header", "Connection: close", "--buffer-size", "65535", "--thunder-lock", "--listen", "100",
        "--req-logger", f"file:{layout.access_log(name)}", "--log-format", ACCESS_FORMAT,
    )  # fmt: skip
    return Service(name, "api", argv, layout.log_of(name), needs, env, files,
                   ready=lambda: probes.http_answers(layout.url(name)))  # fmt: skip


def _apis(layout: Layout, settings: Settings) -> list[Service]:
    etc, openstack, nova = layout.etc, layout.openstack, layout.nova
    return [
        _uwsgi(layout, "keystone", openstack, "keystone.wsgi.api", 1, 8,
               {"OS_KEYSTONE_CONFIG_DIR": str(etc / "keystone")}, (etc / "keystone" / "keystone.conf",), ("mariadb",)),
        _uwsgi(layout, "placement", nova, "placement.wsgi.api", settings.placement_processes, 4,
               {"OS_PLACEMENT_CONFIG_DIR": str(etc / "placement")}, (etc / "placement" / "placement.conf",),
               ("mariadb",)),
        _uwsgi(layout, "nova-api", nova, "nova.wsgi.osapi_compute", 1, 8, {"OS_NOVA_CONFIG_DIR": str(etc / "nova")},
               (layout.nova_conf(),), ("cells",)),
        _uwsgi(layout, "glance", openstack, "glance.wsgi.api", 1, 2, {"OS_GLANCE_CONFIG_DIR": str(etc / "glance")},
               (etc / "glance" / "glance-api.conf",), ("mariadb",)),
        _uwsgi(layout, "neutron", openstack, "neutron_app", 1, 4,
               {"OS_NEUTRON_CONFIG_DIR": str(etc / "neutron"), "OS_NEUTRON_CONFIG_FILES": "neutron.conf"},
               (etc / "neutron" / "neutron.conf",), ("mariadb",)),
    ]  # fmt: skip


def _conductors(layout: Layout, settings: Settings) -> list[Service]:
    """Conductors of the first cell serve the API too; every other cell has one of its own."""
    services = []
    for index in range(1, settings.conductors + 1):
        services.append(_conductor(layout, f"conductor{index}", 1, index))
    for cell in range(2, settings.cells + 1):
        services.append(_conductor(layout, f"conductor-cell{cell}", cell, 1))
    return services


def _conductor(layout: Layout, name: str, cell: int, index: int) -> Service:
    """It asks for Placement's endpoint when it starts and never again: the catalog has to be there."""
    files = (layout.nova_conf(cell), layout.etc / "nova" / f"conductor{index}.conf")
    argv = (str(layout.nova / "bin" / "nova-conductor"), *_config_files(files))
    return Service(name, "conductor", argv, layout.log_of(name), ("cells", "rabbitmq", "catalog"), files=files,
                   ready=lambda: probes.consumers(layout, f"conductor.conductor{index}", cell) > 0)  # fmt: skip


def _config_files(files: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(part for path in files for part in ("--config-file", str(path)))


def _scheduler(layout: Layout, settings: Settings, index: int) -> Service:
    """Ours or the stock one: the same arguments, the same queues, the same sign of life."""
    name, kind = f"sched{index}", settings.scheduler_kind(index)
    files = (layout.nova_conf(), layout.etc / "nova" / f"sched{index}.conf")
    program = {"shared": "shared-scheduler", "nova": "nova-scheduler"}[kind]
    argv = (str(layout.nova / "bin" / program), *_config_files(files))
    return Service(
        name, f"scheduler-{kind}", argv, layout.log_of(name), files=files, env=OUR_CODE,
        stop_grace_s=SCHEDULER_STOP_S,
        needs=("cells", "rabbitmq", "placement", "catalog"),
        ready=lambda: probes.consumers(layout, f"scheduler.{name}") > 0,
    )  # fmt: skip


def _computes(layout: Layout, settings: Settings) -> list[Service]:
    if not settings.computes:
        return []
    fork_server = layout.run / "launcher.sock"
    launcher = (str(layout.nova / "bin" / "python"), "-P", fake_compute.__file__, "serve", str(fork_server))
    services = [
        Service("launcher", "launcher", launcher, layout.log_of("launcher"), files=(Path(fake_compute.__file__),),
                env={**OUR_CODE, "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"},
                ready=lambda: socket_answers(fork_server))
    ]  # fmt: skip
    for number in range(1, settings.computes + 1):
        services.append(_compute(layout, settings, number, fork_server))
    if not settings.embeds():
        services += [_agent(layout, settings, number) for number in range(1, settings.agent_count() + 1)]
    return services


def socket_answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(os.fspath(path)) == 0


def _compute(layout: Layout, settings: Settings, number: int, fork_server: Path) -> Service:
    host, cell = f"c{number}", settings.cell_of(number)
    conductor = "conductor1" if cell == 1 else f"conductor-cell{cell}"
    files = (layout.compute_dir(host) / "nova.conf", layout.compute_dir(host) / "hardware.json")
    fresh_s = max(1, settings.service_down_time_s - settings.report_interval_s)

    def ready() -> bool:
        consumed = probes.consumers(layout, f"compute.{host}", cell) > 0
        if settings.embeds():
            consumed = consumed and _is_agent(layout, host, cell)
        return consumed and probes.inventoried(layout, host) and probes.seen_up(layout, host, cell, fresh_s)

    return Service(
        host, "compute", _config_files(files[:1]), layout.log_of(host), files=files,
        needs=("launcher", "hosts", conductor, "placement", "catalog"), forked_by=fork_server, ready=ready,
        stop_grace_s=COMPUTE_STOP_S,
    )  # fmt: skip


def _agent(layout: Layout, settings: Settings, number: int) -> Service:
    host = f"c{number}"
    files = (layout.compute_dir(host) / "nova.conf",)
    argv = (str(layout.nova / "bin" / "compute-agent"), *_config_files(files))
    return Service(f"agent-{host}", "agent", argv, layout.log_of(f"agent-{host}"), files=files, env=OUR_CODE,
                   needs=("rabbitmq", "placement", "catalog", "hosts"),
                   ready=lambda: _is_agent(layout, host, settings.cell_of(number)))  # fmt: skip


def _is_agent(layout: Layout, host: str, cell: int) -> bool:
    return probes.held(layout, f"ssched.agent.{host}", cell)


__all__ = ["ACCESS_FORMAT", "Service", "plan"]

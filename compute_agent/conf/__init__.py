# SPDX-License-Identifier: Apache-2.0
"""The options of ``[compute_agent]``, in the nova.conf that nova-compute and its agent share.

Names end in the unit of their value.  Mutable options are applied again on SIGHUP.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from oslo_config import cfg

from shared_scheduler.daemon.telemetry_address import TELEMETRY
from shared_scheduler.transport.key_options import SIGNING

GROUP = cfg.OptGroup(
    "compute_agent",
    title="Compute agent",
    help=(
        "Options of compute-agent, the process beside each nova-compute that publishes the state of the host to "
        "all schedulers and judges their claims. It reads host, transport_url, state_path and [placement] from the "
        "same nova.conf as nova-compute."
    ),
)

TAP = [
    cfg.BoolOpt(
        "tap_enabled",
        default=False,
        help=(
            "Whether nova-compute gives its agent access to its resource tracker. nova-compute reads this option when "
            "it starts, so restart it after a change; the agent connects by itself. Without the tap, the agent polls "
            "nova-conductor (see ``source``), which is slower and does not show claims that nova-compute refuses."
        ),
    ),
    cfg.BoolOpt(
        "embedded",
        default=False,
        help=(
            "Whether nova-compute runs its agent itself, without a socket and without a compute-agent process. A "
            "restart of the agent is then a restart of nova-compute. Replaces ``tap_enabled``. nova-compute reads this "
            "option, all other options of the agent and its keys when it starts; SIGHUP does not apply them again."
        ),
    ),
    cfg.StrOpt(
        "tap_socket",
        default="",
        help=(
            "Path of the local socket on which nova-compute listens for its agent. Empty means "
            "``compute-agent/tap.sock`` under ``state_path``. Both processes need write access to the directory. The "
            "path may have at most 100 characters. Only one agent may be connected."
        ),
    ),
]

SOURCE = [
    cfg.StrOpt(
        "source",
        default="auto",
        choices=[
            ("auto", "the tap; nova-conductor if nova-compute runs without the tap"),
            ("tap", "only the tap; without it, claims are refused"),
            ("conductor", "only nova-conductor; degraded, needs nothing in nova-compute"),
        ],
        help="Where the agent reads the state of nova-compute's resource tracker.",
    ),
    cfg.IntOpt(
        "fallback_after_s",
        default=30,
        min=1,
        max=3600,
        help=(
            "With ``source = auto``: after the tap was not available for this time, the agent asks nova-conductor "
            "whether nova-compute runs without it, and if so reads through nova-conductor."
        ),
    ),
    cfg.FloatOpt(
        "conductor_poll_busy_s",
        default=1.0,
        min=0.2,
        max=600.0,
        mutable=True,
        help=(
            "Without the tap: time between two reads of a node that has pending claims. A read is about five calls to "
            "nova-conductor."
        ),
    ),
    cfg.FloatOpt(
        "conductor_poll_idle_s",
        default=15.0,
        min=1.0,
        max=600.0,
        mutable=True,
        help="Without the tap: time between two reads of a node without pending claims.",
    ),
]

TIMES = [
    cfg.FloatOpt(
        "heartbeat_interval_s",
        deprecated_name="beat_interval_s",
        default=15.0,
        min=1.0,
        max=60.0,
        help=(
            "Time from a change of the host to the heartbeat that shows schedulers whether they missed it. While the "
            "host does not change, a heartbeat follows another after 2.9 to 3.2 times this value, 43 to 48 seconds by "
            "default. The schedulers assume the default: change this option on all hosts, and agent_silent_after_s of "
            "[shared_scheduler] to 3.6 times its value, or change none."
        ),
    ),
    cfg.FloatOpt(
        "placement_poll_s",
        default=1200.0,
        min=5.0,
        max=86400.0,
        mutable=True,
        help=(
            "Time between two full reads of the node's providers and allocations in Placement, with a jitter of 20 per "
            "cent. The agent gets changes by nova-compute and by schedulers at once, reads Placement when a host "
            "aggregate changes, and when a scheduler checks a 'no valid host'. These reads only find changes that "
            "others make directly in Placement. Each read is three calls, and two more for each provider below the "
            "node: 10,000 agents make 30,000 calls within this time."
        ),
    ),
    cfg.FloatOpt(
        "claim_check_after_s",
        default=15.0,
        min=14.0,
        max=3600.0,
        mutable=True,
        help=(
            "Age at which the agent reads Placement for a claim that nova-compute does not count yet, and time between "
            "two such reads. A claim without an allocation ends. The value is longer than the 13 seconds within which "
            "a scheduler writes the allocation of a claim."
        ),
    ),
]

STATE = [
    cfg.StrOpt(
        "state_path",
        default="",
        help=(
            "Directory in which the agent keeps its epoch, the accepted claims, and the groups and labels of the "
            "servers, so that they survive a restart. "
            "Empty means ``compute-agent`` under Nova's ``state_path``. The directory must survive reboots and must "
            "not be shared by hosts."
        ),
    ),
]

#: Options of Nova's own that the agent reads where Nova's configuration is not imported.
AGENT_OPTS = [*TELEMETRY, *TAP, *SOURCE, *TIMES, *SIGNING, *STATE]

#: sun_path holds 108 bytes, one of them the end
SOCKET_PATH_MAX_CHARS = 100


def register_opts(conf: Any) -> None:
    """Register the options in ``conf.compute_agent``.  Idempotent."""
    conf.register_group(GROUP)
    conf.register_opts(AGENT_OPTS, group=GROUP)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """For oslo-config-generator."""
    return [(GROUP, AGENT_OPTS)]


def state_directory(conf: Any) -> str:
    """Where the agent keeps its state."""
    chosen: str = conf.compute_agent.state_path
    return chosen or os.path.join(conf.state_path, "compute-agent")


def status_socket_path(conf: Any) -> Path:
    """Where the agent answers ``compute-agent-status``."""
    return Path(state_directory(conf)) / "status.sock"


def tap_socket_path(conf: Any) -> str:
    """Where the tap listens.

    :raises ValueError: when the path is too long; the text says what to do
    """
    chosen: str = conf.compute_agent.tap_socket
    path = chosen or os.path.join(conf.state_path, "compute-agent", "tap.sock")
    if len(path) > SOCKET_PATH_MAX_CHARS:
        raise ValueError(
            f"[compute_agent] tap_socket = {path}: longer than {SOCKET_PATH_MAX_CHARS} characters, "
            "which a local socket cannot have; choose a shorter path"
        )
    return path

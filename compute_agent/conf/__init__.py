# SPDX-License-Identifier: Apache-2.0
"""The options of ``[compute_agent]``, in the nova.conf that nova-compute and its agent share.

Names end in the unit of their value.  Options marked mutable are taken over at SIGHUP.
"""

from __future__ import annotations

import os
from typing import Any

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "compute_agent",
    title="Compute agent",
    help="""
Options of compute-agent, the process beside each nova-compute that tells all schedulers what the host
has left and judges their claims. It reads host, transport_url, state_path and [placement] from the
same nova.conf as nova-compute.
""",
)

TAP = [
    cfg.BoolOpt(
        "tap_enabled",
        default=False,
        help="""
Whether nova-compute lets its agent listen to its resource tracker. Read by nova-compute when it
starts: after a change restart nova-compute, then the agent. While it is off, the agent polls
nova-conductor (see ``source``), which is slower and blind to claims that nova-compute refuses.
""",
    ),
    cfg.BoolOpt(
        "embedded",
        default=False,
        help="""
Whether nova-compute runs its agent itself: no socket, and no compute-agent process beside it. For small
sites; a restart of the agent is then one of nova-compute. Takes the place of ``tap_enabled``. Read by
nova-compute when it starts, with all other options of the agent and its keys: SIGHUP does not reach them.
""",
    ),
    cfg.StrOpt(
        "tap_socket",
        default="",
        help="""
Path of the local socket on which nova-compute listens for its agent. Empty means
``compute-agent/tap.sock`` under ``state_path``. Both processes need write access to the directory;
the path may not be longer than 100 characters. Only one agent may be connected.
""",
    ),
]

SOURCE = [
    cfg.StrOpt(
        "source",
        default="auto",
        choices=[
            ("auto", "the tap; where there is none although nova-compute lives, nova-conductor"),
            ("tap", "the tap only: without it claims are refused"),
            ("conductor", "nova-conductor only: degraded, needs nothing in nova-compute"),
        ],
        help="""
Where the agent learns what nova-compute's resource tracker holds.
""",
    ),
    cfg.IntOpt(
        "fallback_after_s",
        default=30,
        min=1,
        max=3600,
        help="""
With ``source = auto``: how long the tap may be away before the agent asks nova-conductor whether
nova-compute lives without it, and reads through nova-conductor if so.
""",
    ),
    cfg.FloatOpt(
        "conductor_poll_busy_s",
        default=1.0,
        min=0.2,
        max=600.0,
        mutable=True,
        help="""
Fallback mode: time between two reads of a node that has claims pending. A read is about five calls to
nova-conductor.
""",
    ),
    cfg.FloatOpt(
        "conductor_poll_idle_s",
        default=15.0,
        min=1.0,
        max=600.0,
        mutable=True,
        help="""
Fallback mode: time between two reads of a node without pending claims.
""",
    ),
]

TIMES = [
    cfg.FloatOpt(
        "beat_interval_s",
        default=15.0,
        min=1.0,
        max=60.0,
        help="""
Time between two beats, by which schedulers see that the agent lives and that they missed nothing. An
agent is taken for silent after three missed beats. The schedulers assume the default: set it on all
hosts or on none.
""",
    ),
    cfg.FloatOpt(
        "placement_poll_s",
        default=600.0,
        min=5.0,
        max=86400.0,
        mutable=True,
        help="""
Time between two full reads of the node's providers and allocations in Placement, spread by a fifth to
both sides. What passes nova-compute or a scheduler is seen at once, so is a changed host aggregate, and a
doubtful "no valid host" makes the agent look: this only finds what others change directly in Placement.
Each read is two calls, so 10,000 agents make 20,000 calls within this time.
""",
    ),
    cfg.FloatOpt(
        "claim_check_after_s",
        default=15.0,
        min=1.0,
        max=3600.0,
        mutable=True,
        help="""
Age at which a claim that nova-compute has not taken over is looked up in Placement, and time between
two such looks. A claim whose allocation is not there ends. It must be longer than a scheduler takes
to write an allocation.
""",
    ),
]

SIGNING = [
    cfg.StrOpt(
        "signing",
        default="off",
        mutable=True,
        choices=[
            ("off", "messages are not signed, signatures are not looked at"),
            ("warn", "messages are signed; what is not well signed is taken and counted"),
            ("enforce", "messages are signed; what is not well signed is dropped"),
        ],
        help="""
Whether messages between schedulers and agents are signed. The same on both sides; go from off to
enforce by way of warn. With off, the broker's users and permissions are all that protects them.
""",
    ),
    cfg.StrOpt(
        "signing_keys_file",
        default="",
        mutable=True,
        help="""
File with the keys for ``signing``: lines of ``key-id:hex-secret``, the one that signs first. The same
here and in ``[shared_scheduler]``; readable for the service only. Read again at SIGHUP.
""",
    ),
]

STATE = [
    cfg.StrOpt(
        "state_path",
        default="",
        help="""
Directory in which the agent keeps its epoch and the claims it has accepted, so that a restart loses
nothing. Empty means ``compute-agent`` under Nova's ``state_path``. Must survive reboots and belong to
this host alone.
""",
    ),
]

#: Options of Nova's own that the agent reads where Nova's configuration is not imported.
AGENT_OPTS = [*TAP, *SOURCE, *TIMES, *SIGNING, *STATE]

#: sun_path holds 108 bytes, one of them the end
SOCKET_PATH_MAX_CHARS = 100


def register_opts(conf: Any) -> None:
    """Make ``conf.compute_agent`` known; harmless if it is already."""
    conf.register_group(GROUP)
    conf.register_opts(AGENT_OPTS, group=GROUP)


def list_opts() -> list[tuple[Any, list[Any]]]:
    """For oslo-config-generator."""
    return [(GROUP, AGENT_OPTS)]


def state_directory(conf: Any) -> str:
    """Where the agent keeps its state."""
    chosen: str = conf.compute_agent.state_path
    return chosen or os.path.join(conf.state_path, "compute-agent")


def tap_socket_path(conf: Any) -> str:
    """Where the tap listens.  Raises ``ValueError`` that says what to do if the path is too long."""
    chosen: str = conf.compute_agent.tap_socket
    path = chosen or os.path.join(conf.state_path, "compute-agent", "tap.sock")
    if len(path) > SOCKET_PATH_MAX_CHARS:
        raise ValueError(
            f"[compute_agent] tap_socket = {path}: longer than {SOCKET_PATH_MAX_CHARS} characters, "
            "which a local socket cannot have; choose a shorter path"
        )
    return path

# SPDX-License-Identifier: Apache-2.0
"""The options of ``[shared_scheduler]``.  Everything else is read from Nova's own options.

Names end in the unit of their value.  Options marked mutable are taken over at SIGHUP.
"""

from __future__ import annotations

from typing import Any

from oslo_config import cfg


def _text(help: str) -> str:
    """One paragraph; the generator of the sample breaks lines by itself."""
    return " ".join(help.split())


GROUP = cfg.OptGroup(
    "shared_scheduler",
    title="Shared-state scheduler",
    help=_text("""
Options of shared-scheduler, the drop-in for nova-scheduler that decides from memory. It reads the
configuration of Nova beside these: filters and weighers, Placement, databases, messaging. Each of
these options has a default that suits a cloud of some thousand hosts.
"""),
)

PROCESS = [
    cfg.IntOpt(
        "workers",
        default=1,
        min=1,
        max=64,
        help=_text("""
Number of scheduler processes on this machine. Each one is a scheduler of its own, with its own copy
of the state of all hosts and its own identity, so one is enough for some hundred requests a second;
more than the number of cores, or more than four, is of no use. ``[scheduler] workers`` is not read.
"""),
    ),
    cfg.IntOpt(
        "startup_wait_s",
        default=30,
        min=0,
        max=3600,
        help=_text("""
How long a start waits for the broker, the databases and Placement to answer before the process gives up
with one line that says which of them is missing. 0 looks once.
"""),
    ),
    cfg.IntOpt(
        "drain_timeout_s",
        default=60,
        min=1,
        max=3600,
        help=_text("""
After SIGTERM: how long the process has to end. New requests are not taken any more at once; those in
flight have four fifths of it, the rest is for giving back what they hold. Keep it below what the service
manager waits before it sends SIGKILL.
"""),
    ),
    cfg.StrOpt(
        "admin_socket_dir",
        default="/run/shared-scheduler",
        help=_text("""
Directory of the sockets through which ``shared-scheduler-manage`` looks into the running processes
of this machine. An empty value turns the sockets off. When the directory cannot be made, a warning
is logged and the scheduler works without.
"""),
    ),
]

DECIDING = [
    cfg.BoolOpt(
        "spread_over_schedulers",
        default=True,
        mutable=True,
        help=_text("""
Schedulers that run side by side prefer, among hosts of (nearly) the same weight, hosts of a slice
of their own, so that they do not all go for the same host at the same moment. False gives plain
Nova behaviour: every scheduler takes the best host of all.
"""),
    ),
    cfg.FloatOpt(
        "near_tie",
        default=0.1,
        min=0.0,
        max=100.0,
        mutable=True,
        help=_text("""
Hosts whose weight is lower than the best one by at most this count as equally good when
``spread_over_schedulers`` picks among them. 0 spreads over exact ties only. Weights are sums of
multipliers times values between 0 and 1.
"""),
    ),
    cfg.IntOpt(
        "exact_hosts_max",
        default=3,
        min=0,
        max=100000,
        mutable=True,
        help=_text("""
Where no more hosts than this have room for a request, all of them are shown to Nova's own filter classes
before they are weighed, as nova-scheduler does with every host. Where more have room, only the hosts that
are tried are shown. The choice is valid either way; with NUMA or PCI requests the weights are exactly
Nova's only where every host is shown. A host costs about a tenth of a millisecond, with NUMA about two.
"""),
    ),
    cfg.IntOpt(
        "attempts_max",
        default=30,
        min=1,
        max=1000,
        help=_text("""
How many hosts are tried for one server, inside one request, before it fails. A try ends when the
host's agent or Placement refuses it. Nothing of it reaches the conductor.
"""),
    ),
    cfg.IntOpt(
        "request_timeout_s",
        default=50,
        min=1,
        max=1800,
        mutable=True,
        help=_text("""
A request that is not answered this long after its arrival is given up: what it holds is given back
and the conductor is told. Keep it below ``[DEFAULT] long_rpc_timeout``.
"""),
    ),
    cfg.IntOpt(
        "requests_max",
        default=1000,
        min=1,
        max=100000,
        help="Requests under way at once in one process; one more is refused at once.",
    ),
    cfg.FloatOpt(
        "doubt_interval_s",
        default=5.0,
        min=0.0,
        max=3600.0,
        help=_text("""
Before "no valid host" leaves the scheduler because of something that Placement is the authority of,
Placement itself is asked. The same question is put to it at most once within this many seconds.
"""),
    ),
    cfg.IntOpt(
        "refusals_max",
        default=5,
        min=1,
        max=1000,
        help=_text("""
A host that refused this many claims in a row is left alone for ``quarantine_s`` and reported in the
log: its agent and its nova-compute disagree with what they publish.
"""),
    ),
    cfg.FloatOpt(
        "quarantine_s",
        default=30.0,
        min=0.0,
        max=86400.0,
        help="How long a host that refused ``refusals_max`` claims in a row is not chosen.",
    ),
]

STATE = [
    cfg.FloatOpt(
        "verdict_timeout_s",
        default=3.0,
        min=0.1,
        max=60.0,
        help=_text("""
How long the agent of a chosen host has to accept or refuse a claim. After that the claim is taken
back and the next host is tried.
"""),
    ),
    cfg.FloatOpt(
        "agent_silent_after_s",
        default=54.0,
        min=1.0,
        max=3600.0,
        help=_text("""
An agent that was not heard of for this long is silent: its host is then known from the databases and
from Placement only. Agents send a beat every 15 seconds even when nothing changes; the default is three
of them, with their jitter.
"""),
    ),
    cfg.IntOpt(
        "nodes_max",
        default=20_000,
        min=1,
        max=1_000_000,
        help=_text("""
Compute nodes that one scheduler keeps, of all cells together: what bounds its memory, five to ten kB a node.
Nothing is placed on further ones; a warning names this option while there are any.
"""),
    ),
    cfg.FloatOpt(
        "services_poll_interval_s",
        default=1.5,
        min=0.1,
        max=300.0,
        help=_text("""
How often the service records of a cell that are not as they should be (disabled, forced down, not heard
of) are read: one query per cell that finds a handful of rows. A compute that is disabled is not chosen
any more after this time at the latest.
"""),
    ),
    cfg.FloatOpt(
        "changes_poll_interval_s",
        default=3.0,
        min=0.1,
        max=300.0,
        help=_text("""
How often the compute nodes of a cell that nova-compute has reported lately are looked for, while any
host has no agent. Those without an agent are read again. Hosts whose agent is alive cost nothing.
"""),
    ),
    cfg.IntOpt(
        "catch_up_nodes_max",
        default=100,
        min=0,
        max=10000,
        help=_text("""
While no more than so many compute nodes have no agent, what databases and Placement say of them is
looked at before each decision: three queries a cell and one call to Placement, shared by all requests
that wait. With more of them the polling below is all there is. 0 never looks.
"""),
    ),
    cfg.FloatOpt(
        "nodes_poll_interval_s",
        default=10.0,
        min=0.5,
        max=3600.0,
        help="How often the list of compute nodes of a cell is read, for new and removed ones.",
    ),
    cfg.FloatOpt(
        "placement_poll_interval_s",
        default=30.0,
        min=1.0,
        max=3600.0,
        help=_text("""
How often Placement is asked which resource providers changed, while any host has no agent: one call.
"""),
    ),
    cfg.FloatOpt(
        "audit_interval_s",
        default=60.0,
        min=1.0,
        max=86400.0,
        help=_text("""
In this time every host without an agent is read again at least once, from the databases and from
Placement, however quiet it is. Longer where there are more than 1,200 of them.
"""),
    ),
    cfg.FloatOpt(
        "aggregates_read_interval_s",
        default=60.0,
        min=1.0,
        max=86400.0,
        help=_text("""
How often all host aggregates are read from the API database, in case a message about a change was
lost. Changes normally arrive at once.
"""),
    ),
    cfg.StrOpt(
        "signing",
        default="off",
        mutable=True,
        choices=[
            ("off", "messages are not signed, signatures are not looked at"),
            ("warn", "messages are signed; what is not well signed is taken and counted"),
            ("enforce", "messages are signed; what is not well signed is dropped"),
        ],
        help=_text("""
Whether messages between schedulers and agents are signed. The same on both sides; go from off to
enforce by way of warn. With off, the broker's users and permissions are all that protects them.
"""),
    ),
    cfg.StrOpt(
        "signing_keys_file",
        default="",
        mutable=True,
        help=_text("""
File with the keys for ``signing``: lines of ``key-id:hex-secret``, the one that signs first. The same
here and on the hosts; readable for the service only. Read again at SIGHUP.
"""),
    ),
]

PLACEMENT = [
    cfg.IntOpt(
        "placement_writers",
        default=4,
        min=1,
        max=64,
        help=_text("""
Threads that write allocations to Placement, so also the number of writes in flight. What queues up
meanwhile goes out together, at most 16 servers in one write.
"""),
    ),
    cfg.IntOpt(
        "placement_readers",
        default=2,
        min=1,
        max=64,
        help="Threads that ask Placement (candidates of one host, doubtful refusals, one consumer).",
    ),
]

RECORDS = [
    cfg.StrOpt(
        "records_file",
        default="",
        help=_text("""
File to which each decision is appended as one line of JSON: what was asked, what fell to which
reason, the best hosts with their weights, verdicts and times. Each worker adds its number to the
name. Empty: no file; the log has one line a decision in any case.
"""),
    ),
    cfg.IntOpt(
        "records_file_max_mb",
        default=100,
        min=1,
        max=100000,
        help="Size at which ``records_file`` is put aside and a new one begun.",
    ),
    cfg.IntOpt(
        "records_files_kept",
        default=5,
        min=1,
        max=1000,
        help="How many files of ``records_file_max_mb`` are kept, the one in use included.",
    ),
    cfg.StrOpt(
        "records_connection",
        default="",
        secret=True,
        help=_text("""
SQLAlchemy URL of a database for decision records, for example
``sqlite:////var/lib/nova/shared-scheduler.sqlite`` or ``mysql+pymysql://user:password@host/name``.
The table is made when it is missing. Empty: no database.
"""),
    ),
    cfg.IntOpt(
        "records_rows_max",
        default=100000,
        min=100,
        max=100000000,
        help="Decisions kept in ``records_connection``; older ones are deleted.",
    ),
]

ALL = [*PROCESS, *DECIDING, *STATE, *PLACEMENT, *RECORDS]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options known to ``conf``."""
    conf.register_group(GROUP)
    conf.register_opts(ALL, group=GROUP)


def list_opts() -> list[tuple[Any, list[cfg.Opt]]]:
    """For oslo-config-generator (entry point ``oslo.config.opts``)."""
    return [(GROUP, ALL)]

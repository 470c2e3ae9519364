# SPDX-License-Identifier: Apache-2.0
"""The options of ``[shared_scheduler]``.  All other options are Nova's own.

Names end in the unit of their value.  Mutable options are applied again on SIGHUP.
"""

from __future__ import annotations

from typing import Any

from oslo_config import cfg, types

from shared_scheduler.conf.mode import Mode
from shared_scheduler.daemon.telemetry_address import TELEMETRY
from shared_scheduler.decision.alternate_count import ALTERNATES_MAX
from shared_scheduler.decision.decision_settings import SpreadImages
from shared_scheduler.transport.key_options import SIGNING


def _text(help: str) -> str:
    """The text as one paragraph, because the generator of the sample file wraps lines itself."""
    return " ".join(help.split())


GROUP = cfg.OptGroup(
    "shared_scheduler",
    title="Shared-state scheduler",
    help=_text("""
Options of shared-scheduler, which replaces nova-scheduler and decides from memory. It also reads the
configuration of Nova: filters and weighers, Placement, databases, messaging. The defaults of these
options suit a cloud of several thousand hosts.
"""),
)

PROCESS = [
    *TELEMETRY,
    cfg.StrOpt(
        "mode",
        default=Mode.ACTIVE.value,
        choices=[
            (Mode.OBSERVE.value, "receives messages and keeps the table; serves no request and writes nothing"),
            (Mode.SHADOW.value, "passes requests on to nova-scheduler, returns its answers, and compares its own"),
            (Mode.ACTIVE.value, "serves requests"),
        ],
        mutable=True,
        help=_text("""
What the scheduler does with requests; ``observe`` and ``shadow`` are the steps of a first roll-out. In mode
``shadow``, nova-scheduler must run as ``shared-scheduler-stock``; ``shared-scheduler-manage agreement`` shows the
comparison. SIGHUP changes the mode without a restart. If no nova-scheduler answers, the scheduler does not enter
``shadow``.
"""),
    ),
    cfg.IntOpt(
        "workers",
        default=1,
        min=1,
        max=64,
        help=_text("""
Number of scheduler processes on this machine. Each process is a scheduler of its own, with its own copy of
the state of all hosts and its own identity. One process serves several hundred requests a second. More
processes than cores, or more than four, have no benefit. ``[scheduler] workers`` is not read.
"""),
    ),
    cfg.IntOpt(
        "startup_wait_s",
        default=30,
        min=0,
        max=3600,
        help=_text("""
How long the process waits at start for each of these: the API database, the database in ``[database] connection``, the
broker and Placement. After this time it logs which of them does not answer, and exits with status 75, so that the
service manager starts it again. 0 tries once. The databases of cells are read after that; a cell that does not answer
within a minute is left out, and read when it answers.
"""),
    ),
    cfg.IntOpt(
        "drain_timeout_s",
        default=60,
        min=1,
        max=3600,
        help=_text("""
Time between SIGTERM and the end of the process. The process accepts no new requests after SIGTERM. Requests
under way may use four fifths of this time; the rest is for releasing what they hold. Set the timeout of the
service manager to a larger value.
"""),
    ),
    cfg.StrOpt(
        "admin_socket_dir",
        default="/run/shared-scheduler",
        help=_text("""
Directory of the sockets through which ``shared-scheduler-manage`` asks the scheduler processes of this machine for
their state, and orders them to read a host again (``resync``). Do not use it for other sockets. An empty value disables
the sockets. If the directory cannot be created, the scheduler logs a warning and works without sockets.
"""),
    ),
]

DECIDING = [
    cfg.BoolOpt(
        "spread_over_schedulers",
        default=True,
        mutable=True,
        help=_text("""
Schedulers that run side by side prefer, among hosts of (nearly) equal weight, the hosts of a slice of their
own, so that they do not select the same host at the same time. False restores the behaviour of Nova: every
scheduler selects the best host.
"""),
    ),
    cfg.FloatOpt(
        "near_tie",
        default=0.1,
        min=0.0,
        max=100.0,
        mutable=True,
        help=_text("""
Hosts whose weight is below the best weight by at most this value count as equally good when
``spread_over_schedulers`` selects among them. 0 spreads over exact ties only. A weight is the sum of
multipliers times values between 0 and 1. With negative multipliers, which fill one host after the other, few hosts
are equally good, and several schedulers claim the same ones: a value of 2 lets each scheduler fill hosts of its own.
"""),
    ),
    cfg.IntOpt(
        "exact_hosts_max",
        default=3,
        min=0,
        max=100000,
        mutable=True,
        help=_text("""
If at most this many hosts have room for a request, Nova's own filter classes check all of them before they
are weighed, as in nova-scheduler. If more hosts have room, these classes check only the hosts that are tried.
The selected host is valid in both cases. With NUMA or PCI requests, the weights are exactly those of Nova
only if all hosts are checked. A check takes about 0.1 ms per host, with NUMA about 2 ms.
"""),
    ),
    cfg.ListOpt(
        "spread_keys",
        default=[],
        mutable=True,
        help=_text("""
Keys in the metadata of host aggregates over whose values servers may be spread, for example ``rack, room,
availability_zone``. The extra spec or scheduler hint ``shared_scheduler:spread`` of a server names one of these keys;
``spread_image_properties`` allows properties of its image too. Empty: spreading is disabled, and all of these are
ignored.
"""),
    ),
    cfg.StrOpt(
        "spread_image_properties",
        default=SpreadImages.IGNORED.value,
        choices=[
            (SpreadImages.IGNORED.value, "Only flavors and scheduler hints ask for spreading; nothing is read."),
            (SpreadImages.REQUIRED.value, "The request fails with the reason ``image_unread``."),
            (
                SpreadImages.IF_READABLE.value,
                "The request goes on with its flavor and hints only, without the "
                "constraints of its image, also hard ones; the log has a warning, and the record the reason.",
            ),
        ],
        mutable=True,
        help=_text("""
Whether the properties ``shared_scheduler:spread`` and ``shared_scheduler:label`` of an image, which may also be named
``shared_scheduler_spread`` and ``shared_scheduler_label``, ask for spreading as the extra specs of a flavor do, and
what happens if they cannot be read. Users set the properties of their own images. Nova sends a scheduler only the
properties that it knows, so each request reads the API database once, and the database of its cell if the server is
there already. Without effect if ``spread_keys`` is empty.
"""),
    ),
    cfg.FloatOpt(
        "spread_weight_multiplier",
        default=2.0,
        min=-1e9,
        max=1e9,
        mutable=True,
        help=_text("""
Multiplier of the weight by which soft constraints of ``shared_scheduler:spread`` prefer hosts. The default is twice
that of the other weighers, as in Kubernetes. The metadata of an aggregate may set another value for its hosts. A
negative value packs servers together.
"""),
    ),
    cfg.IntOpt(
        "alternates",
        min=0,
        max=ALTERNATES_MAX,
        mutable=True,
        help=_text("""
How many hosts the answer has besides the selected one, for nova-conductor to try when a build fails. The extra spec
``shared_scheduler:alternates`` of a flavor sets another number for its servers. A request for several servers
gets none if either is set. Not set: ``[scheduler] max_attempts`` minus 1, as in Nova, whatever the number of servers.
"""),
    ),
    cfg.IntOpt(
        "attempts_max",
        default=30,
        min=1,
        max=1000,
        help=_text("""
How many hosts are tried for one server within one request before the request fails. An attempt ends when the
agent of the host or Placement refuses it. nova-conductor does not see the attempts.
"""),
    ),
    cfg.IntOpt(
        "request_timeout_s",
        default=50,
        min=1,
        max=1800,
        mutable=True,
        help=_text("""
A request that is not answered this long after its arrival fails. The scheduler releases what the request
holds and answers nova-conductor. At most two seconds less than ``[DEFAULT] long_rpc_timeout`` are used. A
request for many servers must be written to Placement within this time: Placement needs about 10 ms for each
server. If it cannot end in time, it fails with the reason ``no_time``: when it arrives if Placement was
written to in the last 30 seconds, otherwise some seconds after its first writes, which are deleted. Increase
the value if users create more than a thousand servers with one request, or if Placement is slow.
"""),
    ),
    cfg.IntOpt(
        "requests_max",
        default=1000,
        min=1,
        max=100000,
        help="Maximum number of requests under way in one process. Further requests fail at once.",
    ),
    cfg.FloatOpt(
        "recheck_interval_s",
        deprecated_name="doubt_interval_s",
        default=5.0,
        min=0.0,
        max=3600.0,
        help=_text("""
Before a request fails with "no valid host" because of data from Placement, the scheduler asks Placement
itself. It asks the same question at most once within this time. In a cloud of fewer than 1000 hosts, where an
answer costs Placement less, the time is shorter, in proportion to the number of hosts.
"""),
    ),
    cfg.IntOpt(
        "refusals_max",
        default=5,
        min=1,
        max=1000,
        help=_text("""
A host that refuses this many claims in a row is quarantined: for ``quarantine_s`` it is selected only when no
other host takes the claim, and the log names it. The cause is a difference between its nova-compute and the
state that its agent publishes.
"""),
    ),
    cfg.FloatOpt(
        "quarantine_s",
        default=30.0,
        min=0.0,
        max=86400.0,
        help=_text("""
How long a host that refused ``refusals_max`` claims in a row is selected only if no other host takes the claim. So is
a host whose agent is late with a verdict, until the agent answers, but not longer than this time.
"""),
    ),
]

STATE = [
    cfg.FloatOpt(
        "verdict_timeout_s",
        default=3.0,
        min=0.1,
        max=60.0,
        help=_text("""
How long the agent of a selected host may take to accept or refuse a claim. After this time the scheduler
releases the claim, and the host is not selected until its agent is heard. If the agent is not heard for six seconds
more, the host is scheduled from the databases and Placement. If another host passes, the claim is released much
earlier: as soon as the agent takes longer than agents usually do, but not within 180 ms.
"""),
    ),
    cfg.FloatOpt(
        "agent_silent_after_s",
        default=54.0,
        min=1.0,
        max=3600.0,
        help=_text("""
An agent that sends no message for this time is silent. Its host is then scheduled from the databases and
Placement. An agent whose host does not change sends a heartbeat every 43 to 48 seconds; from the 48th second on
it is asked three times whether it is there. The default is 3.6 times heartbeat_interval_s of [compute_agent]:
change both together.
"""),
    ),
    cfg.IntOpt(
        "nodes_max",
        default=20_000,
        min=1,
        max=1_000_000,
        help=_text("""
Maximum number of compute nodes in the memory of one scheduler, all cells together. A node needs five to ten
kB. The scheduler ignores further compute nodes, and logs a warning with the name of this option.
"""),
    ),
    cfg.FloatOpt(
        "services_poll_interval_s",
        default=1.5,
        min=0.1,
        max=300.0,
        help=_text("""
How often the service records of a cell that are disabled, forced down or not up to date are read: one query
per cell, which returns few rows. In addition, the service of a selected host is read before its allocation is
written, so a compute that was disabled since the last poll gets no server.
"""),
    ),
    cfg.FloatOpt(
        "changes_poll_interval_s",
        default=3.0,
        min=0.1,
        max=300.0,
        help=_text("""
How often the compute nodes of a cell that nova-compute has updated are listed, as long as any host has no
agent. Those without an agent are read again. Hosts whose agent is alive cause no further queries.
"""),
    ),
    cfg.IntOpt(
        "catch_up_nodes_max",
        default=100,
        min=0,
        max=10000,
        help=_text("""
If at most this many compute nodes have no agent, their records and providers are read before each decision. That
is three queries per cell and one call to Placement, or one call per such node if less than a hundredth of the
nodes have no agent. All requests that wait share these reads. If more nodes have no agent, only the polls read them. 0
disables these reads.
"""),
    ),
    cfg.FloatOpt(
        "nodes_poll_interval_s",
        default=10.0,
        min=0.5,
        max=3600.0,
        help="How often the list of compute nodes of a cell is read, to find new and removed nodes.",
    ),
    cfg.FloatOpt(
        "placement_poll_interval_s",
        default=30.0,
        min=1.0,
        max=3600.0,
        help=_text("""
How often Placement is asked which resource providers have changed, as long as any host has no agent. That is one
call, or one call per such host if less than a hundredth of the hosts have no agent. Providers of shared storage are
read as often in every cloud.
"""),
    ),
    cfg.FloatOpt(
        "audit_interval_s",
        default=60.0,
        min=1.0,
        max=86400.0,
        help=_text("""
Every host without an agent is read again at least once within this time, from the databases and from
Placement, even if nothing has changed. With more than 1,200 such hosts it takes longer.
"""),
    ),
    cfg.FloatOpt(
        "aggregates_read_interval_s",
        default=60.0,
        min=1.0,
        max=86400.0,
        help=_text("""
How often all host aggregates are read from the API database, in case a message about a change was lost.
Normally changes arrive at once.
"""),
    ),
    *SIGNING,
]

PLACEMENT = [
    cfg.IntOpt(
        "placement_writers",
        default=4,
        min=1,
        max=64,
        help=_text("""
Number of threads that write allocations to Placement, and so the maximum number of writes in flight, besides those
that are sent again after a wait. One more thread only deletes. Allocations that wait are written together, at most 16
servers in one write, and fewer if Placement is slow. A second thread, and any further one, writes when an allocation
has waited for 0.1 s.
"""),
    ),
    cfg.IntOpt(
        "placement_readers",
        default=2,
        min=1,
        max=64,
        help=_text("""
Number of threads that read for requests under way: candidates of one host, single consumers, and the members of
server groups. One more thread asks Placement which hosts fit, before a refusal.
"""),
    ),
    cfg.ListOpt(
        "merged_moves",
        item_type=types.String(choices=["migration", "resize", "live-migration", "evacuation"]),
        default=[],
        help=_text("""
Moves whose allocations are merged with those that others have added to the server meanwhile, for example the bandwidth
of a port that was attached, or an accelerator. The names are the types of Nova's migration records; ``migration`` is a
cold migration. Without merging, and where merging is not safe, such a move fails and changes nothing. The page on
Placement describes when merging is safe.
"""),
    ),
]

RECORDS = [
    cfg.StrOpt(
        "records_file",
        default="$state_path/shared-scheduler/records.jsonl",
        help=_text("""
File to which each record is appended as one line of JSON, above all each decision: the request, the number of hosts
per reason, the best hosts with their weights, verdicts and times. ``shared-scheduler-manage why`` reads it.
``state_path`` is that of Nova. All workers, and other schedulers of this machine, may use the same file. logrotate
may move it. If the file cannot be written, the scheduler goes on; the records that are lost are counted and
logged. Empty: no file; the log has one line per decision in any case.
"""),
    ),
    cfg.IntOpt(
        "records_file_max_mb",
        default=100,
        min=1,
        max=100000,
        help="Size at which ``records_file`` is renamed and a new file is started.",
    ),
    cfg.IntOpt(
        "records_files_kept",
        default=5,
        min=1,
        max=1000,
        help="How many files of ``records_file_max_mb`` are kept, including the current one.",
    ),
    cfg.StrOpt(
        "records_connection",
        default="",
        secret=True,
        help=_text("""
SQLAlchemy URL of a database for records, for example
``sqlite:////var/lib/nova/shared-scheduler.sqlite`` or ``mysql+pymysql://user:password@host/name``. The
scheduler creates its tables, and changes them after an upgrade. Several schedulers may share one database. While it is
down, decisions continue; their records are lost, which is counted and logged. Empty: no database.
"""),
    ),
    cfg.IntOpt(
        "records_rows_max",
        default=100000,
        min=100,
        max=100000000,
        help=_text("""
Maximum number of records in ``records_connection``. Once a minute, the oldest records beyond it are deleted, or moved
to ``records_archive``.
"""),
    ),
    cfg.FloatOpt(
        "records_days_max",
        default=0.0,
        min=0.0,
        max=36500.0,
        help=_text("""
Age in days at which records leave both stores. A file of records leaves as a whole, when its last record has this
age. Therefore a file is also renamed when its first record has a quarter of this age. 0: records leave by size
only.
"""),
    ),
    cfg.StrOpt(
        "records_archive",
        default="",
        help=_text("""
Directory to which records are moved that leave a store, by age or by size. Nothing is deleted there. Files of
``records_file`` keep their name and get the time of their end; rows of ``records_connection`` are appended to
``database.jsonl``. Empty: records that leave are deleted.
"""),
    ),
]

ALL = [*PROCESS, *DECIDING, *STATE, *PLACEMENT, *RECORDS]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options with ``conf``."""
    conf.register_group(GROUP)
    conf.register_opts(ALL, group=GROUP)


def list_opts() -> list[tuple[Any, list[cfg.Opt]]]:
    """The options, for oslo-config-generator (entry point ``oslo.config.opts``)."""
    return [(GROUP, ALL)]

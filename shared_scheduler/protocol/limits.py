# SPDX-License-Identifier: Apache-2.0
"""Every bound of the protocol, with its unit and its reason.

A message that exceeds a bound is refused by the sender (``UnsendableMessage``) and by the receiver
(``RemoteProtocolError``).  The docstring of each buffer states what it drops when it is full.
"""

from __future__ import annotations

from shared_scheduler.protocol.backoff import Backoff

KIB = 1024

# --- bounds of one message ---------------------------------------------------------------------

#: Heartbeat, Leave, Hello, Release, Resync and BuildResult contain a few names and numbers, and a short text; a
#: heartbeat also carries ends of builds (``HEARTBEAT_ENDS_MAX_BYTES``).
SMALL_BODY_MAX_BYTES = 4 * KIB
#: One leaf may be a text of 16 KiB (``cn.cpu_info``) or the static topology of a machine with 1,024
#: CPUs (about 20 KiB), so an increment must hold more than that.  The pipe splits larger increments.
INCREMENT_BODY_MAX_BYTES = 64 * KIB
#: The topology of a claim: two NUMA cells and 24 SR-IOV ports take 17,572 characters.
TOPOLOGY_MAX_CHARS = 48 * KIB
#: The topology, the allocations, and at most 10 KiB of members of a server group.
CLAIM_BODY_MAX_BYTES = 64 * KIB
#: The news of a verdict (``VERDICT_NEWS_MAX_BYTES``) and a refusal in detail.
VERDICT_BODY_MAX_BYTES = 96 * KIB
#: 4,096 consumers of about 180 bytes, and the leaves.
SNAPSHOT_BODY_MAX_BYTES = 1024 * KIB
#: No body of any type is larger; checked before any byte is read.
BODY_MAX_BYTES = SNAPSHOT_BODY_MAX_BYTES

#: Nesting of containers; the value of the leaf itself counts as one.
LEAF_DEPTH_MAX = 8
LEAF_TEXT_MAX_CHARS = 16 * KIB
LEAF_NAME_MAX_CHARS = 255
#: Entries of any list or map, as counted by msgpack.
CONTAINER_LENGTH_MAX = 4096
#: uuids have 36; names of simulated nodes and claim ids are below this as well.
ID_MAX_CHARS = 64
#: Addresses on the bus; AMQP's short string has 255 bytes, and a library fails on a longer one.
ADDRESS_MAX_BYTES = 255
#: Each address begins with this, so that no message makes a program send to a queue of another service.
ADDRESS_PREFIX = "ssched."
#: Host names: with ``ssched.agent.`` they are addresses.
HOST_MAX_BYTES = ADDRESS_MAX_BYTES - len(ADDRESS_PREFIX) - len("agent.")
RESOURCE_CLASS_MAX_CHARS = 255
#: The release of a sender, for example "1.2.3.dev45".
RELEASE_MAX_CHARS = 64
#: The reason for the end of a build, which only people read.
BUILD_REASON_MAX_CHARS = 500
#: Placement's own upper bound of an amount.
AMOUNT_MAX = 2**31 - 1
#: Members of a server group that a claim names; Nova's quota (server_group_members) is 10 by default.  Members that
#: may be on the node come first, because the agent needs those to judge a larger group.
GROUP_MEMBERS_MAX = 256
#: Epochs, sequences and milliseconds.
COUNT_MAX = 2**63 - 1
#: The highest epoch above which a scheduler may ask an agent to go.  Half of the numbers remain for later epochs
#: (compute_agent/epochs.py).  In milliseconds it is the year 146 million.
EPOCH_ASKED_MAX = COUNT_MAX // 2
DIGEST_MAX = 2**64 - 1
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
#: Unknown fields that may follow the known ones (from a newer minor version).
EXTRA_FIELDS_MAX = 16

#: Names of leaves, and names of resource classes, that a process caches (``memo.py``).  A node has some dozens, and
#: most of them are equal on all nodes.
REPEATED_TEXTS_MAX = 16_384

# --- one node --------------------------------------------------------------------------------

LEAVES_PER_NODE_MAX = CONTAINER_LENGTH_MAX
CONSUMERS_PER_NODE_MAX = CONTAINER_LENGTH_MAX
#: Claims that are accepted and that nova-compute does not count yet.
CLAIMS_PER_NODE_MAX = 1024
#: Seconds after which a write to Placement without an answer is not carried out any more: proxies and servers in front
#: of Placement keep a request for at most a minute by default (``timeout server`` of HAProxy, ``Timeout`` of Apache).
#: Until then, schedulers and agents keep the resources of its claim, and a scheduler does not take its consumer record
#: over.  They count this time by their own monotonic clock.
CARRIED_OUT_WITHIN_S = 60.0
#: Seconds after the deadline of a request by which nova-conductor has noted the cell of a server that was placed.
MAPPED_WITHIN_S = 10.0

# --- pipe ------------------------------------------------------------------------------------

#: At most fifty increments per second and node.  Other schedulers do not know of a claim for this time, which matters
#: where all prefer the same few hosts.
FLUSH_INTERVAL_S = 0.02
#: Increments that a resync or a verdict can replay; older ones need a snapshot.
REPLAY_RING_MAX_MESSAGES = 256
REPLAY_RING_MAX_BYTES = 1024 * KIB
VERDICT_NEWS_MAX_MESSAGES = 64
VERDICT_NEWS_MAX_BYTES = 64 * KIB
#: Ends of builds that one heartbeat carries, and the bytes of their own messages; one end always has room.
HEARTBEAT_ENDS_MAX = 16
HEARTBEAT_ENDS_MAX_BYTES = 3 * KIB
#: A heartbeat follows the last change of a node after this time: it reveals that the change was lost.
HEARTBEAT_INTERVAL_S = 15.0
#: Jitter of heartbeats, as a part of the interval.
HEARTBEAT_JITTER = 0.2
#: While a node changes nothing, a heartbeat follows another after this multiple of the interval (48 s), or up to
#: ``QUIET_JITTER`` of it earlier.  It is the longest time after which a lost heartbeat can still be asked for before
#: the node counts as silent.
QUIET_INTERVALS = 3.2
QUIET_JITTER = 0.1

# --- window ----------------------------------------------------------------------------------

#: Early messages that are held for one node.
HELD_MAX_MESSAGES = 64
HELD_MAX_BYTES = 256 * KIB
#: Time to wait for a missing message before a resync is requested.
HOLD_S = 0.1
#: Time for which early messages are held without an answer; after that a snapshot is needed.
GAP_MAX_S = 10.0
#: Time without an answer after which a resync may be requested again.
RESYNC_TIMEOUT_S = 1.0
#: Waits before a resync is requested again.
RESYNC_BACKOFF = Backoff(0.1, 60.0)
#: Time after which a copy with an equal digest is compared again, although no message arrived since: memory may be
#: corrupted, and code may have bugs.
VERIFY_AGAIN_S = 300.0
#: Comparisons of all nodes of a scheduler whose messages are in order; each takes some 0.1 ms.  10,000 nodes need 33
#: a second, and each server that is placed one.  Those beyond it wait for the next heartbeat.
ALL_COMPARISONS_PER_S, ALL_COMPARISONS_BURST = 100.0, 100.0
#: A node without a message for this time is silent (54 s).
SILENT_AFTER_S = 3 * HEARTBEAT_INTERVAL_S * (1 + HEARTBEAT_JITTER)
#: After this part of it (48 s) the agent is asked whether it is there, and so many times in all.
ASKED_AFTER = QUIET_INTERVALS * HEARTBEAT_INTERVAL_S / SILENT_AFTER_S
ASKS_BEFORE_SILENT = 3

#: While messages wait unread, the timers of windows are postponed, because what they wait for may be among these.  It
#: ends after this time, for a scheduler and for each timer, so that a sender which never stops, or only pauses now and
#: then, hides no silent agent.
READ_BEHIND_MAX_S = 300.0
#: Time for which a batch after which further messages waited shows that messages wait, and after which the timer of a
#: window rings again.
READ_BEHIND_PAUSE_S = 5.0

# --- storms ----------------------------------------------------------------------------------

#: Reads of nodes whose agents fall silent, of one scheduler: so many at once, and then so many a second.  One
#: takes two queries and three calls of Placement; when a broker stops, all agents fall silent together, and most are
#: heard again before it is the turn of their nodes.
SILENT_READS_PER_S, SILENT_READS_BURST = 20.0, 100

#: Requests for a resync that wait for their turn, of one scheduler to all nodes together.
SCHEDULER_RESYNCS_PER_S = 200.0
SCHEDULER_RESYNCS_BURST = 50.0
#: Requests of windows that wait for an answer, of one scheduler to all nodes together, and the time for which an
#: unanswered one counts.  An answer takes milliseconds, so this limits the rate only if answers are missing.
RESYNCS_IN_FLIGHT_MAX = 100
RESYNC_PATIENCE_S = 10.0
#: The same of all nodes of one host, so that one host takes few of the places: as many as one window asks for within
#: that time if nobody answers.  Answers free them so soon that a host with a thousand nodes needs no more.
HOST_RESYNCS_IN_FLIGHT_MAX = 6
#: The same of all nodes that no database has, which use no place of others.  There are few, and soon they are listed.
UNLISTED_RESYNCS_IN_FLIGHT_MAX = 10
#: Requests that do not wait for their turn: whether an agent is there, or for another epoch.  Of one host, and of one
#: scheduler to all nodes together, besides ``SCHEDULER_RESYNCS_PER_S``.
HOST_PROMPT_RESYNCS_PER_S, HOST_PROMPT_RESYNCS_BURST = 10.0, 20.0
PROMPT_RESYNCS_PER_S, PROMPT_RESYNCS_BURST = 100.0, 50.0
#: Snapshots that one agent sends.
AGENT_SNAPSHOTS_PER_S = 10.0
AGENT_SNAPSHOTS_BURST = 20.0

#: What one scheduler accepts of a host whose key it has verified.  A host with a hundred claims a second sends a tenth;
#: a scheduler decodes and applies a mebibyte in some ten milliseconds.  What goes beyond is dropped, as if it was lost.
HOST_KIB_PER_S = 1024.0
HOST_BURST_KIB = 8 * 1024
#: A small message may cost as much as this: it may change one of many devices, or providers, of a large row.
HOST_MESSAGE_MIN_KIB = 4.0
#: Hosts of which a scheduler remembers how much they have sent; when there are more, all begin again.
PACED_HOSTS_MAX = 16_384
#: Nodes that no database has shown yet and whose first host a scheduler remembers, and for how long after that host was
#: heard.  A host that floods a scheduler needs minutes to name so many.
FIRST_HOSTS_MAX, FIRST_HOST_S = 65_536, 60.0

# --- signing ---------------------------------------------------------------------------------

KEYS_MAX = 16
KEY_ID_MAX_CHARS = 32
SECRET_MIN_BYTES = 16
SECRET_MAX_BYTES = 256

# SPDX-License-Identifier: Apache-2.0
"""Every bound of the protocol, with its unit and why it is what it is.

A message that passes one of them is refused where it is made (``UnsendableMessage``) and where it
arrives (``RemoteProtocolError``); a buffer that is full says in its docstring what it drops.
"""

from __future__ import annotations

from shared_scheduler.protocol.backoff import Backoff

KIB = 1024

# --- what one message may be -------------------------------------------------------------------

#: Heartbeat, Leave, Hello, Release and Resync hold a few names and numbers.
SMALL_BODY_MAX_BYTES = 4 * KIB
#: One leaf may be a text of 16 KiB (``cn.cpu_info``) or the static topology of a machine with 1,024
#: CPUs (about 20 KiB), so an increment must hold more than that.  The pipe splits what is larger.
INCREMENT_BODY_MAX_BYTES = 64 * KIB
#: The topology of a claim: two NUMA cells and 24 SR-IOV ports take 17,572 characters.
TOPOLOGY_MAX_CHARS = 48 * KIB
#: A topology, allocations, and at most 10 KiB of members of a server group.
CLAIM_BODY_MAX_BYTES = 64 * KIB
#: The news of a verdict (``VERDICT_NEWS_MAX_BYTES``) and a refusal in detail.
VERDICT_BODY_MAX_BYTES = 96 * KIB
#: 4,096 consumers of about 180 bytes, and the leaves.
SNAPSHOT_BODY_MAX_BYTES = 1024 * KIB
#: No body of any kind is larger; checked before any byte is read.
BODY_MAX_BYTES = SNAPSHOT_BODY_MAX_BYTES

#: Containers inside containers, the leaf's own value counted as one.
LEAF_DEPTH_MAX = 8
LEAF_TEXT_MAX_CHARS = 16 * KIB
LEAF_NAME_MAX_CHARS = 255
#: Entries of any list or map, as msgpack counts them.
CONTAINER_LENGTH_MAX = 4096
#: uuids are 36; simulated nodes and claim ids stay below this too.
ID_MAX_CHARS = 64
#: Host names and addresses on the bus (AMQP's short string is 255 bytes).
ADDRESS_MAX_CHARS = 255
RESOURCE_CLASS_MAX_CHARS = 255
#: Placement's own upper bound of an amount.
AMOUNT_MAX = 2**31 - 1
#: Members of a server group that a claim names; Nova's quota (server_group_members) is 10 by default.  Those that
#: may be on the node come first, so that a larger group is judged by what matters there.
GROUP_MEMBERS_MAX = 256
#: Epochs, sequences and milliseconds.
COUNT_MAX = 2**63 - 1
DIGEST_MAX = 2**64 - 1
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
#: How many fields that we do not know may follow the ones that we do (a newer minor version).
EXTRA_FIELDS_MAX = 16

#: Names of leaves and of resource classes, each, that a process remembers (``memo.py``).  A node
#: has some dozens, most of them those of every other node.
REPEATED_TEXTS_MAX = 16_384

# --- one node --------------------------------------------------------------------------------

LEAVES_PER_NODE_MAX = CONTAINER_LENGTH_MAX
CONSUMERS_PER_NODE_MAX = CONTAINER_LENGTH_MAX
#: Claims accepted and not taken over yet.
CLAIMS_PER_NODE_MAX = 1024

# --- pipe ------------------------------------------------------------------------------------

#: At most ten increments a second and node (messaging-and-limits 3.5).
FLUSH_INTERVAL_S = 0.1
#: Increments that a resync or a verdict can replay; what is older is answered by a snapshot.
REPLAY_RING_MAX_MESSAGES = 256
REPLAY_RING_MAX_BYTES = 1024 * KIB
VERDICT_NEWS_MAX_MESSAGES = 64
VERDICT_NEWS_MAX_BYTES = 64 * KIB
HEARTBEAT_INTERVAL_S = 15.0
#: Heartbeats come within this part of the interval before or after it.
HEARTBEAT_JITTER = 0.2

# --- window ----------------------------------------------------------------------------------

#: Early messages held, for one node.
HELD_MAX_MESSAGES = 64
HELD_MAX_BYTES = 256 * KIB
#: How long a missing message may be late before a resync is requested.
HOLD_S = 0.1
#: How long early messages are held while no answer comes; after that a snapshot is needed.
GAP_MAX_S = 10.0
#: An ask for a resync that is unanswered for so long may be repeated.
RESYNC_TIMEOUT_S = 1.0
#: Waits before a resync is requested again.
RESYNC_BACKOFF = Backoff(0.1, 60.0)
#: A copy whose digest was equal is compared again after so long, although no message came since:
#: memory rots too, and code has bugs.
VERIFY_AGAIN_S = 300.0
#: Three heartbeats missed.
SILENT_AFTER_S = 3 * HEARTBEAT_INTERVAL_S * (1 + HEARTBEAT_JITTER)

# --- storms ----------------------------------------------------------------------------------

#: Asks for a resync, all nodes of one scheduler together.
SCHEDULER_RESYNCS_PER_S = 200.0
SCHEDULER_RESYNCS_BURST = 50.0
#: Asks of windows that wait for an answer, all nodes of one scheduler together; one that is not answered counts
#: for so long.  An answer takes milliseconds, so this bounds the rate only where answers fail to come.
RESYNCS_IN_FLIGHT_MAX = 100
RESYNC_PATIENCE_S = 10.0
#: Snapshots that one agent casts or broadcasts.
AGENT_SNAPSHOTS_PER_S = 10.0
AGENT_SNAPSHOTS_BURST = 20.0

# --- signing ---------------------------------------------------------------------------------

KEYS_MAX = 16
KEY_ID_MAX_CHARS = 32
SECRET_MIN_BYTES = 16
SECRET_MAX_BYTES = 256

# SPDX-License-Identifier: Apache-2.0
"""Every bound and delay of the transports, with its unit and why it is what it is."""

from __future__ import annotations

from shared_scheduler.protocol.backoff import Backoff

#: Messages that wait to be sent, for one connection.  A scheduler casts some hundreds a second, an
#: agent broadcasts ten.
OUTBOX_MAX_MESSAGES = 10_000
#: A message that waited so long for a broker is of no use any more.
OUTBOX_MAX_AGE_S = 30.0

#: Messages on their way to the broker that it has not confirmed: sent again after a loss.
PUBLISH_MAX_MESSAGES = 64

#: What the broker keeps for a scheduler that does not read, oldest dropped first: 200 seconds of
#: 1,000 messages a second.
SCHEDULER_QUEUE_MAX_MESSAGES = 200_000
SCHEDULER_QUEUE_MAX_BYTES = 256 * 1024 * 1024
#: The same for an agent: claims and resyncs, which are soon too old.
AGENT_QUEUE_MAX_MESSAGES = 10_000
AGENT_QUEUE_MAX_BYTES = 64 * 1024 * 1024

#: A batch handed to ``receive`` ends with so many messages, or after so long.
BATCH_MAX_MESSAGES = 256
BATCH_MAX_S = 0.005

#: AMQP heartbeat that we propose; a broker that is gone is noticed within twice this.
AMQP_HEARTBEAT_S = 30
#: How long a connect may take, and how long the broker may take to confirm what was sent.
CONNECT_TIMEOUT_S = 5.0
CONFIRM_TIMEOUT_S = 10.0
#: How long it may take to answer anything else: a declaration, a binding.
ANSWER_TIMEOUT_S = 60.0
#: How long its answer to a farewell is waited for; a broker that hangs has none.
FAREWELL_TIMEOUT_S = 2.0
#: Waits before a connection is tried again.
RECONNECT_BACKOFF = Backoff(0.2, 10.0, least=0.5)
#: Waits before a queue that another consumer holds is tried again.
REFUSED_BACKOFF = Backoff.between(1.0, 2.0)
#: Queues of a shared link that are declared between two reads.
SEATS_PER_TURN = 50
#: How often a thread looks up from waiting, for heartbeats and for the end.
IDLE_S = 0.5
#: Bindings are declared again at this interval, so that a deleted exchange is created again.
REBIND_S = 60.0
#: ``close`` flushes the outbox for at most this long, and waits as long again for its threads.
CLOSE_FLUSH_S = 2.0

#: Messages on their way inside a MemoryBus; the oldest are dropped beyond.
MEMORY_FLIGHT_MAX_MESSAGES = 200_000

# SPDX-License-Identifier: Apache-2.0
"""The bounds and delays of the transports, with units and reasons."""

from __future__ import annotations

from shared_scheduler.protocol.backoff import Backoff

#: Messages of one connection that wait to be sent.  A scheduler casts some hundreds a second, an agent broadcasts ten.
OUTBOX_MAX_MESSAGES = 10_000
#: A message that has waited for this time for a broker is not useful any more.
OUTBOX_MAX_AGE_S = 30.0

#: Unconfirmed messages at the broker: sent again after a loss of the connection.
PUBLISH_MAX_MESSAGES = 64

#: The number of messages that the broker stores for a scheduler that does not read, oldest dropped first: 200 seconds
#: of 1,000 messages a second.
SCHEDULER_QUEUE_MAX_MESSAGES = 200_000
SCHEDULER_QUEUE_MAX_BYTES = 256 * 1024 * 1024
#: The same for an agent: claims and resyncs, which become useless soon.
AGENT_QUEUE_MAX_MESSAGES = 10_000
AGENT_QUEUE_MAX_BYTES = 64 * 1024 * 1024

#: A batch for ``receive`` ends at this number of messages, or after this time.
BATCH_MAX_MESSAGES = 256
BATCH_MAX_S = 0.005

#: What one read of a socket takes at most if less is wanted.  A larger buffer costs more when frames are cut from it.
READ_AHEAD_BYTES = 16 * 1024

#: A scheduler that has cast nothing for ``EAGER_S`` lets messages gather for ``GATHER_S`` before it reads them.
EAGER_S = 2.0
GATHER_S = 0.05

#: The AMQP heartbeat that is proposed to the broker; a lost broker is noticed within twice this time.
AMQP_HEARTBEAT_S = 30
#: The time limit of a connect, and of the broker's confirmation of messages.
CONNECT_TIMEOUT_S = 5.0
CONFIRM_TIMEOUT_S = 10.0
#: The time limit of any other answer: a declaration, a binding.
ANSWER_TIMEOUT_S = 60.0
#: The time limit of its answer when the connection is closed; a broker that hangs sends none.
FAREWELL_TIMEOUT_S = 2.0
#: Waits before a connection is tried again.
RECONNECT_BACKOFF = Backoff(0.2, 10.0, least=0.5)
#: Waits before a queue that another consumer holds is tried again.
REFUSED_BACKOFF = Backoff.between(1.0, 2.0)
#: Queues of a shared link that are declared between two reads.
SUBSCRIPTIONS_PER_READ = 50
#: How long a listener of oslo.messaging waits for a request before it looks for other work: to end its consumers.
RPC_WAIT_S = 1.0
#: The interval at which a waiting thread checks for heartbeats and for the end.
IDLE_S = 0.5
#: Bindings are declared again at this interval, so that a deleted exchange is created again.  Each wait is longer or
#: shorter by up to a half, so that participants that connected at the same moment do not declare together.
SCHEDULER_REBIND_S = 60.0
#: An agent whose binding is deleted misses only what schedulers say to all agents, and is asked alone then.  With 60 s,
#: the bindings of 10,000 agents took two fifths of what RabbitMQ uses without requests.
AGENT_REBIND_S = 600.0
#: ``close`` flushes the outbox for at most this time, and waits for its threads for the same time.
CLOSE_FLUSH_S = 2.0

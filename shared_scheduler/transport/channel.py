# SPDX-License-Identifier: Apache-2.0
"""One end of a state channel, for agents and schedulers: sends and receives messages instead of bytes.

A body that is malformed, oversized or not signed as configured is dropped before any part of it is used, counted by
kind, and logged once for each kind within an interval.  A message that is accepted without a valid signature is counted
too, and logged once for each sender.  If host keys verify the sender, a message that this sender may not send, or that
exceeds what is accepted of one host, is dropped, and the log names the sender.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from cachetools import TTLCache

from shared_scheduler.protocol import codec, limits
from shared_scheduler.protocol.errors import (
    KnownSenderError,
    RemoteProtocolError,
    SenderTooFast,
    UnknownSender,
    UnsendableMessage,
    WrongSender,
)
from shared_scheduler.protocol.host_keys import HostKeys, HostKeysMode, Kind, VerifiedSender, may_send
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Message,
    Release,
    Resync,
    Snapshot,
    Verdict,
    agent_address,
    is_for_agents,
    must_be_heard,
)
from shared_scheduler.protocol.rate_limits import TokenBuckets
from shared_scheduler.protocol.signing import Signer
from shared_scheduler.transport.bus import ConnectionChanged, Endpoint
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

LOG = logging.getLogger(__name__)

KINDS = (BuildResult, Heartbeat, Claim, Leave, Hello, Increment, Release, Resync, Snapshot, Verdict)
#: names of the counters of received messages, and of those that were sent; a broadcast is sent once
RECEIVED: Mapping[type[Message], str] = {kind: f"received_{kind.__name__.lower()}" for kind in KINDS}
SENT: Mapping[type[Message], str] = {kind: f"sent_{kind.__name__.lower()}" for kind in KINDS}

AGENT_PREFIX = agent_address("")
ADDRESS_SHOWN_MAX = 50

#: Called with the messages that arrived, oldest first, by one thread at a time; without any if all of a batch were
#: rejected and others wait behind them.
ReceiveMessages = Callable[[Sequence[Message]], None]

#: Called with a cast that nobody received, by any thread.
MessageReturned = Callable[[Message], None]


class Channel:
    """Owns the endpoint.  Any thread may send; the endpoint's thread receives.

    ``name`` is for logs.  ``counters``: one for each kind of message that arrived (``RECEIVED``) and that was sent
    (``SENT``), ``messages_rejected`` in total and one for each kind of rejected body (names of the errors of
    ``protocol/errors.py``), ``tolerated`` (accepted without a valid signature), ``without_host_key`` (accepted although
    the sender is not known), ``unsendable``, ``outbox_full``, ``returned`` (casts that nobody received).  ``host_of``:
    the host that the database has for a node, empty if it is not known; schedulers set it.  As long as it is empty, the
    node is of the verified host that named it first, because some messages name no host.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        signer: Signer | None = None,
        name: str = "State channel",
        clock: Callable[[], float] = time.monotonic,
        host_keys: HostKeys | None = None,
    ) -> None:
        self.name = name
        self.counters: Counter[str] = Counter()
        self.connected = False
        self._clock = clock
        self._changed_at_s = clock()
        self._heard_at_s: float | None = None
        self._endpoint = endpoint
        self._signer = signer or Signer()
        self.host_keys = host_keys or HostKeys()
        self.host_of: Callable[[str], str] = lambda node: ""
        self._log = RateLimitedLog(LOG, clock)
        self._tolerated_log = RateLimitedLog(LOG, clock)  # of its own, because anybody can invent these senders
        self._paces = TokenBuckets(limits.HOST_KIB_PER_S, limits.HOST_BURST_KIB, limits.PACED_HOSTS_MAX)
        self._first_hosts = TTLCache[str, str](limits.FIRST_HOSTS_MAX, limits.FIRST_HOST_S, clock)
        self._received: ReceiveMessages = lambda messages: None
        self._changed: ConnectionChanged = lambda connected: None
        self._returned: MessageReturned = lambda message: None

    @property
    def address(self) -> str:
        """The destination of messages for this end of the channel."""
        return self._endpoint.address

    @property
    def in_state_s(self) -> float:
        """How long the channel has been connected, or not connected."""
        return self._clock() - self._changed_at_s

    @property
    def heard_ago_s(self) -> float | None:
        """Age of the last message that was accepted; None before the first one."""
        return None if self._heard_at_s is None else self._clock() - self._heard_at_s

    @property
    def has_more(self) -> bool:
        """Whether further messages wait unread behind those that are being delivered."""
        return self._endpoint.has_more

    def start(
        self, received: ReceiveMessages, changed: ConnectionChanged, returned: MessageReturned | None = None
    ) -> None:
        """Connect in the background, and begin to deliver.  Returns at once."""
        self._received, self._changed = received, changed
        self._returned = returned or self._returned
        self._endpoint.start(self._receive, self._connection_changed)

    def cast(self, address: str, message: Message) -> None:
        """Send to one endpoint.  Never blocks; one that does not fit, or has no address, is dropped and counted."""
        if not _is_address(address):
            what = f"{address[:ADDRESS_SHOWN_MAX]!r} is no address of this channel"
            self._count_and_log("unsendable", "address", what)
            return
        host = address.removeprefix(AGENT_PREFIX)  # a host for TO_AGENT; schedulers verify the host of the agent
        returned = partial(self._came_back, message) if must_be_heard(message) else None
        self._send(message, Kind.TO_AGENT, host, lambda body: self._endpoint.cast(address, body, returned))

    def _came_back(self, message: Message) -> None:
        self.counters["returned"] += 1
        self._returned(message)

    def broadcast(self, message: Message) -> None:
        """Send to all other schedulers, and to all agents if the message requires something of them."""
        if is_for_agents(message):
            self._send(message, Kind.BROADCAST, "", self._endpoint.broadcast)
        else:
            self._send(message, Kind.SCHEDULERS, "", self._endpoint.broadcast_to_schedulers)

    def close(self) -> None:
        """Flush and stop."""
        self._endpoint.close()

    def _send(self, message: Message, kind: Kind, host: str, put: Callable[[bytes], bool]) -> None:
        try:
            body = self.host_keys.seal(kind, self._signer.seal(codec.encode(message)), host)
        except UnsendableMessage as error:
            self._count_and_log("unsendable", type(message).__name__, f"a message is not sent: {error}")
            return
        if put(body):
            self.counters[SENT[type(message)]] += 1
        else:
            self.counters["outbox_full"] += 1

    def _receive(self, bodies: Sequence[bytes]) -> None:
        messages = [message for body in bodies if (message := self._decoded(body)) is not None]
        for message in messages:
            self.counters[RECEIVED[type(message)]] += 1
        if messages:
            self._heard_at_s = self._clock()
        if messages or self.has_more:
            self._received(messages)

    def _decoded(self, data: bytes) -> Message | None:
        try:
            content, sender, problem = self.host_keys.open(data)
            if sender is None:
                return self._of_unknown_sender(content, problem)
            self._check_pace(sender, len(data))
            message = codec.decode(self._signer.body_of(content))
            self._check_sender(sender, message)
            return message
        except RemoteProtocolError as error:
            self.counters["messages_rejected"] += 1
            about = error.sender if isinstance(error, KnownSenderError) else ""
            self._count_and_log(type(error).__name__, about, f"a message is dropped: {error}")
            return None

    def _of_unknown_sender(self, content: bytes, problem: str) -> Message:
        if self.host_keys.mode is HostKeysMode.REQUIRE:
            raise UnknownSender(problem)
        tolerated = self._signer.tolerated
        message = codec.decode(self._signer.open(content))
        if self.host_keys.mode is HostKeysMode.ACCEPT:
            self._tolerate("without_host_key", message, f"is accepted because of host_keys = accept: {problem}")
        if self._signer.tolerated > tolerated:
            self._tolerate("tolerated", message, "has no valid signature; it is accepted because of signing = warn")
        return message

    def _tolerate(self, counter: str, message: Message, what: str) -> None:
        sender = sender_of(message)
        self._count_and_log(counter, sender, f"a message from {sender} {what}", self._tolerated_log)

    def _check_pace(self, sender: VerifiedSender, size_bytes: int) -> None:
        """Drop a message of a host that sends too much, before it is decoded.

        :raises SenderTooFast: when it does
        """
        if not sender.host:
            return
        size_kib = max(limits.HOST_MESSAGE_MIN_KIB, size_bytes / limits.KIB)
        if not self._paces.take(sender.host, self._clock(), size_kib):
            raise SenderTooFast(f"{sender} sends more than {limits.HOST_KIB_PER_S:.0f} KiB per second", str(sender))

    def _check_sender(self, sender: VerifiedSender, message: Message) -> None:
        """Drop a message that its sender may not send.

        :raises WrongSender: when it may not; the error names the sender
        """
        kind = type(message).__name__
        if not may_send(sender, message):
            raise WrongSender(f"{sender} has sent a {kind} in the name of {sender_of(message)}", str(sender))
        if not sender.host:
            return
        owner = self.host_of(message.node) or self._first_host(message.node, sender.host)
        if owner != sender.host:
            raise WrongSender(f"{sender} has sent a {kind} of node {message.node}, of host {owner}", str(sender))

    def _first_host(self, node: str, host: str) -> str:
        """The host that has named an unlisted node first; a host that is heard keeps its nodes."""
        first = self._first_hosts.get(node, host)
        if first == host and node:  # a Hello may name none
            self._first_hosts[node] = host
        return first

    def _connection_changed(self, connected: bool) -> None:
        if connected != self.connected:
            self._changed_at_s = self._clock()
        self.connected = connected
        LOG.info("%s is %s", self.name, "up" if connected else "down")
        self._changed(connected)

    def _count_and_log(self, counter: str, about: str, what: str, log: RateLimitedLog | None = None) -> None:
        self.counters[counter] += 1
        number = self.counters[counter]
        line = "%s: %s (%d of this kind so far)"
        (log or self._log).write(logging.WARNING, (counter, about), line, self.name, what, number)


def _is_address(address: str) -> bool:
    """Whether AMQP can carry it and no other service has this queue; messages and databases name addresses."""
    return address.startswith(limits.ADDRESS_PREFIX) and len(address.encode()) <= limits.ADDRESS_MAX_BYTES


def sender_of(message: Message) -> str:
    """The sender that a message names: an address or a node."""
    match message:
        case Hello(sender=sender):
            return sender
        case Claim(scheduler=scheduler) | Release(scheduler=scheduler) | Resync(scheduler=scheduler):
            return scheduler
        case _:
            return message.node

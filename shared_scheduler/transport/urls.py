# SPDX-License-Identifier: Apache-2.0
"""Converts ``transport_url`` and ``[oslo_messaging_rabbit]`` to kombu's connection arguments.

``rabbit://user:password@host:5672,user:password@host2:5672/vhost?ssl=1``: oslo.messaging's ``TransportURL``
parses it, and an option in its query overrides the same option of the configuration, as with Nova's own
connections.  Brokers are tried in a random order, so that the agents of a cell spread over a cluster.
``memory://`` is kombu's own in-process broker, for tests of the adapter.

Reference: ``oslo_messaging/transport.py`` and ``_drivers/impl_rabbit.py`` of oslo.messaging.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import cycle
from random import Random
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_messaging import opts as messaging_opts
from oslo_utils import strutils

RABBIT_GROUP = "oslo_messaging_rabbit"
#: The schemes of a transport URL that mean RabbitMQ, and kombu's own broker inside a process.
RABBIT_SCHEMES = ("rabbit", "kombu", "amqp", "amqps", "pyamqp")
MEMORY_SCHEMES = ("memory", "kombu+memory")
#: The host of a URL without one, such as Nova's default ``rabbit://``.
DEFAULT_HOST = "localhost"
DEFAULT_PORT = 5672
#: for ``amqps://`` only: with ``ssl = true``, oslo.messaging uses ``DEFAULT_PORT``
DEFAULT_AMQPS_PORT = 5671
PORT_MAX = 65535
#: The virtual host of a URL without one, in Nova and RabbitMQ.
DEFAULT_CREDENTIAL = "guest"
EXAMPLE = "rabbit://user:password@host:5672/vhost"


class TransportUrlError(ValueError):
    """The URL or its options cannot be used.  The text contains the error and the remedy, and no secret."""


@dataclass(frozen=True, slots=True)
class RabbitOptions:
    """The connection options of ``[oslo_messaging_rabbit]``, with the names of oslo.messaging."""

    ssl: bool = False
    ssl_version: str = ""
    ssl_ca_file: str = ""
    ssl_cert_file: str = ""
    ssl_key_file: str = ""
    #: how the next broker is selected after a failure: "round-robin" or "shuffle"
    kombu_failover_strategy: str = "round-robin"

    def overridden(self, query: Mapping[str, str]) -> RabbitOptions:
        """These options, overridden by the query of a URL.

        :raises TransportUrlError: when a value cannot be used
        """
        found: dict[str, Any] = {one.name: query[one.name] for one in fields(self) if one.name in query}
        if "ssl" in found:
            found["ssl"] = strutils.bool_from_string(found["ssl"], default=self.ssl)
        if found.get("kombu_failover_strategy", "shuffle") not in ("round-robin", "shuffle"):
            raise TransportUrlError("transport_url: kombu_failover_strategy must be round-robin or shuffle")
        return replace(self, **found)

    def for_amqp(self, host: str) -> dict[str, Any]:
        """The ``ssl`` argument of an AMQP connection to ``host``, whose certificate must be valid for that name.

        Without ``ssl_ca_file`` nothing is verified, as in oslo.messaging.
        """
        given: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE}
        if self.ssl_ca_file:
            given = {
                "ca_certs": self.ssl_ca_file,
                "cert_reqs": ssl.CERT_REQUIRED,
                "server_hostname": host,
            }
        if self.ssl_version:
            given["ssl_version"] = protocol_of(self.ssl_version)
        if self.ssl_cert_file:
            given["certfile"] = self.ssl_cert_file
        if self.ssl_key_file:
            given["keyfile"] = self.ssl_key_file
        return given


@dataclass(frozen=True, slots=True)
class BrokerHost:
    """One broker of a cluster."""

    name: str
    port: int
    user: str = DEFAULT_CREDENTIAL
    password: str = field(default=DEFAULT_CREDENTIAL, repr=False)

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """The data of all connections.  ``transport`` is kombu's name."""

    transport: str
    hosts: tuple[BrokerHost, ...]
    virtual_host: str
    options: RabbitOptions = RabbitOptions()

    def __str__(self) -> str:
        """The text for logs, without users and passwords."""
        if self.transport == "memory":
            return "memory://"
        return f"rabbit://{','.join(map(str, self.hosts))}/{self.virtual_host.removeprefix('/')}"

    def connections(self, rng: Random) -> Iterator[dict[str, Any]]:
        """Arguments of ``kombu.Connection`` for each attempt, without end.

        The first broker is selected at random.  The next ones follow ``kombu_failover_strategy``: in turn, or at
        random.
        """
        if self.transport == "memory":
            yield from cycle([{"transport": "memory", "virtual_host": self.virtual_host}])
        hosts = rng.sample(self.hosts, len(self.hosts))
        while True:
            yield from map(self._connection, hosts)
            if self.options.kombu_failover_strategy == "shuffle":
                rng.shuffle(hosts)

    def _connection(self, host: BrokerHost) -> dict[str, Any]:
        return {
            "transport": self.transport,
            "hostname": host.name,
            "port": host.port,
            "userid": host.user,
            "password": host.password,
            "virtual_host": self.virtual_host,
            "ssl": self.options.for_amqp(host.name) if self.options.ssl else False,
        }


def register_messaging_options(conf: Any) -> None:
    """Register ``transport_url`` and ``[oslo_messaging_rabbit]``; harmless if they are registered already."""
    for group, options in messaging_opts.list_opts():
        if group in (None, RABBIT_GROUP):
            conf.register_opts(options, group=group)


def rabbit_options(conf: Any) -> RabbitOptions:
    """The options of ``[oslo_messaging_rabbit]`` in a configuration that was read.

    :raises TransportUrlError: when ``ssl_version`` is unknown
    """
    register_messaging_options(conf)
    found = RabbitOptions(**{name: conf[RABBIT_GROUP][name] for name in asdict(RabbitOptions())})
    if found.ssl_version:
        protocol_of(found.ssl_version)
    return found


def names_rabbit(url: str) -> bool:
    """Whether the URL has a scheme of RabbitMQ; the rest of it may be invalid."""
    return url.partition("://")[0].lower() in RABBIT_SCHEMES


def parse_transport_url(url: str, options: RabbitOptions | None = None) -> BrokerUrl:
    """Parse a transport URL.  ``options`` are those of the configuration (``rabbit_options``).

    :raises TransportUrlError: when it cannot be used
    """
    if "://" not in url:
        raise TransportUrlError(f"transport_url has no scheme; write {EXAMPLE}")
    parsed = _parsed(url)
    if parsed.transport in MEMORY_SCHEMES:
        return BrokerUrl("memory", (), "/")
    if not names_rabbit(url):
        raise TransportUrlError(
            f"transport_url has scheme {parsed.transport!r}; the state channel needs RabbitMQ: write {EXAMPLE}"
        )
    secure = parsed.transport == "amqps"
    chosen = options or RabbitOptions()
    chosen = (replace(chosen, ssl=True) if secure else chosen).overridden(parsed.query)
    port = DEFAULT_AMQPS_PORT if secure else DEFAULT_PORT
    hosts = tuple(_host(host, port) for host in parsed.hosts) or (BrokerHost(DEFAULT_HOST, port),)
    return BrokerUrl("pyamqp", hosts, parsed.virtual_host or "/", chosen)


def _parsed(url: str) -> oslo_messaging.TransportURL:
    """Parsed by oslo.messaging, whose errors may contain a part of a password."""
    try:
        return oslo_messaging.TransportURL.parse(cfg.ConfigOpts(), url)
    except (ValueError, oslo_messaging.InvalidTransportURL):
        raise _bad_host() from None


def _bad_host() -> TransportUrlError:
    """Nothing of the URL is quoted, because the text in the place of a host may be a part of a password."""
    return TransportUrlError(
        f"transport_url has a host or port that cannot be parsed; write {EXAMPLE}, and percent-encode "
        "/ ? # and @ in user and password (%2F %3F %23 %40)"
    )


def _host(host: oslo_messaging.TransportHost, default_port: int) -> BrokerHost:
    port = default_port if host.port is None else host.port
    if not host.hostname or not 0 < port <= PORT_MAX:
        raise _bad_host()
    user, password = host.username or DEFAULT_CREDENTIAL, host.password or DEFAULT_CREDENTIAL
    return BrokerHost(host.hostname, port, user, password)


def protocol_of(ssl_version: str) -> int:
    """The constant of Python's ``ssl`` for a value of ``ssl_version``.

    :raises TransportUrlError: when this Python has no such protocol
    """
    wanted = f"PROTOCOL_{ssl_version}".lower()
    for name in dir(ssl):
        if name.startswith("PROTOCOL_") and name.lower() == wanted:
            return int(getattr(ssl, name))
    raise TransportUrlError(
        f"[oslo_messaging_rabbit] ssl_version = {ssl_version} is unknown to this Python; leave it empty"
    )

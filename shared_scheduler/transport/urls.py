# SPDX-License-Identifier: Apache-2.0
"""From the transport URL that operators know (oslo.messaging's) to what kombu connects to.

``rabbit://user:password@host:5672,user:password@host2:5672/vhost?ssl=1``: several hosts, percent
escapes, IPv6 in brackets, no virtual host meaning ``/``.  ``memory://`` is kombu's own in-process
broker, for tests of the adapter.  Plain strings in, no oslo.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

DEFAULT_PORT = 5672
DEFAULT_TLS_PORT = 5671
RABBIT_SCHEMES = ("rabbit", "kombu", "amqp", "amqps", "pyamqp")
MEMORY_SCHEMES = ("memory", "kombu+memory")


class TransportUrlError(ValueError):
    """The URL cannot be used; says what is wrong and what to do, without the password."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS to the broker; empty texts where a file is not given.  The broker's certificate is
    checked where ``ca_file`` is given, as oslo.messaging does."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def for_amqp(self) -> dict[str, Any]:
        """The ``ssl`` argument of an AMQP connection."""
        options: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE}
        if self.ca_file:
            options = {"ca_certs": self.ca_file, "cert_reqs": ssl.CERT_REQUIRED}
        if self.cert_file:
            options["certfile"] = self.cert_file
        if self.key_file:
            options["keyfile"] = self.key_file
        return options


@dataclass(frozen=True, slots=True)
class BrokerHost:
    """One broker of a cluster."""

    name: str
    port: int
    user: str = "guest"
    password: str = field(default="guest", repr=False)

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """All that is needed to connect.  ``transport`` is kombu's name."""

    transport: str
    hosts: tuple[BrokerHost, ...]
    virtual_host: str
    tls: TlsOptions | None = None

    def __str__(self) -> str:
        """For logs: without users and passwords."""
        if self.transport == "memory":
            return "memory://"
        return f"rabbit://{','.join(map(str, self.hosts))}/{self.virtual_host.removeprefix('/')}"

    def connect_arguments(self, attempt: int) -> dict[str, Any]:
        """Arguments of ``kombu.Connection`` for this attempt: each tries the next host."""
        if self.transport == "memory":
            return {"transport": "memory", "virtual_host": self.virtual_host}
        host = self.hosts[attempt % len(self.hosts)]
        return {
            "transport": self.transport,
            "hostname": host.name,
            "port": host.port,
            "userid": host.user,
            "password": host.password,
            "virtual_host": self.virtual_host,
            "ssl": self.tls.for_amqp() if self.tls is not None else False,
        }


def parse_transport_url(url: str, tls: TlsOptions | None = None) -> BrokerUrl:
    """Understand a transport URL.  ``tls``: what ``[oslo_messaging_rabbit] ssl`` says, None if off;
    ``?ssl=1`` and ``amqps://`` turn it on by themselves.  Raises TransportUrlError."""
    if "://" not in url:
        raise TransportUrlError(
            "transport_url has no scheme; write rabbit://user:password@host:5672/vhost"
        )
    parts = _parts(url)
    if parts.scheme in MEMORY_SCHEMES:
        return BrokerUrl("memory", (), "/")
    if parts.scheme not in RABBIT_SCHEMES:
        raise TransportUrlError(
            f"transport_url has scheme {parts.scheme!r}; the state channel needs RabbitMQ: "
            "write rabbit://user:password@host:5672/vhost"
        )
    tls = _tls(parts.scheme, parse_qs(parts.query), tls)
    default_port = DEFAULT_PORT if tls is None else DEFAULT_TLS_PORT
    hosts = _hosts(parts, default_port)
    if not hosts:
        raise TransportUrlError(
            "transport_url names no host; write rabbit://user:password@host:5672/"
        )
    return BrokerUrl("pyamqp", hosts, unquote(parts.path.removeprefix("/")) or "/", tls)


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # brackets that do not match
        raise TransportUrlError(
            f"transport_url is no URL ({error}); write rabbit://user:password@host:5672/vhost"
        ) from error


def _hosts(parts: SplitResult, default_port: int) -> tuple[BrokerHost, ...]:
    try:
        return tuple(_host(text, default_port) for text in parts.netloc.split(",") if text)
    except TransportUrlError:
        if "@" in parts.netloc or "@" not in parts.path + parts.query + parts.fragment:
            raise
        raise TransportUrlError(  # what was taken for a host is half of the password
            "transport_url has / ? or # in its user or password; percent-escape them: %2F %3F %23"
        ) from None


def _tls(scheme: str, query: Mapping[str, list[str]], tls: TlsOptions | None) -> TlsOptions | None:
    asked = query.get("ssl", [""])[-1].lower()
    if asked in ("0", "false", "no", "off"):
        return None
    if tls is None and (scheme == "amqps" or asked in ("1", "true", "yes", "on")):
        return TlsOptions(
            ca_file=query.get("ssl_ca_file", [""])[-1],
            cert_file=query.get("ssl_cert_file", [""])[-1],
            key_file=query.get("ssl_key_file", [""])[-1],
        )
    return tls


def _host(text: str, default_port: int) -> BrokerHost:
    credentials, _, address = text.rpartition("@")
    user, _, password = credentials.partition(":")
    name, port = _name_and_port(address, default_port)
    if not credentials:
        return BrokerHost(name, port)
    return BrokerHost(name, port, unquote(user), unquote(password))


def _name_and_port(address: str, default_port: int) -> tuple[str, int]:
    if address.startswith("["):  # IPv6
        name, _, rest = address[1:].partition("]")
        digits = rest.removeprefix(":")
    else:
        name, _, digits = address.partition(":")
    if not name or (
        digits and not (digits.isascii() and digits.isdigit() and 0 < int(digits) < 65536)
    ):
        raise TransportUrlError(f"transport_url has host {address!r}; write host:port")
    return name, int(digits) if digits else default_port

# SPDX-License-Identifier: Apache-2.0
"""The transport_url that operators have in nova.conf is the one that works here."""

from __future__ import annotations

import ssl

import pytest

from shared_scheduler.transport.urls import (
    BrokerHost,
    TlsOptions,
    TransportUrlError,
    parse_transport_url,
)


def test_the_usual_url() -> None:
    url = parse_transport_url("rabbit://nova:s3cret@controller:5673/cell1")
    assert url.hosts == (BrokerHost("controller", 5673, "nova", "s3cret"),)
    assert (url.transport, url.virtual_host, url.tls) == ("pyamqp", "cell1", None)


@pytest.mark.parametrize(
    "text", ["rabbit://controller", "rabbit://controller/", "rabbit://controller//"]
)
def test_no_virtual_host_is_the_root(text: str) -> None:
    url = parse_transport_url(text)
    assert url.virtual_host == "/"
    assert url.hosts == (BrokerHost("controller", 5672, "guest", "guest"),)


def test_a_cluster_is_tried_host_by_host() -> None:
    url = parse_transport_url("rabbit://a:b@one:5672,c:d@two:5673,a:b@three/v")
    tried = [url.connect_arguments(attempt) for attempt in range(4)]
    assert [(t["hostname"], t["port"], t["userid"]) for t in tried] == [
        ("one", 5672, "a"),
        ("two", 5673, "c"),
        ("three", 5672, "a"),
        ("one", 5672, "a"),
    ]


def test_escapes_and_ipv6() -> None:
    url = parse_transport_url("rabbit://us%40er:p%2Fa%3Ass@[2001:db8::1]:5671/%2Fnova")
    assert url.hosts == (BrokerHost("2001:db8::1", 5671, "us@er", "p/a:ss"),)
    assert url.virtual_host == "/nova"
    assert str(url) == "rabbit://[2001:db8::1]:5671/nova"


def test_nothing_secret_is_ever_printed() -> None:
    url = parse_transport_url("rabbit://nova:s3cret@controller/cell1")
    assert "s3cret" not in f"{url} {url!r}"
    assert str(url) == "rabbit://controller:5672/cell1"


def test_tls_by_option_checks_the_certificate_where_an_authority_is_given() -> None:
    url = parse_transport_url("rabbit://h/", TlsOptions("ca.pem", "cert.pem", "key.pem"))
    assert url.connect_arguments(0)["ssl"] == {
        "ca_certs": "ca.pem",
        "cert_reqs": ssl.CERT_REQUIRED,
        "certfile": "cert.pem",
        "keyfile": "key.pem",
    }
    assert url.connect_arguments(0)["port"] == 5671


def test_tls_by_url() -> None:
    assert parse_transport_url("rabbit://h/?ssl=1").tls == TlsOptions()
    assert parse_transport_url("amqps://h/").tls == TlsOptions()
    assert parse_transport_url("rabbit://h/?ssl=1&ssl_ca_file=ca.pem").tls == TlsOptions("ca.pem")
    assert parse_transport_url("rabbit://h/?ssl=0", TlsOptions()).tls is None
    assert parse_transport_url("rabbit://h/").connect_arguments(0)["ssl"] is False


def test_kombus_memory_transport() -> None:
    url = parse_transport_url("memory://")
    assert url.connect_arguments(3)["transport"] == "memory"
    assert str(url) == "memory://"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("controller:5672", "no scheme"),
        ("kafka://controller/", "scheme 'kafka'; the state channel needs RabbitMQ"),
        ("rabbit:///cell1", "names no host"),
        ("rabbit://user:s3cret@host:amqp/", "host 'host:amqp'; write host:port"),
        ("rabbit://user:s3cret@:5672/", "host ':5672'"),
        ("rabbit://host:70000/", "host 'host:70000'"),
        ("rabbit://user:s3cret@[::1:5672/", "write rabbit://user:password@host:5672/vhost"),
        ("rabbit://user:s3cret/more@host:5672/", "percent-escape"),
    ],
)
def test_a_url_that_cannot_be_used_says_why_without_the_password(text: str, complaint: str) -> None:
    with pytest.raises(TransportUrlError, match=complaint) as error:
        parse_transport_url(text)
    assert "s3cret" not in str(error.value)

# SPDX-License-Identifier: Apache-2.0
"""The transport_url that operators have in nova.conf is the one that works here."""

from __future__ import annotations

import ssl
from collections import Counter
from itertools import islice
from random import Random

import pytest
from oslo_config import cfg

from shared_scheduler.transport.urls import (
    BrokerHost,
    RabbitOptions,
    TransportUrlError,
    names_rabbit,
    parse_transport_url,
    rabbit_options,
)

CLUSTER = "rabbit://a:b@one:5672,c:d@two:5673,a:b@three/v"


def test_the_usual_url() -> None:
    url = parse_transport_url("rabbit://nova:s3cret@controller:5673/cell1")
    assert url.hosts == (BrokerHost("controller", 5673, "nova", "s3cret"),)
    assert (url.transport, url.virtual_host, url.options) == ("pyamqp", "cell1", RabbitOptions())


@pytest.mark.parametrize("text", ["rabbit://controller", "rabbit://controller/", "rabbit://controller//"])
def test_no_virtual_host_is_the_root(text: str) -> None:
    url = parse_transport_url(text)
    assert url.virtual_host == "/"
    assert url.hosts == (BrokerHost("controller", 5672, "guest", "guest"),)


def tried(text: str, seed: int, attempts: int) -> list[tuple[str, int, str]]:
    """Name, port and user of the brokers that follow one another."""
    found = islice(parse_transport_url(text).connections(Random(seed)), attempts)
    return [(one["hostname"], one["port"], one["userid"]) for one in found]


def test_a_cluster_is_tried_broker_by_broker_in_a_drawn_order() -> None:
    first = tried(CLUSTER, 7, 6)
    assert set(first[:3]) == {("one", 5672, "a"), ("two", 5673, "c"), ("three", 5672, "a")}
    assert first[3:] == first[:3]
    assert first == tried(CLUSTER, 7, 6)


def test_of_a_thousand_agents_each_broker_gets_a_third() -> None:
    firsts = Counter(tried(CLUSTER, seed, 1)[0] for seed in range(1000))
    assert len(firsts) == 3
    assert all(280 < number < 390 for number in firsts.values())


def test_failover_shuffles_if_configured() -> None:
    orders = {tuple(tried(f"{CLUSTER}?kombu_failover_strategy=shuffle", 7, 60)[n : n + 3]) for n in range(0, 60, 3)}
    assert len(orders) == 6
    assert len({tuple(tried(CLUSTER, 7, 60)[n : n + 3]) for n in range(0, 60, 3)}) == 1


def test_escapes_and_ipv6() -> None:
    url = parse_transport_url("rabbit://us%40er:p%2Fa%3Ass@[2001:db8::1]:5671/%2Fnova")
    assert url.hosts == (BrokerHost("2001:db8::1", 5671, "us@er", "p/a:ss"),)
    assert url.virtual_host == "/nova"
    assert str(url) == "rabbit://[2001:db8::1]:5671/nova"


def test_nothing_secret_is_ever_printed() -> None:
    url = parse_transport_url("rabbit://nova:s3cret@controller/cell1")
    assert "s3cret" not in f"{url} {url!r}"
    assert str(url) == "rabbit://controller:5672/cell1"


def test_tls_verifies_certificate_and_host_name_where_an_authority_is_given() -> None:
    options = RabbitOptions(
        ssl=True, ssl_version="TLSv1_2", ssl_ca_file="ca.pem", ssl_cert_file="cert.pem", ssl_key_file="key.pem"
    )
    (connection,) = islice(parse_transport_url("rabbit://h/", options).connections(Random(1)), 1)
    assert connection["ssl"] == {
        "ca_certs": "ca.pem",
        "cert_reqs": ssl.CERT_REQUIRED,
        "server_hostname": "h",
        "ssl_version": ssl.PROTOCOL_TLSv1_2,
        "certfile": "cert.pem",
        "keyfile": "key.pem",
    }
    assert connection["port"] == 5672  # oslo.messaging's, whatever ssl says


def test_each_broker_of_a_cluster_is_verified_by_its_own_name() -> None:
    url = parse_transport_url(CLUSTER, RabbitOptions(ssl=True, ssl_ca_file="ca.pem"))
    for connection in islice(url.connections(Random(1)), 3):
        assert connection["ssl"]["server_hostname"] == connection["hostname"]


def test_the_query_overrides_the_configuration() -> None:
    configured = RabbitOptions(ssl=True, ssl_ca_file="ca.pem")
    assert not parse_transport_url("rabbit://h/?ssl=0", configured).options.ssl
    assert parse_transport_url("rabbit://h/?ssl=1").options == RabbitOptions(ssl=True)
    other = parse_transport_url("rabbit://h/?ssl_ca_file=other.pem", configured).options
    assert other == RabbitOptions(ssl=True, ssl_ca_file="other.pem")
    assert next(parse_transport_url("rabbit://h/").connections(Random(1)))["ssl"] is False


def test_amqps_is_tls_at_its_own_port() -> None:
    url = parse_transport_url("amqps://h/")
    assert url.options.ssl
    assert url.hosts[0].port == 5671


def test_kombus_memory_transport() -> None:
    url = parse_transport_url("memory://")
    assert next(url.connections(Random(1)))["transport"] == "memory"
    assert str(url) == "memory://"


@pytest.mark.parametrize("scheme", ["rabbit", "kombu", "amqp", "amqps", "pyamqp", "RABBIT"])
def test_the_schemes_of_rabbitmq_are_equal_everywhere(scheme: str) -> None:
    assert names_rabbit(f"{scheme}://h/")
    assert parse_transport_url(f"{scheme}://h/").transport == "pyamqp"


def test_other_brokers_are_no_rabbitmq() -> None:
    assert not any(map(names_rabbit, ["fake:/", "none:/", "kafka://h/", "memory://", ""]))


def test_the_options_are_those_of_oslo_messaging() -> None:
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    assert rabbit_options(conf) == RabbitOptions()
    conf.set_override("ssl", True, "oslo_messaging_rabbit")
    conf.set_override("kombu_failover_strategy", "shuffle", "oslo_messaging_rabbit")
    assert rabbit_options(conf) == RabbitOptions(ssl=True, kombu_failover_strategy="shuffle")
    conf.set_override("ssl_version", "SSLv1", "oslo_messaging_rabbit")
    with pytest.raises(TransportUrlError, match="ssl_version = SSLv1"):
        rabbit_options(conf)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("controller:5672", "no scheme"),
        ("kafka://controller/", "scheme 'kafka'; the state channel needs RabbitMQ"),
        ("rabbit://user:s3cret@host:amqp/", "host or port that cannot be parsed"),
        ("rabbit://user:s3cret@:5672/", "host or port that cannot be parsed"),
        ("rabbit://host:70000/", "host or port that cannot be parsed"),
        ("rabbit://host:0/", "host or port that cannot be parsed"),
        ("rabbit://user:s3cret@[::1:5672/", "write rabbit://user:password@host:5672/vhost"),
        ("rabbit://user:s3cret/more@host:5672/", "percent-encode"),
        ("rabbit://a:b@one,user:s3cret/more@host:5672/", "percent-encode"),
        ("rabbit://user:s3cret@host/?kombu_failover_strategy=first", "round-robin or shuffle"),
    ],
)
def test_an_invalid_url_is_reported_with_the_reason_and_without_the_password(text: str, complaint: str) -> None:
    with pytest.raises(TransportUrlError, match=complaint) as error:
        parse_transport_url(text)
    assert "s3cret" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None


@pytest.mark.parametrize(("text", "virtual_host"), [("rabbit://", "/"), ("rabbit:///cell1", "cell1")])
def test_a_url_without_hosts_is_the_broker_of_this_machine(text: str, virtual_host: str) -> None:
    # Nova's default is "rabbit://", which oslo.messaging connects to localhost as guest
    url = parse_transport_url(text)

    assert url.hosts == (BrokerHost("localhost", 5672, "guest", "guest"),)
    assert url.virtual_host == virtual_host

# SPDX-License-Identifier: Apache-2.0
"""To which broker an endpoint connects first, and which one gets its password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from shared_scheduler.transport.bus import CHANNEL_NAME, Endpoint
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import RabbitOptions, parse_transport_url
from tests.unit.transport.broker_door import Authority, BrokerDoor, doors
from tests.unit.transport.mailbox import eventually

#: So many agents of one cell; each has two connections.
AGENTS = 12


def agents_of(url: str, options: RabbitOptions | None = None, number: int = 1) -> list[Endpoint]:
    """Started endpoints of agents with this nova.conf."""
    endpoints: list[Endpoint] = []
    for host in range(number):
        bus = KombuBus(parse_transport_url(url, options), CHANNEL_NAME, rng=Random(host))
        endpoint = bus.agent_endpoint(f"compute-{host}")
        endpoint.start(lambda bodies: None, lambda connected: None)
        endpoints.append(endpoint)
    return endpoints


def test_agents_spread_over_the_brokers_of_a_cluster() -> None:
    with doors(3) as brokers:
        hosts = ",".join(f"nova:s3cret@127.0.0.1:{broker.port}" for broker in brokers)
        agents = agents_of(f"rabbit://{hosts}/", number=AGENTS)
        try:
            eventually(lambda: sum(broker.clients for broker in brokers) >= 2 * AGENTS, "all agents connect")
            assert all(broker.clients for broker in brokers)
        finally:
            for agent in agents:
                agent.close()


@contextmanager
def broker_with_certificate_for(host: str, directory: Path) -> Iterator[BrokerDoor]:
    """It is reached as ``localhost``; the agent trusts who signed its certificate."""
    authority = Authority(directory)
    broker = BrokerDoor(authority.server_of(host))
    options = RabbitOptions(ssl=True, ssl_ca_file=str(authority.file))
    (agent,) = agents_of(f"rabbit://nova:s3cret@localhost:{broker.port}/", options)
    try:
        yield broker
    finally:
        agent.close()
        broker.close()


def test_the_broker_that_the_certificate_names_gets_the_password(tmp_path: Path) -> None:
    with broker_with_certificate_for("localhost", tmp_path) as broker:
        eventually(lambda: b"s3cret" in broker.heard, "the agent logs in")


def test_a_host_with_another_certificate_of_the_same_authority_gets_no_password(tmp_path: Path) -> None:
    with broker_with_certificate_for("compute-7", tmp_path) as impostor:
        eventually(lambda: bool(impostor.refusals) or b"s3cret" in impostor.heard, "the agent refuses or logs in")
        assert impostor.heard == b""

# SPDX-License-Identifier: Apache-2.0
"""A whole cloud on a RabbitMQ 4 with deprecated features disabled: Nova's queues and ours are durable or exclusive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional import cloud_state
from tools.laboratory.cloud.brokers import rabbitmq_4
from tools.laboratory.cloud.cloud import Cloud

pytestmark = pytest.mark.timeout(1800)

HOSTS = {"c1", "c2", "c3"}
#: Nova's own queues are transient and open to all, unless it is told otherwise.
NOVA = {"oslo_messaging_rabbit": {"rabbit_quorum_queue": "true", "rabbit_transient_quorum_queue": "true"}}
BROKER = {
    "deprecated_features.permit.transient_nonexcl_queues": "false",
    "deprecated_features.permit.global_qos": "false",
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    data: Path = tmp_path_factory.mktemp("cloud")
    cloud = Cloud(data, say=print)
    try:
        cloud.up(schedulers=2, rabbitmq=rabbitmq_4(), rabbitmq_options=BROKER, nova_options=NOVA)
        cloud_state.wait_fresh(cloud, HOSTS)
        yield cloud
    finally:
        cloud.down()


def test_servers_boot(strict: Cloud) -> None:
    placed = strict.wait_active(strict.boot(6, parallel=3))

    assert len(placed) == 6
    cloud_state.assert_consistent(strict)


def test_servers_boot_again_after_the_broker_was_killed(strict: Cloud) -> None:
    strict.reset()
    strict.kill("rabbitmq")
    strict.start("rabbitmq")
    strict.wait_listening()

    cloud_state.boot_until_active(strict, timeout_s=180)
    cloud_state.wait_fresh(strict, HOSTS, timeout_s=180)
    cloud_state.assert_consistent(strict, wait_s=90)

# SPDX-License-Identifier: Apache-2.0
"""Each test of ``tests/functional/test_transport_rabbitmq.py``, on RabbitMQ 4."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional import test_transport_rabbitmq as on_the_machines_own
from tools.laboratory.cloud.brokers import Programs, rabbitmq_4
from tools.laboratory.cloud.rabbitmq import PrivateRabbit

post = on_the_machines_own.post
globals().update({name: test for name, test in vars(on_the_machines_own).items() if name.startswith("test_")})


@pytest.fixture(scope="module")
def rabbit() -> Iterator[PrivateRabbit]:
    with PrivateRabbit(Programs(rabbitmq_4())) as broker:
        yield broker

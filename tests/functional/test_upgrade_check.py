# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-status upgrade check`` against brokers whose user may not do enough."""

from __future__ import annotations

from random import Random

import pytest

from shared_scheduler.transport import transport_settings
from shared_scheduler.transport.broker_check import PERMISSIONS, broker_problems
from shared_scheduler.transport.urls import BrokerUrl, parse_transport_url
from tools.laboratory.cloud.rabbitmq import PrivateRabbit

VHOST = "checked"


@pytest.fixture(scope="module")
def rabbit(shared_rabbit: PrivateRabbit) -> PrivateRabbit:
    """A broker with a user, and with a virtual host in which no other test leaves anything."""
    shared_rabbit.ctl("add_user", "nova", "s3cret")
    shared_rabbit.ctl("add_vhost", VHOST)
    return shared_rabbit


def url_of(rabbit: PrivateRabbit, password: str) -> BrokerUrl:
    return parse_transport_url(rabbit.url.replace("guest:guest", f"nova:{password}") + VHOST)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker on a machine that stands still for some seconds is not away."""
    monkeypatch.setattr(transport_settings, "CONNECT_TIMEOUT_S", 60.0)


def problem(rabbit: PrivateRabbit, *permissions: str) -> str:
    """What a user with these permissions is told."""
    rabbit.ctl("set_permissions", "-p", VHOST, "nova", *permissions)
    found = broker_problems(url_of(rabbit, "s3cret"), Random(1))
    return next(iter(found.values()), "")


def test_the_documented_permissions_are_enough(rabbit: PrivateRabbit) -> None:
    assert problem(rabbit, *PERMISSIONS) == ""


@pytest.mark.parametrize("which", range(3), ids=["configure", "write", "read"])
def test_a_missing_permission_is_named(rabbit: PrivateRabbit, which: int) -> None:
    less = [*PERMISSIONS]
    less[which] = "^nothing$"

    said = problem(rabbit, *less)

    assert "ACCESS_REFUSED" in said and "ssched." in said
    assert "s3cret" not in said


def test_casts_need_the_default_exchange(rabbit: PrivateRabbit) -> None:
    configure, _, read = PERMISSIONS

    assert "amq.default" in problem(rabbit, configure, r"^ssched\..*", read)


def test_a_wrong_password_is_reported_without_the_password(rabbit: PrivateRabbit) -> None:
    [said] = broker_problems(url_of(rabbit, "wr0ng"), Random(1)).values()

    assert "ACCESS_REFUSED" in said and "wr0ng" not in said


def test_nothing_is_left_on_the_broker(rabbit: PrivateRabbit) -> None:
    problem(rabbit, *PERMISSIONS)

    left = [rabbit.ctl(what, "-p", VHOST, "name") for what in ("list_exchanges", "list_queues")]
    assert "ssched" not in "".join(left)

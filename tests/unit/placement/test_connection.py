# SPDX-License-Identifier: Apache-2.0
"""Nova's own [placement] section opens the connection."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from shared_scheduler.placement.client import PlacementClient, UnreachableError
from shared_scheduler.placement.connection import (
    ConnectionOptionsError,
    register_options,
    transport_from_conf,
    transport_to,
)
from shared_scheduler.placement.reply import Meaning, Reply, no_reply, reply_from


def configured(tmp_path: Path, section: str) -> cfg.ConfigOpts:
    path = tmp_path / "nova.conf"
    path.write_text("[placement]\n" + section)
    conf = cfg.ConfigOpts()
    conf([], project="nova", default_config_files=[str(path)])
    return conf


def test_a_token_and_an_endpoint(tmp_path: Path) -> None:
    conf = configured(
        tmp_path, "auth_type = admin_token\nendpoint = http://127.0.0.1:9\ntoken = admin\n"
    )
    client = PlacementClient(transport_from_conf(conf), timeout_s=1.0)
    with pytest.raises(UnreachableError, match=r"did not answer.*127\.0\.0\.1"):
        client.consumer("c")


def test_options_that_nova_has_registered_are_left_alone(tmp_path: Path) -> None:
    from nova.conf import utils as nova_conf

    conf = configured(tmp_path, "auth_type = none\nendpoint = http://127.0.0.1:9\n")
    nova_conf.register_ksa_opts(conf, "placement", "placement")
    register_options(conf)
    assert transport_from_conf(conf).call("GET", "/", timeout_s=1.0).status == 0


def test_an_empty_section_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConnectionOptionsError, match="auth_type"):
        transport_from_conf(configured(tmp_path, ""))


def test_half_of_a_section_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConnectionOptionsError, match=r"\[placement\].*(auth_url|auth-url)"):
        transport_from_conf(configured(tmp_path, "auth_type = password\nusername = nova\n"))


def test_keystone_away_is_unreachable_and_not_an_exception(tmp_path: Path) -> None:
    section = (
        "auth_type = password\nauth_url = http://127.0.0.1:9/v3\nusername = nova\npassword = x\n"
        "project_name = service\nuser_domain_id = default\nproject_domain_id = default\n"
    )
    transport = transport_from_conf(configured(tmp_path, section))
    reply = transport.call("GET", "/resource_providers", timeout_s=1.0)
    assert reply.meaning is Meaning.UNKNOWN
    assert "127.0.0.1:9" in reply.detail


def test_nobody_at_the_address() -> None:
    reply = transport_to("http://127.0.0.1:9").call("GET", "/", timeout_s=1.0)
    assert (reply.status, reply.meaning) == (0, Meaning.UNKNOWN)


@pytest.mark.parametrize(
    ("reply", "meaning"),
    [
        (reply_from(204, None), Meaning.DONE),
        (reply_from(409, {"errors": [{"code": "placement.undefined_code"}]}), Meaning.NO_CAPACITY),
        (reply_from(409, {"errors": [{"code": "placement.concurrent_update"}]}), Meaning.CONFLICT),
        (reply_from(400, {"errors": [{"detail": "no such class"}]}), Meaning.BAD_REQUEST),
        (reply_from(401, None), Meaning.DENIED),
        (reply_from(403, {"errors": []}), Meaning.DENIED),
        (reply_from(404, "not JSON errors"), Meaning.ODD),
        (reply_from(502, None), Meaning.UNKNOWN),
        (no_reply("timed out"), Meaning.UNKNOWN),
    ],
)
def test_meanings(reply: Reply, meaning: Meaning) -> None:
    assert reply.meaning is meaning

# SPDX-License-Identifier: Apache-2.0
"""Some seconds of `tools/lab fuzz`, which runs for hours elsewhere; and that it finds what it looks for.

``tests/longer/test_fuzz.py`` runs more rounds of the slow targets.
"""

from __future__ import annotations

import json

import pytest
from jinja2 import Environment

from compute_agent.claim_ledger import ClaimLedger
from shared_scheduler.core.unlisted_nodes import UnlistedNodes
from shared_scheduler.daemon.admin import AdminServer
from shared_scheduler.page import site, views
from shared_scheduler.protocol import codec
from shared_scheduler.protocol.host_keys import HostKeys
from shared_scheduler.protocol.messages import Claim
from shared_scheduler.protocol.window import MessageWindow
from shared_scheduler.records import json_lines
from shared_scheduler.transport import channel
from tools.laboratory.fuzz import command, targets
from tools.laboratory.report import ProgressLine, Report

ROUNDS = 15
#: these take most of the time, and so get fewer rounds
FEW_ROUNDS = 4
SLOW = ("records", "page", "scheduler", "connections")
EACH = [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in targets.TARGETS]


def play(*arguments: str, rounds: int = ROUNDS) -> Report:
    asked = command.parser().parse_args(["--seconds", "600", "--rounds", str(rounds), *arguments])
    with ProgressLine() as progress:
        return command.run(asked, progress)


@pytest.mark.parametrize("target", EACH)
def test_nothing_is_raised_and_nothing_is_violated(target: str) -> None:
    assert_nothing_is_violated(target, FEW_ROUNDS if target in SLOW else ROUNDS)


def assert_nothing_is_violated(target: str, rounds: int) -> None:
    """Assert it of so many rounds of random inputs."""
    report = play("--target", target, rounds=rounds)

    assert report.data["errors"] == []
    assert not report.wrong
    assert report.data["inputs"][target] >= rounds * command.ROUND_INPUTS
    assert report.data["valid"][target] > 0


def no_error(target: str) -> bool:
    return not play("--target", target, rounds=30).wrong


def test_a_codec_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "decode", lambda body: codec.decode(body) if len(body) > 9 else body[99])

    assert not no_error("codec")


def test_a_channel_that_believes_any_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel.Channel, "_check_sender", lambda *_: None)

    assert not no_error("scheduler")


def test_a_new_node_that_any_host_may_speak_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel.Channel, "_first_host", lambda _, node, host: host)

    assert play("--target", "scheduler", rounds=5).wrong


def test_nodes_that_a_host_invents_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnlistedNodes, "may_name_one", lambda *_: True)

    assert not no_error("scheduler")


def test_envelopes_that_are_not_verified_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets.MasterKeys, "verify", lambda *_: "")
    monkeypatch.setattr(HostKeys, "_replayed", lambda *_: "")

    assert not no_error("envelopes")


def test_a_window_that_skips_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    apply_any = MessageWindow.receive

    def receive(self: MessageWindow, message: object, *rest: object) -> object:
        outcome = apply_any(self, message, *rest)  # type: ignore[arg-type]
        found = (message,) if isinstance(message, targets.Increment) else outcome.apply
        return type(outcome)(found, outcome.resync)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageWindow, "receive", receive)

    assert not no_error("window")


def test_an_agent_that_accepts_everything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def shortage(self: ClaimLedger, claim: Claim) -> None:
        return None

    monkeypatch.setattr(ClaimLedger, "_shortage", shortage)

    assert not no_error("agent")


@pytest.mark.long
def test_records_that_are_read_as_they_are_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "read_record", json.loads)

    assert not no_error("records")


def test_a_page_that_answers_under_any_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.Site, "_check", lambda *_: None)

    assert not no_error("page")


@pytest.mark.long
def test_a_page_that_does_not_escape_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "Environment", lambda **given: Environment(**{**given, "autoescape": False}))

    assert not no_error("page")


def test_a_socket_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdminServer, "_reply", lambda self, line: {"answer": json.loads(line)["ask"]})

    assert not no_error("connections")


def test_a_round_can_be_repeated() -> None:
    assert command.play_round("scheduler", 3) == command.play_round("scheduler", 3)

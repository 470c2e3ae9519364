# SPDX-License-Identifier: Apache-2.0
"""Host keys: who can create which envelope, and what a receiver believes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.host_keys import (
    SCHEDULER,
    STAMP_AGE_MAX_MS,
    HostKeys,
    HostKeysMode,
    Kind,
    MasterKeys,
    VerifiedSender,
    agent_line,
    parse_agent_keys,
)
from shared_scheduler.protocol.messages import Role
from shared_scheduler.protocol.signing import Signer, Signing, parse_keyring

BODY = b"\x96\x01body"
OLD, NEW = bytes(range(32)), bytes(range(32, 64))


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms


CLOCK = Clock()


def masters(*keys: tuple[str, bytes]) -> MasterKeys:
    return MasterKeys(parse_keyring("\n".join(f"{key_id}:{secret.hex()}" for key_id, secret in keys)))


def scheduler(*keys: tuple[str, bytes], mode: HostKeysMode = HostKeysMode.REQUIRE) -> HostKeys:
    return HostKeys(mode, masters(*(keys or (("old", OLD),))), CLOCK)


def agent(host: str, *keys: tuple[str, bytes], mode: HostKeysMode = HostKeysMode.REQUIRE) -> HostKeys:
    lines = [agent_line(key_id, master, host) for key_id, master in keys or (("old", OLD),)]
    return HostKeys(mode, parse_agent_keys("\n".join(lines), host), CLOCK)


def sender(receiver: HostKeys, data: bytes) -> VerifiedSender | None:
    content, found, problem = receiver.open(data)
    assert (found is None) == bool(problem)
    assert found is None or content.endswith(BODY)
    return found


class TestWhoCanSpeak:
    def test_an_agent_is_known_by_its_host(self) -> None:
        assert sender(scheduler(), agent("compute-1").seal(Kind.AGENT, BODY)) == VerifiedSender(Role.AGENT, "compute-1")

    def test_a_scheduler_is_known_to_the_agent_that_it_addresses(self) -> None:
        assert sender(agent("compute-1"), scheduler().seal(Kind.TO_AGENT, BODY, "compute-1")) == SCHEDULER

    @pytest.mark.parametrize("receiver", [agent("compute-1"), agent("compute-2"), scheduler()])
    def test_a_broadcast_is_known_to_all(self, receiver: HostKeys) -> None:
        assert sender(receiver, scheduler().seal(Kind.BROADCAST, BODY)) == SCHEDULER

    def test_schedulers_know_one_another(self) -> None:
        assert sender(scheduler(), scheduler().seal(Kind.SCHEDULERS, BODY)) == SCHEDULER

    def test_an_agent_with_another_name_in_its_envelope_is_not_believed(self) -> None:
        forged = agent("compute-1").seal(Kind.AGENT, BODY).replace(b"compute-1", b"compute-2")

        assert sender(scheduler(), forged) is None

    def test_a_message_for_one_agent_is_not_for_another(self) -> None:
        assert sender(agent("compute-2"), scheduler().seal(Kind.TO_AGENT, BODY, "compute-1")) is None

    @pytest.mark.parametrize("kind", Kind)
    def test_an_agent_cannot_send_to_another_agent(self, kind: Kind) -> None:
        sealed = bytearray(agent("compute-1").seal(Kind.AGENT, BODY))
        sealed[2] = kind

        assert sender(agent("compute-2"), bytes(sealed)) is None

    @pytest.mark.parametrize("kind", [Kind.TO_AGENT, Kind.SCHEDULERS, Kind.BROADCAST])
    def test_a_message_of_an_agent_is_never_accepted_as_one_of_a_scheduler(self, kind: Kind) -> None:
        sealed = bytearray(agent("compute-1").seal(Kind.AGENT, BODY))
        sealed[2] = kind

        assert sender(scheduler(), bytes(sealed)) is None
        assert sender(agent("compute-1"), bytes(sealed)) is None

    def test_a_message_to_an_agent_is_not_believed_as_its_answer(self) -> None:
        assert sender(scheduler(), scheduler().seal(Kind.TO_AGENT, BODY, "compute-1")) is None


class TestForgery:
    @given(st.sampled_from([Kind.AGENT, Kind.BROADCAST, Kind.SCHEDULERS]), st.integers(0, 400), st.integers(1, 255))
    def test_each_changed_byte_is_seen(self, kind: Kind, at: int, change: int) -> None:
        source = agent("compute-1") if kind is Kind.AGENT else scheduler()
        sealed = bytearray(source.seal(kind, BODY))
        sealed[at % len(sealed)] ^= change

        _, found, _ = scheduler().open(bytes(sealed))

        assert found is None

    @given(st.binary(max_size=200))
    def test_rubbish_has_no_sender(self, data: bytes) -> None:
        for receiver in (scheduler(), agent("compute-1"), HostKeys()):
            for prefix in (b"", b"\xc1", b"\xc1\x02", b"\xc1\x02\x01\x03\x09old"):
                assert receiver.open(prefix + data)[1] is None

    def test_secrets_are_never_shown(self) -> None:
        keys = parse_agent_keys(agent_line("old", OLD, "compute-1"), "compute-1")

        for shown in (repr(keys), repr(masters(("old", OLD)))):
            assert OLD.hex() not in shown
            assert agent_line("old", OLD, "compute-1").split()[1] not in shown


class TestReplays:
    @pytest.mark.parametrize("kind", [Kind.BROADCAST, Kind.SCHEDULERS])
    def test_a_message_without_a_sequence_is_believed_once(self, kind: Kind) -> None:
        receiver, sealed = scheduler(), scheduler().seal(kind, BODY)

        assert sender(receiver, sealed) == SCHEDULER
        assert sender(receiver, sealed) is None

    @pytest.mark.parametrize("wrong_ms", [-STAMP_AGE_MAX_MS - 1, STAMP_AGE_MAX_MS + 1])
    def test_one_of_another_time_is_not_believed(self, wrong_ms: int) -> None:
        clock = Clock()
        sealed = HostKeys(HostKeysMode.REQUIRE, masters(("old", OLD)), clock).seal(Kind.BROADCAST, BODY)
        clock.now_ms += wrong_ms

        receiver = HostKeys(HostKeysMode.REQUIRE, masters(("old", OLD)), clock)

        assert receiver.open(sealed)[1] is None


class TestMigration:
    """From one shared key to host keys, one program after the other: each step is understood by all others."""

    #: signing, host_keys: the steps of one program
    STEPS = ((Signing.ENFORCE, HostKeysMode.OFF), (Signing.ENFORCE, HostKeysMode.ACCEPT),
             (Signing.ENFORCE, HostKeysMode.REQUIRE), (Signing.OFF, HostKeysMode.REQUIRE))  # fmt: skip

    @pytest.mark.parametrize(("ours", "theirs"), [(a, b) for a in range(4) for b in range(4) if abs(a - b) <= 1])
    @pytest.mark.parametrize("to_agent", [True, False])
    def test_neighbouring_steps_understand_each_other(self, ours: int, theirs: int, to_agent: bool) -> None:
        shared = parse_keyring("shared:" + "11" * 32)
        (our_signing, our_mode), (their_signing, their_mode) = self.STEPS[ours], self.STEPS[theirs]
        our_signer, their_signer = Signer(our_signing, shared), Signer(their_signing, shared)
        source, receiver = scheduler(mode=our_mode), agent("compute-1", mode=their_mode)
        if not to_agent:
            source, receiver = agent("compute-1", mode=our_mode), scheduler(mode=their_mode)

        content, found, _ = receiver.open(source.seal(Kind.TO_AGENT, our_signer.seal(BODY), "compute-1"))
        body = their_signer.open(content) if found is None else their_signer.body_of(content)

        assert body == BODY
        assert (found is None) == (HostKeysMode.OFF in (our_mode, their_mode))

    def test_rotation_in_its_documented_order(self) -> None:
        old, new = ("old", OLD), ("new", NEW)
        schedulers = [scheduler(old), scheduler(old, new), scheduler(new, old), scheduler(new)]
        agents = [agent("c", old), agent("c", new, old), agent("c", new)]

        for scheduler_at, agent_at in ((0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2)):
            one, other = schedulers[scheduler_at], agents[agent_at]
            assert sender(one, other.seal(Kind.AGENT, BODY)) is not None
            assert sender(other, one.seal(Kind.TO_AGENT, BODY, "c")) is not None
            assert sender(other, one.seal(Kind.BROADCAST, b"\x96" * (scheduler_at + 1) + BODY)) is not None


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("", "0 keys"),
            ("old 11 22", "not of the form"),
            ("old zz zz compute-1", "not hexadecimal"),
            ("old 1122 3344 compute-1", "32 bytes"),
            (agent_line("old", OLD, "compute-2"), "host 'compute-2', but this is host 'compute-1'"),
            ("\n".join([agent_line("old", OLD, "compute-1")] * 2), "listed twice"),
        ],
    )
    def test_an_unusable_file_is_refused_without_its_secret(self, text: str, named: str) -> None:
        with pytest.raises(KeyringError, match=named) as found:
            parse_agent_keys(text, "compute-1")

        assert all(len(word) < 64 for word in str(found.value).split())

    @pytest.mark.parametrize("mode", [HostKeysMode.ACCEPT, HostKeysMode.REQUIRE])
    def test_a_mode_without_keys_is_refused(self, mode: HostKeysMode) -> None:
        with pytest.raises(KeyringError, match="there are no keys"):
            HostKeys(mode)

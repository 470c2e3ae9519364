# SPDX-License-Identifier: Apache-2.0
"""`tools/lab signing`: the cost of signing and of verifying one message, beside encoding and decoding it."""

import argparse
import time
from collections.abc import Callable

from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.host_keys import HostKeys, Kind
from shared_scheduler.protocol.messages import Message
from shared_scheduler.protocol.signing import Signer, Signing, parse_keyring
from tools.laboratory.fuzz.mutations import of_agent, of_scheduler
from tools.laboratory.fuzz.targets import EVIL, VICTIM, agent_keys, scheduler_keys
from tools.laboratory.manual import Manual
from tools.laboratory.report import ProgressLine, Report, Table, add_format

MANUAL = Manual(
    does="Measures the processor time of encoding and decoding one message, and of signing and verifying it with the "
    "shared key, with host keys (HMAC) and with the signature of broadcasts (Ed25519).",
    needs="Nothing besides the packages of the project.",
    lasts="Some seconds.",
    examples=(("tools/lab signing", "the table"), ("tools/lab signing --number 20000", "more exact")),
)
HEAD = ("message", "bytes", "encode us", "decode us", "shared key: sign us", "verify us", "host keys: sign us",
        "verify us")  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = MANUAL.parser("tools/lab signing")
    top.add_argument("--number", type=int, default=2000, help="repeats of each operation (default 2000)")
    add_format(top)
    return top


def run(asked: argparse.Namespace, progress: ProgressLine) -> Report:
    """Measure each kind of message that is sent often, and one broadcast."""
    snapshot, increment, heartbeat = of_agent(*EVIL, "claim-1")[1:4]
    agent, claim, hello = agent_keys(EVIL[1]), of_scheduler(VICTIM[0])[0], of_scheduler(VICTIM[0])[-1]
    measured = [
        row("heartbeat", heartbeat, agent, Kind.AGENT, scheduler_keys(), asked.number),
        row("increment", increment, agent, Kind.AGENT, scheduler_keys(), asked.number),
        row("snapshot", snapshot, agent, Kind.AGENT, scheduler_keys(), asked.number),
        row("claim", claim, scheduler_keys(), Kind.TO_AGENT, agent_keys(VICTIM[1]), asked.number),
        row("hello to all agents", hello, scheduler_keys(), Kind.BROADCAST, agent_keys(VICTIM[1]), asked.number),
    ]
    rows = [[name, str(size), *(f"{us:.1f}" for us in figures)] for name, size, *figures in measured]
    return Report([dict(zip(HEAD_OF_DATA, each, strict=True)) for each in measured], [Table(HEAD, rows)])


HEAD_OF_DATA = ("message", "bytes", "encode_us", "decode_us", "shared_key_sign_us", "shared_key_verify_us",
                "host_keys_sign_us", "host_keys_verify_us")  # fmt: skip


def row(
    name: str, message: Message, source: HostKeys, kind: Kind, receiver: HostKeys, number: int
) -> tuple[str, int, float, float, float, float, float, float]:
    """The figures of one message."""
    body = encode(message)
    shared = Signer(Signing.ENFORCE, parse_keyring("one:" + "ab" * 32))
    signed, sealed = shared.seal(body), source.seal(kind, body, VICTIM[1])
    return (
        name,
        len(body),
        cost_us(lambda: encode(message), number),
        cost_us(lambda: decode(body), number),
        cost_us(lambda: shared.seal(body), number),
        cost_us(lambda: shared.open(signed), number),
        cost_us(lambda: source.seal(kind, body, VICTIM[1]), number),
        cost_us(lambda: receiver.open(sealed), number),
    )


def cost_us(action: Callable[[], object], number: int) -> float:
    """Processor time of one call, the least of five series, so that other work on the machine matters little."""
    series = []
    for _ in range(5):
        began_s = time.process_time()
        for _ in range(number):
            action()
        series.append(time.process_time() - began_s)
    return min(series) / number * 1e6

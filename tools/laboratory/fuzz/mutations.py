# SPDX-License-Identifier: Apache-2.0
"""Valid messages of each type, and mutations of them that know the structure of messages."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import lru_cache
from random import Random
from typing import Any

from shared_scheduler.protocol import host_keys, limits
from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    ClaimGroup,
    Consumer,
    Heartbeat,
    Hello,
    Increment,
    Leaf,
    Leave,
    Message,
    Reason,
    Release,
    Resync,
    Role,
    Snapshot,
    Usage,
    Verdict,
    Want,
    agent_address,
)


class Violated(Exception):
    """Something that must hold does not hold."""


SCHEDULER = "ssched.scheduler.a"
EPOCH = 1_700_000_000_123
#: messages of so many nodes and claims are made once
CACHED_MAX = 1024

INTEGERS = (
    0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, 2**40, limits.EPOCH_ASKED_MAX, limits.EPOCH_ASKED_MAX + 1,
    limits.COUNT_MAX, limits.COUNT_MAX + 1, limits.DIGEST_MAX, -(2**63), EPOCH, EPOCH + 1, EPOCH - 1,
)  # fmt: skip
TEXTS = (
    "", "x", "VCPU", "CUSTOM_X", "vm-1", "claim-1", SCHEDULER, "compute-evil", "compute-victim", "node-evil",
    "node-victim", "ssched.agent.compute-victim", "\x1b[2K\r", "\n", "\x00", "é" * 20, "9" * 300, "x" * 5000,
)  # fmt: skip
LEAF_NAMES = (
    "cn.vcpus", "cn.free_ram_mb", "cn.cpu_info", "cn.hypervisor_hostname", "numa.static", "numa.0", "pci.static.x",
    "pci.0", "stats.io_workload", "rp.node-evil", "rp.node-victim", "rp.", "agent.ready", "unknown.leaf",
)  # fmt: skip


def leaves_of(node: str, host: str, vcpus: int = 4) -> dict[str, Leaf]:
    """The leaves of a small node."""
    return {
        "cn.uuid": node, "cn.hypervisor_hostname": host, "cn.hypervisor_type": "QEMU", "cn.hypervisor_version": 1,
        "cn.vcpus": vcpus, "cn.vcpus_used": 0, "cn.memory_mb": 8192, "cn.memory_mb_used": 512,
        "cn.free_ram_mb": 7680, "cn.local_gb": 100, "cn.local_gb_used": 0, "cn.free_disk_gb": 100,
        "cn.disk_available_least": 100, "cn.running_vms": 0, "cn.supported_hv_specs": [],
        "stats.num_instances": 0, "stats.io_workload": 0, "agent.ready": True, "agent.mode": "tap",
        "rp." + node: {
            "name": host, "parent": None, "generation": 1, "traits": ["COMPUTE_NODE"], "aggregates": [],
            "inventories": {"VCPU": [vcpus, 0, 1, vcpus, 1, 1.0], "MEMORY_MB": [8192, 0, 1, 8192, 1, 1.0],
                            "DISK_GB": [100, 0, 1, 100, 1, 1.0]},
        },
    }  # fmt: skip


def snapshot_of(node: str, host: str, vcpus: int = 4) -> Snapshot:
    """The first snapshot of a small node."""
    return Snapshot(node, EPOCH, 1, host, leaves_of(node, host, vcpus), {}, {}, 0)


@lru_cache(CACHED_MAX)
def of_agent(node: str, host: str, claim_id: str) -> tuple[Message, ...]:
    """One message of each type that an agent sends."""
    consumer = Consumer({node: {"VCPU": 1, "MEMORY_MB": 1024}}, True, "group-1", 3, True)
    increment = Increment(node, EPOCH, 2, {"cn.vcpus_used": 1}, {"vm-1": consumer, "vm-2": None}, {claim_id: "vm-1"})
    return (
        Hello(Role.AGENT, agent_address(host), EPOCH, node, host, release="1.0"),
        replace(snapshot_of(node, host), consumers={"vm-1": consumer}, claims={claim_id: "vm-1"}),
        increment,
        Heartbeat(node, EPOCH, 1, host, 0),
        Heartbeat(node, EPOCH, 1, host, 0, 0, (BuildResult(node, EPOCH, "vm-1", False, "it failed", SCHEDULER, 1),)),
        Leave(node, EPOCH, 1),
        Verdict(claim_id, node, EPOCH, True, None, 2, (increment,)),
        Verdict(claim_id, node, EPOCH, True, None, 5, tuple(replace(increment, sequence=n) for n in range(2, 5))),
        Verdict(claim_id, node, EPOCH, False, Reason("no_capacity", {"asked": 1})),
        BuildResult(node, EPOCH, "vm-1", False, "it failed", SCHEDULER),
        BuildResult(node, EPOCH, "vm-2", True),
    )


@lru_cache(CACHED_MAX)
def of_scheduler(node: str) -> tuple[Message, ...]:
    """One message of each type that a scheduler sends."""
    group = ClaimGroup("group-1", "anti-affinity", 1, ("vm-2",), 0)
    together = ClaimGroup("group-1", "affinity", 0, ("vm-1", "vm-2"), None)
    takes = {node: {"VCPU": 1, "MEMORY_MB": 1024, "DISK_GB": 1}}
    return (
        Claim("claim-1", node, SCHEDULER, "vm-1", takes, Usage(1, 1024, 1, 1, 1), "", 0, 0, 1000, group),
        Claim("claim-2", node, SCHEDULER, "vm-2", takes, Usage(1, 1024, 1, 1, 1), '{"numa": null, "pci": []}'),
        Claim("claim-3", node, SCHEDULER, "vm-3", takes, Usage(1, 1024, 1, 1, 1), group=together),
        Release("claim-1", node, SCHEDULER, "vm-1"),
        Resync(node, SCHEDULER, EPOCH, 1),
        Resync(node, SCHEDULER, 0, 0, True),
        Hello(Role.SCHEDULER, SCHEDULER, 1, want=Want.SNAPSHOT),
    )


def mutated(message: Message, rng: Random) -> Message:
    """The message with one to three fields changed; it may be one that cannot be sent."""
    changed: Any = message
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice([field.name for field in fields(changed)])
        changed = replace(changed, **{name: value_like(getattr(changed, name), rng)})
    found: Message = changed
    return found


def value_like(value: Any, rng: Random, depth: int = 3) -> Any:
    """Another value, mostly of the same type."""
    if rng.random() < 0.03 or depth == 0:
        return rng.choice((None, True, 0, -1, 1.5, float("nan"), "", [], {}, [[]], {"x": {}}))
    if is_dataclass(value) and not isinstance(value, type):
        name = rng.choice([field.name for field in fields(value)])
        return replace(value, **{name: value_like(getattr(value, name), rng, depth - 1)})
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((*INTEGERS, value + 1, value - 1, value + rng.randrange(300)))
        case float():
            return rng.choice((0.0, -1.5, 1e308, float("inf"), value * 2))
        case str():
            others = tuple(type(value)) if isinstance(value, Enum) else ()
            return rng.choice((*TEXTS, *others, value + "x"))
        case Mapping():
            return _mapping_like(value, rng, depth)
        case list() | tuple():
            items = [value_like(each, rng, depth - 1) if rng.random() < 0.3 else each for each in value]
            return type(value)(items * rng.choice((0, 1, 1, 2, 40)))
    return rng.choice(TEXTS)


def _mapping_like(value: Mapping[Any, Any], rng: Random, depth: int) -> dict[Any, Any]:
    found = dict(value)
    keys = list(found)
    match rng.randrange(5):
        case 0 if keys:
            del found[rng.choice(keys)]
        case 1:
            other = found[rng.choice(keys)] if keys else 1
            found[rng.choice((*TEXTS, *LEAF_NAMES))] = value_like(other, rng, depth - 1)
        case 2:
            some = found[rng.choice(keys)] if keys else 1
            found |= {f"CUSTOM_{rng.randrange(10**6)}": some for _ in range(rng.choice((1, 20, 300)))}
        case _ if keys:
            key = rng.choice(keys)
            found[key] = value_like(found[key], rng, depth - 1)
    return found


def mutated_envelope(data: bytes, other: bytes, rng: Random) -> bytes:
    """The envelope with one part of another one, or a part that its sender may choose."""
    one, two = host_keys.parse(data), host_keys.parse(other)
    assert one is not None and two is not None, "both are envelopes"
    head, part = one.head, rng.randrange(5)
    if part < 3:
        kind = rng.choice((*host_keys.Kind, two.kind)) if part == 0 else one.kind
        host = rng.choice((two.host, "compute-victim", "", "h" * 255)) if part == 1 else one.host
        stamp_ms = rng.choice((0, 1, EPOCH, 2**64 - 1)) if part == 2 else one.stamp_ms
        lengths = bytes([data[0], data[1], kind, len(one.key_id), len(host.encode())])
        head = lengths + one.key_id.encode() + host.encode() + stamp_ms.to_bytes(8, "big")
    code = rng.choice((two.code, bytes(len(one.code)), one.code[:-1] + b"x")) if part == 3 else one.code
    return head + code + (rng.choice((two.content, b"", data)) if part == 4 else one.content)


def mutated_bytes(data: bytes, rng: Random) -> bytes:
    """The bytes with some changed, cut, inserted or repeated."""
    body = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(body) or 1)
        match rng.randrange(4):
            case 0 if body:
                body[at] = rng.randrange(256)
            case 1:
                del body[at : at + rng.randint(1, 9)]
            case 2:
                body[at:at] = rng.randbytes(rng.randint(0, 9))
            case _:
                body[at:at] = body[at : at + 20] * rng.randint(1, 50)
    return bytes(body)

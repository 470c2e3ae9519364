# SPDX-License-Identifier: Apache-2.0
"""One real-looking message of each type."""

from __future__ import annotations

from shared_scheduler.protocol.messages import (
    BuildResult,
    Claim,
    ClaimGroup,
    Consumer,
    GroupPolicy,
    Heartbeat,
    Hello,
    Increment,
    Leaf,
    Leave,
    Message,
    Reason,
    RefusalCode,
    Release,
    Resync,
    Role,
    Snapshot,
    Usage,
    Verdict,
    Want,
)

NODE = "5a6de3ab-cf6e-4c5e-9a43-7b6ac1a6a9a1"
OTHER_NODE = "0c1f7a64-4f5e-4a31-8d0c-9b7d0e2f3a55"
SERVER = "c2a0c5b8-1f0e-4a9f-8a5d-3d6a4e3f0b11"
CLAIM = "7d9be0f6-7a0b-4a26-9a3f-6e8a0f2b1c22"
GROUP = "e0f6d2f4-0a7c-4f0f-9c55-2c8f6d0b7d31"
EPOCH = 1_700_000_000_123
ALLOCATIONS = {NODE: {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20}}
SCHEDULER = "ssched.scheduler.controller-1.4242.9f3c"

LEAVES: dict[str, Leaf] = {
    "cn.vcpus": 16,
    "cn.vcpus_used": 2.0,
    "cn.disk_available_least": None,
    "cn.supported_hv_specs": [["x86_64", "kvm", "hvm"]],
    "cn.cpu_info": '{"arch": "x86_64",\n "model": "Skylake"}',
    "agent.ready": True,
    "numa.0": [4, 4096, "f0", {"4": 1024}],
    f"rp.{NODE}": {
        "name": "compute-1",
        "parent": None,
        "generation": 7,
        "inventories": {"VCPU": [16, 0, 1, 16, 1, 4.0]},
        "traits": ["COMPUTE_NODE", "HW_CPU_X86_AVX2"],
        "aggregates": [],
    },
}

INCREMENT = Increment(
    NODE,
    EPOCH,
    8,
    leaves={"cn.vcpus_used": 4, "numa.1": None},
    consumers={SERVER: Consumer(ALLOCATIONS, member=False), OTHER_NODE: None},
    claims={CLAIM: SERVER, "an-older-claim": None},
)

MESSAGES: tuple[Message, ...] = (
    Hello(Role.SCHEDULER, SCHEDULER, 3, want=Want.SNAPSHOT, spread_ms=500),
    Hello(Role.AGENT, "ssched.agent.compute-1", EPOCH, NODE, "compute-1", release="1.2.3.dev45"),
    INCREMENT,
    Increment(NODE, EPOCH, 1),
    Snapshot(
        NODE,
        EPOCH,
        7,
        "compute-1",
        LEAVES,
        {SERVER: Consumer(ALLOCATIONS, True)},
        {CLAIM: SERVER},
        2**64 - 1,
    ),
    Heartbeat(NODE, EPOCH, 7, "compute-1", 0xDEADBEEF),
    Heartbeat(NODE, EPOCH, 7, "compute-1", 5, 6, (BuildResult(NODE, EPOCH, SERVER, False, "full", SCHEDULER, 7),)),
    Leave(NODE, EPOCH, 9),
    Claim(CLAIM, NODE, SCHEDULER, SERVER, ALLOCATIONS, Usage(2, 2048, 20, 1, 1), "{}", EPOCH, 7, 3000),
    Claim(
        CLAIM,
        NODE,
        SCHEDULER,
        SERVER,
        ALLOCATIONS,
        Usage(),
        "",
        EPOCH,
        7,
        3000,
        ClaimGroup(GROUP, GroupPolicy.SOFT_ANTI_AFFINITY, 2, (OTHER_NODE,), 1),
        True,
    ),
    Increment(NODE, EPOCH, 2, consumers={SERVER: Consumer(ALLOCATIONS, True, GROUP)}),
    Release(CLAIM, NODE, SCHEDULER, SERVER),
    Release(CLAIM, NODE, SCHEDULER, SERVER, never_written=True),
    Verdict(CLAIM, NODE, EPOCH, True, None, 8, (INCREMENT,)),
    Verdict(
        CLAIM,
        NODE,
        EPOCH,
        False,
        Reason(RefusalCode.NO_CAPACITY, {"provider": NODE, "capacity": 4, "used": 4, "asked": 1}),
    ),
    Resync(NODE, SCHEDULER, EPOCH, 7),
    Resync(NODE, SCHEDULER, 0, 0, recheck=True),
    BuildResult(NODE, EPOCH, SERVER, False, "NoMoreFixedIps: No more IP addresses", SCHEDULER, 7),
    BuildResult(NODE, EPOCH, SERVER, True),
)

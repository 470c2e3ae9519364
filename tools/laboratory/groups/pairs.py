# SPDX-License-Identifier: Apache-2.0
"""A batch of pairs: two members of each of many server groups, requested at the same moment.

The conductors are stopped while the requests arrive, so that all of them reach the schedulers together.  The hosts are
uneven: every scheduler prefers the same one, which has room for all.  Nova's late check is off, so only the scheduler
enforces the policy.  A soft policy outweighs all else that differs between hosts, so that a pair that violates one was
not weighed so (servers that are being built on the host of the first member may count more with Nova's multipliers).
"""

import concurrent.futures
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tools.laboratory.cloud.bursts import reschedules
from tools.laboratory.cloud.cloud import PARALLEL_MAX, Cloud

#: each policy, and the number of hosts that two members are to have
POLICIES = {"anti-affinity": 2, "soft-anti-affinity": 2, "affinity": 1, "soft-affinity": 1}
#: policies whose members cannot move: the only host for one is that of the others, from which it is moved
STAY = frozenset({"affinity"})
NOVA_OPTIONS = {
    "workarounds": {"disable_group_policy_check_upcall": "true"},
    "filter_scheduler": {"soft_affinity_weight_multiplier": "100", "soft_anti_affinity_weight_multiplier": "100"},
}
FLAVOR = "m400"


@dataclass(frozen=True)
class Batch:
    """The result of one batch of pairs."""

    scheduler: str
    policy: str
    operation: str
    """The operation on both members of a pair at the same time."""
    pairs: int
    violations: int
    """Pairs that are active and violate the policy although other hosts had room."""
    failed: int
    """Servers that are not active, or did not move, or that moved although their policy forbids it."""
    reschedules: int
    reasons: list[str] = field(default_factory=list)
    """The different reasons of the failures."""

    @property
    def is_wrong(self) -> bool:
        return bool(self.violations or self.failed or self.reschedules)


@contextmanager
def conductors_stopped(cloud: Cloud) -> Iterator[None]:
    """All requests during this context begin at its end, at the same time."""
    conductors = cloud.names("conductor")
    for name in conductors:
        cloud.freeze(name)
    try:
        yield
    finally:
        for name in conductors:
            cloud.thaw(name)


class Pairs:
    """The groups of one policy, with two members each; deletes both at the end, unless an error ended the work."""

    def __init__(self, cloud: Cloud, policy: str, count: int) -> None:
        self._cloud = cloud
        self.policy = policy
        self.groups = [self._new_group(number) for number in range(count)]
        self.members: list[list[str]] = []
        cloud.flavor_id(FLAVOR), cloud.image_id()

    def __enter__(self) -> "Pairs":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        self._cloud.delete([row["id"] for row in self._cloud.servers()])
        for uuid in self.groups:
            self._cloud.compute("DELETE", f"/os-server-groups/{uuid}").expect(204)

    @property
    def servers(self) -> list[str]:
        return [server for pair in self.members for server in pair]

    def boot_at_once(self) -> None:
        """Request both members of all pairs at the same moment, and wait until they are built or failed."""
        with conductors_stopped(self._cloud):
            self._post()
        self._cloud.wait_built(self.servers)

    def boot_in_turn(self) -> None:
        """Request the first members, then, when these are built, the second ones."""
        for _ in range(2):
            self._post(members=1)
            self._cloud.wait_active(self.servers)

    def hosts(self) -> dict[str, str]:
        """The host of each member that is active."""
        return {row["id"]: row["host"] for row in self._cloud.servers() if row["status"] == "ACTIVE"}

    def built(self, scheduler: str) -> Batch:
        """The results of the builds."""
        rows = {row["id"]: row for row in self._cloud.servers()}
        failed = [rows[server] for server in self.servers if rows[server]["status"] != "ACTIVE"]
        hosts = self.hosts()
        reasons = sorted({str(row["fault"] or row["status"]) for row in failed})
        return Batch(scheduler, self.policy, "build", len(self.members), self.violations(hosts), len(failed),
                     reschedules(self._cloud, set(self.servers)), reasons)  # fmt: skip

    def violations(self, hosts: dict[str, str]) -> int:
        """Pairs of which both members are on these hosts, against the policy."""
        wanted = POLICIES[self.policy]
        found = [{hosts[server] for server in pair} for pair in self.members if all(one in hosts for one in pair)]
        return sum(len(pair) != wanted for pair in found)

    def _new_group(self, number: int) -> str:
        body = {"server_group": {"name": f"{self.policy}-{number}", "policy": self.policy}}
        return str(self._cloud.compute("POST", "/os-server-groups", body).expect(200)["server_group"]["id"])

    def _post(self, members: int = 2) -> None:
        """Request this number of further members of each group; a request that Nova's API refuses raises."""
        hints = [{"group": uuid} for uuid in self.groups for _ in range(members)]
        with concurrent.futures.ThreadPoolExecutor(max_workers=min(len(hints), PARALLEL_MAX)) as pool:
            found = [one[0] for one in pool.map(lambda hint: self._cloud.boot(hints=hint), hints)]
        new = [found[at : at + members] for at in range(0, len(found), members)]
        self.members = [old + more for old, more in zip(self.members or [[]] * len(new), new, strict=True)]

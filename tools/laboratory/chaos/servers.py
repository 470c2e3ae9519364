# SPDX-License-Identifier: Apache-2.0
"""One user of the cloud: carries out one operation after the other, drawn from a seed, on the user's own servers."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tools.laboratory.chaos.environment import FLAVORS, IMAGES, ZONES, Environment
from tools.laboratory.chaos.fault_injector import FaultInjector
from tools.laboratory.chaos.history import History, Requirement
from tools.laboratory.cloud import server_actions
from tools.laboratory.errors import LabError

SERVERS_MAX = 10
BOOT_SHARE = 0.4
GANG = 2
"""The number of servers in a request for several."""

SHARES = {
    "active": {"resize": 3, "migrate": 2, "live": 3, "shelve": 2, "rebuild": 1, "delete": 3},
    "stopped": {"start": 3, "migrate": 1, "delete": 1},
    "resized": {"confirm": 4, "revert": 3, "delete": 1},
    "shelved_offloaded": {"unshelve": 5, "delete": 1},
    "error": {"delete": 1},
}
"""The operations on a server in each state, with their relative frequencies."""


@dataclass
class Owned:
    """A server of the user in its state after its last operation."""

    uuid: str
    flavor: str
    zone: str | None
    grouped: bool
    state: str = "active"
    host: str = ""
    """Its host; of a shelved server, its last host."""
    before: str = ""
    """Its previous host, until its resize is confirmed or reverted."""
    old_flavor: str = ""
    fled: str = ""
    """The host that it was evacuated from. Until that host has returned and has deleted its allocation, a move would
    keep the allocation, which is a defect of Nova and not tested here."""
    stopped: bool = False
    """Whether it does not run, and will not run after its resize."""

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts that an operation on it needs."""
        if self.state == "shelved_offloaded":
            return frozenset({self.fled} - {""})
        return frozenset({self.host, self.before, self.fled} - {""})


class User:
    """All operations of one user, in order."""

    def __init__(self, number: int, environment: Environment, history: History, injector: FaultInjector,
                 seed: int) -> None:  # fmt: skip
        self.number = number
        self._environment = environment
        self._cloud = environment.cloud
        self._history = history
        self._injector = injector
        self._random = random.Random(f"{seed}/{number}")
        self.servers: list[Owned] = []
        self._group = ""
        self._booted = 0

    def step(self) -> None:
        """Carry out one operation; none if there is none to carry out now."""
        with self._injector.undisturbed():
            lost = self._injector.lost
            stranded = [s for s in self.servers if s.state == "active" and s.host in lost]
            if stranded:
                self.evacuate(stranded[0])
            elif not self.servers or (len(self.servers) < SERVERS_MAX and self._random.random() < BOOT_SHARE):
                self._random.choice((self.boot, self.boot, self.boot_in_group, self.boot_gang))()
            else:
                self._change_one([s for s in self.servers if not s.hosts & lost])

    def _change_one(self, within_reach: list[Owned]) -> None:
        if within_reach:
            server = self._random.choice(within_reach)
            shares = SHARES[server.state]
            [name] = self._random.choices(list(shares), list(shares.values()))
            operations: dict[str, Callable[[Owned], None]] = {
                "resize": self.resize, "migrate": self.migrate, "live": self.live, "shelve": self.shelve,
                "rebuild": self.rebuild, "delete": self.delete, "confirm": self.confirm, "revert": self.revert,
                "unshelve": self.unshelve, "start": self.start,
            }  # fmt: skip
            operations[name](server)

    # New servers

    def boot(self) -> None:
        flavor, zone = self._random.choice(list(FLAVORS)), self._random.choice((None, None, *ZONES))
        self._boot("boot", flavor, zone, self._environment.in_zone(zone))

    def boot_in_group(self) -> None:
        """A member of an anti-affinity group; the group is replaced from time to time."""
        if not self._group or self._random.random() < 0.2:
            self._new_group()
        taken = {server.host for server in self.servers if server.grouped and server.state != "shelved_offloaded"}
        self._boot("boot in group", "m400", None, self._environment.hosts - taken, hints={"group": self._group})

    def boot_gang(self) -> None:
        """Several servers in one request: all or none."""
        self._boot("boot several", "m400", None, self._environment.hosts, count=GANG)

    def _boot(self, name: str, flavor: str, zone: str | None, hosts: Collection[str], count: int = 1,
              hints: dict[str, str] | None = None) -> None:  # fmt: skip
        requirement = Requirement(FLAVORS[flavor].ram_mb, frozenset(hosts), count)
        operation = self._history.begin(self.number, name, "", requirement)
        self._booted += 1
        server = {
            "name": f"u{self.number}-{self._booted}", "imageRef": self._environment.images[IMAGES[0]],
            "flavorRef": self._environment.flavors[flavor], "networks": "none", "min_count": count, "max_count": count,
        } | ({"availability_zone": zone} if zone else {})  # fmt: skip
        body = {"server": server} | ({"os:scheduler_hints": hints} if hints else {})
        first = self._cloud.compute("POST", "/servers", body).expect(202)["server"]["id"]
        uuids = [first] if count == 1 else self._with_siblings(str(server["name"]), count)
        ends = [server_actions.built(self._cloud, uuid) for uuid in uuids]
        for end in ends:
            owned = Owned(end.server, flavor, zone, bool(hints), end.state, end.host or "")
            self.servers.append(owned)
        operation.server = " ".join(uuids)
        self._history.end(operation, all(end.ok for end in ends), next((end.why for end in ends if not end.ok), ""))

    def _with_siblings(self, name: str, count: int) -> list[str]:
        """All servers of a request for several; Nova adds numbers to their names."""
        names = {f"{name}-{number}" for number in range(1, count + 1)}
        found = [row["id"] for row in self._cloud.servers() if row["name"] in names]
        if len(found) != count:
            raise LabError(f"asked for {count} servers named {name}, Nova shows {found}")
        return found

    def _new_group(self) -> None:
        """Delete the old group and create a new one; the members of the old one stay."""
        if self._group:
            self._cloud.compute("DELETE", f"/os-server-groups/{self._group}").expect(204)
            for server in self.servers:
                server.grouped = False
        body = {"server_group": {"name": f"u{self.number}", "policy": "anti-affinity"}}
        self._group = self._cloud.compute("POST", "/os-server-groups", body).expect(200)["server_group"]["id"]

    # Moves

    def resize(self, server: Owned) -> None:
        flavor = next(name for name in FLAVORS if name != server.flavor)
        requirement = self._requirement(server, flavor, self._environment.neighbours(server.host))
        end = self._do("resize", server, server_actions.resize(self._environment.flavors[flavor]), requirement)
        if end.state == "resized":
            server.old_flavor, server.flavor = server.flavor, flavor

    def migrate(self, server: Owned) -> None:
        self._do("migrate", server, server_actions.cold_migrate(), self._elsewhere(server))

    def live(self, server: Owned) -> None:
        self._do("live migrate", server, server_actions.live_migrate(), self._elsewhere(server))

    def evacuate(self, server: Owned) -> None:
        source = server.host
        if self._do("evacuate", server, server_actions.evacuate(), self._elsewhere(server)).ok:
            server.fled = source

    def unshelve(self, server: Owned) -> None:
        self._do("unshelve", server, server_actions.UNSHELVE,
                 self._requirement(server, server.flavor, self._environment.neighbours(server.host)))  # fmt: skip

    def confirm(self, server: Owned) -> None:
        self._do("confirm", server, server_actions.CONFIRM_STOPPED if server.stopped else server_actions.CONFIRM)

    def revert(self, server: Owned) -> None:
        old_flavor = server.old_flavor or server.flavor
        if self._do("revert", server, server_actions.REVERT_STOPPED if server.stopped else server_actions.REVERT).ok:
            server.flavor = old_flavor

    def start(self, server: Owned) -> None:
        """After an evacuation."""
        self._do("start", server, server_actions.START)

    def shelve(self, server: Owned) -> None:
        self._do("shelve", server, server_actions.SHELVE)

    def rebuild(self, server: Owned) -> None:
        """With another image, because then the scheduler must check its host."""
        image = self._environment.images[self._random.choice(IMAGES)]
        self._do("rebuild", server, server_actions.rebuild(image), Requirement(0, frozenset({server.host})))

    def delete(self, server: Owned) -> None:
        operation = self._history.begin(self.number, "delete", server.uuid)
        server_actions.delete(self._cloud, server.uuid)
        self.servers.remove(server)
        self._history.end(operation, True, "")

    def _elsewhere(self, server: Owned) -> Requirement:
        return self._requirement(server, server.flavor, self._environment.neighbours(server.host) - {server.host})

    def _requirement(self, server: Owned, flavor: str, hosts: frozenset[str]) -> Requirement:
        apart = {s.host for s in self.servers if s.grouped and s is not server} if server.grouped else set()
        return Requirement(FLAVORS[flavor].ram_mb, (hosts & self._environment.in_zone(server.zone)) - apart)

    def _do(
        self, name: str, server: Owned, what: server_actions.Action, requirement: Requirement | None = None
    ) -> server_actions.Ended:
        operation = self._history.begin(self.number, name, server.uuid, requirement)
        end = server_actions.act(self._cloud, server.uuid, what)
        if end.state != server_actions.REFUSED:
            server.before = server.host if end.state == "resized" else ""
            server.old_flavor = server.old_flavor if end.state == "resized" else ""
            server.state, server.host = end.state, end.host or server.host
            server.stopped = end.state == "stopped" or (end.state == "resized" and server.stopped)
        self._history.end(operation, end.ok, end.why)
        return end

# SPDX-License-Identifier: Apache-2.0
"""Both members of many server groups move at the same moment.

A member of a group with policy affinity must not move: the only host for it is that of the others, from which it is
moved.  So Nova finds no host for it, and each move that began on some host is one too many.
"""

import concurrent.futures
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tools.laboratory.cloud.cloud import PARALLEL_MAX, Cloud
from tools.laboratory.cloud.cloud_settings import SLOT_MB
from tools.laboratory.cloud.provisioning import Flavor
from tools.laboratory.cloud.server_actions import (
    CONFIRM,
    Action,
    Instance,
    cells,
    cold_migrate,
    evacuate,
    fault,
    live_migrate,
    open_migrations,
    resize,
    settle,
)
from tools.laboratory.errors import LabError
from tools.laboratory.groups.pairs import STAY, Batch, Pairs, conductors_stopped

#: the hosts from which all members are evacuated
EVACUATED = ("c1", "c2")
MOVES_TIMEOUT_S = 300.0
#: to which members are resized
LARGER = Flavor("m500", ram_mb=SLOT_MB + 100)


@dataclass(frozen=True)
class Move:
    """A kind of move: the request to Nova, and the event of which each move should have one."""

    action_in: Callable[[Cloud], Action]
    event: str
    leaves_hosts: tuple[str, ...] = ()
    """Hosts that fail before the move; the members are built there."""
    confirmed: bool = False


def _resize(cloud: Cloud) -> Action:
    cloud.add_flavor(LARGER)
    return resize(cloud.flavor_id(LARGER.name))


MOVES = {
    "live-migration": Move(lambda _: live_migrate(), "compute_check_can_live_migrate_destination"),
    "cold-migration": Move(lambda _: cold_migrate(), "compute_prep_resize", confirmed=True),
    "resize": Move(_resize, "compute_prep_resize", confirmed=True),
    "evacuation": Move(lambda _: evacuate(), "compute_rebuild_instance", EVACUATED),
}


def moved(cloud: Cloud, scheduler: str, pairs: Pairs, name: str) -> Batch:
    """Build the members one after the other, then move all of them at the same moment."""
    move = MOVES[name]
    action = move.action_in(cloud)
    _build(cloud, pairs, move)
    before = pairs.hosts()
    _fail_hosts(cloud, move)
    with conductors_stopped(cloud):
        _post(cloud, pairs.servers, action)
    ended = {server: _ended(cloud, server, move, action) for server in pairs.servers}
    stay = pairs.policy in STAY
    failed = {server: one for server, one in ended.items() if _failed(one, before[server], action, stay)}
    hosts = {server: str(one.host) for server, one in ended.items() if stay or server not in failed}
    reasons = sorted({f"{one.state} on {one.host}: {fault(cloud, one)}" for one in failed.values()})
    return Batch(scheduler, pairs.policy, name, len(pairs.members), pairs.violations(hosts), len(failed),
                 _repeated(cloud, pairs.servers, move, stay), reasons)  # fmt: skip


def _build(cloud: Cloud, pairs: Pairs, move: Move) -> None:
    """With only those hosts enabled that will fail, if there are any."""
    closed = [host for host in cloud.hosts() if move.leaves_hosts and host not in move.leaves_hosts]
    for host in closed:
        cloud.disable(host)
    pairs.boot_in_turn()
    for host in closed:
        cloud.enable(host)


def _fail_hosts(cloud: Cloud, move: Move) -> None:
    for host in move.leaves_hosts:
        cloud.kill(host)
        cloud.force_down(host)


def _post(cloud: Cloud, servers: Iterable[str], action: Action) -> None:
    with concurrent.futures.ThreadPoolExecutor(max_workers=PARALLEL_MAX) as pool:
        list(pool.map(lambda server: cloud.action(server, action.name, action.body), servers))


def _ended(cloud: Cloud, server: str, move: Move, action: Action) -> Instance:
    """The instance when its move has ended, and after a resize or a cold migration has been confirmed."""
    found = settle(cloud, server, action.ends, MOVES_TIMEOUT_S)
    cloud.wait(lambda: not open_migrations(cloud, found), f"the migration of {server} to end", MOVES_TIMEOUT_S)
    found = settle(cloud, server, action.ends, MOVES_TIMEOUT_S)
    if move.confirmed and found.state == action.done:
        cloud.action(server, CONFIRM.name)
        settle(cloud, server, CONFIRM.ends, MOVES_TIMEOUT_S)
    return found


def _failed(ended: Instance, before: str, action: Action, stays: bool) -> bool:
    """Whether it is not where the move should leave it; Nova puts a server in error that it cannot evacuate."""
    if stays:
        return ended.host != before
    return ended.state != action.done or ended.host == before


def _repeated(cloud: Cloud, servers: Iterable[str], move: Move, stay: bool) -> int:
    """Attempts of the move after the first one, or after none if the servers stay, from Nova's events.

    :raises LabError: when no event was found, because then this would always be 0
    """
    query = (
        "SELECT a.instance_uuid FROM instance_actions a JOIN instance_actions_events e ON e.action_id = a.id"
        " WHERE e.event = %s"
    )
    wanted = set(servers)
    found = [uuid for cell in cells(cloud) for (uuid,) in cloud.sql(f"nova_cell{cell}", query, [move.event])]
    attempts = Counter(uuid for uuid in found if uuid in wanted)
    if stay:
        return attempts.total()
    if not attempts:
        raise LabError(f"Nova's databases have no event {move.event} of these moves")
    return sum(number - 1 for number in attempts.values())

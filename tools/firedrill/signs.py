# SPDX-License-Identifier: Apache-2.0
"""What each fault must have done to whom: a fault that does nothing proves nothing.

All of it is counted where it happens, or asked of the broker and the kernel, and waited for: nothing hangs on a look
at the right moment. What is not asked for, for a slow or a quick machine may not show it, is told at the fault.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .ground import Ground
from .nodes import host_name, node_name

BLOCKED = "blocked"
"""What the broker calls a connection of which it reads nothing: it published while there was an alarm."""
NAMED_MAX = 3


@dataclass(frozen=True)
class Seen:
    """What has happened so far; counts only grow. Keys are names of schedulers and of hosts.

    `lost`: connections or queues that were taken from an endpoint. `gaps`, `silences`: what a scheduler missed of
    nodes, and nodes that it did not hear for too long. Who does not answer is not in it.
    """

    lost: Counter[str]
    gaps: Counter[str]
    silences: Counter[str]
    proxied: Counter[str]


def seen(on: Ground) -> Seen:
    """Up to now."""
    said = zip(on.schedulers, on.all_schedulers("status"), strict=True)
    counters = {process.name: Counter(answer["counters"]) for process, answer in said if answer is not None}
    lost = Counter({name: each["connections_lost"] for name, each in counters.items()})
    for process in on.agents:
        if not process.stopped:
            lost.update(process.ask("lost"))
    return Seen(
        lost,
        gaps=Counter({name: each["gaps"] for name, each in counters.items()}),
        silences=Counter({name: each["silences"] for name, each in counters.items()}),
        proxied=Counter({
            f"{name} {what}": count for name, proxy in on.proxies.items() for what, count in proxy.counters.items()
        }),
    )  # fmt: skip


Sign = Callable[[Ground, Seen], str]
"""What is missing of what a fault does, since the time before it; empty when all of it has happened."""
Names = Callable[[Ground], Iterable[str]]


def no_sign(_: Ground, before: Seen) -> str:
    """Nothing is asked for."""
    return ""


def _missing(what: str, names: Iterable[str]) -> str:
    found = list(names)
    return f"{len(found)} {what}: {', '.join(found[:NAMED_MAX])}" if found else ""


# -- whom a fault is for


def everybody(on: Ground) -> list[str]:
    """Every endpoint on the broker."""
    return [*(each.name for each in on.schedulers), *(host_name(n) for each in on.agents for n in each.hosts)]


def last_scheduler(on: Ground) -> list[str]:
    """The one that some faults are for."""
    return [on.schedulers[-1].name]


def first_host(_: Ground) -> list[str]:
    """The one whose agent loses its queue."""
    return [host_name(1)]


def behind_proxies(on: Ground) -> list[str]:
    """The first scheduler and the victims."""
    return [on.schedulers[0].name, *map(host_name, on.victims.hosts)]


# -- what it does


def disconnects(whom: Names) -> Sign:
    """Each of them lost its connection, or its queue, and noticed that."""

    def sign(on: Ground, before: Seen) -> str:
        now = seen(on)
        return _missing("lost nothing", (name for name in whom(on) if now.lost[name] <= before.lost[name]))

    return sign


def drops_messages(on: Ground, before: Seen) -> str:
    """The last scheduler missed some that its queue had no room for, or lost the queue with all of them."""
    now, name = seen(on), on.schedulers[-1].name
    dropped = now.gaps[name] > before.gaps[name] or now.lost[name] > before.lost[name]
    return "" if dropped else f"{name} missed nothing and kept its queue"


def blocks_publishers(on: Ground, before: Seen) -> str:
    """The broker reads nothing more of somebody who publishes, and some nodes are not heard for too long."""
    states = on.rabbit.ctl("list_connections", "state", "--no-table-headers").split()
    if BLOCKED not in states:
        return "the broker blocks nobody"
    return "" if seen(on).silences.total() > before.silences.total() else "every node was heard in time"


def stops_scheduler(on: Ground, _: Seen) -> str:
    """The last one does not run. That its peers miss it is not asked for: its queue may be full before."""
    return "" if on.schedulers[-1].stopped else f"{on.schedulers[-1].name} runs"


def silences_victims(on: Ground, _: Seen) -> str:
    """The victims do not run, and every scheduler knows that it does not hear them."""
    if not on.victims.stopped:
        return f"{on.victims.name} runs"
    victims = set(map(node_name, on.victims.hosts))
    heard = {process.name: victims - set(process.ask("silent")) for process in on.schedulers}
    return _missing("schedulers do not miss all victims", (name for name, nodes in heard.items() if nodes))


def kills_scheduler(on: Ground, _: Seen) -> str:
    """The last one was killed. That its peers miss it is not asked for: another takes its place at once."""
    killed = on.schedulers[-1].ended_by == signal.SIGKILL
    return "" if killed else f"{on.schedulers[-1].name} was not killed"


def passes_through_proxies(what: str) -> Sign:
    """Each proxy did this to something that somebody sent."""

    def sign(on: Ground, before: Seen) -> str:
        now = seen(on).proxied
        keys = (f"{name} {what}" for name in on.proxies)
        return _missing("proxies had nothing to do", (key for key in keys if now[key] <= before.proxied[key]))

    return sign


def both(one: Sign, other: Sign) -> Sign:
    """Both have to be there."""
    return lambda on, before: one(on, before) or other(on, before)

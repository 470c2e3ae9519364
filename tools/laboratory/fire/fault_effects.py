# SPDX-License-Identifier: Apache-2.0
"""The effect that each fault must have, and on which processes, because a fault without an effect tests nothing.

An effect is counted where it occurs, or read from the broker or the kernel, and waited for, so that none is missed
between two reads. Effects that do not occur on a slow or a fast machine are not required; the fault documents that.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tools.laboratory.fire.environment import Environment
from tools.laboratory.fleet.hosts import Host

BLOCKED = "blocked"
"""The broker's state of a connection that it does not read, because it published during an alarm."""
NAMED_MAX = 3


@dataclass(frozen=True)
class Observed:
    """The counts since the start, which only grow. Keys are names of schedulers and of hosts.

    `lost`: connections or queues that an endpoint lost. `gaps`, `silences`: messages of nodes that a scheduler missed,
    and nodes that were silent for too long. Processes that do not answer are not included.
    """

    lost: Counter[str]
    gaps: Counter[str]
    silences: Counter[str]
    proxied: Counter[str]


def observed(on: Environment) -> Observed:
    """The present counts."""
    said = zip(on.schedulers, on.all_schedulers("status"), strict=True)
    counters = {process.name: Counter(answer["counters"]) for process, answer in said if answer is not None}
    lost = Counter({name: each["connections_lost"] for name, each in counters.items()})
    for process in on.agents:
        if not process.stopped:
            lost.update(process.ask("lost"))
    return Observed(
        lost,
        gaps=Counter({name: each["gaps"] for name, each in counters.items()}),
        silences=Counter({name: each["silences"] for name, each in counters.items()}),
        proxied=Counter({
            f"{name} {what}": count for name, proxy in on.proxies.items() for what, count in proxy.counters.items()
        }),
    )  # fmt: skip


Effect = Callable[[Environment, Observed], str]
"""Returns what is missing of the effect of a fault, compared with the counts before it; empty if nothing is."""
Names = Callable[[Environment], Iterable[str]]


def no_effect(_: Environment, before: Observed) -> str:
    """No effect is required."""
    return ""


def _missing(what: str, names: Iterable[str]) -> str:
    found = list(names)
    return f"{len(found)} {what}: {', '.join(found[:NAMED_MAX])}" if found else ""


# -- targets of faults


def everybody(on: Environment) -> list[str]:
    """Every endpoint on the broker."""
    return [*(each.name for each in on.schedulers), *(Host(n).name for each in on.agents for n in each.hosts)]


def last_scheduler(on: Environment) -> list[str]:
    """The target of some faults."""
    return [on.schedulers[-1].name]


def first_host(_: Environment) -> list[str]:
    """The host whose agent loses its queue."""
    return [Host(1).name]


def behind_proxies(on: Environment) -> list[str]:
    """The first scheduler and the victims."""
    return [on.schedulers[0].name, *(Host(n).name for n in on.victims.hosts)]


# -- effects


def disconnects(whom: Names) -> Effect:
    """Each of them lost its connection, or its queue, and noticed that."""

    def effect(on: Environment, before: Observed) -> str:
        now = observed(on)
        return _missing("lost nothing", (name for name in whom(on) if now.lost[name] <= before.lost[name]))

    return effect


def drops_messages(on: Environment, before: Observed) -> str:
    """The last scheduler missed messages that did not fit into its queue, or lost the queue with all of them."""
    now, name = observed(on), on.schedulers[-1].name
    dropped = now.gaps[name] > before.gaps[name] or now.lost[name] > before.lost[name]
    return "" if dropped else f"{name} missed nothing and kept its queue"


def blocks_publishers(on: Environment, before: Observed) -> str:
    """The broker stops reading from a publisher, and schedulers miss the heartbeats of some nodes."""
    states = on.rabbit.ctl("list_connections", "state", "--no-table-headers").split()
    if BLOCKED not in states:
        return "the broker blocks no connection"
    return "" if observed(on).silences.total() > before.silences.total() else "every node was heard in time"


def stops_scheduler(on: Environment, _: Observed) -> str:
    """The last scheduler does not run. Its peers need not notice that, because its queue may be full before."""
    return "" if on.schedulers[-1].stopped else f"{on.schedulers[-1].name} runs"


def silences_victims(on: Environment, _: Observed) -> str:
    """The victims do not run, and every scheduler has noticed their silence."""
    if not on.victims.stopped:
        return f"{on.victims.name} runs"
    victims = {Host(n).node for n in on.victims.hosts}
    heard = {process.name: victims - set(process.ask("silent")) for process in on.schedulers}
    return _missing("schedulers do not miss all victims", (name for name, nodes in heard.items() if nodes))


def kills_scheduler(on: Environment, _: Observed) -> str:
    """The last scheduler was killed. Its peers need not notice that, because another replaces it at once."""
    killed = on.schedulers[-1].ended_by == signal.SIGKILL
    return "" if killed else f"{on.schedulers[-1].name} was not killed"


def kills_all_schedulers(on: Environment, _: Observed) -> str:
    """All schedulers were killed."""
    return _missing("were not killed", (each.name for each in on.schedulers if each.ended_by != signal.SIGKILL))


def passes_through_proxies(what: str) -> Effect:
    """Each proxy did this to some bytes."""

    def effect(on: Environment, before: Observed) -> str:
        now = observed(on).proxied
        keys = (f"{name} {what}" for name in on.proxies)
        return _missing("proxies had nothing to do", (key for key in keys if now[key] <= before.proxied[key]))

    return effect


def both(one: Effect, other: Effect) -> Effect:
    """Both effects are required."""
    return lambda on, before: one(on, before) or other(on, before)

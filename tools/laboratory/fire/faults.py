# SPDX-License-Identifier: Apache-2.0
"""Faults of a broker and of the processes that use it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from shared_scheduler.protocol.messages import agent_address
from tools.laboratory.errors import LabError
from tools.laboratory.fire.environment import Environment
from tools.laboratory.fire.fault_effects import (
    Effect,
    behind_proxies,
    blocks_publishers,
    both,
    disconnects,
    drops_messages,
    everybody,
    first_host,
    kills_all_schedulers,
    kills_scheduler,
    last_scheduler,
    no_effect,
    passes_through_proxies,
    silences_victims,
    stops_scheduler,
)
from tools.laboratory.fire.pace import Pace
from tools.laboratory.fire.proxy import Mode
from tools.laboratory.fleet.hosts import Host
from tools.laboratory.processes.controlled import Program

FULL_TIMEOUT_S = 120.0
POLL_S = 1.0
CHATTER_S = 600.0
RELEASED_WATERMARK = "0.4"

Action = Callable[[Environment], None]


def nothing(_: Environment) -> None:
    """The fault needs no action at its end."""


@dataclass(frozen=True)
class Fault:
    """`begin` starts the fault and `end` ends it `lasts_s` later; both return when that is done.

    `effect` has to be observed before the end, `effect_after` after the recovery.
    """

    name: str
    story: str
    begin: Action
    end: Action = nothing
    lasts_s: float = 0.0
    effect: Effect = no_effect
    effect_after: Effect = no_effect


def faults(pace: Pace) -> tuple[Fault, ...]:
    """All faults. Their durations depend on the time that it takes to detect them."""
    silent_s, unheard_s = pace.silent_after_s + 2 * pace.heartbeat_s, 3.0 * pace.amqp_heartbeat_s
    all_lose, proxied_lose = disconnects(everybody), disconnects(behind_proxies)
    return (
        Fault("restart", "the broker is ended and started again",
              lambda on: on.rabbit.end_broker(), lambda on: on.rabbit.start_broker(), effect=all_lose),
        Fault("kill", "the broker is killed (-9) and started again",
              lambda on: on.rabbit.kill_broker(), lambda on: on.rabbit.start_broker(), effect=all_lose),
        Fault("stop-app", "rabbitmqctl stop_app, start_app after 5 s",
              lambda on: _ctl(on, "stop_app"), lambda on: _ctl(on, "start_app"), 5.0, all_lose),
        Fault("close-connections", "the administrator closes every connection",
              lambda on: on.rabbit.close_connections(), effect=all_lose),
        Fault("delete-scheduler-queue", "the administrator deletes one scheduler's queue",
              lambda on: _delete_queue(on, _address(on.schedulers[-1])), effect=disconnects(last_scheduler)),
        Fault("delete-agent-queue", "the administrator deletes one agent's queue",
              lambda on: _delete_queue(on, agent_address(Host(1).name)), effect=disconnects(first_host)),
        Fault("overflow", "a scheduler is too busy to read until its queue has dropped messages, or is dropped",
              _hold_until_full, effect_after=drops_messages),
        Fault("memory-alarm", f"the broker blocks publishing connections for {silent_s:.0f} s (memory alarm)",
              lambda on: _ctl(on, "set_vm_memory_high_watermark", "absolute", "1"),
              lambda on: _ctl(on, "set_vm_memory_high_watermark", RELEASED_WATERMARK), silent_s, blocks_publishers),
        Fault("frozen-scheduler", "SIGSTOP until its queue has dropped messages, or is dropped, then SIGCONT",
              _freeze_until_full, lambda on: on.schedulers[-1].signal(signal.SIGCONT),
              effect=stops_scheduler, effect_after=drops_messages),
        Fault("frozen-agent", f"the victims' agents are stopped for {silent_s:.0f} s, then continue",
              lambda on: on.victims.signal(signal.SIGSTOP), lambda on: on.victims.signal(signal.SIGCONT), silent_s,
              silences_victims),
        Fault("killed-scheduler", "a scheduler is killed (-9), a new one replaces it",
              lambda on: on.schedulers[-1].kill(), lambda on: on.restart_scheduler(on.schedulers[-1]),
              effect=kills_scheduler),
        Fault("cold-start", "all schedulers are killed (-9), and started again at the same time",
              lambda on: on.kill_schedulers(), lambda on: on.restart_schedulers(), effect=kills_all_schedulers),
        Fault("cut", "a scheduler's and the victims' connections are reset, new ones too, for 5 s",
              lambda on: on.set_proxies(Mode.CUT), lambda on: on.set_proxies(Mode.PASS), 5.0,
              both(passes_through_proxies("reset"), proxied_lose)),
        Fault("drop", f"all packets of a scheduler and the victims are dropped for {unheard_s:.0f} s",
              lambda on: on.set_proxies(Mode.DROP), lambda on: on.set_proxies(Mode.PASS), unheard_s,
              both(passes_through_proxies("held"), proxied_lose)),
        # no process has to detect it: all data arrives, and in order
        Fault("delay", "all data of a scheduler and the victims is delayed by 0.3 s, for 10 s",
              lambda on: on.set_proxies(Mode.DELAY), lambda on: on.set_proxies(Mode.PASS), 10.0,
              passes_through_proxies("delayed")),
    )  # fmt: skip


def _ctl(on: Environment, *arguments: str) -> None:
    on.rabbit.ctl(*arguments)


def _address(scheduler: Program) -> str:
    return str(scheduler.ask("status")["address"])


def _delete_queue(on: Environment, queue: str) -> None:
    name = f'rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)'
    delete = 'rabbit_amqqueue:delete(Q, false, false, <<"admin">>)'
    on.rabbit.ctl("eval", f"{{ok, Q}} = rabbit_amqqueue:lookup({name}), {delete}.")


def _hold_until_full(on: Environment) -> None:
    """Keep the core of one scheduler busy, while nova-computes report frequently."""
    busy = on.schedulers[-1]
    queue = _address(busy)
    longest_s = 2 * FULL_TIMEOUT_S
    holder = threading.Thread(target=lambda: busy.ask("hold", longest_s, seconds=longest_s), daemon=True)
    holder.start()
    try:
        _fill(on, queue)
    finally:
        busy.ask("release")
        holder.join()


def _freeze_until_full(on: Environment) -> None:
    queue = _address(on.schedulers[-1])
    on.schedulers[-1].signal(signal.SIGSTOP)
    _fill(on, queue)


def _fill(on: Environment, queue: str) -> None:
    """Have nova-computes report until the queue is full and the broker drops the oldest messages.

    On a slow machine the broker may end the connection of the consumer first.  The queue is then deleted with all its
    messages.
    """
    on.all_agents("chatter", seconds=CHATTER_S)
    end_s = time.monotonic() + FULL_TIMEOUT_S
    try:
        while (depth := on.rabbit.queues().get(queue)) is not None and int(depth) < on.pace.queue_max:
            if time.monotonic() > end_s:
                raise LabError(
                    f"a queue that no scheduler reads held {depth} messages after {FULL_TIMEOUT_S:.0f} s, "
                    f"not {on.pace.queue_max}"
                )
            time.sleep(POLL_S)
        time.sleep(POLL_S)
    finally:
        on.all_agents("chatter", seconds=0.0)

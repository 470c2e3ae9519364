# SPDX-License-Identifier: Apache-2.0
"""The demo's screen: plain ANSI on a terminal, one line a second elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TextIO

from shared_scheduler.core.claims import ClaimState
from shared_scheduler.sim.exhibition import Exhibition
from shared_scheduler.sim.report import endings_of, percentile, window_counters
from shared_scheduler.sim.world import World
from shared_scheduler.state.row import Freshness

#: decisions a second are counted over this much time
RATE_OVER_S = 2.0
#: decisions that percentiles are made of
RECENT = 2_000
#: lags are shown in these classes: up to so many messages
LAG_CLASSES = (0, 1, 2, 4, 8)
BAR_WIDTH = 40
STORY_LINES = 8
WORST_NODES = 4

HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
CLEAR, HIDE_CURSOR, SHOW_CURSOR = "\x1b[2J", "\x1b[?25l", "\x1b[?25h"
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


class LiveView:
    """Shows a world while it runs; ``on`` False shows nothing."""

    def __init__(self, world: World, exhibition: Exhibition, duration_s: float, out: TextIO, on: bool) -> None:
        self._world = world
        self._exhibition = exhibition
        self._duration_s = duration_s
        self._out = out
        self._on = on
        self._screen = on and out.isatty()
        self._answers: list[tuple[float, int]] = []  # virtual time, requests ended by then
        self._told = 0
        self._line_at_s = 1.0
        if self._screen:
            self._out.write(HIDE_CURSOR + CLEAR)

    def show(self) -> None:
        """Draw what is now."""
        if not self._on:
            return
        self._answers.append((self._world.now, len(self._world.latencies_s)))
        if self._screen:
            body = "".join(f"{line}{CLEAR_LINE}\n" for line in self._lines())
            self._out.write(HOME + body + CLEAR_BELOW)
        elif self._world.now >= self._line_at_s:
            self._line_at_s += 1.0
            self._out.write(f"{self._one_line()}\n")
            for text in self._exhibition.story[self._told :]:
                self._out.write(f"  {text}\n")
            self._told = len(self._exhibition.story)
        self._out.flush()

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._screen:
            self._out.write(SHOW_CURSOR + "\n")
        self._out.flush()

    # -- figures

    def _rate(self) -> float:
        now, count = self._answers[-1]
        past = [pair for pair in self._answers if now - pair[0] <= RATE_OVER_S]
        del self._answers[: len(self._answers) - len(past)]
        span_s = now - past[0][0]
        return (count - past[0][1]) / span_s if span_s else 0.0

    def _one_line(self) -> str:
        world, endings = self._world, endings_of(self._world)
        rows: Counter[Freshness] = Counter()
        for counts in self._exhibition.rows().values():
            rows.update(counts)
        lags = world.lags()
        refused = endings[ClaimState.REFUSED.value]
        return (
            f"{world.now:5.1f} s  {self._rate():6.1f} decisions/s  {self._times()}  "
            f"claims {sum(endings.values())} refused {refused}  "
            f"rows fresh {rows[Freshness.FRESH]} suspect {rows[Freshness.SUSPECT]} "
            f"stale {rows[Freshness.STALE]} provisional {rows[Freshness.PROVISIONAL]}  "
            f"lagging nodes {sum(lag > 0 for lag in lags.values())}  "
            f"resyncs {window_counters(world).get('resyncs_asked', 0)}"
        )

    def _times(self) -> str:
        steps = self._world.all_step_s()[-RECENT:]
        answers = self._world.latencies_s[-RECENT:]
        return (
            f"in memory p50 {1000 * percentile(steps, 0.5):.2f} ms"
            f" p99 {1000 * percentile(steps, 0.99):.2f} ms,"
            f" answered p50 {1000 * percentile(answers, 0.5):.0f} ms"
            f" p99 {1000 * percentile(answers, 0.99):.0f} ms"
        )

    # -- the screen

    def _lines(self) -> Iterator[str]:
        world = self._world
        yield (
            f"{BOLD}shared-scheduler demo{PLAIN}   {world.now:4.1f} of {self._duration_s:.0f} s"
            f"   {world.sizes.schedulers} schedulers, {len(world.nodes)} nodes, seed {world.seed}"
        )
        yield ""
        yield f"{BOLD}decisions{PLAIN}   {self._rate():6.1f}/s   {self._times()}"
        yield from self._claims()
        yield ""
        yield from self._rows()
        yield ""
        yield from self._lags()
        yield ""
        yield f"{BOLD}what happens{PLAIN}"
        story = self._exhibition.story[-STORY_LINES:]
        yield from (f"  {text}" for text in story)

    def _claims(self) -> Iterator[str]:
        world, endings = self._world, endings_of(self._world)
        total = sum(endings.values()) or 1
        refused = endings[ClaimState.REFUSED.value]
        failed = sum(n for name, n in world.counters.items() if name.startswith("failed_"))
        yield (
            f"{BOLD}claims{PLAIN}      {endings[ClaimState.CONFIRMED.value]} confirmed,"
            f" {refused} refused ({100 * refused / total:.2f} %),"
            f" {endings[ClaimState.TIMED_OUT.value]} without a verdict;"
            f" requests: {world.counters['answered']} answered, {failed} failed"
        )
        network, windows = world.network.counters, window_counters(world)
        yield (
            f"{BOLD}messages{PLAIN}    {network['deliveries']} ({network['lost']} lost on purpose),"
            f" {windows.get('gaps', 0)} gaps found, {windows.get('resyncs_asked', 0)} resyncs,"
            f" {windows.get('snapshots_applied', 0)} snapshots"
        )

    def _rows(self) -> Iterator[str]:
        yield f"{BOLD}scheduler        fresh  suspect  stale  provisional  requests  claims{PLAIN}"
        rows = self._exhibition.rows()
        by_number = self._world.schedulers
        for number in range(self._world.sizes.schedulers):
            scheduler = by_number.get(number)
            if scheduler is None:
                yield f"scheduler-{number}      dead"
                continue
            counts, core = rows[scheduler.name], scheduler.core
            yield (
                f"{scheduler.name:15} {counts[Freshness.FRESH]:6d} {counts[Freshness.SUSPECT]:8d}"
                f" {counts[Freshness.STALE]:6d} {counts[Freshness.PROVISIONAL]:12d}"
                f" {len(core.requests):9d} {len(core.claims):7d}"
            )

    def _lags(self) -> Iterator[str]:
        """Messages that schedulers have not applied, summed over the schedulers."""
        lags = self._world.lags()
        yield f"{BOLD}lag of nodes{PLAIN} (messages not applied yet, all schedulers together)"
        below = -1
        for most in (*LAG_CLASSES, None):
            hit = [n for n, lag in lags.items() if lag > below and (most is None or lag <= most)]
            name = f"more than {below}" if most is None else f"up to {most}"
            bar = "#" * -(-len(hit) * BAR_WIDTH // len(lags))
            yield f"  {name:13} {len(hit):5d} {bar}"
            below = most if most is not None else below
        worst = sorted(lags, key=lambda node: (-lags[node], node))[:WORST_NODES]
        named = [f"{node} {lags[node]}" for node in worst if lags[node]]
        yield f"  worst: {', '.join(named) or 'none'}"

# SPDX-License-Identifier: Apache-2.0
"""The demo's live view: drawn in place by rich on a terminal, one line a second elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from shared_scheduler.cmd import printed_tables
from shared_scheduler.cmd.screen import line, screen_on
from shared_scheduler.core.claim_state import ClaimState
from shared_scheduler.sim.exhibition import Exhibition
from shared_scheduler.sim.report import endings_of, percentile, window_counters
from shared_scheduler.sim.world import World
from shared_scheduler.table.row import Freshness

if TYPE_CHECKING:  # importing rich takes longer than printing a help text
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

#: the decision rate is an average over this time
RATE_OVER_S = 2.0
#: percentiles are those of this many newest decisions
RECENT = 2_000
#: nodes are counted by their lag in these classes: at most this many messages
LAG_CLASSES = (0, 1, 2, 4, 8)
BAR_WIDTH = 36
STORY_LINES = 8
WORST_NODES = 4
#: columns of the names of figures
NAME_WIDTH = 10
FRESHNESS_COLUMNS = (Freshness.FRESH, Freshness.SUSPECT, Freshness.STALE, Freshness.PROVISIONAL)
SCHEDULER_COLUMNS = ("scheduler", *(freshness.value for freshness in FRESHNESS_COLUMNS), "requests", "claims")


class LiveView:
    """Shows a world while it runs; ``on`` False shows nothing."""

    def __init__(self, world: World, exhibition: Exhibition, duration_s: float, out: TextIO, on: bool) -> None:
        self._world = world
        self._exhibition = exhibition
        self._duration_s = duration_s
        self._out = out
        self._on = on
        self._answers: list[tuple[float, int]] = []  # virtual time, requests ended by then
        self._story_lines_written = 0
        self._next_line_at_s = 1.0
        self._screen = screen_on(out) if on else None

    def show(self) -> None:
        """Draw the present state, or write a line when a second of virtual time is over."""
        if not self._on:
            return
        self._answers.append((self._world.now, len(self._world.latencies_s)))
        if self._screen is not None:
            self._screen.draw(list(self._blocks()))
        elif self._world.now >= self._next_line_at_s:
            self._next_line_at_s += 1.0
            self._write_lines()

    def close(self) -> None:
        """Leave the last frame on the terminal, and the cursor visible below it."""
        if self._screen is not None:
            self._screen.close()

    # -- figures

    def _rate(self) -> float:
        now, count = self._answers[-1]
        past = [pair for pair in self._answers if now - pair[0] <= RATE_OVER_S]
        del self._answers[: len(self._answers) - len(past)]
        span_s = now - past[0][0]
        return (count - past[0][1]) / span_s if span_s else 0.0

    def _times(self) -> tuple[str, str]:
        steps = self._world.all_step_s()[-RECENT:]
        answers = self._world.latencies_s[-RECENT:]
        return (
            f"in memory p50 {1000 * percentile(steps, 0.5):.2f} ms p99 {1000 * percentile(steps, 0.99):.2f} ms",
            f"answered p50 {1000 * percentile(answers, 0.5):.0f} ms p99 {1000 * percentile(answers, 0.99):.0f} ms",
        )

    # -- lines, without a terminal

    def _write_lines(self) -> None:
        if self._world.is_open:
            self._out.write(f"{self._one_line()}\n")
        for text in self._exhibition.story[self._story_lines_written :]:
            self._out.write(f"  {text}\n")
        self._story_lines_written = len(self._exhibition.story)
        self._out.flush()

    def _one_line(self) -> str:
        world, endings = self._world, endings_of(self._world)
        rows: Counter[Freshness] = Counter()
        for counts in self._exhibition.rows().values():
            rows.update(counts)
        lags = world.lags()
        refused = endings[ClaimState.REFUSED.value]
        return (
            f"{world.now:5.1f} s  {self._rate():6.1f} decisions/s  {', '.join(self._times())}  "
            f"claims {sum(endings.values())} refused {refused}  "
            f"rows fresh {rows[Freshness.FRESH]} suspect {rows[Freshness.SUSPECT]} "
            f"stale {rows[Freshness.STALE]} provisional {rows[Freshness.PROVISIONAL]}  "
            f"lagging nodes {sum(lag > 0 for lag in lags.values())}  "
            f"resyncs {window_counters(world).get('resyncs_asked', 0)}"
        )

    # -- blocks of the frame, with a terminal

    def _blocks(self) -> Iterator[RenderableType]:
        yield self._title()
        yield self._figures()
        yield self._schedulers()
        yield self._story()
        yield self._lags()

    def _title(self) -> Text:
        world, at_s = self._world, min(self._world.now, self._duration_s)
        return line(
            ("shared-scheduler demo", "bold"),
            f"   {at_s:4.1f} of {self._duration_s:.0f} s",
            f"   {world.sizes.schedulers} schedulers, {len(world.nodes)} nodes, seed {world.seed}",
        )

    def _figures(self) -> Table:
        from rich.columns import Columns
        from rich.table import Table

        made = Table.grid(padding=(0, 2, 0, 0))
        made.add_column(style="bold", width=NAME_WIDTH)
        made.add_column()
        for name, figures in self._named_figures().items():
            made.add_row(name, Columns(figures, padding=(0, 2)))
        return made

    def _named_figures(self) -> dict[str, tuple[str, ...]]:
        world, endings = self._world, endings_of(self._world)
        total = sum(endings.values()) or 1
        refused = endings[ClaimState.REFUSED.value]
        failed = sum(n for name, n in world.counters.items() if name.startswith("failed_"))
        network, windows = world.network.counters, window_counters(world)
        return {
            "decisions": (f"{self._rate():.1f}/s", *self._times()),
            "requests": (f"{world.counters['answered']} answered", f"{failed} failed"),
            "claims": (
                f"{endings[ClaimState.CONFIRMED.value]} confirmed",
                f"{refused} refused ({100 * refused / total:.2f} %)",
                f"{endings[ClaimState.TIMED_OUT.value]} without a verdict",
            ),
            "messages": (
                f"{network['deliveries']} ({network['lost']} lost on purpose)",
                f"{windows.get('gaps', 0)} gaps found",
                f"{windows.get('resyncs_asked', 0)} resyncs",
                f"{windows.get('snapshots_applied', 0)} snapshots",
            ),
        }

    def _schedulers(self) -> Table:
        rows = self._exhibition.rows()
        by_number = self._world.schedulers
        lines: list[list[str]] = []
        for number in range(self._world.sizes.schedulers):
            scheduler = by_number.get(number)
            if scheduler is None:
                lines.append([f"scheduler-{number}", "dead", *[""] * (len(SCHEDULER_COLUMNS) - 2)])
                continue
            core = scheduler.core
            counts = [rows[scheduler.name][freshness] for freshness in FRESHNESS_COLUMNS]
            lines.append([scheduler.name, *map(str, (*counts, len(core.requests), len(core.claims)))])
        made = printed_tables.table(SCHEDULER_COLUMNS, lines, numbers=range(1, len(SCHEDULER_COLUMNS)))
        made.columns[0].min_width = max(len(name) for name, *_ in lines)
        return made

    def _story(self) -> RenderableType:
        from rich.console import Group

        story = self._exhibition.story[-STORY_LINES:]
        return Group(line(("what happens", "bold")), *(line(f"  {text}") for text in story))

    def _lags(self) -> RenderableType:
        """Nodes by the number of messages that schedulers have not applied, summed over the schedulers."""
        from rich.console import Group

        lags = self._world.lags()
        lines = []
        above = -1
        for most in (*LAG_CLASSES, None):
            nodes = sum(lag > above and (most is None or lag <= most) for lag in lags.values())
            name = f"more than {above}" if most is None else f"up to {most}"
            bar = "#" * -(-nodes * BAR_WIDTH // len(lags))
            lines.append(line(f"  {name:13} {nodes:5d} {bar}"))
            above = most if most is not None else above
        worst = sorted(lags, key=lambda node: (-lags[node], node))[:WORST_NODES]
        named = [f"{node} {lags[node]}" for node in worst if lags[node]]
        head = line(("lag of nodes", "bold"), " (messages not applied yet, all schedulers together)")
        return Group(head, *lines, line(f"  worst: {', '.join(named) or 'none'}"))

# SPDX-License-Identifier: Apache-2.0
"""The pages as HTML.  Jinja escapes every value; instance names, hosts and reasons were written by others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup

from shared_scheduler.answers import decision_facts, story_words, terms
from shared_scheduler.answers.from_records import is_failure
from shared_scheduler.answers.held_room import held_text
from shared_scheduler.answers.host_facts import (
    comparison,
    lag,
    origin,
    outcome_parts,
    tries_after,
    weight_number,
    why_not,
)
from shared_scheduler.answers.host_facts import words as words_of_facts
from shared_scheduler.answers.next_steps import end_of_alternates, next_steps, unknown_causes
from shared_scheduler.answers.shapes import Fleet, FleetHost, Load, Reasons, RecordEntry, Why
from shared_scheduler.daemon.admin import AdminError
from shared_scheduler.page.fleet_map import RESOURCES, VIEWS, fleet_map, free_shares, totals
from shared_scheduler.page.queries import Fields, NotRecordedError, PageQuestions
from shared_scheduler.protocol import limits
from shared_scheduler.protocol.phases import ASKING, WindowPhase
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.later_requests import move_text
from shared_scheduler.records.moments import iso, second
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.reason_names import FILTERED, told_code
from shared_scheduler.records.short_names import server_of, short_names
from shared_scheduler.records.store import ACTIVE, BUILD, COMPARISON, DECISION, FOREIGN, NODE, PLACED
from shared_scheduler.records.story import hosts_by_end
from shared_scheduler.records.told_reasons import WRITTEN, told_decisions, told_text, weighed_in

#: Rows of the tables of hosts, and of reasons.
HOSTS_SHOWN, REASONS_SHOWN, FAILED_SHOWN = 12, 20, 8
#: filters of the page of records
FILTERS = ("kind", "project", "host", "result", "reason", "count")
HOURS = (1, 6, 24, 168)
BEHIND = frozenset(phase.value for phase in (*ASKING, WindowPhase.SILENT))
KINDS = (DECISION, BUILD, COMPARISON, NODE, FOREIGN)
#: After these times without a message, an agent is asked whether it is there, and is silent, by default.
LATE_S = {"asked": limits.ASKED_AFTER * limits.SILENT_AFTER_S, "silent": limits.SILENT_AFTER_S}
GOOD = frozenset({PLACED, ACTIVE, WRITTEN})
PROGRAM = "shared-scheduler-manage"


@dataclass(frozen=True, slots=True)
class Step:
    """What an operator may do next: the words of a command and what it shows, or a text only."""

    command: Sequence[str]
    text: str


class Views:
    """Renders a page by its path.  ``place``: see ``answers.next_steps.next_steps``."""

    def __init__(self, questions: PageQuestions, place: str = "") -> None:
        self._questions, self._place = questions, place
        self._jinja = Environment(
            loader=PackageLoader("shared_scheduler.page"), autoescape=True, undefined=ChainableUndefined,
            trim_blocks=True, lstrip_blocks=True, finalize=_plain,
        )  # fmt: skip
        self._jinja.filters.update(moment=second, number=_number, iso=iso, percent=_percent, origin=origin,
                                   places=enumerate, capitalize_first=_capitalized,
                                   held=held_text, code=told_code, comparison=comparison, outcome_parts=outcome_parts,
                                   lag=lag, why_not=why_not, told_decisions=told_decisions, told_text=told_text,
                                   short_names=short_names, weighed_in=weighed_in, weight_number=weight_number,
                                   move=move_text,
                                   limits=decision_facts.limits, took=decision_facts.took)  # fmt: skip
        self._jinja.globals.update(GOOD=GOOD, BUILD=BUILD, DECISION=DECISION, FILTERED=FILTERED, KINDS=KINDS,
                                   is_failure=is_failure, tries_after=tries_after, hosts_by_end=hosts_by_end,
                                   server_of=server_of, LATE_S=LATE_S, RESOURCES=RESOURCES)  # fmt: skip
        self.pages: Mapping[str, Callable[[Fields], str]] = {
            "/": self._fleet, "/records": self._records, "/reasons": self._reasons, "/why": self._why,
            "/host": self._host,
        }  # fmt: skip

    def error(self, title: str, text: str) -> str:
        """The page of an error."""
        return self._render("error.html", title=title, text=text)

    def place_of(self, fields: Fields) -> tuple[str, str]:
        """The page for what was typed into the search field: ("host", its name) or ("why", an id)."""
        wanted = fields.get("q", "").strip()
        if wanted in {host["host"] for host in self._known_hosts()} or self._is_recorded_host(wanted):
            return "host", wanted
        return "why", wanted

    def _is_recorded_host(self, wanted: str) -> bool:
        try:
            return bool(wanted) and bool(self._questions.story({"host": wanted, "last": "1"}))
        except (NotRecordedError, ValueError):
            return False

    def _known_hosts(self) -> Sequence[FleetHost]:
        try:
            return self._questions.fleet({})["hosts"]
        except AdminError:
            return ()

    def _render(self, template: str, **given: Any) -> str:
        return self._jinja.get_template(template).render({"here": "", "query": "", **given})

    # -- pages

    def _fleet(self, fields: Fields) -> str:
        view = fields.get("show", "used")
        if view not in VIEWS:
            view = "used"
        asked: dict[str, Any] = {
            "fleet": None,
            "loads": [],
            "without_answer": [],
            "away": {},
            "silent": "",
            "failed": [],
            "unreadable": "",
        }
        try:
            asked["fleet"], asked["loads"] = self._questions.fleet({}), self._questions.top({})
            asked["without_answer"] = self._questions.schedulers_without_answer()
        except AdminError as error:
            asked["silent"] = str(error)
        try:
            asked["failed"] = self._last_failed()
            asked["away"] = self._questions.away() if asked["loads"] else {}
        except RecordsError as error:
            asked["unreadable"] = str(error)
        shown = {} if asked["fleet"] is None else _map_of(asked["fleet"], view)
        words = terms.meanings(_words_of_fleet(asked["loads"], asked["fleet"]), terms.PAGE, terms.TOP, terms.COUNTERS)
        return self._render("fleet.html", here="/", view=view, views=list(VIEWS), words=words, **asked, **shown)

    def _last_failed(self) -> list[RecordEntry]:
        return list(reversed(self._questions.last_failures(FAILED_SHOWN)))

    def _records(self, fields: Fields) -> str:
        chosen = {name: fields.get(name, "") for name in FILTERS}
        found = self._questions.records(fields)
        return self._render("records.html", here="/records", records=list(reversed(found)), chosen=chosen)

    def _reasons(self, fields: Fields) -> str:
        found = self._questions.reasons(fields)
        hours = int(fields.get("hours", "").strip() or 24)
        highest = max((max(counts) for counts in found["counts"].values()), default=1)
        return self._render("reasons.html", here="/reasons", reasons=found, rows=_bars(found, highest),
                            highest=highest, hours=hours, spans=HOURS)  # fmt: skip

    def _why(self, fields: Fields) -> str:
        found = self._questions.why(fields)
        host, answers = fields.get("host", "").strip(), None
        if host:
            answers = self._questions.why_not({"id": found["name"], "host": host})
        told = words_of_facts(one["text"] for one in answers or ())
        words = terms.meanings([*told, *story_words.words(found)], *story_words.TERMS)
        return self._render(
            "why.html", story=found, steps=list(_steps(found, self._place)), unknown=list(unknown_causes(found)),
            ends=list(end_of_alternates(found)), host=host, answers=answers, words=words, query=found["name"],
        )  # fmt: skip

    def _host(self, fields: Fields) -> str:
        name = fields.get("host", "").strip()
        now = [host for host in self._known_hosts() if host["host"] == name]
        try:
            events = list(reversed(self._questions.story(fields)))
        except NotRecordedError:
            if not now:
                raise
            events = []
        shown = [word for one in now for word in (one["freshness"], one["why_not"], one["state"])]
        words = terms.meanings([*shown, *words_of_facts(one["text"] for one in events)],
                               terms.FRESHNESS, terms.NOT_CHOOSABLE, *story_words.HOST_TERMS, terms.TOP)  # fmt: skip
        return self._render("host.html", name=name, now=now, events=events, words=words, query=name)


def _steps(told: Why, place: str) -> Iterator[Step]:
    for text in next_steps(told, place):
        command, shows, what = text.partition(" shows ")
        yield Step([PROGRAM, *command.split(" ")], f"shows {what}") if shows else Step((), _capitalized(text))


def _words_of_fleet(loads: Sequence[Load], fleet: Fleet | None) -> Iterator[str]:
    if loads:
        yield from ("decisions", "without host", "refusals", "conflicts", *loads[0]["queues"])
    if fleet is not None:
        yield from ("lag", *terms.PAGE.terms)
        yield from sorted({one["state"] for one in fleet["hosts"]} & BEHIND)


def _map_of(fleet: Fleet, view: str) -> dict[str, Any]:
    hosts = fleet["hosts"]
    behind = sorted((one for one in hosts if one["lag"] or one["state"] in BEHIND), key=_lag_order)
    open_hosts = [one for one in hosts if not one["why_not"] and _stranded(one) > 0]
    stranded = sorted(open_hosts, key=_stranded, reverse=True)
    return {
        "map": fleet_map(hosts, view), "totals": totals(hosts),
        "behind": behind[:HOSTS_SHOWN], "behind_count": len(behind),
        "stranded": [(one, _stranded(one)) for one in stranded[:HOSTS_SHOWN]],
    }  # fmt: skip


def _lag_order(host: FleetHost) -> tuple[int, float]:
    return -host["lag"], -(host["heard_ago_s"] or 0.0)


def _stranded(host: FleetHost) -> float:
    shares = free_shares(host)
    return max(shares) - min(shares) if shares else 0.0


def _bars(reasons: Reasons, highest: int) -> list[dict[str, Any]]:
    """Reasons with the heights of their bars, in per cent of the highest bar of all."""
    return [
        {"reason": reason, "total": sum(counts), "texts": reasons["texts"].get(reason, {}),
         "bars": [round(100 * count / highest, 1) for count in counts]}
        for reason, counts in list(reasons["counts"].items())[:REASONS_SHOWN]
    ]  # fmt: skip


def _plain(value: Any) -> Any:
    """A value without control characters and changes of direction; what templates made is left as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _number(value: float) -> Markup:
    """With thin spaces between thousands."""
    return Markup(f"{value:,}".replace(",", "&#8239;"))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]

# SPDX-License-Identifier: Apache-2.0
"""The pages as HTML.  Jinja escapes every value; instance names, hosts and reasons were written by others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup

from shared_scheduler.answers import story_words, terms
from shared_scheduler.answers.from_records import is_failure
from shared_scheduler.answers.held_room import held_text
from shared_scheduler.answers.host_facts import code_of, comparison, origin, outcome_parts, tries
from shared_scheduler.answers.host_facts import words as words_of_facts
from shared_scheduler.answers.next_steps import next_steps, unknown_causes
from shared_scheduler.answers.shapes import Fleet, FleetHost, Reasons, RecordEntry
from shared_scheduler.daemon.admin import AdminError
from shared_scheduler.page.fleet_map import VIEWS, fleet_map, free_shares, totals
from shared_scheduler.page.queries import Fields, NotRecordedError, PageQuestions
from shared_scheduler.protocol.phases import ASKING, WindowPhase
from shared_scheduler.records.amounts import counts_first
from shared_scheduler.records.errors import RecordsError
from shared_scheduler.records.moments import iso, second
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.store import ACTIVE, BUILD, COMPARISON, DECISION, NODE, PLACED

#: Rows of the tables of hosts, and of reasons.
HOSTS_SHOWN, REASONS_SHOWN, FAILED_SHOWN = 12, 20, 8
#: filters of the page of records
FILTERS = ("kind", "project", "host", "result", "reason", "count")
HOURS = (1, 6, 24, 168)
BEHIND = frozenset(phase.value for phase in (*ASKING, WindowPhase.SILENT))
KINDS = (DECISION, BUILD, COMPARISON, NODE)
#: words of the page of the fleet
FLEET_WORDS = ("decisions", "failures", "refusals", "conflicts", "stranded", "lag")
GOOD = frozenset({PLACED, ACTIVE, "written"})


class Views:
    """Renders a page by its path."""

    def __init__(self, questions: PageQuestions) -> None:
        self._questions = questions
        self._jinja = Environment(
            loader=PackageLoader("shared_scheduler.page"), autoescape=True, undefined=ChainableUndefined,
            trim_blocks=True, lstrip_blocks=True, finalize=_plain,
        )  # fmt: skip
        self._jinja.filters.update(moment=second, number=_number, iso=iso, percent=_percent, origin=origin,
                                   code=code_of, comparison=comparison, tries=tries, outcome_parts=outcome_parts,
                                   places=enumerate, capitalize_first=_capitalized,
                                   counts_first=counts_first, held=held_text)  # fmt: skip
        self._jinja.globals.update(GOOD=GOOD, BUILD=BUILD, DECISION=DECISION, KINDS=KINDS, is_failure=is_failure)
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
        except RecordsError as error:
            asked["unreadable"] = str(error)
        shown = {} if asked["fleet"] is None else _map_of(asked["fleet"], view)
        words = terms.meanings(FLEET_WORDS, terms.PAGE, terms.TOP, terms.COUNTERS) if shown else {}
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
        return self._render("reasons.html", here="/reasons", reasons=found, rows=_bars(found), hours=hours, spans=HOURS)

    def _why(self, fields: Fields) -> str:
        story = self._questions.why(fields)
        host, answers = fields.get("host", "").strip(), None
        if host:
            answers = self._questions.why_not({"id": story["name"], "host": host})
        steps, unknown = list(next_steps(story)), list(unknown_causes(story))
        words = terms.meanings(story_words.words(story), *story_words.TERMS)
        return self._render(
            "why.html", story=story, steps=steps, unknown=unknown, host=host, answers=answers, words=words,
            query=story["name"],
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
        return self._render("host.html", name=name, now=now, events=events, query=name, words=words)


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


def _bars(reasons: Reasons) -> list[dict[str, Any]]:
    """Reasons with the heights of their bars, in per cent of the highest bar of all."""
    highest = max((max(counts) for counts in reasons["counts"].values()), default=1)
    return [
        {"reason": reason, "total": sum(counts), "bars": [round(100 * count / highest, 1) for count in counts]}
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

# SPDX-License-Identifier: Apache-2.0
"""The page refuses what it should not answer, runs nothing that others wrote, and answers what the commands answer."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers import from_records, story_words, terms
from shared_scheduler.answers.schema import ANSWERS, schemas
from shared_scheduler.answers.shapes import Why
from shared_scheduler.cmd import manage
from shared_scheduler.core.effects import NodeChange, RecordNode
from shared_scheduler.daemon.admin import AdminServer
from shared_scheduler.decision.explain import ExplainedHost
from shared_scheduler.decision.record import Attempt, DecisionCounts, Weighed
from shared_scheduler.page.fleet_map import VIEWS, fleet_map, totals
from shared_scheduler.page.queries import PageQuestions
from shared_scheduler.page.site import HEADERS, QUERY_CHARS_MAX, Site
from shared_scheduler.page.views import Views
from shared_scheduler.records import entries
from shared_scheduler.records.json_lines import JsonLines
from shared_scheduler.records.store import RecordConditions
from tests.support.shown_cloud import ShownScheduler, build, day, hosts
from tests.unit.cmd.test_questions_to_records import NO_ADDRESS
from tests.unit.records.test_entries import record

NOW_S = 1_760_000_000.0
#: what a tenant, an agent or a plug-in may call itself
FORGED = "</td><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x1b[2K"
SERVER, HOST, NOWHERE = "server-1", "rack000-c03", "server-nowhere"

Get = Callable[..., tuple[str, dict[str, str], str]]


class Cloud:
    """Records, a scheduler, and the site that shows both."""

    def __init__(self, directory: Path, names: tuple[str, ...] = ("localhost",)) -> None:
        self.directory, self.path = directory, directory / "records.jsonl"
        rng, self.fleet = Random(3), hosts(60, Random(3))
        self.store = JsonLines(self.path)
        self.store.write(list(day(NOW_S, 100, rng, [one["host"] for one in self.fleet])))
        self.store.write([build(SERVER, HOST, NOW_S - 5, NO_ADDRESS)])
        self.scheduler = AdminServer(directory / "c-1.sock", ShownScheduler(self.fleet).questions())
        self.site = Site(PageQuestions(self.store, directory, lambda: NOW_S), names, f" --records {self.path}")

    def why(self, name: str) -> Why:
        """What the command ``why`` prints, before it is text."""
        found = from_records.why(self.store, name)
        assert found is not None
        return found

    def get(self, path: str, **environ: str) -> tuple[str, dict[str, str], str]:
        """Status, headers and body, as the site gives them to its server."""
        said: list[Any] = []
        place, _, query = path.partition("?")
        given = {"REQUEST_METHOD": "GET", "PATH_INFO": place, "QUERY_STRING": query, "HTTP_HOST": "localhost:8780"}
        body = b"".join(self.site({**given, **environ}, lambda status, headers: said.extend([status, dict(headers)])))
        return said[0], said[1], body.decode()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path)
    made.scheduler.start()
    yield made
    made.scheduler.stop()


PAGES = [
    "/", "/?show=stranded", "/?show=lag", "/records", "/records?kind=build&count=3", "/reasons", "/reasons?hours=1",
    f"/why?id={SERVER}", f"/why?id={SERVER}&host={HOST}", f"/host?host={HOST}", "/host?host=rack001-c02",
]  # fmt: skip


class Reader(HTMLParser):
    """What a browser would run or load, which ids it knows, and what has no name for those who do not see it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded, self.ids, self.named_by, self.headings = list[str](), list[str](), list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert tag not in ("style", "iframe", "object"), tag
        assert not [name for name in given if name.startswith("on") or name == "style"], attrs
        if tag == "script" or (tag == "link" and given.get("rel") == "stylesheet") or tag == "img":
            self.loaded.append(str(given.get("src") or given.get("href")))
        self.ids += filter(None, [given.get("id")])
        self.named_by += filter(None, [given.get("for"), given.get("aria-labelledby"), given.get("aria-describedby")])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_whole_and_runs_only_our_own_files(cloud: Cloud, path: str) -> None:
    status, headers, text = cloud.get(path)

    page = Reader(text)
    assert status == "200 OK", text
    assert page.loaded == ["/static/page.css", "/static/page.js"]
    assert page.headings[0] == "h1" and page.headings.count("h1") == 1
    assert len(page.ids) == len(set(page.ids)) and set(page.named_by) <= set(page.ids)
    assert headers.items() >= dict(HEADERS).items()
    policy = headers["Content-Security-Policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy


def test_a_story_says_what_to_do_next_and_explains_its_words(cloud: Cloud) -> None:
    text = shown(cloud.get(f"/why?id={SERVER}")[2])
    assert f"The log of nova-compute on {HOST} has the traceback" in text
    command = f"shared-scheduler-manage why {SERVER} --nova --records {cloud.path}"
    assert f"{command} shows Nova's own events and faults" in text

    [decision] = cloud.store.last(1, RecordConditions(kind="decision", result="placed"))
    text = cloud.get(f"/why?id={decision['request_id']}")[2]
    assert '<th scope="row">weights</th><td>Of the hosts that passed,' in text


def shown(page: str) -> str:
    """What a reader sees of a page, with one space between words."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page.partition("<main")[2])).split())


def no_host(**changes: Any) -> dict[str, Any]:
    """A record of a request for 100,000 MB and a trait that two hosts cannot have."""
    counts = DecisionCounts(0, 2, 0, {"no_room:MEMORY_MB": 2})
    refused = record(
        (NOWHERE,), failure="no_candidates", text="0 of 2 hosts pass", answer=(), attempts=(), decisions=(counts,),
        timings_ms={"total": 34.3, "rechecking": 34.3}, request_id="req-nowhere",
    )  # fmt: skip
    detail = {"provider": "p", "resource_class": "MEMORY_MB", "asked": 100_000, "used": 0, "max_unit": 1_200}
    answers = [ExplainedHost(host, host, "no_room:MEMORY_MB", detail, epoch=3, sequence=41) for host in ("c1", "c2")]
    near = entries.Near(answers, {"no_room:MEMORY_MB": (98_800, 98_800)}, {"c1": {"source": "agent", "age_s": 0.4}})
    made = entries.entry(refused, "controller-1", NOW_S, near)
    forms = [{"resources": {"MEMORY_MB": 100_000}, "root_required": ["HW_CPU_X86_AVX512F"]}]
    asked = {**made["asked"], "forms": forms, "group": ["group-1", "anti-affinity"]}
    return {**made, "user_id": "user-7", "asked": asked, **changes}


def test_the_page_of_a_request_tells_what_the_command_tells(cloud: Cloud) -> None:
    cloud.store.write([no_host()])

    text = shown(cloud.get(f"/why?id={NOWHERE}")[2])

    assert "Asked 100000 MB of MEMORY_MB; one server gets at most 1200 MB on these 2 hosts" in text
    assert "user user-7" in text
    assert "Limited to hosts by group anti-affinity group-1; traits HW_CPU_X86_AVX512F" in text
    assert "Took 34.3 ms: 1 decision, 0 hosts tried; rechecking 34.3 ms; the request came at" in text
    assert "asked 100000 MB, used 0 MB, max_unit 1200 MB" in text
    for word in terms.meanings(story_words.words(cloud.why(NOWHERE)), *story_words.TERMS):
        assert word in text.partition("Words")[0] or word in ("agent", "claim"), word


def test_only_hosts_that_were_tried_are_said_to_be_tried(cloud: Cloud) -> None:
    filtered = {"instance": NOWHERE, "host": "c2", "outcome": "filter", "detail": {"filter": "TheirFilter"},
                "verdict_ms": None, "write_ms": None, "after_decisions": 1}  # fmt: skip
    cloud.store.write([no_host(attempts=[filtered])])

    text = shown(cloud.get(f"/why?id={NOWHERE}")[2])

    assert "Hosts that a filter rejected c2 TheirFilter" in text
    assert "Hosts that were rejected c1" in text
    assert "nearly" not in text and "were tried" not in text.partition("Words")[0]


def test_a_try_stands_behind_its_decision(cloud: Cloud) -> None:
    best = Weighed("n", "c3", 0.0, 3, 41)
    counts = DecisionCounts(0, 3, 2, {"no_room:VCPU": 1}, (best,))
    detail = {"resource_class": "VCPU", "asked": 4}
    tries = (Attempt("s", "n", "c3", "no_capacity", detail, 3, 41, 2.5, after_decisions=1),
             Attempt("s", "n", "c2", "written", {}, 3, 41, 2.5, 8.0, after_decisions=2))  # fmt: skip
    refused = record(("s",), request_id="req-2", decisions=(counts, counts), attempts=tries, answer=(("c2",),))
    cloud.store.write([entries.entry(refused, "controller-1", NOW_S)])

    text = shown(cloud.get("/why?id=req-2")[2])

    first, second = (text.index(f"Hosts that were tried {host}") for host in ("c3 no_capacity", "c2 written"))
    assert text.index("2 of 3 hosts passed") < first < text.rindex("2 of 3 hosts passed") < second


def test_the_chosen_host_stands_behind_the_best(cloud: Cloud) -> None:
    weights = {"c1": 2, "c9": 1}
    best, chosen = (Weighed("n", host, weight, shares={"RAMWeigher": weight}) for host, weight in weights.items())
    counts = DecisionCounts(0, 9, 9, {}, (best,), chosen)
    placed = record(("s",), request_id="req-4", decisions=(counts,), answer=(("c9",),))
    cloud.store.write([entries.entry(placed, "controller-1", NOW_S)])

    text = shown(cloud.get("/why?id=req-4")[2])

    assert "Best by weight c1 2 RAMWeigher 2 c9 (chosen) 1 RAMWeigher 1" in text


def test_a_weight_of_minus_zero_is_shown_as_commands_do(cloud: Cloud) -> None:
    counts = DecisionCounts(0, 2, 2, {}, (Weighed("n", "c1", -0.0, shares={"IoOpsWeigher": -0.0}),))
    placed = record(("s",), request_id="req-4", decisions=(counts,), answer=(("c1",),))
    cloud.store.write([entries.entry(placed, "controller-1", NOW_S)])

    assert "Best by weight c1 0 IoOpsWeigher 0" in shown(cloud.get("/why?id=req-4")[2])


def test_the_end_of_the_alternates_is_told(cloud: Cloud) -> None:
    placed = record(("s",), request_id="req-3", answer=(("c1", "c2"),))
    cloud.store.write([entries.entry(placed, "controller-1", NOW_S), build("s", "c1", NOW_S + 1, NO_ADDRESS),
                       build("s", "c2", NOW_S + 2, NO_ADDRESS)])  # fmt: skip

    assert "No alternate was left after these builds, and Nova gave up." in shown(cloud.get("/why?id=req-3")[2])


def test_the_later_requests_for_a_server_are_told_apart(cloud: Cloud) -> None:
    placed = record(("s",), request_id="req-3", answer=(("c1", "c2"),))
    moved = record(("s",), request_id="req-4", answer=(("c3",),))
    cloud.store.write([entries.entry(placed, "controller-1", NOW_S), build("s", "c1", NOW_S + 1, ""),
                       entries.entry(moved, "controller-1", NOW_S + 2)])  # fmt: skip

    text = shown(cloud.get("/why?id=req-3")[2])

    assert "Became active on c1" in text
    assert "Later requests s: a later request for it (req-4) placed it on c3" in text


def test_a_host_that_refused_is_not_shown_as_selected(cloud: Cloud) -> None:
    tries = (Attempt("s", "n", "c3", "no_capacity"), Attempt("s", "n", "c2", "written"))
    cloud.store.write([entries.entry(record(("s",), attempts=tries, answer=(("c2", "c1"),)), "controller-1", NOW_S)])

    assert "placed req-7 c2 (refused: c3 )" in shown(cloud.get("/records?count=1")[2])


def test_the_fleet_says_since_when_it_counts_and_defines_its_words(cloud: Cloud) -> None:
    text = shown(cloud.get("/")[2])

    assert "Without host" in text and "Failures 312" not in text
    assert "controller-1 4711 2025-10-09 05:53:20Z" in text
    assert "MEMORY_MB" in text and "MiB" not in text
    words = text.partition(" Words ")[2]
    for word in ("without host", "refusals", "conflicts", "usable", "stranded", "not choosable"):
        assert f" {word} " in f" {words}", word


def test_a_scheduler_that_wrote_records_and_does_not_answer_is_named(cloud: Cloud) -> None:
    cloud.store.write([entries.entry(record(), "sched2", NOW_S - 60)])
    cloud.store.write([entries.entry(record(), "sched3", NOW_S - 90_000)])

    text = shown(cloud.get("/")[2])

    assert "sched2 wrote records until 2025-10-09 08:52:20Z ; it does not answer here" in text
    assert "controller-1 wrote" not in text and "sched3 wrote" not in text


def test_the_page_of_a_host_says_its_order_and_when_its_agent_is_late(cloud: Cloud) -> None:
    cloud.fleet[3].update(host=HOST, freshness="fresh", state="in_order", heard_ago_s=38.7, why_not="quarantined")

    text = shown(cloud.get(f"/host?host={HOST}")[2])

    assert "What the records say, newest first" in text
    assert "Last heard 38.7 s ago" in text
    assert (
        "After 48 s without a message it is asked whether it is there, and after 54 s the node is provisional" in text
    )
    assert "May be selected yes, after all others (quarantined)" in text
    assert "fresh An agent publishes the state of the node" in text


def test_the_page_of_reasons_says_first_how_failures_are_counted(cloud: Cloud) -> None:
    above, table, _ = cloud.get("/reasons")[2].partition("<table")
    assert table and "a decision under the reason that rejected the most hosts" in above
    assert "for a request of one zone, that is often aggregates" in above


def test_a_silent_agent_is_behind_no_messages(cloud: Cloud) -> None:
    # given an agent that is silent since before a gap, and one whose window has the gap only
    silent = {"state": "silent", "agent": "silent", "freshness": "provisional", "lag": 159, "heard_ago_s": 516.0}
    cloud.fleet[3].update(host=HOST, why_not="", **silent)
    cloud.fleet[4].update(host="c-gap", state="gap", agent="heard", lag=158, heard_ago_s=2.0)

    host, fleet = shown(cloud.get(f"/host?host={HOST}")[2]), shown(cloud.get("/")[2])

    assert "Messages behind – Last heard 516.0 s ago" in host
    assert f"{HOST} silent – 516.0" in fleet and "c-gap gap 158 2.0" in fleet


def test_the_page_of_a_disabled_host_has_the_reason(cloud: Cloud) -> None:
    cloud.fleet[3].update(host=HOST, why_not="disabled", disabled_reason="exchange of memory")
    assert "May be selected no: disabled (exchange of memory)" in shown(cloud.get(f"/host?host={HOST}")[2])


def test_reasons_have_the_texts_of_the_builds_and_the_times_of_the_bars(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    error = "ComputeResourcesUnavailable: Insufficient compute resources: No more IP addresses."
    cloud.store.write([build("s", f"c{n}", NOW_S - n, error) for n in range(9)])

    text = shown(cloud.get("/reasons?hours=1")[2])

    assert "ComputeResourcesUnavailable 9 Insufficient compute resources: No more IP addresses." in text
    assert "2025-10-09 07:53:20Z Over time 2025-10-09 08:53:20Z" in text
    assert "the highest is 9 failures in 75 seconds" in text


def test_a_story_tells_hosts_as_the_command_does(cloud: Cloud) -> None:
    # given a server that a filter rejected on each host, and one that was refused for lack of room
    name, lacking = "NUMATopologyFilter", "asked 4096 MB, used 8000 MB, capacity 8192 MB"
    detail = {"provider": "n1", "resource_class": "MEMORY_MB", "asked": 4096, "used": 8000, "capacity": 8192}
    filtered = record(("server-5",), failure="no_valid_host", text="none", answer=(),
                      attempts=(Attempt("server-5", "n", "c5", "filter", {"filter": name}),))  # fmt: skip
    refused = record(("server-6",), failure="no_valid_host", text="none", answer=(),
                     attempts=(Attempt("server-6", "n", "c6", "no_capacity", detail),))  # fmt: skip
    held = {"servers": 1, "pending": 0, "amounts": {"MEMORY_MB": 8000}, "epoch": 3, "sequence": 7,
            "largest": [{"server": "older", "amounts": {"MEMORY_MB": 8000}, "pending": False}]}  # fmt: skip
    full = ExplainedHost("n7", "c7", "no_room:MEMORY_MB", detail, epoch=3, sequence=7)
    near = entries.Near([full], held={"n7": held})
    cloud.store.write([entries.entry(filtered, "s", NOW_S), entries.entry(refused, "s", NOW_S, near)])

    # then the page names the filter, and amounts have their units; the provider is that of the host
    assert f'<span class="result bad">{name}</span>' in cloud.get("/why?id=server-5")[2]
    shown = cloud.get("/why?id=server-6")[2]
    assert f"<td>resource_class MEMORY_MB, {lacking}" in shown
    named = "held by 1 server (MEMORY_MB 8000): older (MEMORY_MB 8000)"
    assert f"<td>{lacking}; short by 3.81 GiB<br>{named}</td>" in shown
    assert "provider n1" not in shown


def test_the_page_of_the_fleet_and_of_a_host_explain_their_words(cloud: Cloud) -> None:
    for path, words in (("/", ("refusals", "conflicts", "stranded", "claim")), (f"/host?host={HOST}", ("fresh",))):
        text = cloud.get(path)[2]
        assert [word for word in words if f'<th scope="row">{word}</th><td>' not in text] == []


def test_what_others_wrote_is_text(tmp_path: Path) -> None:
    # given a request, a host, reasons and a scheduler with hostile names
    cloud = Cloud(tmp_path)
    refused = record((FORGED,), request_id=FORGED, failure=FORGED, text=FORGED, attempts=(), answer=())
    entry = {**entries.entry(refused, FORGED, NOW_S - 1), "hosts": [FORGED], "reasons": {FORGED: 3},
             "near": [{"host": FORGED, "code": FORGED, "detail": {FORGED: FORGED}}],
             "attempts": [
                 {"host": FORGED, "outcome": FORGED, "detail": {FORGED: 1}, "verdict_ms": 1, "write_ms": None}],
             "decisions": [{"survivors": 0, "hosts": 3, "reasons": {FORGED: 3}, "best": [
                 {"host": FORGED, "weight": 1.0, "shares": {FORGED: 1.0}}]}]}  # fmt: skip
    other = {"kind": FORGED, "at": NOW_S, "instances": [FORGED]}
    cloud.store.write([entry, build(FORGED, FORGED, NOW_S, FORGED), other])
    cloud.fleet[0].update({"host": FORGED, "node": FORGED, "why_not": FORGED, "freshness": FORGED, "state": FORGED})
    cloud.fleet[1].update({"host": FORGED, "lag": 9})
    cloud.scheduler = AdminServer(tmp_path / "c-1.sock", ShownScheduler(cloud.fleet, FORGED).questions())
    cloud.scheduler.start()
    try:
        named = quote(FORGED)
        for path in (*PAGES, f"/why?id={named}", f"/why?id={named}&host={named}", f"/host?host={named}",
                     f"/host?host=nothing{named}", f"/records?host={named}", f"/nowhere{FORGED}"):  # fmt: skip
            _, _, text = cloud.get(path)
            assert "<script>" not in text and "<img" not in text, path
            assert "\u202e" not in text and "\x1b" not in text, path
            Reader(text)
        assert "&lt;script&gt;" in cloud.get(f"/why?id={named}")[2]
    finally:
        cloud.scheduler.stop()


def test_a_scheduler_that_does_not_answer_is_named_beside_those_that_do(cloud: Cloud, tmp_path: Path) -> None:
    def fails(_: Any) -> Any:
        raise RuntimeError("no answer")

    other = AdminServer(tmp_path / "sched9-9.sock", {"top": fails})
    other.start()
    try:
        _, _, text = cloud.get("/")
    finally:
        other.stop()

    assert "sched9-9.sock" in text
    assert 'aria-label="Schedulers"' in text


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:8780", "", "localhost.attacker.example",
                                  "169.254.169.254", "[::1].attacker.example"])  # fmt: skip
def test_a_site_with_another_name_gets_nothing(cloud: Cloud, host: str) -> None:
    status, _, text = cloud.get("/api/records", HTTP_HOST=host)

    assert status == "403 Forbidden"
    assert SERVER not in text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:8780", "127.0.0.1:8780"])
def test_the_names_of_this_machine_are_accepted(tmp_path: Path, host: str) -> None:
    assert Cloud(tmp_path, ("localhost", "127.0.0.1", "[::1]")).get("/records", HTTP_HOST=host)[0] == "200 OK"


@pytest.mark.parametrize(("path", "environ", "status"), [
    ("/", {"REQUEST_METHOD": "POST"}, "405"), ("/", {"REQUEST_METHOD": "DELETE"}, "405"),
    ("/", {"CONTENT_LENGTH": "5"}, "400"), ("/", {"HTTP_TRANSFER_ENCODING": "chunked"}, "400"),
    ("/?" + "a" * QUERY_CHARS_MAX, {}, "414"), ("/records?" + "&".join(f"a{n}=1" for n in range(20)), {}, "400"),
    ("/records?count=1001", {}, "400"), ("/records?count=-1", {}, "400"), ("/records?count=²", {}, "400"),
    ("/records?since=then", {}, "400"), ("/records?project=" + "a" * 300, {}, "400"), ("/reasons?hours=0", {}, "400"),
    ("/reasons?hours=99999999", {}, "400"), ("/why", {}, "400"), ("/host?host=nobody", {}, "404"),
    ("/why?id=nobody", {}, "404"), ("/nothing", {}, "404"), ("/static/../site.py", {}, "404"),
    ("/api/nothing", {}, "404"),
    ("/static/", {}, "404"), ("/api/why?id=nobody", {}, "404"), ("/api/why", {}, "400"),
])  # fmt: skip
def test_what_is_not_a_question_is_refused(cloud: Cloud, path: str, environ: Mapping[str, str], status: str) -> None:
    found, headers, text = cloud.get(path, **environ)

    assert found.startswith(status)
    assert text and headers.items() >= dict(HEADERS).items()


def test_an_error_over_json_obeys_its_schema(cloud: Cloud) -> None:
    answer = json.loads(cloud.get("/api/why?id=nobody")[2])

    Draft202012Validator(schemas()["error"]).validate(answer)


def test_head_has_no_body(cloud: Cloud) -> None:
    status, headers, text = cloud.get("/", REQUEST_METHOD="HEAD")

    assert (status, text) == ("200 OK", "") and int(headers["Content-Length"]) > 1000


def test_an_unforeseen_error_keeps_its_text(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("mysql://nova:secret@db")

    monkeypatch.setattr(cloud.store, "last", fails)
    for path in ("/api/records", "/records"):
        status, _, text = cloud.get(path)
        assert status == "500 Internal Server Error"
        assert "secret" not in text
    assert "secret" in caplog.text, "the operator who started the command sees it"


def test_without_a_scheduler_the_records_are_shown_and_the_reverse(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)  # its scheduler does not run
    status, _, text = cloud.get("/")

    assert status == "200 OK" and "no scheduler of this machine" in text and "NoMoreFixedIps" in text
    assert cloud.get("/api/fleet")[0] == "503 Service Unavailable"
    assert cloud.get(f"/host?host={HOST}")[0] == "200 OK"


def test_failures_are_listed_although_many_other_records_are_newer(tmp_path: Path) -> None:
    # given a build that failed, and then more resyncs and comparisons than one question returns
    cloud = Cloud(tmp_path)
    gap = entries.node_entry(RecordNode(HOST, NodeChange.RESYNC, 3, 41, 0, cause=""), "gap-seen-by", NOW_S - 1)
    dropped = {"kind": "comparison", "at": NOW_S, "request_id": "req-dropped", "result": "dropped"}
    cloud.store.write([gap, dropped] * 300)

    _, _, text = cloud.get("/")

    shown = text.partition("Last failures")[2]
    assert SERVER in shown and "NoMoreFixedIps" in shown
    assert "resync" not in shown and "dropped" not in shown


def test_a_record_that_is_no_failure_is_not_shown_as_one(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    cloud.store.write([entries.node_entry(RecordNode(HOST, NodeChange.RESYNC, 3, 41, 0, cause=""), "s", NOW_S)])

    _, _, text = cloud.get("/records?kind=node")

    assert '<span class="result ">resync</span>' in text


@pytest.mark.parametrize(("wanted", "place"), [
    (HOST, f"/host?host={HOST}"), (SERVER, f"/why?id={SERVER}"), (" " + SERVER + " ", f"/why?id={SERVER}"),
    ("//attacker.example", "/why?id=%2F%2Fattacker.example"), ("", "/why?id="),
])  # fmt: skip
def test_the_search_finds_hosts_servers_and_requests(cloud: Cloud, wanted: str, place: str) -> None:
    status, headers, _ = cloud.get("/find?q=" + quote(wanted))

    assert (status, headers["Location"]) == ("303 See Other", place)


#: question -> its fields over HTTP, and the command that answers the same
SAME: Mapping[str, tuple[str, list[str]]] = {
    "why": (f"id={SERVER}", ["why", SERVER]),
    "why-not": (f"id={SERVER}&host={HOST}", ["why-not", SERVER, HOST]),
    "records": ("count=20&kind=decision", ["records", "last", "20", "--kind", "decision"]),
    "story": (f"host={HOST}", ["story", HOST]),
}


@pytest.mark.parametrize("question", SAME)
def test_the_command_the_library_and_the_page_answer_the_same(
    cloud: Cloud, question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fields, (name, *arguments) = SAME[question]
    assert manage.main([name, *arguments, "--format", "json", "--records", str(cloud.path)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    answer = json.loads(cloud.get(f"/api/{question}?{fields}")[2])

    Draft202012Validator(schemas()[question]).validate(answer)
    assert answer == (lines if question == "records" else lines[0])
    assert answer, "an empty answer would show nothing"


@pytest.mark.parametrize("question", ["reasons", "fleet", "top"])
def test_the_other_answers_over_json_obey_their_schemas(cloud: Cloud, question: str) -> None:
    Draft202012Validator(schemas()[question]).validate(json.loads(cloud.get(f"/api/{question}")[2]))


def test_top_and_the_page_ask_the_same_scheduler(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--socket-dir", str(cloud.directory)]
    assert manage.main(["top", "--once", "--interval", "0.1", "--format", "json", *where]) == 0
    [told] = json.loads(capsys.readouterr().out)

    [shown] = json.loads(cloud.get("/api/top")[2])

    moving = {"clock_s", "decisions", "per_s"}
    assert {name: told[name] for name in told.keys() - moving} == {name: shown[name] for name in shown.keys() - moving}


def test_every_question_of_the_site_has_a_schema() -> None:
    questions = PageQuestions(JsonLines(Path("none")), None, lambda: 0.0)

    assert questions.names == SAME.keys() | {"reasons", "fleet", "top"}
    assert questions.names < ANSWERS.keys()
    assert Views(questions).pages.keys() >= {"/", "/why", "/host", "/reasons", "/records"}


@pytest.mark.parametrize("view", VIEWS)
def test_each_node_has_one_cell(view: str) -> None:
    found = fleet_map(hosts(997, Random(1)), view)

    assert sum(each.count for each in found.classes) == 997
    corners = re.findall(r"M(\d+ \d+)", "".join(each.path for each in found.classes))
    assert len(set(corners)) == 997
    assert all(int(x) < found.width and int(y) < found.height for x, y in (each.split() for each in corners))


@pytest.mark.parametrize("view", ["used", "stranded"])
def test_a_node_that_is_not_selected_is_not_coloured_by_its_use(view: str) -> None:
    one: Any = {**hosts(1, Random(1))[0], "why_not": "disabled"}
    (found,) = fleet_map([one], view).classes
    assert (found.key, found.count) == ("closed", 1)


def test_a_node_without_cpus_strands_its_memory() -> None:
    # given a node without a free CPU and half of its memory, and the same node disabled
    full = {"VCPU": {"used": 8, "capacity": 8}, "MEMORY_MB": {"used": 512, "capacity": 1024}}
    one: Any = {**hosts(1, Random(1))[0], "resources": full, "why_not": ""}

    cpus, memory, disk = totals([one, {**one, "why_not": "disabled"}])

    assert (cpus.used, cpus.usable, cpus.stranded) == (16, 0, 0)
    assert (memory.capacity, memory.used, memory.usable, memory.stranded, memory.closed) == (2048, 1024, 0, 512, 512)
    assert disk.capacity == 0

# SPDX-License-Identifier: Apache-2.0
"""The words of the story of a server that a reader may not know: those that ``why`` and the site define below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shared_scheduler.answers import terms
from shared_scheduler.answers.shapes import FAULT, UNFINISHED, NovaEvent, Why
from shared_scheduler.records.store import ACTIVE, AGENT, BUILD, COMPARISON, DECISION, PLACED, Record
from shared_scheduler.records.told_reasons import told_decisions

#: the groups of their definitions
TERMS = (
    terms.STORIES, terms.FAILURES, terms.BUILDS, terms.NOT_CHOOSABLE, terms.REASONS, terms.ATTEMPTS, terms.AGREEMENT,
)  # fmt: skip

#: those of the story of a host
HOST_TERMS = (terms.STORIES, terms.BUILDS, terms.NODE_CHANGES, terms.NOT_CHOOSABLE, terms.REASONS, terms.ATTEMPTS)

#: the phases of a request whose times a record has (``core.request_state.RequestPhase``)
PHASES = ("placing", "rechecking", "checking", "yielding", "failing")
#: the event of a build on a node
BUILD_EVENT = "compute__do_build_and_run_instance"
#: what is shown for the result ``unfinished`` of an event of Nova
NO_END = "no end recorded"
#: what is shown for the result Success of a build that failed
HANDED_BACK = "it ended (the build was handed back to nova-conductor)"


def words(story: Why) -> Iterator[str]:
    """The words of the story that a reader may not know, in the order of its lines."""
    for record in story["records"]:
        if record.get("kind", DECISION) == COMPARISON:
            yield record.get("result", "")
        if record.get("kind", DECISION) != DECISION:
            continue
        yield from filter(PLACED.__ne__, [record.get("result", PLACED)])
        for counts, _ in told_decisions(record):
            yield from counts["reasons"]
            yield from ["weights"] * bool(counts.get("best"))
        yield from ["state"] * any(one.get("source") == AGENT for one in record.get("near", ()))
        yield from (attempt["outcome"] for attempt in record.get("attempts", ()))
        yield from ["held"] * any(one.get("held") for one in (*record.get("attempts", ()), *record.get("near", ())))
        for name in ("verdict", "write"):
            yield from [name] * any(one.get(f"{name}_ms") is not None for one in record.get("attempts", ()))
        yield from (name for name in PHASES if record.get("timings_ms", {}).get(name))
        yield from ["alternates"] * any(len(hosts) > 1 for hosts in record.get("answer", ()))
    yield from (result_of(story["records"], event) for event in story.get("nova", ()) if event["action"] != FAULT)


def result_of(records: Iterable[Record], event: NovaEvent) -> str:
    """The result of an event of a server, of which these are records; nova-compute ends a build with Success that it
    hands back to nova-conductor."""
    builds = (one for one in records if one.get("kind") == BUILD and one["at"] >= event["at"])
    own = (one for one in builds if one["hosts"][:1] == [event["host"]] and event["instance"] in one["instances"])
    ends = [one.get("result") for one in own]
    handed_back = event["event"] == BUILD_EVENT and event["result"] == "Success" and ends and ACTIVE not in ends
    return HANDED_BACK if handed_back else NO_END if event["result"] == UNFINISHED else event["result"]

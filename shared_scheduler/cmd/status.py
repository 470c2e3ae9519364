# SPDX-License-Identifier: Apache-2.0
"""Shows the state of the running schedulers of this machine: nodes by freshness, claims, counters.

With --nodes, it shows one row per node: its freshness, whether it may be selected, and if not, why.  With --reads,
it shows one row per source that is read from Nova's databases and Placement, with its age and the cost of its reads.
With --foreign-changes, it shows the last allocations that another writer changed since a scheduler wrote them.
The exit code is 0 when all schedulers answered and are connected to every cell.  It is 1 with one line for each cell
that a scheduler has no connection to, and 2 with one line for each scheduler that did not answer or was killed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from shared_scheduler.answers import terms
from shared_scheduler.answers.host_facts import why_not
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import printed_tables, running_schedulers
from shared_scheduler.core.change_kinds import EXPECTED
from shared_scheduler.daemon import admin
from shared_scheduler.records.amounts import held_text
from shared_scheduler.records.moments import second
from shared_scheduler.records.plain_text import printable

#: groups of terms that ``--help`` defines
TERMS = (
    terms.FRESHNESS, terms.NOT_CHOOSABLE, terms.COLUMNS, terms.READS, terms.FOREIGN_CHANGES, terms.CHANGE_KINDS,
    terms.COUNTERS,
)  # fmt: skip
NODE_COLUMNS = ("host", "freshness", "agent", "choosable", "why_not", "sequence", "heard_ago_s", "outstanding",
                "pending", "used")  # fmt: skip
READ_COLUMNS = ("source", "of", "key", "every_s", "decision_waits", "refusal_waits", "keys", "oldest_s", "due",
                "failing", "reads", "failures", "ms_each", "queries_each", "rows_each")  # fmt: skip
#: Counters of usual work, beside the events by name; an administrator misses nothing without them.
ROUTINE = frozenset({
    "received_heartbeat", "received_buildresult", "received_claim", "received_leave", "received_hello",
    "received_increment", "received_release", "received_resync", "received_snapshot", "received_verdict",
    "sent_heartbeat", "sent_buildresult", "sent_claim", "sent_leave", "sent_hello",
    "sent_increment", "sent_release", "sent_resync", "sent_snapshot", "sent_verdict",
    "increments_applied", "snapshots_applied", "old_snapshots", "duplicates", "early", "digests_equal",
    "builds_recorded", "builds_read", "resyncs_asked", "resyncs_delayed", "asked_whether_there", "returned",
    "reads_ignored", "reads_overtaken", "messages_not_for_schedulers",
})  # fmt: skip
#: silent agents in the line of the summary; ``--nodes`` shows all
SILENT_SHOWN_MAX = 5
FOREIGN_COLUMNS = ("seen_at", "kind", "consumer", "host", "seen_by", "before", "after")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    running_schedulers.add_arguments(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--nodes", action="store_true", help="show one row per node")
    shown.add_argument("--reads", action="store_true", help="show one row per source of reads")
    shown.add_argument("--counters", action="store_true", help="show also the counters of usual work")
    shown.add_argument(
        "--foreign-changes", action="store_true",
        help="show the last servers whose allocations another writer changed between two actions of a scheduler",
    )  # fmt: skip
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Ask each running scheduler and print the answers.  Returns the exit code."""
    question = next((name for name, chosen in _chosen(args).items() if chosen), "status")
    try:
        answers, silent = running_schedulers.ask(args, question)
        silent += running_schedulers.killed(args)
    except admin.AdminError as error:
        return running_schedulers.print_errors("status", [error])
    if args.format == "json":
        print(json.dumps(timed(answers)))
    else:
        show = partial(_summary, all_counters=True) if args.counters else SHOWN[question]
        print("\n".join(["\n\n".join(map(show, answers)), *legend(question, answers)]))
    code = running_schedulers.print_errors("status", silent) if silent else 0
    return max(code, _print_problems([problem for answer in answers for problem in problems(answer)]))


def _chosen(args: argparse.Namespace) -> dict[str, bool]:
    return {"nodes": args.nodes, "reads": args.reads, "foreign-changes": args.foreign_changes}


def legend(question: str, answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The words that stand above, with their meanings; of a table with many columns, where these are defined."""
    if question in WORDS:
        words = [word for answer in answers for word in WORDS[question](answer)]
        return terms.explained(words, *TERMS)
    return ["", "status --help defines the columns"] if answers else []


def _words(answer: Mapping[str, Any]) -> Iterator[str]:
    yield from answer["freshness"]
    yield from ["quarantine"] * bool(answer["quarantined"])
    yield from ["silent"] * bool(answer.get("agents_silent"))


def _words_of_nodes(answer: Mapping[str, Any]) -> Iterator[str]:
    nodes = answer["nodes"]
    yield from (node["freshness"] for node in nodes)
    yield from (node["why_not"] for node in nodes)
    yield from ("agent", "heard_ago_s", "outstanding", "pending") if nodes else ()


def problems(answer: dict[str, Any]) -> list[str]:
    """One line for each cell that this scheduler has no connection to."""
    return [
        f"{answer['scheduler']}: cell {_name_of(cell, found)} has not been connected for "
        f"{found['in_state_s']:.0f} s; check its broker and the scheduler's log"
        for cell, found in answer.get("cells", {}).items()
        if not found["connected"]
    ]


def _print_problems(found: list[str]) -> int:
    for problem in found:
        print(f"status: {problem}", file=sys.stderr)
    return 1 if found else 0


def _summary(answer: dict[str, Any], all_counters: bool = False) -> str:
    freshness = ", ".join(f"{count} {name}" for name, count in answer["freshness"].items())
    lines = [
        f"{answer['scheduler']} (process {answer['pid']})",
        f"  mode       {answer.get('mode', 'active')}",
        f"  nodes      {answer['nodes']}: {freshness or 'none'}",
        f"  under way  {_counted(answer['in_flight'], 'request')}, {_counted(answer['claims_open'], 'claim')}",
        f"  cells      {_cells(answer['cells'])}",
        f"  senders    {_senders(answer['cells'])}",
        f"  release    {answer['release']}; {_releases(answer['releases'])}",
    ]
    if answer["quarantined"]:
        lines.append(f"  quarantine {', '.join(answer.get('quarantined_hosts') or answer['quarantined'])}")
    if answer.get("agents_silent"):
        lines.append(f"  silent     {_silent(answer['agents_silent'], answer['silent_agents'])}")
    lines += [
        f"  TWO AGENTS node {one['node']} of host {one['host']}: an agent of host {one['other_host']} speaks for it too"
        for one in answer.get("second_agents", ())
    ]
    return "\n".join(map(printable, [*lines, *_counters(answer["counters"], all_counters)]))


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"


def _silent(count: int, named: Sequence[Mapping[str, Any]]) -> str:
    """``1 agent was heard and is not now: c3 (last heard 310 s ago)``."""
    told = ", ".join(f"{one['host']} (last heard {one['heard_ago_s']:.0f} s ago)" for one in named[:SILENT_SHOWN_MAX])
    left = count - len(named[:SILENT_SHOWN_MAX])
    who = "1 agent was heard and is not now" if count == 1 else f"{count} agents were heard and are not now"
    return f"{who}: {told}" + (f" and {left} more (status --nodes)" if left else "")


def _counters(counters: Mapping[str, int], all_of_them: bool) -> Iterator[str]:
    """The counters that are not 0, each with what it counts, and how many more are not shown."""
    there = {name: f"{value:,}" for name, value in counters.items() if value}
    counted = {name: value for name, value in there.items() if all_of_them or not _is_routine(name)}
    if not there:
        return
    more = len(there) - len(counted)
    ways = f"{more} more of usual work: status --counters" if more else "status --help defines them in full"
    yield f"  counters   since the start of the process; {ways}"
    if not counted:
        return
    names, values = (max(map(len, column)) for column in (counted, counted.values()))
    for name, value in counted.items():
        yield f"    {name:{names}}  {value:>{values}}  {_first_sentence(name)}".rstrip()


def _is_routine(counter: str) -> bool:
    """Whether a counter counts usual work, as events by name do."""
    return counter in ROUTINE or (counter[:1].isupper() and counter not in terms.COUNTERS.terms)


def _first_sentence(counter: str) -> str:
    if counter in terms.COUNTERS.terms:
        return terms.COUNTERS.terms[counter].partition(". ")[0].rstrip(".")
    return "Events of this name that were processed" if counter[:1].isupper() else ""


def _cells(cells: dict[str, Any]) -> str:
    return ", ".join(f"{_name_of(cell, found)} {_cell_state(found)}" for cell, found in cells.items()) or "none"


def _name_of(cell: str, found: Mapping[str, Any]) -> str:
    """The name of a cell in Nova, or its uuid if it has none."""
    return found.get("name") or cell


def _senders(cells: dict[str, Any]) -> str:
    """Whether the senders of messages are verified: for all cells at once, because one option sets it."""
    modes = sorted({found["host_keys"] for found in cells.values() if "host_keys" in found})
    return ", ".join(SENDERS[mode] for mode in modes) or "none"


#: host_keys -> what it means
SENDERS = {
    "off": "not verified: whoever can write to the broker can send messages for any node "
    "([shared_scheduler] host_keys = off; accept or require changes it)",
    "accept": "verified if they have keys; messages of others are accepted (host_keys = accept)",
    "require": "verified (host_keys = require)",
}


def _cell_state(found: dict[str, Any]) -> str:
    """``connected for 50 s, heard 2 s ago``."""
    heard_ago_s = found["heard_ago_s"]
    heard = "nothing heard yet" if heard_ago_s is None else f"heard {heard_ago_s:.0f} s ago"
    state = "connected" if found["connected"] else "NOT CONNECTED"
    return f"{state} for {found['in_state_s']:.0f} s, {heard}"


def _releases(releases: dict[str, dict[str, int]]) -> str:
    """``schedulers: 2 1.1.0; agents: 3 1.0.2, 9 1.1.0``."""
    shown = {role: ", ".join(f"{count} {name}" for name, count in found.items()) for role, found in releases.items()}
    return "; ".join(f"{role}: {found or 'none'}" for role, found in shown.items())


def _nodes(answer: dict[str, Any]) -> str:
    shown = [{**node, "why_not": why_not(node)} for node in answer["nodes"]]
    rows = [[_cell(node.get(name)) for name in NODE_COLUMNS] for node in shown]
    return "\n".join([answer["scheduler"], *printed_tables.lines(NODE_COLUMNS, rows)])


def _reads(answer: dict[str, Any]) -> str:
    rows = [_read(read) for read in answer["reads"]]
    return "\n".join([f"{answer['scheduler']} (process {answer['pid']})", *printed_tables.lines(READ_COLUMNS, rows)])


def _read(read: dict[str, Any]) -> list[str]:
    count = read["reads"] or 1
    shown = {
        **read,
        "of": read["authority"],
        "every_s": "" if read["poll_s"] is None else f"{read['poll_s']:g}",
        "oldest_s": "" if read["oldest_s"] is None else f"{read['oldest_s']:.1f}",
        "ms_each": f"{read['seconds'] * 1000 / count:.1f}",
        "queries_each": f"{read['queries'] / count:.1f}",
        "rows_each": f"{read['rows'] / count:.1f}",
    }
    return [str(shown[name]) for name in READ_COLUMNS]


def _foreign_changes(answer: dict[str, Any]) -> str:
    rows = [_foreign_change(change) for change in answer["changes"]]
    head = f"{answer['scheduler']} (process {answer['pid']}): {answer['count']} foreign changes since its start"
    of_nova = sum(answer.get("kinds", {}).get(kind, 0) for kind in EXPECTED)
    more = f", and {of_nova} by operations of Nova" if of_nova else ""
    return "\n".join([head + more, *(printed_tables.lines(FOREIGN_COLUMNS, rows) if rows else [])])


def _foreign_change(change: dict[str, Any]) -> list[str]:
    seen_at = second(change["seen_at_s"])
    shown = {
        "kind": "",  # of an older release
        "host": "",
        **change,
        "seen_at": seen_at,
        "before": held_text(change["before"], change["generation_before"]),
        "after": held_text(change["after"], change["generation_after"]),
    }
    return [str(shown[name]) for name in FOREIGN_COLUMNS]


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}:{amount}" for name, amount in value.items())
    if value is None:
        return ""
    return {True: "yes", False: "no"}.get(value, "") if isinstance(value, bool) else str(value)


#: the words of each answer that a reader may not know, in the order of its lines
WORDS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {"status": _words, "nodes": _words_of_nodes}
#: how the answer to each question is printed
SHOWN: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "nodes": _nodes,
    "reads": _reads,
    "foreign-changes": _foreign_changes,
    "status": _summary,
}

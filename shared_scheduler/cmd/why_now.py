# SPDX-License-Identifier: Apache-2.0
"""Shows what the running schedulers remember of a request, and which hosts would pass now.

Every scheduler of this machine is asked.  Each one remembers its last requests; those that found no
host are remembered separately.  The command shows what was recorded when the request was decided, the
hosts that were tried, and whether each host would pass now, with the numbers that are compared.  The
exit code is 0 if the request was found, 1 if no scheduler of this machine remembers it, and 2 if a
scheduler did not answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared_scheduler.answers import terms
from shared_scheduler.answers.held_room import held_text
from shared_scheduler.answers.host_facts import comparison, outcome_parts, values
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import printed_tables, running_schedulers
from shared_scheduler.cmd.arguments import whole
from shared_scheduler.cmd.why import passed
from shared_scheduler.daemon import admin
from shared_scheduler.records.amounts import counts_first
from shared_scheduler.records.moments import second
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.reason_names import told_code, told_outcome
from shared_scheduler.records.store import PLACED
from shared_scheduler.service.why import EACH_MAX_DEFAULT, EACH_MAX_MOST

PASSES = "passes"
#: groups of terms that ``--help`` defines
TERMS = (terms.FAILURES, terms.NOT_CHOOSABLE, terms.REASONS, terms.ATTEMPTS, terms.STORIES)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("request", metavar="ID", help="id of the request (req-...) or uuid of a server")
    running_schedulers.add_arguments(parser)
    parser.add_argument(
        "--host", action="append", default=[], metavar="HOST", help="show only this host (may be repeated)"
    )
    parser.add_argument(
        "--each", type=whole(1, EACH_MAX_MOST), default=EACH_MAX_DEFAULT, metavar="COUNT",
        help=f"number of hosts shown per reason (default {EACH_MAX_DEFAULT})",
    )  # fmt: skip
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Ask each running scheduler and print the answers.  Returns the exit code."""
    try:
        answers, silent = running_schedulers.ask(args, "why", request=args.request, hosts=args.host, each_max=args.each)
    except admin.AdminError as error:
        return running_schedulers.print_errors("why-now", [error])
    found = sorted((one for one in answers if one["found"]), key=lambda one: -float(one["at"]))
    if args.format == "json":
        print(json.dumps(timed(found)))
    elif found:
        texts = "\n\n".join("\n".join(lines(one, bool(args.host))) for one in found)
        print("\n".join([texts, *terms.explained(words(found), *TERMS)]))
    if silent:
        return running_schedulers.print_errors("why-now", silent)
    return 0 if found else _unknown(args.request, len(answers))


def _unknown(name: str, asked: int) -> int:
    print(f"why-now: none of the {asked} schedulers asked here remembers {name}; ask on the other scheduler hosts, or "
          "read the records with shared-scheduler-manage why", file=sys.stderr)  # fmt: skip
    return 1


def words(answers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The words of the answers that a reader may not know."""
    for answer in answers:
        yield from filter(PLACED.__ne__, [answer["result"]])
        yield from (code for counts in answer["decisions"] for code in counts["reasons"])
        yield from map(told_outcome, answer["attempts"])
        yield from ["held"] * any(attempt.get("held") for attempt in answer["attempts"])
        yield from (told_code(one) for one in answer["now"])


def lines(answer: Mapping[str, Any], hosts_named: bool = False) -> list[str]:
    """The answer of one scheduler as lines; ``hosts_named``: only the hosts that ``--host`` names are shown."""
    return [printable(line) for line in _lines(answer, hosts_named)]


def _lines(answer: Mapping[str, Any], hosts_named: bool) -> Iterator[str]:
    yield f"{answer['request_id']}, {second(answer['at'])}, {answer['scheduler']} (process {answer['pid']})"
    yield f"  asked    {_asked(answer['asked'])}"
    yield f"  outcome  {_outcome(answer)}"
    for counts in answer["decisions"]:
        yield f"  decided  {passed(counts)}"
    if answer["attempts"]:
        rows = [_attempt(one) for one in answer["attempts"]]
        yield from ("attempts:", *_indented(("host", "outcome", "detail"), rows))
    yield from _now(answer)
    if not hosts_named:
        yield from _counts_of_others(answer)


def _asked(asked: Mapping[str, Any]) -> str:
    forms = asked["forms"]
    resources = values(forms[0]["resources"]) if forms else "nothing of Placement"
    servers = f"{len(asked['instances'])} servers" if len(asked["instances"]) != 1 else "1 server"
    return f"{servers}, flavor {asked['flavor']}, {resources}"


def _outcome(answer: Mapping[str, Any]) -> str:
    if answer["result"] != PLACED:
        return f"{answer['result']}: {counts_first(answer['reason'])}"
    hosts = ", ".join(inner[0] for inner in answer["answer"] if inner)
    return f"placed on {hosts}" if hosts else "answered"


def _now(answer: Mapping[str, Any]) -> Iterator[str]:
    if answer.get("unexplained"):
        yield f"hosts now: unknown: {answer['unexplained']}"
        return
    yield "hosts now:"
    rows = [[one["host"], *_verdict(one)] for one in answer["now"]]
    yield from _indented(("host", "reason", "detail"), rows)


def _counts_of_others(answer: Mapping[str, Any]) -> Iterator[str]:
    for code, count in answer["counts_now"].items():
        shown = sum(1 for one in answer["now"] if one["code"] == code)
        if count > shown:
            yield f"  {count - shown} more: {code or PASSES}"


def _indented(head: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    return [f"  {line}" for line in printed_tables.lines(head, rows)]


def _attempt(attempt: Mapping[str, Any]) -> list[str]:
    name, compared = outcome_parts(attempt)
    held = held_text(attempt)
    return [attempt["host"], name, "; ".join(filter(None, [compared, f"held {held}" if held else ""]))]


def _verdict(one: Mapping[str, Any]) -> tuple[str, str]:
    """The reason for a host and its numbers, as ``why`` has them, or its weights if it passes."""
    return (told_code(one), comparison(one)) if one["code"] else (PASSES, values(one["weights"]))

# SPDX-License-Identifier: Apache-2.0
"""Tells why a request ended as it did.

Every scheduler of this machine is asked.  Each remembers its last requests, those that found no host
longer.  Shown is what was recorded when it was decided, the hosts that were tried, and what each host
says to the same request now, with the numbers compared.  Exits with 0 if the request was found, with 1
if no scheduler here remembers it, with 2 if one could not be asked.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from shared_scheduler.cmd import schedulers
from shared_scheduler.cmd.arguments import whole
from shared_scheduler.cmd.status import table
from shared_scheduler.service import admin
from shared_scheduler.service.why import EACH_MAX_DEFAULT, EACH_MAX_MOST

PASSES = "passes"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("request", metavar="ID", help="of the request (req-...) or of a server")
    schedulers.add_to(parser)
    parser.add_argument(
        "--host", action="append", default=[], metavar="HOST", help="only of this host (may be repeated)"
    )
    parser.add_argument(
        "--each", type=whole(1, EACH_MAX_MOST), default=EACH_MAX_DEFAULT, metavar="COUNT",
        help=f"hosts shown of each reason (default {EACH_MAX_DEFAULT})",
    )  # fmt: skip
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Ask every scheduler and print."""
    try:
        answers, silent = schedulers.ask(
            args, "why", request=args.request, hosts=args.host, each_max=args.each
        )
    except admin.AdminError as error:
        return schedulers.refuse("why", [error])
    found = sorted((one for one in answers if one["found"]), key=lambda one: -float(one["at"]))
    if args.format == "json":
        print(json.dumps(found))
    elif found:
        print("\n\n".join("\n".join(_told(one, bool(args.host))) for one in found))
    if silent:
        return schedulers.refuse("why", silent)
    return 0 if found else _unknown(args.request, len(answers))


def _unknown(name: str, asked: int) -> int:
    print(f"why: none of the {asked} schedulers asked here remembers {name}; another host's may, or the "
          "records that [shared_scheduler] records_file and records_connection keep", file=sys.stderr)  # fmt: skip
    return 1


def _told(answer: Mapping[str, Any], some: bool) -> Iterator[str]:
    """One scheduler's answer, line by line; ``some``: only of some hosts was asked."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(answer["at"]))
    yield f"{answer['request_id']}, {at}, {answer['scheduler']} (process {answer['pid']})"
    yield f"  asked    {_asked(answer['asked'])}"
    yield f"  outcome  {_outcome(answer)}"
    for counts in answer["decisions"]:
        yield f"  decided  {counts['survivors']} of {counts['hosts']} hosts passed{_fell(counts['reasons'])}"
    if answer["attempts"]:
        rows = [[a["host"], a["outcome"], _detail(a["detail"])] for a in answer["attempts"]]
        yield from ("hosts that were tried:", *_indented(("host", "outcome", "detail"), rows))
    yield from _now(answer)
    if not some:
        yield from _left_out(answer)


def _asked(asked: Mapping[str, Any]) -> str:
    forms = asked["forms"]
    resources = _detail(forms[0]["resources"]) if forms else "nothing of Placement"
    servers = f"{len(asked['instances'])} servers" if len(asked["instances"]) != 1 else "1 server"
    return f"{servers}, flavor {asked['flavor']}, {resources}"


def _outcome(answer: Mapping[str, Any]) -> str:
    if answer["failure"]:
        return f"{answer['failure']}: {answer['text']}"
    return f"placed on {', '.join(answer['hosts'])}" if answer["hosts"] else "answered"


def _fell(reasons: Mapping[str, int]) -> str:
    ordered = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    return "; fell: " + ", ".join(f"{count} {code}" for code, count in ordered) if ordered else ""


def _now(answer: Mapping[str, Any]) -> Iterator[str]:
    if answer.get("unexplained"):
        yield f"no host can be judged: {answer['unexplained']}"
        return
    yield "what hosts say to it now:"
    rows = [
        [one["host"], one["code"] or PASSES, _detail(one["detail"] if one["code"] else one["weights"])]
        for one in answer["now"]
    ]
    yield from _indented(("host", "reason", "detail"), rows)


def _left_out(answer: Mapping[str, Any]) -> Iterator[str]:
    for code, count in answer["counts_now"].items():
        told = sum(1 for one in answer["now"] if one["code"] == code)
        if count > told:
            yield f"  {count - told} more: {code or PASSES}"


def _indented(head: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    return [f"  {line}" for line in table(head, rows)]


def _detail(detail: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in detail.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value) if not isinstance(value, str) else value

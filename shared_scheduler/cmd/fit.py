# SPDX-License-Identifier: Apache-2.0
"""Shows whether servers would fit, on which hosts, and what stops the next one.

A running scheduler places the servers one after the other on a copy of its table, as it would place
those of a request: with the same filters, weighers, traits and aggregates.  Nothing is claimed, no
agent is asked, and decisions go on meanwhile.  The first scheduler of this machine that answers is
asked.  The exit code is 0 if all servers fit, 1 if not, and 2 if it is not known.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from shared_scheduler.answers import terms
from shared_scheduler.answers.host_facts import rejection
from shared_scheduler.answers.times import timed
from shared_scheduler.cmd import printed_tables, running_schedulers
from shared_scheduler.cmd.arguments import whole
from shared_scheduler.daemon import admin
from shared_scheduler.decision.what_if import SERVERS_MAX, SIZE_MAX
from shared_scheduler.records.amounts import short_of
from shared_scheduler.records.lasting import too_much_for_empty_hosts, too_much_for_named_hosts
from shared_scheduler.records.plain_text import printable
from shared_scheduler.records.reason_names import told_code
from shared_scheduler.records.told_reasons import told_reasons, told_text

#: groups of terms that ``--help`` defines
TERMS = (terms.NOT_CHOOSABLE, terms.REASONS)
EXIT_CODES = {"fits": 0, "does_not_fit": 1, "unknown": 2}
#: Hosts that the text lists; ``--format json`` has all of them.
HOSTS_SHOWN_MAX = 50
#: the reason of hosts that Nova's own filters refused; they are listed apart
TRIED = "tried"
#: what an answer does not mean for the image that was named
UNKNOWN_IMAGE = (
    "whether there is an image {} is not known, because Glance is not asked; its properties count only as "
    "--image-property names them"
)
#: the reasons of the hosts that ``--host`` excludes
OTHER_HOSTS = ("in_tree", "requested_destination")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    running_schedulers.add_arguments(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    add_request(parser)


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the request; each one names its field of ``decision.what_if.WhatIf``."""
    size = whole(0, SIZE_MAX)
    asked = parser.add_argument_group("the request")
    asked.add_argument("--flavor", metavar="NAME", help="name or id of a flavor; other arguments replace its values")
    asked.add_argument("--number", type=whole(1, SERVERS_MAX), default=1, metavar="N", help="servers (default 1)")
    asked.add_argument("--vcpus", type=size, metavar="N", help="with --ram, no flavor is needed")
    asked.add_argument("--ram", type=size, dest="memory_mb", metavar="MB")
    asked.add_argument("--disk", type=size, dest="root_gb", metavar="GB")
    asked.add_argument("--ephemeral", type=size, dest="ephemeral_gb", metavar="GB")
    asked.add_argument("--swap", type=size, dest="swap_mb", metavar="MB")
    _repeated(asked, "--extra-spec", "extra_specs", "KEY=VALUE", _pair)
    _repeated(asked, "--trait", "traits", "TRAIT", str, "required trait of the host")
    asked.add_argument("--image", metavar="UUID", help="its properties are not read; name them too")
    _repeated(asked, "--image-property", "image_properties", "KEY=VALUE", _pair)
    group = asked.add_mutually_exclusive_group()
    group.add_argument("--group", metavar="UUID", help="an existing server group")
    group.add_argument("--group-policy", metavar="POLICY", help="a new server group, for example anti-affinity")
    asked.add_argument("--max-server-per-host", type=whole(1, SERVERS_MAX), metavar="N", help="of the new group")
    asked.add_argument("--zone", dest="availability_zone", metavar="ZONE")
    _repeated(asked, "--aggregate", "aggregates", "NAME", str, "host aggregate that must contain the host")
    asked.add_argument("--host", metavar="HOST", help="consider only this host")
    _repeated(asked, "--ignore-host", "ignore_hosts", "HOST", str)
    asked.add_argument("--project", metavar="ID")
    asked.add_argument("--user", metavar="ID")
    _repeated(asked, "--hint", "hints", "KEY=VALUE", _pair, "scheduler hint")
    asked.add_argument("--boot-from-volume", action="store_const", const=True, help="the root disk is a volume")


def _repeated(group: Any, flag: str, dest: str, metavar: str, kind: Any, text: str = "") -> None:
    group.add_argument(flag, action="append", dest=dest, metavar=metavar, type=kind, help=f"{text} (may be repeated)")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def request_of(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of the request that were given."""
    names = (
        "flavor", "number", "vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap_mb", "traits", "image", "group",
        "group_policy", "max_server_per_host", "availability_zone", "aggregates", "host", "ignore_hosts", "project",
        "user", "boot_from_volume",
    )  # fmt: skip
    given = {name: getattr(args, name) for name in names}
    pairs = {name: dict(getattr(args, name) or ()) for name in ("extra_specs", "image_properties", "hints")}
    return {name: value for name, value in (given | pairs).items() if value not in (None, {})}


def run(args: argparse.Namespace) -> int:
    """Ask one scheduler and print its answer.  Returns the exit code."""
    if not args.flavor and None in (args.vcpus, args.memory_mb):
        missing = ValueError("the size is missing: give --flavor, or --vcpus and --ram")
        return running_schedulers.print_errors("fit", [missing])
    try:
        answer = running_schedulers.ask_first(args, "fit", request=request_of(args))
    except admin.AdminError as error:
        return running_schedulers.print_errors("fit", [error])
    print(json.dumps(timed(answer)) if args.format == "json" else "\n".join(lines(answer)))
    if args.image:
        print(f"fit: note: {UNKNOWN_IMAGE.format(printable(args.image))}", file=sys.stderr)
    return EXIT_CODES[answer["result"]]


def lines(answer: Mapping[str, Any]) -> list[str]:
    """The answer as lines."""
    return [printable(line) for line in _lines(answer)]


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    fit, number = answer["fit"], answer["number"]
    yield f"{fit} of {number} servers fit (scheduler {answer['scheduler']}, {answer['table_hosts']} hosts)"
    placed = sorted(answer["hosts"], key=lambda one: (-one["servers"], one["host"]))
    if placed:
        rows = [[one["host"], str(one["servers"])] for one in placed[:HOSTS_SHOWN_MAX]]
        yield from printed_tables.lines(("host", "servers"), rows)
    if len(placed) > HOSTS_SHOWN_MAX:
        yield f"({len(placed) - HOSTS_SHOWN_MAX} more hosts)"
    yield from _next(answer)


def _next(answer: Mapping[str, Any]) -> Iterator[str]:
    after, which = answer["next"], f"server {answer['fit'] + 1}"
    if answer["unknown"]:
        yield f"{which}: it is not known whether it fits: {answer['unknown']}"
        return
    if after["host"]:
        yield f"{which} would fit as well, on {after['host']}"
        return
    after_these = f" after the {answer['fit']} that fit" if answer["fit"] else ""
    yield f"{which} would have no host{after_these}: {told_text({**after, 'reason': after['text']})}"
    for code in after["reasons"]:
        yield from (f"  {text}" for text in _lacking(after, code))
    host = (answer.get("asked", {}).get("destination") or {}).get("host", "")
    yield from (f"  {text}" for text in _hosts(after, host))
    listed = [told_code(one) for one in [*after["refused"], *after["near"]]]
    yield from terms.explained([*told_reasons(after), *listed], *TERMS)


def _lacking(after: Mapping[str, Any], code: str) -> Iterator[str]:
    """What the hosts of a reason are short of, or why none of them ever takes such a server."""
    if text := too_much_for_empty_hosts(after, code):
        yield text
        return
    yield from filter(None, [too_much_for_named_hosts(after, code)])
    if code in after["missing"]:
        yield short_of(code, after["reasons"][code], *after["missing"][code])


def _hosts(after: Mapping[str, Any], host: str) -> Iterator[str]:
    """Some hosts of each reason, and how many more there are; ``host``: the only one that was asked for."""
    yield from (f"{one['host']}: {rejection(one)}" for one in after["refused"])
    named = Counter({TRIED: len(after["refused"])})
    by_reason = sorted(after["near"], key=lambda one: (-after["reasons"].get(_code(one), 0), _code(one)))
    for code, found in groupby(by_reason, key=_code):  # as in the line that counts them
        if host and code in OTHER_HOSTS:
            continue
        for one in found:
            named[code] += 1
            yield f"{one['host']}: {rejection(one)}"
        yield from _more(after["reasons"].get(code, 0) - named[code], code)
    yield from _more(after["reasons"].get(TRIED, 0) - named[TRIED], TRIED)
    others = sum(after["reasons"].get(code, 0) for code in OTHER_HOSTS)
    if host and others:
        yield f"{others} host{'s are' if others > 1 else ' is'} not {host}, which --host names"


def _code(one: Mapping[str, Any]) -> str:
    return str(one["code"])


def _more(hosts: int, code: str) -> Iterator[str]:
    if hosts > 0:
        yield f"and {hosts} more host{'s' * (hosts != 1)}: {code}"

# SPDX-License-Identifier: Apache-2.0
"""What a story leaves open, and what an operator may do after reading it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from shared_scheduler.answers.shapes import Why
from shared_scheduler.records.lacking import disabled_hosts
from shared_scheduler.records.lasting import may_pass_later
from shared_scheduler.records.later_requests import NO_HOST, own_records
from shared_scheduler.records.plain_text import listed
from shared_scheduler.records.store import ACTIVE, BUILD, DECISION, FAILED, PLACED, Record
from shared_scheduler.records.story import reasonless


def next_steps(story: Why, place: str = "") -> Iterator[str]:
    """Sentences that name a command or a log; none if all is well.  They follow from the newest decision or build.

    ``place``: the arguments by which a command reads the same records, each after a space."""
    known = [one for one in _own(story) if one.get("kind") in (DECISION, BUILD)]
    last: Mapping[str, Any] = known[-1] if known else {}
    name, result = story["name"], last.get("result")
    if last.get("kind") == BUILD and result != ACTIVE:
        yield from _after_builds([one for one in known if one["kind"] == BUILD and one.get("result") != ACTIVE])
        if "nova" not in story:
            yield f"why {name} --nova{place} shows Nova's own events and faults"
    elif result in NO_HOST:
        yield from _without_host(name, last, place)
    elif result == PLACED and "nova" not in story:
        yield f"why {name} --nova{place} shows how far Nova is with the build"
    elif last.get("kind") == DECISION and result != PLACED:
        yield f"the log of {last.get('scheduler')} has more lines with the id of the request"


def _after_builds(failed: Sequence[Record]) -> Iterator[str]:
    """After these builds, the last of which was the end."""
    hosts = list(dict.fromkeys(host for one in failed for host in one.get("hosts", ())[:1]))
    if len(hosts) > 1 and failed[0].get("reason") and len({one.get("reason") for one in failed}) == 1:
        yield "each build failed for the same reason: see what the hosts share, as network, image and volumes"
    if hosts:
        yield _logs(hosts)


def _without_host(name: str, last: Mapping[str, Any], place: str) -> Iterator[str]:
    """After a decision that found no host."""
    of_records = "--records" in place  # then why-not asks no scheduler, and fit does not know that option
    now = "" if of_records else ", and what it would answer now"
    yield f"why-not {name} HOST{place} shows what one host lacked{now}"
    asked = last.get("asked", {})
    of_group = asked.get("group") or [""]
    if asked.get("flavor") and may_pass_later(last) and (of_group[0] or not asked.get("group")):
        which = "such servers" if len(asked.get("instances", ())) > 1 else "such a server"
        yield f"fit {_request_of(asked)}{'' if of_records else place} shows whether {which} would fit now"
    yield from _enable([str(one["host"]) for one in disabled_hosts(last)])


def _enable(hosts: Sequence[str]) -> Iterator[str]:
    command = "openstack compute service set --enable"
    if len(hosts) == 1:
        yield f"enable the service of {hosts[0]} when it is ready: {command} {shlex.quote(hosts[0])} nova-compute"
    elif hosts:
        yield f"enable the services of {listed(hosts)} when they are ready: {command} HOST nova-compute"


def _own(story: Why) -> list[Record]:
    """The records without those of later requests for the servers of a request."""
    return own_records(cast(list[Record], story["records"]), story["name"])


def _logs(hosts: Sequence[str]) -> str:
    if len(hosts) == 1:
        return f"the log of nova-compute on {hosts[0]} has the traceback"
    return f"the logs of nova-compute on {listed(hosts)} have the traceback"


def _request_of(asked: Mapping[str, Any]) -> str:
    """The arguments by which ``fit`` asks for the same servers, with the limits that it has arguments for."""
    host = (asked.get("destination") or {}).get("host") or "".join(asked.get("force_hosts", ())[:1])
    given = {"flavor": [asked["flavor"]], "group": (asked.get("group") or ())[:1],
             "zone": [asked.get("availability_zone")], "host": [host], "ignore-host": asked.get("ignore_hosts", ()),
             "number": [str(len(asked.get("instances", ())) or 1)]}  # fmt: skip
    return " ".join(f"--{name} {shlex.quote(value)}" for name, values in given.items() for value in values if value)


def end_of_alternates(story: Why) -> Iterator[str]:
    """That Nova gave up one server, because its build failed on each host of the newest answer."""
    known = [one for one in _own(story) if one.get("kind") in (DECISION, BUILD)]
    newest = max((place for place, one in enumerate(known) if one["kind"] == DECISION), default=-1)
    if newest < 0 or len(known[newest].get("answer", ())) != 1:
        return
    [hosts], servers = known[newest]["answer"], known[newest]["instances"]
    builds = [one for one in known[newest + 1 :] if one["instances"] == servers]
    failed = {one["hosts"][0] for one in builds if one["result"] == FAILED and one["hosts"]}
    if len(hosts) > 1 and failed.issuperset(hosts) and not any(one["result"] == ACTIVE for one in builds):
        yield "no alternate was left after these builds, and Nova gave up"


def unknown_causes(story: Why) -> Iterator[str]:
    """A sentence about the builds of which no reason is known."""
    hosts = reasonless(_own(story))
    if hosts:
        yield f"on {listed(hosts)}: Nova keeps no reason of a build that it tries on another host"

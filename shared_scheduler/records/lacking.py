# SPDX-License-Identifier: Apache-2.0
"""What the hosts lacked for a request that found none, a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from shared_scheduler.records.amounts import named_short_of, short_by, short_of
from shared_scheduler.records.lasting import is_too_small, of_reason, too_much_for, too_much_for_empty_hosts
from shared_scheduler.records.plain_text import listed
from shared_scheduler.records.reason_names import is_disabled, told_code
from shared_scheduler.records.store import Record
from shared_scheduler.records.told_reasons import placed_before, told_reasons

#: Hosts of a reason that a record names.
NAMED_MAX = 5
#: filter of Nova -> the verb for one host and for several, and what they have of the members of the group
OF_GROUP = {
    "ServerGroupAntiAffinityFilter": ("has", "have", "as many members of the server group {} as its policy {} allows"),
    "ServerGroupAffinityFilter": ("has", "have", "no member of the server group {}, whose policy is {}"),
}


def lacking(decision: Record) -> Iterator[str]:
    """Of a decision that found no host."""
    yield from _shortages(decision)
    yield from _zone(decision)
    yield from _group(decision)
    yield from _disabled(decision)


def disabled_hosts(decision: Record) -> list[Record]:
    """The hosts that were rejected only because their services are disabled, as far as the record names them."""
    return [one for one in decision.get("near", ()) if is_disabled(one)]


def _shortages(decision: Record) -> Iterator[str]:
    for code, span in decision.get("missing", {}).items():
        if sentence := too_much_for_empty_hosts(decision, code):
            yield sentence
        elif sentences := list(_of_each_kind(decision, code)):
            yield from sentences
        elif len(span) == 2:  # a changed record may have any numbers
            yield _shortage(decision, code, span)


def _of_each_kind(decision: Record, code: str) -> Iterator[str]:
    """Hosts that are too small even if they are empty, and others, without those that the server has to leave; nothing
    if there are no such hosts, or the record has not all numbers."""
    named = of_reason(decision, code)
    excluded = decision.get("asked", {}).get("ignore_hosts", ())
    there = [one for one in named if one["host"] not in excluded]
    small, large = ([one for one in there if is_too_small(one) is wanted] for wanted in (True, False))
    lacks = [missing for one in large if (missing := short_by(one["detail"])) is not None]
    is_complete = len(named) == decision.get("reasons", {}).get(code, 0) and len(lacks) == len(large)
    if len(large) == len(named) or not is_complete:
        return
    if small:
        yield too_much_for(code, small)
    if large:
        yield named_short_of(code, _names(large), min(lacks), max(lacks))


def _names(hosts: Iterable[Record]) -> list[str]:
    return [str(one["host"]) for one in hosts]


def _shortage(decision: Record, code: str, span: Any) -> str:
    """The numbers are read after the request.  Its claims have been taken back then, so there are none of a host that
    only they had filled."""
    hosts = decision.get("reasons", {}).get(code, 0)
    named = _names(of_reason(decision, code))
    text = short_of(code, hosts, *span)
    if not placed_before(decision)[0] or not named or len(named) >= min(hosts, NAMED_MAX):
        return text
    more = hosts - len(named)
    who = named_short_of(code, named, *span)
    them = f"{more} more host{'s' * (more != 1)} had no room beside the servers of this request"
    return f"{who}; {them}, and the record has no numbers of {'it' if more == 1 else 'them'}"


def _zone(decision: Record) -> Iterator[str]:
    """The hosts of other zones, if nothing else was asked of the aggregates."""
    asked, outside = decision.get("asked", {}), told_reasons(decision).get("aggregates", 0)
    zone, forms, decisions = asked.get("availability_zone"), asked.get("forms"), decision.get("decisions")
    if not (zone and outside and forms and decisions):
        return
    if len(forms[0].get("member_of", ())) == 1 and not forms[0].get("forbidden_aggregates"):
        yield f"{outside} of {decisions[-1]['hosts']} hosts {'is' if outside == 1 else 'are'} not in zone {zone}"


def _group(decision: Record) -> Iterator[str]:
    group, policy = decision.get("asked", {}).get("group") or ("", "")
    told = told_reasons(decision)
    for code, (one, several, what) in OF_GROUP.items():
        hosts = told.get(code, 0)
        if group and hosts:
            named = _names(each for each in decision.get("near", ()) if told_code(each) == code)
            who = listed(named) if len(named) == hosts else f"{hosts} host{'s' * (hosts != 1)}"
            yield f"{who} {one if hosts == 1 else several} {what.format(group, policy)}"


def _disabled(decision: Record) -> Iterator[str]:
    for one in disabled_hosts(decision):
        why = one["detail"].get("disabled_reason")
        yield f"the service of {one['host']} is disabled" + (f" ({why})" if why else "")

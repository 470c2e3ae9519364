# SPDX-License-Identifier: Apache-2.0
"""Decides recorded requests again in this process, on a table that was read from a running scheduler.

The filters, weighers, request filters and settings are those of the configuration that was read last, so two
configurations are used one after the other.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cachetools import LRUCache
from nova import context as nova_context
from nova import exception
from oslo_config import cfg
from oslo_db.exception import DBError

from shared_scheduler.answers.host_facts import values
from shared_scheduler.core.planner import CandidatesWanted, Refusal, Selected
from shared_scheduler.core.trial import Trial
from shared_scheduler.decision.decision_settings import plain_settings
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.explain import ExplainedHost, explain
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.record import asked_of
from shared_scheduler.decision.request import Request
from shared_scheduler.decision.what_if import WhatIf, WhatIfError
from shared_scheduler.nova import configuration
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.host_manager import HostManager, PluginError
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.judge import NovaJudge
from shared_scheduler.nova.plugins import configure_decider, weigher_names
from shared_scheduler.nova.request_filters import RequestFilters
from shared_scheduler.nova.versions import MinimumComputeVersion
from shared_scheduler.nova.what_if_requests import WhatIfRequests
from shared_scheduler.records.amounts import counts_first
from shared_scheduler.records.asked_again import asked_again, differs_from
from shared_scheduler.records.errors import CannotReplayError
from shared_scheduler.records.replay_sum import DIFFERENCES_MAX
from shared_scheduler.records.reweigh import CANNOT, DIFFERS, SAME, Replayed, chosen_hosts
from shared_scheduler.records.store import DECISION, Record
from shared_scheduler.service.state_pages import read_pages, table_of
from shared_scheduler.table.host_table import HostTable

#: A configuration, its plug-ins or its databases cannot be used.
UNUSABLE = (cfg.Error, DBError, PluginError, exception.NovaException)
#: Different requests whose choice is remembered: many requests of a cloud are alike.
REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ReplayedChoice:
    """``hosts`` of the servers of a request; empty if one has no host, and then ``text`` says why."""

    hosts: tuple[str, ...]
    text: str = ""


class Redecider:
    """Decides requests with the present configuration; the table is the same after each."""

    def __init__(self, table: HostTable, aggregates: AggregateCache, quarantined: frozenset[str] = frozenset()) -> None:
        """:raises PluginError: when a filter or weigher cannot be loaded"""
        manager, states = HostManager(aggregates), HostStates(aggregates)
        filters = RequestFilters(aggregates, MinimumComputeVersion(), lambda _: None)
        self._requests = WhatIfRequests(manager, aggregates, filters)
        self._table = table
        self._decider = Decider(table, rng=random.Random(0))
        configure_decider(self._decider, manager, states)
        self._judge = NovaJudge(manager, states)
        self._quarantined = quarantined
        self._remembered: LRUCache[str, ReplayedChoice] = LRUCache(REMEMBERED_MAX)

    def choose(self, record: Record, check: bool) -> ReplayedChoice:
        """The choice for the request of a record.  ``check``: its resources must be those of the record.

        :raises CannotReplayError: when the request cannot be made again, or only Placement can decide it
        """
        try:
            asked = asked_again(record)
            key = _key(asked, record)
            known = self._remembered.get(key)
            if known is None:
                request = self._make(asked, record, check)
                known = self._remembered[key] = self._decided(request)
            return known
        except (WhatIfError, DecisionError) as error:
            raise CannotReplayError(str(error)) from error
        except (KeyError, TypeError, AttributeError) as error:
            raise CannotReplayError(f"the record is damaged: {error!r}") from error

    def compared(self, record: Record, hosts: Sequence[str]) -> list[ExplainedHost]:
        """The verdict on some hosts for the first server of a record that ``choose`` has decided."""
        request = self._make(asked_again(record), record, check=False)
        return list(explain(self._decider, request, only=frozenset(hosts)).listed)

    def _make(self, asked: WhatIf, record: Record, check: bool) -> Request:
        request = self._requests.make(asked, asked.number, record["asked"]["instances"])
        if check and differs_from(record, asked_of(request)):
            raise CannotReplayError("it asked for resources of ports, volumes or devices, which are not recorded")
        return request

    def _decided(self, request: Request) -> ReplayedChoice:
        trial = Trial(self._table, self._decider, self._judge, request, configuration.LAST_WORDS_MAX, self._quarantined)
        hosts: list[str] = []
        try:
            while len(hosts) < len(request.instance_uuids):
                plan = trial.step()
                if isinstance(plan, Selected):
                    hosts.append(plan.choice.host)
                elif isinstance(plan, Refusal):
                    return ReplayedChoice((), plan.text)
                elif isinstance(plan, CandidatesWanted):
                    raise CannotReplayError("only Placement can name the candidates of this request")
        finally:
            trial.undo()
        return ReplayedChoice(tuple(hosts))


def _key(asked: WhatIf, record: Record) -> str:
    """Equal for requests that get the same choice; the servers matter only to a group."""
    servers = record["asked"]["instances"] if asked.group else []
    return json.dumps([asdict(asked), servers], sort_keys=True)


def replayed(
    records: Iterable[Record], before: Redecider | None, between: Callable[[], Redecider]
) -> Iterator[Replayed]:
    """Each decision, decided by ``before`` (None: as recorded), and then by the redecider that ``between`` makes.

    Only the differences that an answer lists are explained, because that reads every host again.  ``records`` is read
    twice; ``between`` is called in between, and may read another configuration.
    """
    first = [_outcome(record, before) for record in _decisions(records)]
    after, unexplained = between(), DIFFERENCES_MAX
    for record, was in zip(_decisions(records), first, strict=False):
        found = _compared(record, was, after, before is None, unexplained > 0)
        unexplained -= found.verdict == DIFFERS
        yield found


def _decisions(records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.get("kind", DECISION) == DECISION)


def _outcome(record: Record, redecider: Redecider | None) -> ReplayedChoice | str:
    """The choice, or why there is none."""
    if redecider is None:
        return ReplayedChoice(chosen_hosts(record), str(record.get("reason", "")))
    try:
        return redecider.choose(record, check=True)
    except CannotReplayError as error:
        return str(error)


def _compared(record: Record, was: ReplayedChoice | str, after: Redecider, check: bool, explained: bool) -> Replayed:
    name, at = str(record.get("request_id", "")), float(record.get("at", 0.0))
    if isinstance(was, str):
        return Replayed(name, at, CANNOT, chosen_hosts(record), (), was)
    try:
        now = after.choose(record, check)
    except CannotReplayError as error:
        return Replayed(name, at, CANNOT, was.hosts, (), str(error))
    if now.hosts == was.hosts:
        return Replayed(name, at, SAME, was.hosts, now.hosts)
    return Replayed(name, at, DIFFERS, was.hosts, now.hosts, _why(record, was, now, after) if explained else "")


def _why(record: Record, was: ReplayedChoice, now: ReplayedChoice, after: Redecider) -> str:
    if not now.hosts:
        return f"no host: {counts_first(now.text)}"
    if not was.hosts:
        return f"a host passes now; then: {counts_first(was.text)}"
    [index, *_] = [place for place, pair in enumerate(zip(was.hosts, now.hosts, strict=False)) if pair[0] != pair[1]]
    if index:
        return f"server {index + 1}: {now.hosts[index]} instead of {was.hosts[index]}"
    found = {one.host: one for one in after.compared(record, (was.hosts[0], now.hosts[0]))}
    old, new = found.get(was.hosts[0]), found.get(now.hosts[0])
    if old is None:
        return f"{was.hosts[0]} is not known any more"
    if old.code:
        return f"{old.host}: {old.code} ({values(old.detail)})"
    weighs, before = f"{new.weight if new else 0.0:.4g}", f"{old.weight:.4g}"
    if weighs == before:
        return f"{now.hosts[0]} and {old.host} both weigh {weighs}: either may be chosen"
    return f"{now.hosts[0]} weighs {weighs} and {old.host} {before}"


def present_settings() -> dict[str, Any]:
    """The settings of the configuration that was read last, as records keep them.

    :raises PluginError: when a filter or weigher cannot be loaded
    """
    manager = HostManager(AggregateCache())
    names = (type(each).__name__ for each in manager.enabled_filters)
    return plain_settings(configuration.decision_settings(names, weigher_names(manager)))


def current_table(ask: Callable[[str], Mapping[str, Any]]) -> tuple[HostTable, AggregateCache, frozenset[str]]:
    """The table, the aggregates of Nova's database, and the nodes in quarantine.  ``ask``: see ``read_pages``."""
    pages = list(read_pages(ask))
    aggregates = AggregateCache()
    facts = aggregates.read(nova_context.get_admin_context())
    table = table_of(pages, configuration.default_ratios())
    table.set_aggregates(facts)
    return table, aggregates, frozenset(pages[0]["quarantined"])

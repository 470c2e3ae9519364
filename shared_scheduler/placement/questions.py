# SPDX-License-Identifier: Apache-2.0
"""Answers ``AskCandidates``, ``AskFitting``, ``AskConsumer`` and ``AskGroup`` from Placement.

Candidates of one host are requested with ``in_tree``, which omits sharing providers of other trees.  Without it, the
question costs Placement time for every host of the cloud.  Therefore the question is divided: some classes of the
unnumbered group are taken from sharing providers, and Placement is asked for the rest in the tree.  Together these are
Placement's answers without ``in_tree`` for this host, because:

- one provider gives the whole amount of a class of the unnumbered group;
- a required trait must be on one of the providers that give resources, and a forbidden one on none of them;
- a sharing provider is itself in each ``member_of``, and in none of the forbidden aggregates.

A numbered group for which sharing providers may have all resources is not divided, and neither is the unnumbered group
beside numbered ones (``needs_whole_cloud``): Placement refuses its traits and aggregates without its resources.  Nova
creates no such groups, but the flavor of an operator may have them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from urllib.parse import parse_qsl, urlencode

from shared_scheduler.core.effects import AskCandidates, AskConsumer, AskFitting, AskGroup
from shared_scheduler.core.events import Candidate, CandidatesAnswered, ConsumerAnswered, FittingAnswered, GroupAnswered
from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import fits
from shared_scheduler.placement.client import FITTING_LIMIT, PlacementClient
from shared_scheduler.placement.connection import PlacementError

LOG = logging.getLogger(__name__)

Question = AskCandidates | AskFitting | AskConsumer | AskGroup
#: Reads the members of a server group, or the servers with a label: uuid -> its cell, None if it has none yet.
MembersOf = Callable[[AskGroup], Mapping[str, str | None]]
#: Reads the service hosts of these servers in the database of a cell; true: without those that move to a host that
#: Nova names.
HostsOf = Callable[[str, Collection[str], bool], Mapping[str, str]]
Answered = CandidatesAnswered | FittingAnswered | ConsumerAnswered | GroupAnswered

#: Maximum number of divisions of one question; each costs a call.
MAX_DIVISIONS = 16
#: The key of the unnumbered group in ``mappings``.
UNNUMBERED = ""

Parts = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Division:
    """The resources from sharing providers, and the query for the rest in the tree."""

    query: str
    given: Mapping[str, Mapping[str, int]]

    def candidate(self, of_tree: Candidate) -> Candidate:
        """The candidate with the resources of both."""
        held = of_tree.mappings.get(UNNUMBERED, ())
        mappings = {**of_tree.mappings, UNNUMBERED: (*held, *self.given)}
        return Candidate({**of_tree.allocations, **self.given}, mappings)


def divisions(query: str, sharing: Sequence[Provider]) -> Iterator[Division]:
    """All divisions in which ``sharing`` gives a part of the query's unnumbered group."""
    if not sharing:
        return
    parts = parse_qsl(query)
    asked = _amounts(dict(parts).get("resources", ""))
    usable = [one for one in sharing if _is_usable(one, parts)]
    givers = [[None, *_givers(usable, name, amount)] for name, amount in asked.items()]
    chosen = (dict(zip(asked, each, strict=True)) for each in product(*givers))
    divided = (each for each in chosen if any(each.values()) and not all(each.values()))
    for each in islice(divided, MAX_DIVISIONS):
        yield _division(parts, asked, {rc: one for rc, one in each.items() if one is not None})


def needs_whole_cloud(query: str, sharing: Sequence[Provider]) -> bool:
    """Whether one of several groups, or a numbered one, only requests classes that are shared."""
    offered = {rc for one in sharing for rc in one.inventories}
    groups = {name: _amounts(value) for name, value in parse_qsl(query) if name.startswith("resources")}
    return groups.keys() != {"resources"} and any(offered.issuperset(group) for group in groups.values())


def _givers(sharing: Iterable[Provider], name: str, amount: int) -> list[Provider]:
    return [one for one in sharing if fits(one.inventories.get(name), 0, amount) is None]


def _is_usable(one: Provider, parts: Parts) -> bool:
    """Whether a provider has no forbidden trait and is in the aggregates of the unnumbered group."""
    places = [value for name, value in parts if name == "member_of"]
    return one.traits.isdisjoint(_forbidden(parts)) and all(_is_member(one, each) for each in places)


def _is_member(one: Provider, value: str) -> bool:
    """Whether a provider satisfies one ``member_of``: an aggregate, ``in:`` several, or with ``!`` none of them."""
    forbidden, wanted = value.startswith("!"), value.removeprefix("!").removeprefix("in:")
    return one.aggregates.isdisjoint(wanted.split(",")) is forbidden


def _division(parts: Parts, asked: Mapping[str, int], by: Mapping[str, Provider]) -> Division:
    given: dict[str, dict[str, int]] = {}
    for rc, one in by.items():
        given.setdefault(one.uuid, {})[rc] = asked[rc]
    traits = frozenset[str]().union(*(one.traits for one in by.values()))
    return Division(urlencode(list(_left(parts, by.keys(), traits)), safe=":,!"), given)


def _left(parts: Parts, classes: Iterable[str], traits: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The query without the classes and traits that sharing providers give."""
    gone = {"resources": frozenset(classes), "required": traits}
    for name, value in parts:
        items = [one for one in value.split(",") if one.partition(":")[0] not in gone.get(name, ())]
        if items or name not in gone:
            yield name, ",".join(items)


def _forbidden(parts: Parts) -> list[str]:
    named = [one for name, value in parts if name == "required" for one in value.split(",")]
    return [one.removeprefix("!") for one in named if one.startswith("!")]


def _amounts(value: str) -> dict[str, int]:
    """Parse amounts such as ``VCPU:1,DISK_GB:10``."""
    pairs = (one.partition(":") for one in value.split(",") if one)
    return {name: int(amount) for name, _, amount in pairs}


class MembersUnreadableError(Exception):
    """The members of a server group, or their hosts, cannot be read.  The text is one line: the reason and the
    remedy."""


class PlacementQuestions:
    """Answers questions; ``sync.question_reads`` decides when and in which thread."""

    def __init__(self, client: PlacementClient, members_of: MembersOf, hosts_of: HostsOf) -> None:
        """``members_of`` and ``hosts_of`` may raise ``MembersUnreadableError``."""
        self._client = client
        self._members_of = members_of
        self._hosts_of = hosts_of

    def answer(self, question: Question) -> Answered:
        """Ask Placement; an error is returned as an answer."""
        try:
            if isinstance(question, AskCandidates):
                return CandidatesAnswered(question.ask_id, self._candidates(question), cause=question.cause)
            if isinstance(question, AskFitting):
                return FittingAnswered(question.ask_id, self._fitting(question), cause=question.cause)
            if isinstance(question, AskGroup):
                return self._group(question)
            standing = self._client.consumer(question.consumer)
            return ConsumerAnswered(question.consumer, standing.allocations, cause=question.cause)
        except (PlacementError, MembersUnreadableError) as error:
            return no_answer(question, str(error))
        except Exception as error:
            LOG.exception("a read of Placement failed with an unexpected error")
            return no_answer(question, f"internal error: {error}")

    def _candidates(self, ask: AskCandidates) -> tuple[Candidate, ...]:
        found: list[Candidate] = []
        for query in ask.queries:
            if needs_whole_cloud(query, ask.sharing):
                found += self._of_whole_cloud(query, ask)
            else:
                found += self._of_tree(query, ask)
        return tuple(found)

    def _of_tree(self, query: str, ask: AskCandidates) -> list[Candidate]:
        found = list(self._client.candidates(query, ask.node, request_id=ask.request_id).requests)
        for division in divisions(query, ask.sharing):
            rest = self._client.candidates(division.query, ask.node, request_id=ask.request_id)
            found += map(division.candidate, rest.requests)
        return found

    def _of_whole_cloud(self, query: str, ask: AskCandidates) -> list[Candidate]:
        """The candidates of the host in an answer for the whole cloud, which is expensive but exact."""
        wide = self._client.candidates(query, request_id=ask.request_id)
        return [one for one in wide.requests if ask.node in one.allocations]

    def _group(self, question: AskGroup) -> GroupAnswered:
        """Read first the members, then their allocations, then their hosts; ``core/group_check.py`` explains the
        order."""
        members = self._members_of(question)
        others = sorted(members.keys() - question.known)
        held = {uuid: frozenset(self._client.consumer(uuid).allocations) for uuid in others}
        hosts = self._hosts(question.cells, others)
        standing = {uuid: providers for uuid, providers in held.items() if providers}
        unanswered = frozenset(uuid for uuid in standing if not members[uuid])
        gone = question.known - members.keys()
        if question.leaving:
            hosts |= self._leaving(question, members, standing)
        return GroupAnswered(question.ask_id, standing, "", unanswered, gone, hosts, cause=question.cause)

    def _leaving(
        self, question: AskGroup, members: Mapping[str, str | None], standing: Collection[str]
    ) -> dict[str, str]:
        """The hosts that members may not have left.  One that had no cell yet may have been built since."""
        others = sorted(members.keys() - question.known)
        if not all(members[uuid] for uuid in others):
            members = self._members_of(question)
        cells = {cell for uuid in others if (cell := members.get(uuid))}
        without = [uuid for uuid in others if uuid not in standing]
        return self._hosts(cells, sorted(standing), undecided=True) | self._hosts(cells, without)

    def _hosts(self, cells: Collection[str], servers: Sequence[str], undecided: bool = False) -> dict[str, str]:
        found = (self._hosts_of(cell, servers, undecided) for cell in sorted(cells) if servers)
        return {server: host for each in found for server, host in each.items()}

    def _fitting(self, ask: AskFitting) -> frozenset[str]:
        fitting: set[str] = set()
        for query in ask.queries:
            answer = self._client.candidates(query, limit=FITTING_LIMIT, request_id=ask.request_id)
            fitting |= answer.roots()
        return frozenset(fitting)


def no_answer(question: Question, error: str) -> Answered:
    """The answer to a question that failed."""
    if isinstance(question, AskCandidates):
        return CandidatesAnswered(question.ask_id, (), error, cause=question.cause)
    if isinstance(question, AskFitting):
        return FittingAnswered(question.ask_id, frozenset(), error, cause=question.cause)
    if isinstance(question, AskGroup):
        return GroupAnswered(question.ask_id, {}, error, cause=question.cause)
    return ConsumerAnswered(question.consumer, {}, error, cause=question.cause)

# SPDX-License-Identifier: Apache-2.0
"""Each word that the commands print is defined, and nothing is defined that they do not print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared_scheduler.answers import story_words, terms
from shared_scheduler.answers.from_schedulers import COUNTED
from shared_scheduler.cmd import agreement as agreement_command
from shared_scheduler.cmd import compare, manage, records, resync, status, story, top, why, why_not, why_now
from shared_scheduler.core.claim_state import ClaimState
from shared_scheduler.core.effects import FailureCode, NodeChange
from shared_scheduler.core.events import WriteCode
from shared_scheduler.core.group_check import GROUP_APART
from shared_scheduler.core.ordered_resyncs import ResyncState
from shared_scheduler.core.planner import NO_CANDIDATE
from shared_scheduler.core.request_state import RequestPhase
from shared_scheduler.core.spread_check import NODE_GONE, SPREAD_TOO_FAR
from shared_scheduler.decision import candidates, filtering, host_restrictions, spreading
from shared_scheduler.nova.shadow import UNREADABLE
from shared_scheduler.protocol.errors import RemoteProtocolError
from shared_scheduler.protocol.messages import RefusalCode
from shared_scheduler.protocol.phases import WindowPhase
from shared_scheduler.protocol.window import WindowCounters
from shared_scheduler.records import agreement
from shared_scheduler.records.store import ACTIVE, FAILED, PLACED
from shared_scheduler.service.source_differences import AUTHORITIES
from shared_scheduler.table.row import Exclusion, Freshness
from shared_scheduler.transport.channel import RECEIVED, SENT

ROOT = Path(__file__).resolve().parents[3]

#: a claim has these states while it is under way; they end no attempt
UNDER_WAY = {ClaimState.CLAIMING, ClaimState.WRITING, ClaimState.DELETING, ClaimState.CONFIRMED}
#: flags of a service that status tells beside the codes of closed hosts
SERVICE = {"disabled", "forced_down", "down"}


def values(*enums: type) -> set[str]:
    return {str(member.value) for enum in enums for member in enum}  # type: ignore[attr-defined]


def counted() -> set[str]:
    """The names of the counters that the scheduler's core and its edges count."""
    rooms = [ROOT / "shared_scheduler" / room for room in ("core", "records", "service", "transport")]
    sources = [path.read_text() for room in rooms for path in room.glob("*.py")]
    return {name for source in sources for name in re.findall(r'counters\["(\w+)"\] \+=', source)}


#: imports Nova, so its codes are read from its text
JUDGE = Path(terms.__file__).parents[1] / "nova" / "judge.py"


def test_how_fresh_a_node_is_is_defined() -> None:
    assert terms.FRESHNESS.terms.keys() == values(Freshness)


def test_why_a_node_is_not_choosable_is_defined() -> None:
    assert terms.NOT_CHOOSABLE.terms.keys() == values(Exclusion) - {Exclusion.NO_SLOT.value} | SERVICE | {"quarantined"}


def test_the_columns_of_status_are_defined() -> None:
    assert set(status.NODE_COLUMNS) <= terms.COLUMNS.terms.keys()
    assert set(status.READ_COLUMNS) == terms.READS.terms.keys()
    assert set(status.FOREIGN_COLUMNS) == terms.FOREIGN_CHANGES.terms.keys()


def test_the_columns_of_records_are_defined() -> None:
    assert list(terms.RECORD_COLUMNS.terms) == list(records.COLUMNS)


def test_the_reasons_of_a_decision_are_defined() -> None:
    placement = {
        candidates.ROOT_TRAITS, candidates.TRAITS, candidates.AGGREGATES, candidates.IN_TREE,
        candidates.NO_ROOM.rstrip(":"), candidates.GROUP_TRAITS, candidates.ANY_FORM,
    }  # fmt: skip
    named = set(re.findall(r'TargetStage\("(\w+)"', Path(host_restrictions.__file__).read_text()))

    assert terms.REASONS.terms.keys() == placement | named | {filtering.FIRST_INSTANCE, spreading.SPREAD}


def test_the_outcomes_of_an_attempt_are_defined() -> None:
    endings = {state.value for state in ClaimState if state not in UNDER_WAY}

    of_judge = set(re.findall(r'(?m)^[A-Z_]+ = "(\w+)"$', JUDGE.read_text())) - {
        "filter"
    }  # it has the name of its class
    others = of_judge | {NO_CANDIDATE, GROUP_APART, NODE_GONE, SPREAD_TOO_FAR}

    assert len(of_judge) == 3
    assert terms.ATTEMPTS.terms.keys() == endings | values(RefusalCode, WriteCode) | others


def test_how_a_request_ends_is_defined() -> None:
    assert terms.FAILURES.terms.keys() == values(FailureCode) | {PLACED}


def test_how_a_build_ends_is_defined() -> None:
    assert terms.BUILDS.terms.keys() == {ACTIVE, FAILED}


def test_the_changes_of_the_state_of_a_node_are_defined() -> None:
    assert terms.NODE_CHANGES.terms.keys() == values(NodeChange)


def test_the_results_of_a_comparison_are_defined() -> None:
    refusals = {agreement.UNKNOWN_HOST, agreement.PASSES_NOW, agreement.REQUEST_FILTER, UNREADABLE}
    weights = {agreement.EQUAL_WEIGHT, agreement.NEAR_TIE, agreement.WEIGHT}

    assert terms.AGREEMENT.terms.keys() == values(agreement.Agreement) | refusals | weights


def test_the_facts_of_compare_are_defined() -> None:
    assert terms.SOURCES.terms.keys() == AUTHORITIES.keys()


def raised(kind: type[RemoteProtocolError]) -> set[type[RemoteProtocolError]]:
    """The errors of a kind that have no kinds of their own."""
    below = kind.__subclasses__()
    return {each for one in below for each in raised(one)} if below else {kind}


def test_the_counters_are_defined() -> None:
    rejected = {kind.__name__ for kind in raised(RemoteProtocolError)}
    results = {"requests_answered", "requests_failed", "requests_previewed"}
    kinds = {"tolerated", "without_host_key", "unsendable"}
    messages = {*RECEIVED.values(), *SENT.values()}

    assert terms.COUNTERS.terms.keys() == (
        counted() | messages | WindowCounters().as_dict().keys() | rejected | results | kinds
    )


def test_the_kinds_of_rejected_messages_follow_their_sum() -> None:
    names = [*terms.COUNTERS.terms]
    [number] = re.findall(r"one of the next (\w+) counters", terms.COUNTERS.terms["messages_rejected"])
    after = names.index("messages_rejected") + 1
    kinds = {kind.__name__ for kind in raised(RemoteProtocolError)}

    assert set(names[after : after + len(kinds)]) == kinds
    assert number == {7: "seven", 8: "eight", 9: "nine"}[len(kinds)]


def test_what_top_shows_is_defined() -> None:
    counts = {top.SHOWN.get(name, name) for name in COUNTED} - {"conflicts"}  # a counter of status
    counted = {*counts, "lag", "in step", "without agent", "requests", "placement_writes", "records", "windows"}

    assert terms.TOP.terms.keys() == values(WindowPhase) | counted


def test_the_results_of_resync_are_defined() -> None:
    assert terms.RESYNCS.terms.keys() == values(ResyncState) | {"unknown_host", "before", "after", "ended"}


@pytest.mark.parametrize("group", terms.GROUPS, ids=lambda group: group.title)
def test_a_definition_is_a_sentence(group: terms.TermGroup) -> None:
    assert [name for name, meaning in group.terms.items() if not meaning.endswith(".")] == []


@pytest.mark.parametrize(
    "command",
    [status, why, why_not, why_now, records, story, compare, agreement_command, resync],
    ids=lambda command: command.__name__,
)
def test_the_help_of_a_command_defines_its_terms(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    name = command.__name__.rpartition(".")[2]  # type: ignore[attr-defined]
    with pytest.raises(SystemExit):
        manage.main([name.replace("_", "-"), "--help"])

    shown = " ".join(capsys.readouterr().out.split())
    defined = [(term, meaning) for group in command.TERMS for term, meaning in group.terms.items()]  # type: ignore[attr-defined]
    assert [term for term, meaning in defined if f"{term} {meaning}" not in shown] == []


def test_the_words_of_a_screen_are_defined_once_without_the_part_after_the_colon() -> None:
    found = terms.explained(["no_room:VCPU", "no_room:DISK_GB", "written", "site"], terms.REASONS, terms.ATTEMPTS)

    assert found[:2] == ["", "Words:"]
    words = [line.split()[0] for line in found if line.startswith("  ") and line[2] != " "]
    assert words == ["no_room", "written", "agent", "claim"], "the last two are words of the definitions"
    assert terms.explained(["site"], terms.REASONS) == []
    assert "A filter of Nova or of the site" in terms.explained(["SiteFilter"], terms.REASONS)[-1]
    own = " ".join(terms.explained(["ServerGroupAntiAffinityFilter"], terms.REASONS))
    assert "as many members of the server group" in own


def test_the_phases_whose_times_why_shows_are_those_of_a_request_and_are_defined() -> None:
    assert tuple(story_words.PHASES) == tuple(phase.value for phase in RequestPhase)
    assert terms.STORIES.terms.keys() >= set(story_words.PHASES)

# SPDX-License-Identifier: Apache-2.0
"""The documentation builds without a warning, each file and module that it names exists, and numbers are the code's."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import TypeGuard

import pytest

from compute_agent import agent_settings, conf, ends_of_builds, publisher
from compute_agent.tap import hooks
from shared_scheduler.answers import from_records
from shared_scheduler.cmd import status
from shared_scheduler.conf import opts
from shared_scheduler.core import (
    allocation_merge,
    awaited_builds,
    group_check,
    held_room,
    label_reads,
    nodes,
    ordered_resyncs,
    own_writes,
    recheck,
    request_state,
    spread_check,
    unlisted_nodes,
    verdict_limit,
    write_pace,
)
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.daemon import guru_meditation, http_server
from shared_scheduler.decision import alternate_count, outcome, spread_request
from shared_scheduler.decision.filters import NATIVE_FILTERS
from shared_scheduler.decision.weighers import NATIVE_WEIGHERS
from shared_scheduler.model import image_properties, read_schedule
from shared_scheduler.nova import configuration, process, running, source_readers, weight_lines
from shared_scheduler.page import site
from shared_scheduler.placement import consumer_conflicts, delete_course, foreign_changes, in_doubt_writes
from shared_scheduler.placement_app import cached_ids, write_request
from shared_scheduler.protocol import host_keys, limits
from shared_scheduler.records import database, json_lines, recorder, story, unfinished
from shared_scheduler.service import comparisons, fit, inspection, metrics, state_pages
from shared_scheduler.sim import faults, rest
from shared_scheduler.sim.exhibition import DemoPlan
from shared_scheduler.sync import (
    bootstrap,
    bounded_reads,
    node_reads,
    orphan_search,
    orphan_sweeper,
    read_registry,
    refusal_ages,
    revalidator,
    state_sync,
)
from shared_scheduler.table import assumed_claims, table_copy
from shared_scheduler.transport import transport_settings
from tests.functional.test_broker_faults import LONGER
from tests.longer.test_demo_seeds import MORE as MORE_DEMOS
from tests.longer.test_simulator import MORE as MORE_WORLDS
from tests.unit.sim.test_demo_seeds import SEEDS as DEMOS
from tests.unit.sim.test_simulator import SEEDS as WORLDS
from tools.laboratory.bench import message_counters

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.rst", *sorted((ROOT / "doc" / "source").rglob("*.rst")), *ROOT.glob("CONTRIBUTING.rst")]

#: folders whose files the pages name by their path from the root
FOLDERS = ("shared_scheduler", "compute_agent", "tools", "tests", "doc", "etc")

#: a path from the root, wherever it stands
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./*-]+")
#: the end of a path, between double backquotes: ``core/planner.py``
PATH_END = re.compile(r"``([\w./-]+\.(?:py|rst))``")
#: a module, a class or a function, between double backquotes: ``shared_scheduler.nova.manager:SharedSchedulerManager``
DOTTED = re.compile(r"``((?:shared_scheduler|compute_agent)\.[\w.:]+)``")
#: a commit of this repository, in a page or in the result of a benchmark
COMMIT = re.compile(r"""\bcommits?"?:?\s+"?([0-9a-f]{7,40})\b|\((?=[0-9]*[a-f])([0-9a-f]{7,12})\)""")
#: what a reader has to replace
PLACEHOLDER = re.compile(r"\b(?:NAME|DIR|FILE)\b")


def files() -> list[str]:
    """Every file below the folders, and in the root, from the root."""
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    return [f"/{path.relative_to(ROOT)}" for path in [*below, *ROOT.glob("*")]]


def named(page: Path) -> Iterator[str]:
    """Paths that a page names and that do not exist."""
    text, there = page.read_text(), files()
    for path in PATH.findall(text):
        if not PLACEHOLDER.search(path) and not any(ROOT.glob(path.rstrip("./"))):
            yield path
    for end in PATH_END.findall(text):
        if not any(path.endswith(f"/{end}") for path in there):
            yield end


def exists(name: str) -> bool:
    """Whether this is a package, a module, or what a module defines: ``a.b``, ``a.b.Name``, ``a.b:Name.name``."""
    module, _, defined = name.partition(":")
    path = ROOT / module.replace(".", "/")
    if not defined and not path.is_dir() and not path.with_suffix(".py").is_file():
        path, defined = path.parent, path.name
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not source.is_file():
        return False
    text = source.read_text()
    return all(re.search(rf"^\s*(?:class |def )?{part}\b", text, re.MULTILINE) for part in defined.split(".") if part)


def code() -> Iterator[Path]:
    """The modules and tools of this tree, and this module's neighbours."""
    for folder in ("shared_scheduler", "compute_agent", "tools", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in ("", ".py") and path.is_file():
                yield path


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "doc/source", str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    assert list(named(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    assert [name for name in DOTTED.findall(page.read_text()) if not exists(name)] == []


def test_every_page_that_the_code_names_exists() -> None:
    pages = {(path, page) for path in code() for page in re.findall(r"\bdoc/[\w/-]+\.rst", path.read_text())}

    assert [f"{path}: {page}" for path, page in sorted(pages) if not (ROOT / page).is_file()] == []


def commits(text: str) -> set[str]:
    """The commits that a text names."""
    return {first or second for first, second in COMMIT.findall(text)}


def history() -> list[str]:
    """The commits up to the present one; empty without them, in an unpacked archive or a shallow clone."""
    told = subprocess.run(["git", "rev-list", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.split() if shallow.stdout.strip() == "false" else []


def test_every_commit_that_the_documentation_names_is_in_the_history() -> None:
    known = history()
    if not known:
        pytest.skip("there is no history here")
    texts = [*PAGES, *sorted((ROOT / "doc" / "benchmarks").glob("*.json")), *(ROOT / "releasenotes").rglob("*.yaml")]
    named = {(str(path.relative_to(ROOT)), commit) for path in texts for commit in commits(path.read_text())}

    assert len(named) > 20
    assert [one for one in sorted(named) if not any(commit.startswith(one[1]) for commit in known)] == []


def test_commits_are_found_in_prose_lists_and_results() -> None:
    text = 'At commit\n0123abc, and with commits 1234abc; a fix (abcdef12), not (1323357580). "commit": "fedcba987654"'

    assert commits(text) == {"0123abc", "1234abc", "abcdef12", "fedcba987654"}


#: a row of a table of log lines: the text and its level
LOG_ROW = re.compile(r'^ +\* - "([^\n]+)"\n +- (WARNING|ERROR)$', re.MULTILINE)
LEVELS = {"warning": "WARNING", "error": "ERROR", "exception": "ERROR"}


def logged(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The texts that are logged directly, each with its level."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str(text)), *_]) if name in LEVELS:
                yield text, LEVELS[name]


def test_every_message_that_the_operators_page_quotes_is_logged() -> None:
    page = (ROOT / "doc" / "source" / "admin" / "operation.rst").read_text()
    trees = [ast.parse(path.read_text()) for folder in FOLDERS[:2] for path in (ROOT / folder).rglob("*.py")]
    texts = [node.value for tree in trees for node in ast.walk(tree) if is_text(node)]
    lines = [line for tree in trees for line in logged(tree)]
    rows = LOG_ROW.findall(page)

    assert len(rows) > 50
    assert [quoted for quoted, _ in rows if not any(quoted in text for text in texts)] == []
    levels = {quoted: {level for text, level in lines if quoted in text} for quoted, _ in rows}
    assert [row for row in rows if levels[row[0]] and row[1] not in levels[row[0]]] == []


def test_the_heartbeats_that_a_broker_gets_follow_from_their_interval() -> None:
    page = (ROOT / "doc" / "source" / "admin" / "broker.rst").read_text()

    for what, copies in (("published", 1), ("delivered", 3)):
        [told] = re.findall(rf"heartbeats that are {what} +([\d,]+) a second +([\d,]+) a second", page)
        assert [int(number.replace(",", "")) for number in told] == [
            round(copies * computes / MEAN_S) for computes in (1_000, 10_000)
        ]


WORDS = {
    **dict(enumerate("zero one two three four five six seven eight nine ten".split())),
    16: "sixteen", 20: "twenty",
}  # fmt: skip
PARTS = {4: "a quarter", 5: "a fifth"}
MIB = 1024 * limits.KIB
#: between two heartbeats of a host that does not change: at most, and in the mean
QUIET_S = limits.QUIET_INTERVALS * limits.HEARTBEAT_INTERVAL_S
MEAN_S = QUIET_S * (1 - limits.QUIET_JITTER / 2)
#: messages that are delivered for each server that is placed: the claim and the end of the build to one program; two
#: increments to each scheduler, and a heartbeat and an increment more there
WITH_ONE, WITH_TWO = (sum(message_counters.expected(schedulers)["delivered"].values()) for schedulers in (1, 2))
TO_ONE, TO_EACH = 2 * WITH_ONE - WITH_TWO, WITH_TWO - WITH_ONE + 2
AGAIN_MINUTES = f"{WORDS[round(ends_of_builds.AGAIN_AFTER_S / 60)]} minutes"
#: with 10,000 hosts, 8 schedulers and 60 servers a second: heartbeats of hosts that do not change, and all messages
IDLE_PER_S = 10_000 / MEAN_S
BUSY_PER_S = IDLE_PER_S + 60 * (TO_EACH + 1 / 8)
OURS, AGENTS = SchedulerSettings(), agent_settings.AgentSettings()
POLL_MINUTES = round(AGENTS.placement_poll_s / 60)
FIRST_READ_S, READ_WITH_AGENT_S = (awaited_builds.READ_AFTER_S[at] for at in (0, awaited_builds.WITH_AGENT))
WAITS = range(label_reads.LABEL_READ_WAITS_MAX)
LATE_WAITS = range(label_reads.LABEL_READ_WAITS_MAX + label_reads.LATE_WAITS_MAX)
AUDIT_S = next(opt.default for opt in opts.ALL if opt.name == "audit_interval_s")
MICROVERSIONS = min(write_request.PUT_SCHEMAS), write_request.NEWEST_MICROVERSION
[SWEEP_S] = (source.poll_s for source in read_registry.SOURCES if source.name == read_registry.ORPHANED)

#: sentences of pages, with the numbers that follow from the code
SENTENCES = {
    "README.rst": (f"simulates {WORDS[DemoPlan(0).schedulers]} schedulers, {DemoPlan(0).nodes} nodes",),
    "CONTRIBUTING.rst": (
        f"{len(MORE_WORLDS)} seeds of the simulator and {len(MORE_DEMOS)} of demos; {WORDS[len(LONGER)]} faults of a",
    ),
    "doc/source/admin/broker.rst": (
        f"exclusive, at most {transport_settings.AGENT_QUEUE_MAX_MESSAGES:,} messages and "
        f"{transport_settings.AGENT_QUEUE_MAX_BYTES // MIB} MiB",
        f"exclusive, at most {transport_settings.SCHEDULER_QUEUE_MAX_MESSAGES:,} messages and "
        f"{transport_settings.SCHEDULER_QUEUE_MAX_BYTES // MIB} MiB",
        f"every {QUIET_S * (1 - limits.QUIET_JITTER):.0f} to {QUIET_S:.0f} s",
    ),
    "doc/source/admin/large_clouds.rst": (
        f"every {QUIET_S * (1 - limits.QUIET_JITTER):.1f} to {QUIET_S:.0f} s, {MEAN_S:.1f} s in the mean",
        f"sent to the scheduler that placed the server; {AGAIN_MINUTES} later, a heartbeat carries it to all - R - R",
        f"Hello of a scheduler, every {OURS.hello_interval_s:g} s",
        f"N / {MEAN_S:.1f} + {TO_EACH} R + R / S messages a second",
        f"a claim costs at most {TO_ONE + TO_EACH} messages that are published and {TO_ONE} + {TO_EACH} S that are "
        "delivered",
        f"{TO_ONE + TO_EACH - 2} that are published and {TO_ONE} + {TO_EACH - 2} S that are delivered",
        f"accepted within {limits.FLUSH_INTERVAL_S * 1000:.0f} ms after another increment",
        f"within {limits.FLUSH_INTERVAL_S * 1000:.0f} ms are sent together",
        f"a scheduler receives {IDLE_PER_S:.0f} messages a second",
        f"it receives {BUSY_PER_S:.0f}, and the message queue delivers {round(8 * BUSY_PER_S + 60, -2):,.0f}",
        f"heartbeats are {WORDS[round(5 * IDLE_PER_S / BUSY_PER_S)]} fifths of the messages",
        f"asked whether it is there {QUIET_S:.0f} s after its last message",
        f"after {limits.SILENT_AFTER_S - QUIET_S:.0f} s, or {limits.SILENT_AFTER_S:.0f} s after the last message",
        f"late ({verdict_limit.SHORTEST_S * 1000:.0f} ms at least)",
        f"does not answer {WORDS[limits.ASKS_BEFORE_SILENT]} questions from the {QUIET_S:.0f}th to the "
        f"{limits.SILENT_AFTER_S:.0f}th second",
        f"{WORDS[OURS.spread_ms_per_1000_nodes // 1000]} seconds for each 1,000 nodes",
        f"at most {limits.ALL_COMPARISONS_PER_S:.0f} of these are made in a second",
        f"but for {WORDS[round(limits.READ_BEHIND_MAX_S / 60)]} minutes at most",
        f"5,000 / {MEAN_S:.1f} = {5_000 / MEAN_S:.0f} heartbeats",
        f"receives {round(100_000 / MEAN_S, -1):,.0f} a second from all cells",
        f"with {limits.SILENT_AFTER_S * 60 / limits.HEARTBEAT_INTERVAL_S:.0f} and 60, a scheduler receives "
        f"{round(100_000 * limits.HEARTBEAT_INTERVAL_S / 60 / MEAN_S, -1):.0f} heartbeats a second",
        f"spread their answers over {publisher.SPREAD_MAX_S:.0f} s at most",
        f"{limits.SILENT_READS_BURST} at once and then {limits.SILENT_READS_PER_S:.0f} a second, so the nodes of "
        f"10,000 silent agents take {WORDS[round(10_000 / limits.SILENT_READS_PER_S / 60)]} minutes",
        f"reads Placement every {POLL_MINUTES} minutes, with three calls: "
        f"{round(300_000 / AGENTS.placement_poll_s, -1):.0f} calls a second for 100,000 hosts",
    ),
    "doc/source/contributor/attacks.rst": (
        f"accept {limits.HOST_KIB_PER_S / 1024:g} MiB per second of each host, after {limits.HOST_BURST_KIB / 1024:g} "
        f"MiB at once; a message counts as at least {limits.HOST_MESSAGE_MIN_KIB:g} KiB",
        f"One answer to a sender in {publisher.SNAPSHOT_PAUSE_S:g} seconds",
    ),
    "doc/source/admin/security.rst": (
        f"{WORDS[host_keys.STAMP_AGE_MAX_MS // 60_000]} minutes are accepted",
        f"A host may name {WORDS[unlisted_nodes.PER_HOST_MAX]} such nodes",
        f"at most once in {WORDS[round(ordered_resyncs.ORDER_INTERVAL_S)]} seconds, and "
        f"{WORDS[round(ordered_resyncs.ORDERS_PER_S)]} hosts a second",
        f"at most {limits.RESYNCS_IN_FLIGHT_MAX} are under way at a time; one that the agent does not answer keeps its "
        f"place for {limits.RESYNC_PATIENCE_S:g} s",
        f"A host has at most {limits.HOST_RESYNCS_IN_FLIGHT_MAX} of them",
        f"{ceil(limits.RESYNCS_IN_FLIGHT_MAX / limits.HOST_RESYNCS_IN_FLIGHT_MAX)} hosts that work together",
        f"its turn among them, at {WORDS[round(limits.RESYNCS_IN_FLIGHT_MAX / limits.RESYNC_PATIENCE_S)]} a second",
        f"use {limits.UNLISTED_RESYNCS_IN_FLIGHT_MAX} other places together",
    ),
    "doc/source/admin/operation.rst": (
        f"within {WORDS[round(source_readers.AGENTS_WAIT_S)]} seconds, and "
        f"{source_readers.AGENTS_WAIT_EACH_S * 1000:.0f} ms more for each node",
        f"at least {verdict_limit.SHORTEST_S * 1000:.0f} ms",
        f"at most once in {WORDS[round(ordered_resyncs.ORDER_INTERVAL_S)]} seconds by this command, and "
        f"{WORDS[round(ordered_resyncs.ORDERS_PER_S)]} hosts a second",
        f"may use {WORDS[round(5 * process.REQUESTS_PART)]} fifths of ``drain_timeout_s``",
        f"until {WORDS[round(10 * process.DELETES_PART)]} tenths of ``drain_timeout_s``",
    ),
    "doc/source/admin/groups.rst": (
        f"a database does not within {WORDS[round(state_sync.QUESTION_READ_WITHIN_S)]} seconds",
        f"most {WORDS[group_check.SOFT_YIELDS_MAX]} times",
        f"last {group_check.SOFT_YIELD_LEFT_S:.0f} s before its deadline",
        f"usual time, {verdict_limit.SHORTEST_S * 1000:.0f} ms or more",
    ),
    "doc/source/admin/spreading.rst": (
        f"at most {WORDS[spread_request.CONSTRAINTS_MAX]} constraints",
        f"too many servers again after {WORDS[group_check.YIELDS_MAX]} times",
        f"decided again after at most {spread_check.DEFERRAL_PAUSE_MAX_S:.0f} s",
        f"once in {label_reads.LABEL_READ_INTERVAL_S:.0f} s for one label or group, and twice a second in all",
        f"For {label_reads.KEPT_S:.0f} s, other requests",
        f"at most {sum(label_reads.pause_s(waits) or 0.0 for waits in WAITS):.1f} s in all",
        f"or {sum(label_reads.pause_s(waits, True) or 0.0 for waits in LATE_WAITS):.1f} s if another request begins",
        f"keeps what it has found of {label_reads.KEPT_SERVERS_MAX:,} servers",
    ),
    "doc/source/admin/tuning.rst": (
        f"or {state_sync.AUDIT_READS_PER_S:.0f} a second if there are more than "
        f"{AUDIT_S * state_sync.AUDIT_READS_PER_S:,.0f}",
        f"make {30_000 / AGENTS.placement_poll_s:.0f} calls a second",
    ),
    "doc/source/admin/rollout.rst": (f"At most {comparisons.WAITING_MAX} requests wait for their comparison",),
    "doc/source/admin/monitoring.rst": (
        f"names {metrics.RELEASES_NAMED_MAX} releases",
        f"the oldest {inspection.REQUESTS_MAX} requests",
        f"within {guru_meditation.ANSWER_TIMEOUT_S:g} seconds",
    ),
    "doc/source/admin/page.rst": (
        f"newest {from_records.COUNTED_MAX:,} records",
        f"up to {site.QUERY_CHARS_MAX:,} characters",
        f"silent for {http_server.CLIENT_TIMEOUT_S:g} seconds is disconnected, each client after "
        f"{http_server.THREADED_TIMEOUT_S:g} seconds, and {http_server.CLIENTS_MAX} clients",
    ),
    "doc/source/admin/what_if.rst": (
        f"Up to {WORDS[fit.NEAR_MAX]} hosts of each reason",
        f"within {WORDS[round(fit.TRAITS_WAIT_S)]} seconds",
        f"copy of {table_copy.ROWS_PER_PART} rows",
        f"each takes at most {fit.TIME_MAX_S:g} s",
        f"the {WORDS[outcome.BEST_MAX]} best hosts",
        f"{state_pages.PAGE_ROWS} rows at a time",
    ),
    "doc/source/admin/records.rst": (
        f"a heartbeat says it again {AGAIN_MINUTES} later",
        f"{FIRST_READ_S:.0f} seconds after the placement (with an agent: {READ_WITH_AGENT_S:.0f})",
        f"older than {WORDS[round(unfinished.OTHERS_AGE_MIN_S / 60)]} minutes",
        f"newest {unfinished.READ_MAX:,} decisions and {unfinished.READ_MAX:,} builds",
        f"newest {from_records.DECISIONS_MAX:,} requests of the project",
        f"the {story.INSTANCES_MAX} newest servers",
        f"at most {WORDS[running.NEAR_MAX]} hosts of each reason",
        f"the first {held_room.REJECTED_HOSTS_MAX} without room",
        f"or {database.RETAINED_ROWS} rows",
        f"in a cloud of at most {running.REJECTED_OF_MAX} hosts, and at most {running.REJECTED_MAX} were rejected",
        f"has {PARTS[json_lines.AGE_PARTS]} of that age",
        f"at most every {recorder.PAUSE_AFTER_FAILURE_S:.0f} seconds",
        f"of one node more than one in {WORDS[round(1 / nodes.RECORDS_OF_ONE_PER_S)]} seconds, are left out and "
        f"counted (after {nodes.NODE_RECORDS_BURST} at once, and {nodes.RECORDS_OF_ONE_BURST} of one node)",
        f"The first {request_state.ATTEMPTS_WITH_HOLDERS_MAX} have ``held``",
        f"the {WORDS[held_room.HOLDERS_MAX]} ``largest``",
        f"keeps {request_state.DECISIONS_MAX} and {request_state.ATTEMPTS_MAX}",
    ),
    "doc/source/admin/placement.rst": (
        f"{PARTS[assumed_claims.PART_LEFT]} of the provider",
        f"up to {WORDS[allocation_merge.MAX_MERGES]} times",
        f"keeps the last {foreign_changes.MAX_CHANGES}",
        f"the last {own_writes.OWN_WRITES_MAX:,} servers that it has written",
        f"every {SWEEP_S:g} s, at most {orphan_search.CHECKS_A_SWEEP} servers each time",
        f"every {WORDS[round(orphan_search.AGAIN_S / 60)]} minutes, for an hour",
        f"after {orphan_search.SWEEP_MAX_S:.0f} s are left to the next time",
        f"take turns of {WORDS[round(orphan_search.TURN_S / 60)]} minutes",
        f"the first {orphan_search.TURN_WAIT_S:.0f} seconds of its turn",
        f"again every {in_doubt_writes.AGAIN_AFTER_S:.0f} s, for "
        f"{WORDS[round(in_doubt_writes.UNDER_WAY_MAX_S / 60)]} minutes",
        f"{WORDS[assumed_claims.SCHEDULERS]} times what the scheduler took",
        f"cannot be read within {bounded_reads.ANSWERS_WITHIN_S:g} s",
    ),
    "doc/source/admin/reads.rst": (
        f"vary by {PARTS[round(1 / read_schedule.POLL_JITTER)]} to both sides",
        f"up to {read_registry.MAX_AGE_S * 1000:.0f} ms before the decision",
        f"{WORDS[refusal_ages.REFUSALS_BURST]} are checked by reads of their own",
        f"from {read_registry.RETRY_FIRST_S:.0f} to {read_registry.RETRY_MOST_S:.0f} seconds",
        f"every {WORDS[POLL_MINUTES]} minutes (``placement_poll_s``)",
        f"({AGENTS.deallocation_read_first_s * 1000:.0f} ms at first)",
        f"not longer than {revalidator.MAX_WAIT_S:g} seconds for a read in flight",
        f"{WORDS[bootstrap.CELLS_AT_ONCE]} cells are read at once",
        f"that has not answered for {bootstrap.ANSWERS_WITHIN_S:.0f} s",
        f"of a cell has taken {state_sync.OPENED_AGAIN_AFTER_S:.0f} s",
        f"at most every {state_sync.OPENED_AGAIN_MOST_S / 60:.0f} minutes",
        f"delays a few requests by {revalidator.MAX_WAIT_S:g} seconds",
        f"a read that has taken {revalidator.MAX_WAIT_S:g} s",
        f"where a server is (see below) waits for {bounded_reads.ANSWERS_WITHIN_S:g} s",
        f"and labels wait for {state_sync.QUESTION_READ_WITHIN_S:.0f} s for each database",
        f"search for orphans for {orphan_sweeper.READ_WITHIN_S:.0f} s for each",
        f"While {WORDS[bounded_reads.HANGING_MAX]} reads of one of these kinds hang",
        f"of a single node waits for {node_reads.CELL_READ_WITHIN_S:.0f} s",
        f"in all cells, with {node_reads.CELL_READ_WITHIN_S:.0f} s for each",
        f"a cell whose polls have taken {revalidator.MAX_WAIT_S:g} s is left out",
    ),
    "doc/source/admin/placement_app.rst": (
        f"microversion {MICROVERSIONS[0][0]}.{MICROVERSIONS[0][1]} to {MICROVERSIONS[1][0]}.{MICROVERSIONS[1][1]} if",
        f"up to {WORDS[round(cached_ids.AGE_S / 60)]} minutes",
        f"more than {write_request.BODY_MAX_BYTES // MIB} MiB or {write_request.CONSUMERS_MAX} consumers",
    ),
    "doc/source/contributor/allocation_writes.rst": (
        f"retries for {WORDS[round(consumer_conflicts.ORPHAN_AFTER_S)]} seconds",
        f"more than {limits.CARRIED_OUT_WITHIN_S:.0f} seconds ago",
        f"up to {write_pace.SPARE_WRITERS} threads more",
        f"(after {WORDS[round(OURS.write_timeout_s)]} seconds or less)",
    ),
    "doc/source/contributor/design.rst": (
        f"waits for no read longer than {WORDS[round(revalidator.MAX_WAIT_S)]} seconds",
        f"again after {WORDS[round(limits.VERIFY_AGAIN_S / 60)]} minutes, and of at most "
        f"{limits.ALL_COMPARISONS_PER_S:.0f} copies in order a second",
        f"the next heartbeat after {AGAIN_MINUTES} carries it once",
        f"what Placement writes in {WORDS[round(write_pace.CALL_S)]} seconds",
        f"while one has waited for {WORDS[round(write_pace.OVERLOADED_AFTER_S)]} seconds",
        f"At most {write_pace.UNWRITTEN_MAX} claims of a request",
        f"no more than Placement writes in {WORDS[round(write_pace.UNWRITTEN_S)]} seconds",
        f"by its pace of the last {write_pace.FORECAST_VALID_S:.0f} seconds",
        f"at most {write_pace.UNPACED_MAX} claims are",
        f"all answers of {WORDS[round(write_pace.DOUBT_S)]} seconds",
        f"an unknown outcome, for {WORDS[round(delete_course.DELETE_PATIENCE_S)]} seconds",
    ),
    "doc/source/contributor/decision.rst": (f"All {len(NATIVE_FILTERS)} filters and {len(NATIVE_WEIGHERS)} weighers",),
    "doc/source/contributor/simulator.rst": (
        f"in full every {WORDS[POLL_MINUTES]} minutes",
        f"nothing was for {rest.QUIET_S:.0f} seconds",
        f"within {WORDS[round(rest.REST_MAX_S / 60)]} more minutes",
        f"up to {faults.CRAWL_PROXY_TIMEOUT_S:.0f} seconds after they were sent",
        f"takes {faults.SLOW_S:.0f} s for each server",
        f"that lose races for up to {faults.LOSES_S[1]:.0f} s",
        f"the first {len(WORLDS)} of these worlds, and ``tests/longer`` {len(MORE_WORLDS)} more",
        f"runs {len(DEMOS)} small demos",
        f"``tests/longer`` runs {len(MORE_DEMOS)} more small ones",
    ),
    "doc/source/admin/deployers.rst": (f"rows up to {10_000 / state_sync.AUDIT_READS_PER_S:.0f} s old",),
    "doc/source/contributor/broker_faults.rst": (
        f"they do so after {3 * OURS.hello_interval_s:.0f} s",
        f"up to {transport_settings.PUBLISH_MAX_MESSAGES} messages are in flight",
    ),
    "doc/source/user/deviations.rst": (
        f"0 to {alternate_count.ALTERNATES_MAX})",
        f"more than {image_properties.PAIRS_MAX:,} different pairs",
        f"written for at most {weight_lines.HOSTS_MAX:,} hosts",
    ),
}
#: help texts of options, with the numbers that follow from the code
HELP = {
    "request_timeout_s": (f"At most {WORDS[round(configuration.ANSWER_S)]} seconds less than",),
    "drain_timeout_s": (f"may use {WORDS[round(5 * process.REQUESTS_PART)]} fifths of this time",),
    "recheck_interval_s": (f"a cloud of fewer than {recheck.WHOLE_INTERVAL_HOSTS} hosts",),
    "verdict_timeout_s": (
        f"not heard for {WORDS[round(OURS.silent_after_timeout_s)]} seconds more",
        f"not within {verdict_limit.SHORTEST_S * 1000:.0f} ms",
    ),
    "audit_interval_s": (f"With more than {AUDIT_S * state_sync.AUDIT_READS_PER_S:,.0f} such hosts",),
    "placement_writers": (f"at most {write_pace.MAX_BATCH} servers in one write",),
    "claim_check_after_s": (f"than the {OURS.written_within_s:.0f} seconds within which",),
}


@pytest.mark.parametrize("page", SENTENCES)
def test_numbers_follow_from_the_code(page: str) -> None:
    text = unwrapped((ROOT / page).read_text())

    assert [sentence for sentence in SENTENCES[page] if sentence not in text] == []


@pytest.mark.parametrize("option", HELP)
def test_numbers_of_help_texts_follow_from_the_code(option: str) -> None:
    [text] = [opt.help for opt in (*opts.ALL, *conf.AGENT_OPTS) if opt.name == option]

    assert [sentence for sentence in HELP[option] if sentence not in text] == []


def test_numbers_of_the_registry_of_reads_follow_from_the_code() -> None:
    told = {source.name: f"{source.what}; {source.triggers}" for source in read_registry.SOURCES}
    burst, rate_per_s = limits.SILENT_READS_BURST, limits.SILENT_READS_PER_S
    build = f"not ended {FIRST_READ_S:.0f} s after its placement (with an agent: {READ_WITH_AGENT_S:.0f} s)"

    assert f"the first {burst} at once, others {rate_per_s:.0f} a second" in told[read_registry.NODE]
    assert build in told[read_registry.BUILDS]
    assert f"at most {state_sync.AUDIT_READS_PER_S:.0f} a second" in told[read_registry.AUDIT]


def test_the_page_on_installation_names_each_method_that_the_tap_replaces() -> None:
    page = (ROOT / "doc" / "source" / "admin" / "install.rst").read_text()

    assert [name for name in hooks.METHODS if f"``{name}``" not in page] == []


def test_defaults_of_options_are_those_of_the_code() -> None:
    defaults = {opt.name: opt.default for opt in (*opts.ALL, *conf.AGENT_OPTS)}
    named = re.compile(r"``(?:\[\w+\] )?(\w+)`` \((\d+)(?: s)?\)")
    told = [(name, number) for page in PAGES for name, number in named.findall(page.read_text()) if name in defaults]

    assert len(told) > 4
    assert [(name, number) for name, number in told if float(number) != defaults[name]] == []


def test_times_in_examples_have_a_zone() -> None:
    time = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*")
    told = [(page, found) for page in PAGES for found in time.findall(page.read_text())]

    assert len(told) > 4
    assert [f"{page}: {found}" for page, found in told if "Z" not in found] == []


def test_options_of_the_upgrade_check_precede_its_command() -> None:
    assert [page for page in PAGES if re.search(r"upgrade\s+check\s+--(?!json)", page.read_text())] == []


def test_the_example_of_status_is_what_status_prints() -> None:
    page = (ROOT / "doc" / "source" / "admin" / "operation.rst").read_text()
    cell = {"name": "cell1", "connected": True, "in_state_s": 7200.0, "heard_ago_s": 0.0, "host_keys": "require"}
    answer = {
        "scheduler": "sched1", "pid": 17, "release": "1.1.0", "mode": "active",
        "releases": {"schedulers": {"1.1.0": 2}, "agents": {"1.0.2": 3, "1.1.0": 8}},
        "nodes": 12, "freshness": {"fresh": 11, "provisional": 1}, "in_flight": 1, "claims_open": 2, "quarantined": [],
        "cells": {"c1": cell}, "counters": {"refused": 1, "requests_answered": 5, "Tick": 40},
    }  # fmt: skip

    printed = status.SHOWN["status"](answer).splitlines()

    assert "\n".join(f"    {line}" for line in printed) in page


def unwrapped(text: str) -> str:
    """Without line breaks and indents."""
    return " ".join(text.split())


def test_exceptions_are_documented_in_one_style() -> None:
    product = [path for folder in FOLDERS[:2] for path in (ROOT / folder).rglob("*.py")]
    texts = [(path, node.value) for path in product for node in ast.walk(ast.parse(path.read_text())) if is_text(node)]
    other = re.compile(r"\bRaises ``|:raises (?![\w.]+: when )")

    assert [f"{path}: {text}" for path, text in texts if other.search(text)] == []


def is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_a_path_and_a_module_that_do_not_exist_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.rst"
    page.write_text("See ``core/no_such_file.py`` and tools/no-such-tool, not tools/test.\n")

    assert list(named(page)) == ["tools/no-such-tool", "core/no_such_file.py"]
    assert not exists("shared_scheduler.core.no_such_module")
    assert not exists("shared_scheduler.core.scheduler:NoSuchClass")
    assert exists("shared_scheduler.core.scheduler:SchedulerCore")

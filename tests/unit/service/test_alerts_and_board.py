# SPDX-License-Identifier: Apache-2.0
"""Alert rules and the Grafana board name metrics, labels and values that the programs serve."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from prometheus_client import CollectorRegistry

from compute_agent.service.agent import Agent, AgentFacts, NodeFacts
from compute_agent.service.metrics import AgentMetrics
from shared_scheduler.answers import terms
from shared_scheduler.conf.mode import Mode
from shared_scheduler.decision.record import Attempt, DecisionRecord
from tests.unit.service.test_metrics import World

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "etc" / "prometheus" / "shared-scheduler.rules.yml"
BOARD = ROOT / "etc" / "grafana" / "shared-scheduler.json"
PAGE = ROOT / "doc" / "source" / "admin" / "monitoring.rst"

METRIC = re.compile(r"\b((?:shared_scheduler|compute_agent)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')
#: what Prometheus adds to each series, and the variable of the board
ADDED = {"instance", "job"}

#: metrics with a series for each cell, of which the scheduler of this test has none
OF_CELLS = ("shared_scheduler_cell_connected", "shared_scheduler_cell_heard_age_seconds")

#: values of labels that are known before anything has happened
VALUES: Mapping[str, frozenset[str]] = {
    "event": frozenset(terms.COUNTERS.terms),
    "freshness": frozenset(terms.FRESHNESS.terms),
    "outcome": frozenset(terms.FAILURES.terms) | frozenset(terms.ATTEMPTS.terms),
    "stage": frozenset({"total", "verdict", "write"}),
    "mode": frozenset(Mode),
    "kind": frozenset(terms.CHANGE_KINDS.terms),
}
#: a row of the table of alerts
ROW = re.compile(r"^((?:SharedScheduler|ComputeAgent)\w+)  +\S", re.MULTILINE)


class Told:
    """An agent in whose thread nothing happens."""

    def __init__(self, nodes: Mapping[str, NodeFacts]) -> None:
        self.nodes = dict(nodes)

    def inspect(self, _: Any) -> AgentFacts:
        return AgentFacts(7, True, True, 0, Counter(inbox_full=1), Counter(accepted=1), self.nodes)


def served() -> dict[str, set[str]]:
    """Metric -> its labels, of a scheduler and an agent that have done something."""
    world, registry = World(), CollectorRegistry()
    world.driver.with_agents("n1")
    done = (Attempt("vm", "n1", "h1", "written", verdict_ms=3.0, write_ms=20.0),)
    world.metrics.observe(DecisionRecord("req-1", {}, attempts=done, timings_ms={"total": 60.0}))
    AgentMetrics(cast(Agent, Told({"n1": NodeFacts(True, "", 2)})), registry)
    found: dict[str, set[str]] = {name: {"cell"} for name in OF_CELLS}
    for each in (world.registry, registry):
        for family in each.collect():
            found.setdefault(family.name, set())
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    found["shared_scheduler_source_age_seconds"] = {"source"}  # of sources that have been read
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and the expression."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


EXPRESSIONS = [*expressions()]
ALERTS = {where: expression for where, expression in EXPRESSIONS if ROW.match(f"{where}  .")}


def counted() -> Iterator[tuple[str, str, str]]:
    """Metric, label and value of each counter whose increase is an alert."""
    for name, matchers in METRIC.findall(" ".join(ALERTS.values())):
        for label, _, values in MATCHER.findall(matchers) if name.endswith("_total") else ():
            yield from ((name, label, value) for value in values.split("|"))


COUNTED = [*counted()]


def jobs() -> dict[str, list[str]]:
    """The jobs of the page's example for Prometheus -> their targets."""
    example = PAGE.read_text().partition("    scrape_configs:")[1:]
    lines = [line.removeprefix("    ") for line in "".join(example).partition("\n\n")[0].splitlines()]
    found = yaml.safe_load("\n".join(lines) or "scrape_configs: []")["scrape_configs"]
    return {one["job_name"]: one["static_configs"][0]["targets"] for one in found}


def mistakes(expression: str, known: Mapping[str, set[str]]) -> Iterator[str]:
    for name, matchers in METRIC.findall(expression):
        if name not in known:
            yield f"no metric {name}"
            continue
        for label, operator, value in MATCHER.findall(matchers):
            if label in ADDED:
                continue
            if label not in known[name]:
                yield f"{name} has no label {label}"
            wanted = value.split("|") if operator == "=~" else [value]
            yield from (f"{label} is never {one}" for one in wanted if one not in VALUES.get(label, {one}))


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    return served()


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_each_expression_names_what_is_served(where: str, expression: str, known: dict[str, set[str]]) -> None:
    assert [*mistakes(expression, known)] == []
    assert expression.count("(") == expression.count(")")


def test_a_mistake_is_found(known: dict[str, set[str]]) -> None:
    assert [*mistakes("shared_scheduler_nods > 0", known)] == ["no metric shared_scheduler_nods"]
    assert [*mistakes('shared_scheduler_nodes{freshness="old"}', known)] == ["freshness is never old"]
    assert [*mistakes('shared_scheduler_nodes{cell="c1"}', known)] == ["shared_scheduler_nodes has no label cell"]


def test_each_alert_describes_the_event() -> None:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_the_page_tells_what_to_do_at_each_alert_and_no_other() -> None:
    told = ROW.findall(PAGE.read_text())

    assert sorted(told) == sorted(ALERTS)


@pytest.mark.parametrize("job", ["shared-scheduler", "compute-agent"])
def test_a_process_that_does_not_run_is_an_alert(job: str) -> None:
    """It serves no metric that could tell."""
    assert [name for name, expression in ALERTS.items() if expression == f'up{{job="{job}"}} == 0']


@pytest.mark.parametrize("job", ["shared-scheduler", "compute-agent"])
def test_a_process_that_systemd_starts_again_and_again_is_an_alert(job: str) -> None:
    """It answers between its ends, so it is never down for long, and systemd never gives it up."""
    wanted = f'changes(process_start_time_seconds{{job="{job}"}}['

    assert [name for name, expression in ALERTS.items() if expression.startswith(wanted)]


def test_an_agent_whose_compute_service_never_ran_is_an_alert() -> None:
    """It knows no node, so it has no series of a node."""
    registry = CollectorRegistry()
    AgentMetrics(cast(Agent, Told({})), registry)

    assert registry.get_sample_value("compute_agent_nodes") == 0
    assert "compute_agent_nodes == 0" in ALERTS["ComputeAgentNotReady"]


@pytest.mark.parametrize(("name", "label", "value"), COUNTED)
def test_a_counter_of_an_alert_is_served_before_its_first_event(name: str, label: str, value: str) -> None:
    """A series that begins with 1, or with 1000, has not increased for Prometheus."""
    assert World().registry.get_sample_value(name, {label: value}) is not None


def test_a_cloud_that_nobody_serves_is_an_alert() -> None:
    """No series is there if all schedulers are down."""
    assert [name for name, expression in ALERTS.items() if expression.startswith("absent(shared_scheduler_mode{")]


def test_the_rules_name_the_jobs_of_the_example() -> None:
    named = set(re.findall(r'job="([^"]*)"', " ".join(ALERTS.values())))

    assert named == set(jobs())


def test_prometheus_can_reach_what_the_page_configures() -> None:
    """It reads no Unix sockets."""
    listen = re.findall(r"^    metrics_listen = (.*)$", PAGE.read_text(), re.MULTILINE)

    assert len(listen) == 2
    assert set(listen) <= {target for targets in jobs().values() for target in targets}


def test_the_page_describes_every_metric_and_no_other(known: dict[str, set[str]]) -> None:
    described = set(re.findall(r"``((?:shared_scheduler|compute_agent)_\w+)``", PAGE.read_text()))
    families = {re.sub(r"_(total|bucket|sum|count|created)$", "", name) for name in known}
    ours = {name for name in families if name.startswith(("shared_scheduler_", "compute_agent_"))}

    assert {re.sub("_total$", "", name) for name in described} == ours

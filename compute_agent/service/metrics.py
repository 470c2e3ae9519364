# SPDX-License-Identifier: Apache-2.0
"""The metrics of one agent, for Prometheus, and its readiness.

Everything is read in the agent's thread when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from compute_agent.service.agent import Agent
from compute_agent.service.status_socket import problems
from shared_scheduler.release import release

PREFIX = "compute_agent_"


class AgentMetrics(Collector):
    """The metrics of ``agent``, registered with ``registry``."""

    def __init__(self, agent: Agent, registry: CollectorRegistry) -> None:
        self._agent = agent
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing, because the agent may not run yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """What the agent reports of itself now."""
        facts = self._agent.inspect(Agent.facts)
        yield _gauge("info", "The release of the agent.", {release(): 1.0}, "release")
        yield _gauge("channel_connected", "Whether the state channel is connected.", {"": facts.connected})
        yield _gauge("tap_connected", "Whether nova-compute's tap is connected.", {"": facts.tap_connected})
        yield _gauge("queue_depth", "Events that wait.", {"": facts.waiting})
        yield _gauge("nodes", "Nodes that nova-compute has reported.", {"": len(facts.nodes)})
        ready = {node: found.ready for node, found in facts.nodes.items()}
        yield _gauge("node_ready", "Whether claims for the node are judged.", ready, "node")
        pending = {node: found.pending for node, found in facts.nodes.items()}
        yield _gauge("claims_pending", "Accepted claims that nova-compute does not count yet.", pending, "node")
        yield _counter("events", "Messages of the state channel, by what became of them.", "event", facts.counters)
        yield _counter("notices", "What the agent did, by kind: accepted, refused, ended ...", "notice", facts.notices)


def not_ready(agent: Agent) -> list[str]:
    """Why this agent cannot judge claims of every scheduler; one line each.

    :raises TimeoutError: when the agent does not handle events
    """
    return problems(agent.inspect(Agent.facts))


def not_alive(agent: Agent) -> list[str]:
    """Nothing.

    :raises TimeoutError: when the agent does not handle events
    """
    agent.inspect(Agent.facts)
    return []


def _gauge(name: str, meaning: str, values: Mapping[str, float], label: str = "") -> Metric:
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=[label] if label else [])
    for of, value in values.items():
        family.add_metric([of] if label else [], float(value))
    return family


def _counter(name: str, meaning: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, meaning, labels=[label])
    for of, value in sorted(values.items()):
        family.add_metric([of], value)
    return family

# SPDX-License-Identifier: Apache-2.0
"""The socket through which ``compute-agent-status`` asks an agent, in its state directory, for its user only."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compute_agent.service.agent import Agent, AgentFacts
from shared_scheduler.daemon.admin import AdminError, AdminServer
from shared_scheduler.release import release

LOG = logging.getLogger(__name__)


class StatusSocket:
    """Answers ``status``.  Without a socket the agent works all the same."""

    def __init__(self, path: Path, agent: Agent) -> None:
        self._agent = agent
        self._server = AdminServer(path, {"status": lambda _: self._answer()}, "[compute_agent] state_path")

    def start(self) -> None:
        """Bind the socket; an error is logged."""
        try:
            self._server.start()
        except AdminError as error:
            LOG.warning("compute-agent-status cannot ask this agent: %s", error)

    def stop(self) -> None:
        """Idempotent."""
        self._server.stop()

    def _answer(self) -> dict[str, Any]:
        facts = self._agent.inspect(Agent.facts)
        told = {"host": self._agent.host, "release": release(), "problems": problems(facts)}
        return told | asdict(facts)


def problems(facts: AgentFacts) -> list[str]:
    """Why the agent cannot judge claims of every scheduler; one line each."""
    found = [] if facts.connected else ["the state channel is not connected"]
    if not facts.nodes:
        found.append("nova-compute has not reported a node yet")
    return found + [f"node {node}: {state.missing}" for node, state in facts.nodes.items() if not state.ready]

# SPDX-License-Identifier: Apache-2.0
"""The agent inside nova-compute (``[compute_agent] embedded``), which saves a process at small sites.

The hooks are those of the tap (``hooks.py``), and the agent is that of ``service/agent.py`` with its own thread,
Placement reader and channel: only the socket between them is not used.

The agent is created when the tracker reports for the first time, so that it runs in the process that serves, after any
fork.  It ends with the driver's ``cleanup_host``, the last step of nova-compute's manager, so that it sends Leave to
the schedulers before the process ends.  If the tracker reports again, a new agent is created in a newer epoch.

No hook waits for the agent.  If a report does not fit into its inbox, the next report is complete; that a node is gone
is told again before the next report.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compute_agent.conf import state_directory, status_socket_path
from compute_agent.service.agent import Agent
from compute_agent.service.process import settings_from
from compute_agent.service.state_directory import StateDirectory
from compute_agent.service.status_socket import StatusSocket
from compute_agent.tap.hooks import Hooks
from compute_agent.tap_wire import NodeReported, TapHello, TapMessage
from shared_scheduler.novalib.report_client import NovaTransport
from shared_scheduler.novalib.topology import NovaTopologyFit
from shared_scheduler.placement.reader import PlacementReader
from shared_scheduler.protocol.signing import Signer
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.key_options import load_keys, new_host_keys
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url, rabbit_options

#: The leaf ``agent.mode`` of these agents.
MODE = "embedded"
#: The reason of refusals while nova-compute ends.
ENDED = "nova-compute is stopping"
#: How long ``stop`` waits for the agent's thread.
JOIN_S = 10.0


class EmbeddedAgent:
    """A sink of the hooks: runs the agent of one tracker, which ``make`` builds."""

    def __init__(self, tracker: Any, make: Callable[[Any], Agent], status_path: Path | None = None) -> None:
        """``status_path``: where the agent answers ``compute-agent-status``; nowhere if it is None."""
        self.lock = threading.RLock()
        self._tracker = tracker
        self._make = make
        self._status_path = status_path
        self._status: StatusSocket | None = None
        self._agent: Agent | None = None
        self._thread: threading.Thread | None = None
        self._end_hook: Callable[[], None] = lambda: None

    @property
    def needs_everything(self) -> bool:
        """True until the agent exists, because a new agent needs complete reports."""
        return self._agent is None

    def put(self, message: TapMessage) -> None:
        """Pass the message to the agent.  The first report creates the agent.  Call with ``lock`` held.

        :raises Full: when the inbox of the agent is full
        """
        if self._agent is None:
            if not isinstance(message, NodeReported):
                return
            self._agent = self._started()
        self._agent.offer_from_tap(message)

    def _started(self) -> Agent:
        agent = self._make(self._tracker)
        self._thread = threading.Thread(target=agent.run, name="compute-agent", daemon=True)
        self._thread.start()
        agent.offer_from_tap(TapHello(str(self._tracker.host), os.getpid()))
        if self._status_path is not None:
            self._status = StatusSocket(self._status_path, agent)
            self._status.start()
        self._end_with(self._tracker.driver)
        return agent

    def _end_with(self, driver: Any) -> None:
        """Stop after the last step of nova-compute's manager, even if it fails."""
        original = driver.cleanup_host

        def cleanup_host(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self.stop()

        driver.cleanup_host = cleanup_host
        self._end_hook = lambda: setattr(driver, "cleanup_host", original)

    def stop(self) -> None:
        """Publish that the node is not ready, send Leave, and end the thread."""
        with self.lock:
            agent, self._agent = self._agent, None
            status, self._status = self._status, None
            thread = self._thread
        if agent is None or thread is None:
            return
        self._end_hook()
        if status is not None:
            status.stop()
        agent.tap_lost(ENDED)
        agent.stop()
        thread.join(JOIN_S)


def embed(tracker: Any, conf: Any) -> None:
    """Hook this one tracker."""
    path = status_socket_path(conf)
    Hooks(tracker, os.getpid(), lambda _: EmbeddedAgent(tracker, lambda one: agent_from(one, conf), path)).install()


def agent_from(tracker: Any, conf: Any) -> Agent:
    """The agent of a nova-compute that runs with this configuration.

    :raises StateError: when its state directory cannot be used
    :raises TransportUrlError: when ``transport_url`` cannot be used
    :raises KeyringError: when the keys for signing cannot be used
    """
    url = parse_transport_url(conf.transport_url, rabbit_options(conf))
    signer, host_keys = Signer(), new_host_keys()
    load_keys(conf, signer, host_keys)
    channel = Channel(KombuBus(url, CHANNEL_NAME).agent_endpoint(tracker.host), signer, host_keys=host_keys)
    state = StateDirectory(state_directory(conf))
    try:
        epoch = state.next_epoch(time.time)
    except BaseException:
        state.close()  # so that the next report can try again
        raise
    return Agent(
        tracker.host,
        channel,
        PlacementReader(NovaTransport(tracker.reportclient)),
        state,
        epoch,
        NovaTopologyFit(),
        settings_from(conf),
        random.Random(),
        MODE,
    )

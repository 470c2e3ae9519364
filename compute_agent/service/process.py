# SPDX-License-Identifier: Apache-2.0
"""Builds an agent from the configuration and runs it until a signal ends it.

==========  ===================================================================================
SIGTERM     sends Leave to the schedulers and ends
SIGINT      the same
SIGHUP      reads the configuration and the keys again; mutable options are applied
SIGUSR2     writes a Guru Meditation Report
==========  ===================================================================================
"""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from compute_agent.agent_settings import AgentSettings
from compute_agent.conf import state_directory, status_socket_path, tap_socket_path
from compute_agent.service.agent import Agent, Do
from compute_agent.service.fallback import Fallback, FallbackTimes
from compute_agent.service.state_directory import StateDirectory
from compute_agent.service.status_socket import StatusSocket
from compute_agent.sources.conductor_later import ConductorReaderLater
from compute_agent.sources.nova_conf import NovasConfiguration, check_files
from compute_agent.sources.tap_client import TapClient
from compute_agent.tap_wire import NodeReported, TapMessage
from shared_scheduler.daemon.guru_meditation import Product, report_late
from shared_scheduler.daemon.service_manager import READY, STOPPING, Watchdog, notify
from shared_scheduler.daemon.telemetry_address import telemetry_address
from shared_scheduler.novalib.topology_later import TopologyFitLater
from shared_scheduler.placement.reader import PlacementReader, transport_from
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.signing import Signer
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.channel import Channel
from shared_scheduler.transport.key_options import load_keys, new_host_keys
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url, rabbit_options

if TYPE_CHECKING:
    from shared_scheduler.daemon.telemetry import Telemetry

LOG = logging.getLogger(__name__)

PROGRAM = "compute-agent"


def settings_from(conf: Any) -> AgentSettings:
    """The durations of the core from the options."""
    options = conf.compute_agent
    return AgentSettings(
        heartbeat_interval_s=options.heartbeat_interval_s,
        placement_poll_s=options.placement_poll_s,
        claim_check_after_s=options.claim_check_after_s,
    )


def fallback_times(conf: Any) -> FallbackTimes:
    """The durations of the fallback from the options."""
    options = conf.compute_agent
    return FallbackTimes(
        after_s=0 if options.source == "conductor" else options.fallback_after_s,
        busy_s=options.conductor_poll_busy_s,
        idle_s=options.conductor_poll_idle_s,
    )


def _telemetry(conf: Any, agent: Agent) -> Telemetry | None:
    """The metrics and health of the agent, if they are to be served.

    :raises TelemetryError: when ``metrics_listen`` cannot be used
    """
    address = telemetry_address(conf.compute_agent.metrics_listen, "compute_agent")
    if address is None:
        return None
    from compute_agent.service import metrics  # prometheus_client costs memory, which most agents can save
    from shared_scheduler.daemon.telemetry import Telemetry

    served = Telemetry(address, partial(metrics.not_alive, agent), partial(metrics.not_ready, agent))
    metrics.AgentMetrics(agent, served.registry)
    return served


class AgentProcess:
    """The parts of one agent process.

    :raises StateError: when the state directory cannot be used, on construction
    :raises PlacementConfigError: when ``[placement]`` cannot be used
    :raises TransportUrlError: when ``transport_url`` cannot be used
    :raises KeyringError: when the keys for signing cannot be used
    :raises ValueError: when another value cannot be used
    """

    def __init__(self, conf: Any, novas: NovasConfiguration) -> None:
        self.conf = conf
        self.fit = TopologyFitLater(novas.read)
        url = parse_transport_url(conf.transport_url, rabbit_options(conf))
        reader = PlacementReader(transport_from(conf))
        path = tap_socket_path(conf)
        self.signer, self.host_keys = Signer(), new_host_keys()
        load_keys(conf, self.signer, self.host_keys)
        self.state = StateDirectory(state_directory(conf))
        self.agent = Agent(
            conf.host,
            Channel(KombuBus(url, CHANNEL_NAME).agent_endpoint(conf.host), self.signer, host_keys=self.host_keys),
            reader,
            self.state,
            self.state.next_epoch(time.time),
            self.fit,
            settings_from(conf),
            random.Random(),
        )
        source = conf.compute_agent.source
        self.tap = (
            None if source == "conductor" else TapClient(path, conf.host, self._take_from_tap, self.agent.tap_lost)
        )
        self.fallback = (
            None
            if source == "tap"
            else Fallback(self.agent, ConductorReaderLater(conf.host, novas.read), fallback_times(conf))
        )
        self.telemetry = _telemetry(conf, self.agent)
        self.status = StatusSocket(status_socket_path(conf), self.agent)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        :raises TelemetryError: when ``metrics_listen`` cannot be bound (``TelemetryUnavailableError``: at present)
        """
        self._handle_signals()
        if self.telemetry is not None:
            self.telemetry.start()
        for part in (self.tap, self.fallback, self.status):
            if part is not None:
                part.start()
        LOG.info("compute-agent of host %s runs (source: %s)", self.conf.host, self.conf.compute_agent.source)
        watchdog = Watchdog(lambda: self.agent.inspect(Agent.facts))
        watchdog.start()
        notify(READY)
        self.agent.run()
        watchdog.stop()
        notify(STOPPING)
        for part in (self.tap, self.fallback, self.status):
            if part is not None:
                part.stop()
        if self.telemetry is not None:
            self.telemetry.stop()

    def _take_from_tap(self, message: TapMessage) -> None:
        """In the thread of the tap's reader."""
        if isinstance(message, NodeReported):
            self.fit.prepare(message.leaves)
        self.agent.take_from_tap(message)

    def _handle_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.agent.stop())
            signal.signal(signal.SIGHUP, lambda *_: self.agent.put(Do(self._reload)))
            # signals are handled in the agent's thread, so its facts can be read in place
            product = Product(PROGRAM, version("nova"))
            report_late(product, PROGRAM, self.conf, lambda: asdict(self.agent.facts()))

    def _reload(self) -> None:
        """Read the configuration again, in the agent's thread."""
        try:
            check_files(self.conf)
            self.conf.mutate_config_files()
        except Exception as error:
            LOG.error("configuration not reloaded, nothing has changed: %s", error)
            return
        self._reload_keys()
        self.agent.reconfigure(settings_from(self.conf))
        if self.fallback is not None:
            self.fallback.times = fallback_times(self.conf)
        LOG.info("configuration read again")

    def _reload_keys(self) -> None:
        try:
            load_keys(self.conf, self.signer, self.host_keys)
            LOG.info("signing is %s, host_keys is %s", self.signer.mode, self.host_keys.mode)
        except KeyringError as error:
            line = "signing stays %s and host_keys stays %s, with the previous keys: %s"
            LOG.error(line, self.signer.mode, self.host_keys.mode, error)

# SPDX-License-Identifier: Apache-2.0
"""Puts an agent together from configuration, and runs it until a signal ends it.

==========  ===================================================================================
SIGTERM     says goodbye to the schedulers and ends
SIGINT      the same
SIGHUP      reads the configuration and the keys again; options marked mutable are taken over
==========  ===================================================================================
"""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from typing import Any

from compute_agent.conf import state_directory, tap_socket_path
from compute_agent.service.agent import Agent, Do
from compute_agent.service.channel import Channel
from compute_agent.service.fallback import Fallback, FallbackTimes
from compute_agent.service.keys import load_keys
from compute_agent.service.state import StateDirectory
from compute_agent.settings import Settings
from compute_agent.sources.conductor import ConductorReader
from compute_agent.sources.nova_conf import check_files, tls_options
from compute_agent.sources.placement import PlacementReader, adapter_from
from compute_agent.sources.tap_client import TapClient
from compute_agent.sources.topology import NovaTopologyFit
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.signing import Signer
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url

LOG = logging.getLogger(__name__)


def settings_from(conf: Any) -> Settings:
    """The core's times as the options have them."""
    options = conf.compute_agent
    return Settings(
        beat_interval_s=options.beat_interval_s,
        placement_poll_s=options.placement_poll_s,
        claim_check_after_s=options.claim_check_after_s,
    )


def fallback_times(conf: Any) -> FallbackTimes:
    """The fallback's times as the options have them."""
    options = conf.compute_agent
    return FallbackTimes(
        after_s=0 if options.source == "conductor" else options.fallback_after_s,
        busy_s=options.conductor_poll_busy_s,
        idle_s=options.conductor_poll_idle_s,
    )


class AgentProcess:
    """Everything that one agent process has.

    Construction raises ``StateError``, ``PlacementConfigError``, ``TransportUrlError``,
    ``KeyringError`` or ``ValueError`` where the configuration cannot work; each says what to change.
    """

    def __init__(self, conf: Any) -> None:
        self.conf = conf
        url = parse_transport_url(conf.transport_url, tls_options(conf))
        reader = PlacementReader(adapter_from(conf))
        path = tap_socket_path(conf)
        self.signer = Signer()
        load_keys(conf, self.signer)
        self.state = StateDirectory(state_directory(conf))
        self.agent = Agent(
            conf.host,
            Channel(KombuBus(url, CHANNEL_NAME).agent_endpoint(conf.host), self.signer),
            reader,
            self.state,
            self.state.next_epoch(time.time),
            NovaTopologyFit(),
            settings_from(conf),
            random.Random(),
        )
        source = conf.compute_agent.source
        self.tap = (
            None
            if source == "conductor"
            else TapClient(path, conf.host, self.agent.heard, self.agent.tap_lost)
        )
        self.fallback = (
            None
            if source == "tap"
            else Fallback(self.agent, ConductorReader(conf.host), fallback_times(conf))
        )

    def run(self) -> None:
        """Until SIGTERM or SIGINT."""
        self._handle_signals()
        for part in (self.tap, self.fallback):
            if part is not None:
                part.start()
        LOG.info("compute-agent of host %s runs (source: %s)", self.conf.host, self.conf.compute_agent.source)
        self.agent.run()
        for part in (self.tap, self.fallback):
            if part is not None:
                part.stop()

    def _handle_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.agent.stop())
            signal.signal(signal.SIGHUP, lambda *_: self.agent.put(Do(self._reload)))

    def _reload(self) -> None:
        """In the agent's thread."""
        try:
            check_files(self.conf)
            self.conf.mutate_config_files()
        except Exception as error:
            LOG.error("nothing has changed: %s", error)
            return
        self._reload_keys()
        self.agent.reconfigure(settings_from(self.conf))
        if self.fallback is not None:
            self.fallback.times = fallback_times(self.conf)
        LOG.info("configuration read again")

    def _reload_keys(self) -> None:
        try:
            load_keys(self.conf, self.signer)
            LOG.info("signing is %s", self.signer.mode)
        except KeyringError as error:
            LOG.error("signing stays %s, with the keys that it had: %s", self.signer.mode, error)

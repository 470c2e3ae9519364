# SPDX-License-Identifier: Apache-2.0
"""Puts an embedded agent together from nova-compute's configuration (``[compute_agent] embedded``)."""

from __future__ import annotations

import random
import time
import types
from typing import Any

from compute_agent.conf import state_directory
from compute_agent.embedded import MODE, EmbeddedAgents
from compute_agent.service.agent import Agent
from compute_agent.service.channel import Channel
from compute_agent.service.keys import load_keys
from compute_agent.service.process import settings_from
from compute_agent.service.state import StateDirectory
from compute_agent.sources.nova_conf import tls_options
from compute_agent.sources.placement import PlacementReader
from compute_agent.sources.report_client import ReportClientAdapter
from compute_agent.sources.topology import NovaTopologyFit
from shared_scheduler.protocol.signing import Signer
from shared_scheduler.transport.bus import CHANNEL_NAME
from shared_scheduler.transport.kombu_bus import KombuBus
from shared_scheduler.transport.urls import parse_transport_url


def embed(tracker: Any, conf: Any) -> None:
    """Hook this one tracker; its agent begins with its first report, in the process that serves."""
    agents = EmbeddedAgents(lambda reporting: agent_from(reporting, conf))
    for name, hooked in agents.hooks(type(tracker)):
        setattr(tracker, name, types.MethodType(hooked, tracker))


def agent_from(tracker: Any, conf: Any) -> Agent:
    """The agent of a nova-compute that runs with this configuration.

    Raises ``StateError``, ``TransportUrlError`` or ``KeyringError``; each says what to change.
    """
    url = parse_transport_url(conf.transport_url, tls_options(conf))
    signer = Signer()
    load_keys(conf, signer)
    channel = Channel(KombuBus(url, CHANNEL_NAME).agent_endpoint(tracker.host), signer)
    state = StateDirectory(state_directory(conf))
    try:
        epoch = state.next_epoch(time.time)
    except BaseException:
        state.close()  # the next report tries again
        raise
    return Agent(
        tracker.host,
        channel,
        PlacementReader(ReportClientAdapter(tracker.reportclient)),
        state,
        epoch,
        NovaTopologyFit(),
        settings_from(conf),
        random.Random(),
        MODE,
    )

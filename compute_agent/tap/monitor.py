# SPDX-License-Identifier: Apache-2.0
"""Loads the tap into an unpatched nova-compute, by an entry point of ``nova.compute.monitors.cpu``.

stevedore imports and constructs every entry point of that group with the live ResourceTracker before
Nova checks whether it is enabled (reference: nova/compute/monitors/__init__.py, stevedore/enabled.py).
Nova then does not find the module in its options, drops the object and logs an error, which a filter removes here.
The hooks keep the object alive.

An installed tap is therefore always constructed.  It does nothing unless
``[compute_agent] tap_enabled`` is set in the nova.conf of that nova-compute.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Any

import nova.conf
from nova.pci import manager as pci_manager
from nova.scheduler.client.report import SchedulerReportClient

from compute_agent.conf import register_opts, tap_socket_path
from compute_agent.tap.embedded import embed
from compute_agent.tap.hooks import Hooks, missing_names
from compute_agent.tap.tap_channel import TapChannel

LOG = logging.getLogger(__name__)

ENTRY_POINT = "compute_agent_tap"


class _HideComplaint(logging.Filter):
    """Drops stevedore's "Could not load 'compute_agent_tap'": it was loaded."""

    def filter(self, record: logging.LogRecord) -> bool:
        first = record.args[0] if isinstance(record.args, tuple) and record.args else None
        # an entry point, which stevedore logs as well, cannot be compared with a text
        return not (isinstance(first, str) and first == ENTRY_POINT)


logging.getLogger("stevedore.extension").addFilter(_HideComplaint())


class ResourceTrackerTap:
    """The tap, which Nova constructs with its ResourceTracker.  Construction never raises."""

    def __init__(self, resource_tracker: Any) -> None:
        self.hooks: Hooks | None = None
        self.missing: list[str] = []
        try:
            self._start(resource_tracker)
        except Exception:
            LOG.exception("compute-agent tap could not start; nova-compute is not affected")

    def _start(self, resource_tracker: Any) -> None:
        conf = nova.conf.CONF
        register_opts(conf)
        options = conf.compute_agent
        if not options.tap_enabled and not options.embedded:
            LOG.debug("compute-agent tap is installed but off ([compute_agent] tap_enabled, embedded)")
            return
        self.missing = missing_names(resource_tracker, pci_manager.PciDevTracker, SchedulerReportClient)
        if self.missing:
            LOG.error(
                "compute-agent tap incompatible with this nova: it has no %s. nova-compute runs as "
                "if the tap were not installed; its agent works in fallback mode.",
                ", ".join(self.missing),
            )
        elif options.embedded:
            embed(resource_tracker, conf)
            LOG.info("nova-compute runs its compute-agent itself ([compute_agent] embedded)")
        else:
            self._listen(resource_tracker, conf)

    def _listen(self, resource_tracker: Any, conf: Any) -> None:
        path = tap_socket_path(conf)
        self.hooks = Hooks(resource_tracker, os.getpid(), partial(TapChannel, path))
        self.hooks.install()
        LOG.info("compute-agent tap is enabled; the agent may connect to %s", path)

# SPDX-License-Identifier: Apache-2.0
"""nova.conf as the agent reads it: the same files as nova-compute.

The agent registers the few options that it needs itself (``novas_options.py``).  Nova's own configuration is imported
and read only in an agent that also uses Nova's objects (``NovasConfiguration``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg
from oslo_log import log

from compute_agent import conf as agent_conf
from compute_agent.sources import novas_options
from shared_scheduler.daemon.config_files import check_values, unreadable_named
from shared_scheduler.transport.urls import register_messaging_options


class ConfigError(Exception):
    """nova.conf cannot be used; says which option or file and what to do."""


def load(arguments: Sequence[str], prog: str, version: str) -> Any:
    """Parse ``--config-file`` arguments as nova-compute does.

    Reads every option of ``[compute_agent]``, and those of Nova that the agent needs, so that a wrong value
    is reported at start and not when it is first used.

    :raises ConfigError: when a file or a value is not valid
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    agent_conf.register_opts(conf)
    novas_options.register(conf)
    register_messaging_options(conf)
    try:
        with unreadable_named():
            conf(list(arguments), project="nova", prog=prog, version=version)
        check_values(conf.compute_agent, agent_conf.GROUP.name, agent_conf.AGENT_OPTS)
        if not conf.transport_url:
            raise ConfigError("[DEFAULT] transport_url is not set: copy it from nova-compute")
        _ = (conf.host, conf.state_path)
    except cfg.Error as error:
        raise ConfigError(f"nova.conf: {error}") from error
    return conf


class NovasConfiguration:
    """Nova's global configuration, read once from the files of ``load``.  Any thread may call ``read``."""

    def __init__(self, arguments: Sequence[str], prog: str, version: str) -> None:
        self._given = (list(arguments), prog, version)
        self._lock = threading.Lock()
        self._is_read = False

    def read(self) -> None:
        """Import and read it, if that is not done yet.

        :raises ConfigError: when a file or a value is not valid
        """
        with self._lock:
            if not self._is_read:
                self._read()
                self._is_read = True

    def _read(self) -> None:
        import nova.conf
        import oslo_messaging

        arguments, prog, version = self._given
        conf = nova.conf.CONF
        log.register_options(conf)
        oslo_messaging.set_transport_defaults(control_exchange="nova")  # as Nova's own commands do
        try:
            with unreadable_named():
                conf(arguments, project="nova", prog=prog, version=version)
        except cfg.Error as error:
            raise ConfigError(f"nova.conf: {error}") from error


def check_files(conf: Any) -> None:
    """Check whether the configuration files can be applied as they are now.

    ``mutate_config_files`` also applies invalid values, and every later read of such an option fails.  So the
    files are read into a separate configuration first.

    :raises ConfigError: when a file or a value is not valid
    """
    probe = cfg.ConfigOpts()
    agent_conf.register_opts(probe)
    try:
        with unreadable_named():
            probe([], default_config_files=conf.config_file, default_config_dirs=conf.config_dir)
        check_values(probe.compute_agent, agent_conf.GROUP.name, agent_conf.AGENT_OPTS)
    except (cfg.Error, ValueError) as error:
        raise ConfigError(f"nova.conf: {error}") from error

# SPDX-License-Identifier: Apache-2.0
"""Nova's own configuration as the agent reads it: the same files as nova-compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nova.conf
import oslo_messaging
from oslo_config import cfg
from oslo_log import log

from compute_agent import conf as agent_conf
from shared_scheduler.transport.urls import register_messaging_options


class ConfigError(Exception):
    """nova.conf cannot be used; says which option or file and what to do."""


def load(arguments: Sequence[str], prog: str, version: str) -> Any:
    """Parse ``--config-file`` arguments as nova-compute does.

    Reads every option of ``[compute_agent]``, and those of Nova that the agent needs, so that a wrong value
    is reported at start and not when it is first used.

    :raises ConfigError: when a file or a value is not valid
    """
    conf = nova.conf.CONF
    log.register_options(conf)
    agent_conf.register_opts(conf)
    oslo_messaging.set_transport_defaults(control_exchange="nova")  # as Nova's own commands do
    register_messaging_options(conf)
    try:
        conf(list(arguments), project="nova", prog=prog, version=version)
        for opt in agent_conf.AGENT_OPTS:
            getattr(conf.compute_agent, opt.dest)
        if not conf.transport_url:
            raise ConfigError("[DEFAULT] transport_url is not set: copy it from nova-compute")
        _ = (conf.host, conf.state_path, conf.service_down_time)
    except cfg.Error as error:
        raise ConfigError(f"nova.conf: {error}") from error
    return conf


def check_files(conf: Any) -> None:
    """Check whether the configuration files can be applied as they are now.

    ``mutate_config_files`` also applies invalid values, and every later read of such an option fails.  So the
    files are read into a separate configuration first.

    :raises ConfigError: when a file or a value is not valid
    """
    probe = cfg.ConfigOpts()
    agent_conf.register_opts(probe)
    try:
        probe([], default_config_files=conf.config_file, default_config_dirs=conf.config_dir)
        for opt in agent_conf.AGENT_OPTS:
            getattr(probe.compute_agent, opt.dest)
    except (cfg.Error, ValueError) as error:
        raise ConfigError(f"nova.conf: {error}") from error

# SPDX-License-Identifier: Apache-2.0
"""Nova's own configuration as the agent reads it: the same files as nova-compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nova.conf
import oslo_messaging
from oslo_config import cfg
from oslo_log import log
from oslo_messaging import opts as messaging_opts

from compute_agent import conf as agent_conf
from shared_scheduler.transport.urls import TlsOptions

#: Groups of oslo.messaging of which the agent reads something; None is [DEFAULT].
_MESSAGING_GROUPS = (None, "oslo_messaging_rabbit")


class ConfigError(Exception):
    """nova.conf cannot be used; says which option or file and what to do."""


def load(arguments: Sequence[str], prog: str, version: str) -> Any:
    """Parse ``--config-file`` arguments as nova-compute does.  Raises ``ConfigError``.

    Every option of ``[compute_agent]`` and those of Nova that the agent needs are looked at here, so
    that a wrong value is told at start and not when it is first used.
    """
    conf = nova.conf.CONF
    log.register_options(conf)
    agent_conf.register_opts(conf)
    oslo_messaging.set_transport_defaults(control_exchange="nova")  # as Nova's own commands do
    for group, opts in messaging_opts.list_opts():
        if group in _MESSAGING_GROUPS:
            conf.register_opts(opts, group=group)
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
    """Whether the files can be taken over as they are now.  Raises ``ConfigError``.

    ``mutate_config_files`` takes over what it cannot use as well, and every later look at that option
    fails: so look first, into a configuration of its own.
    """
    probe = cfg.ConfigOpts()
    agent_conf.register_opts(probe)
    try:
        probe([], default_config_files=conf.config_file, default_config_dirs=conf.config_dir)
        for opt in agent_conf.AGENT_OPTS:
            getattr(probe.compute_agent, opt.dest)
    except (cfg.Error, ValueError) as error:
        raise ConfigError(f"nova.conf: {error}") from error


def tls_options(conf: Any) -> TlsOptions | None:
    """TLS to RabbitMQ as ``[oslo_messaging_rabbit]`` has it; None where it is off."""
    rabbit = conf.oslo_messaging_rabbit
    if not rabbit.ssl:
        return None
    return TlsOptions(
        ca_file=rabbit.ssl_ca_file, cert_file=rabbit.ssl_cert_file, key_file=rabbit.ssl_key_file
    )

# SPDX-License-Identifier: Apache-2.0
"""Converts the configuration to plain values, because the pure packages never read CONF."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import nova.conf
from nova.conf import paths
from nova.conf import scheduler as scheduler_options
from nova.scheduler import utils
from oslo_config import cfg

from shared_scheduler.conf import opts
from shared_scheduler.core.scheduler_settings import SchedulerSettings
from shared_scheduler.daemon.config_files import check_values, unreadable_named
from shared_scheduler.decision.decision_settings import DecisionSettings, SpreadImages
from shared_scheduler.sync.read_registry import SOURCES, Source
from shared_scheduler.table.numbers import DefaultRatios

CONF = nova.conf.CONF

#: Hosts that Nova's own filters check before "no valid host" if only our column filters rejected them.  A
#: mistake in a column filter then costs time and not a server.
LAST_WORDS_MAX = 3

#: Time for the answer on its way to nova-conductor, and for the caller's own call.
ANSWER_S = 2.0

#: Options of Nova that nova-scheduler reads only at a restart, and that this service reads again at SIGHUP.
RELOADED: Mapping[str, Sequence[cfg.Opt]] = {
    "filter_scheduler": scheduler_options.filter_scheduler_opts,
    "metrics": scheduler_options.metrics_weight_opts,
    "scheduler": [
        option
        for option in scheduler_options.scheduler_opts
        if option.name not in ("workers", "discover_hosts_in_cells_interval")
    ],
}


def make_reloadable() -> None:
    """Mark the options that a reload applies as mutable, for ``mutate_config_files``."""
    for options in RELOADED.values():
        for option in options:
            option.mutable = True


def check_files() -> None:
    """Check that the configuration files can be applied.

    ``mutate_config_files`` also applies invalid values, and each later read of such an option fails.  So
    the files are parsed into a separate configuration first.

    :raises cfg.Error: when a file cannot be read, or a value is not allowed
    """
    probe = cfg.ConfigOpts()
    paths.register_opts(probe)  # defaults of ours name state_path
    groups = {**RELOADED, opts.GROUP.name: opts.ALL}
    for group, options in groups.items():
        probe.register_opts(options, group=group)
    with unreadable_named():
        probe(args=[], default_config_files=CONF.config_file, default_config_dirs=CONF.config_dir)
    for group, options in groups.items():
        check_values(probe[group], group, options)


def request_timeout_s() -> float:
    """How long a request may take from its arrival: less than nova-conductor waits for the answer.

    nova-conductor calls with ``long_rpc_timeout``, and gives up earlier only if no heartbeat of the call arrives within
    ``rpc_response_timeout`` (nova/scheduler/rpcapi.py).  oslo.messaging sends these heartbeats while the call runs.
    """
    ours_s, conductors_s = float(CONF.shared_scheduler.request_timeout_s), float(CONF.long_rpc_timeout)
    return max(1.0, min(ours_s, conductors_s - ANSWER_S))


def decision_settings(enabled_filters: Iterable[str], weighers: Iterable[str]) -> DecisionSettings:
    """``[filter_scheduler]`` and ``[metrics]``; names of filters and weighers in Nova's order."""
    options = CONF.filter_scheduler
    named = {each.name for each in fields(DecisionSettings)} & set(options)
    values: dict[str, Any] = {name: options[name] for name in named}
    values |= {
        "enabled_filters": tuple(enabled_filters),
        "weighers": tuple(weighers),
        "isolated_images": frozenset(options.isolated_images),
        "isolated_hosts": frozenset(options.isolated_hosts),
        "image_props_weight_setting": _ratios(
            options.image_props_weight_setting, "filter_scheduler.image_props_weight_setting"
        ),
        "metrics_weight_multiplier": CONF.metrics.weight_multiplier,
        "metrics_weight_setting": _ratios(CONF.metrics.weight_setting, "metrics.weight_setting"),
        "metrics_required": CONF.metrics.required,
        "metrics_weight_of_unavailable": CONF.metrics.weight_of_unavailable,
        "near_tie": near_tie(),
        "exact_hosts_max": CONF.shared_scheduler.exact_hosts_max,
        "spread_keys": tuple(CONF.shared_scheduler.spread_keys),
        "spread_images": SpreadImages(CONF.shared_scheduler.spread_image_properties),
        "spread_weight_multiplier": CONF.shared_scheduler.spread_weight_multiplier,
    }
    return DecisionSettings(**values)


def core_settings() -> SchedulerSettings:
    """The options of ``[shared_scheduler]`` that the core uses."""
    ours = CONF.shared_scheduler
    return SchedulerSettings(
        verdict_timeout_s=ours.verdict_timeout_s,
        attempts_max=ours.attempts_max,
        last_words_max=LAST_WORDS_MAX,
        requests_max=ours.requests_max,
        silent_after_s=ours.agent_silent_after_s,
        nodes_max=ours.nodes_max,
        refusals_max=ours.refusals_max,
        quarantine_s=ours.quarantine_s,
        recheck_interval_s=ours.recheck_interval_s,
    )


def sources() -> tuple[Source, ...]:
    """The registry, with the intervals that the options say."""
    ours = CONF.shared_scheduler
    return tuple(replace(each, poll_s=ours[each.option]) if each.option else each for each in SOURCES)


def default_ratios() -> DefaultRatios:
    """The ratios of a compute node record that has none, as in ComputeNode._from_db_object."""
    return DefaultRatios(
        cpu=CONF.cpu_allocation_ratio or CONF.initial_cpu_allocation_ratio,
        ram=CONF.ram_allocation_ratio or CONF.initial_ram_allocation_ratio,
        disk=CONF.disk_allocation_ratio or CONF.initial_disk_allocation_ratio,
    )


def near_tie() -> float | None:
    """``near_tie``; None if schedulers do not avoid one another."""
    ours = CONF.shared_scheduler
    return float(ours.near_tie) if ours.spread_over_schedulers else None


def _ratios(given: list[str], name: str) -> tuple[tuple[str, float], ...]:
    return tuple(utils.parse_options(given, sep="=", converter=float, name=name))

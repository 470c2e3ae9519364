# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers of a site, which have no column counterpart and run on host states.

They receive the same objects as in nova-scheduler, HostState objects and the RequestSpec, for all hosts that
passed the filters before them.  This is slower than columns and always correct.  If one of them raises, the
request fails with its name, because a decision without it is not what the site configured.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nova import weights

from shared_scheduler.core.events import Candidate
from shared_scheduler.decision.errors import DecisionError
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.nova import configuration, weight_lines
from shared_scheduler.nova.host_manager import HostManager
from shared_scheduler.nova.host_state import HostStates
from shared_scheduler.nova.judge import point_at, takes_too_long
from shared_scheduler.nova.selection import allocation_request
from shared_scheduler.table.host_view import HostView
from shared_scheduler.transport.rate_limited_log import RateLimitedLog

#: Modules of the classes that have column counterparts.
NATIVE_FILTERS = "nova.scheduler.filters."
NATIVE_WEIGHERS = "nova.scheduler.weights."

LOG = logging.getLogger(__name__)


class PluginFailedError(DecisionError):
    """A plug-in of a site raised an exception or returned an invalid value; the text names the plug-in."""


@contextmanager
def _named(kind: str, name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        LOG.exception("%s %s failed; the request fails", kind, name)
        raise PluginFailedError(f"{kind} {name} failed: {type(error).__name__}: {error}") from error


class SiteFilter:
    """A ``decision.context.ForeignFilter`` around one of Nova's filter objects."""

    def __init__(self, plugin: Any, states: HostStates) -> None:
        self._plugin = plugin
        self._states = states
        self.name = type(plugin).__name__
        self.once = bool(plugin.run_filter_once_per_request)

    def passing(self, request: Request, index: int, views: Sequence[HostView]) -> Sequence[HostView] | None:
        """The hosts that pass; None if the filter ends the filtering."""
        point_at(request.spec, request, index)
        of_state = {id(state): (state, view) for state, view in _states(self._states, views)}
        with _named("filter", self.name):
            left = self._plugin.filter_all([state for state, _ in of_state.values()], request.spec)
            return None if left is None else [of_state[id(state)][1] for state in left]


class NovaFilters:
    """A ``decision.context.ForeignFilter`` that runs Nova's own filters on the few hosts that are left.

    Weighers then receive only hosts that pass Nova's own filters, the NUMA and PCI fit included.
    """

    name = "NovaFilters"
    once = False

    def __init__(self, host_manager: HostManager, states: HostStates) -> None:
        self._host_manager = host_manager
        self._states = states
        self._log = RateLimitedLog(LOG)

    def passing(self, request: Request, index: int, views: Sequence[HostView]) -> Sequence[HostView]:
        """The hosts that pass; all of them if a filter raises, because the judge checks each host that is tried."""
        point_at(request.spec, request, index)
        pairs = _states(self._states, [view for view in views if takes_too_long(request.spec, view) is None])
        for state, view in pairs:
            state.allocation_candidates = _candidates(request, view.node)
        try:
            left = self._host_manager.get_filtered_hosts([s for s, _ in pairs], request.spec)
        except Exception:
            line = "A filter failed; each host is filtered alone when it is tried"
            self._log.write(logging.ERROR, "filter", line, exc_info=True)
            return views
        kept = {id(state) for state in left}
        return [view for state, view in pairs if id(state) in kept]


def _candidates(request: Request, node: str) -> list[dict[str, Any]]:
    """The candidates of a root-only request.  Whether each form fits is not checked here."""
    return [allocation_request(Candidate({node: form.resources}, {"": (node,)})) for form in request.forms]


class SiteWeigher:
    """A ``decision.context.ForeignWeigher`` around one of Nova's weigher objects."""

    def __init__(self, plugin: Any, states: HostStates) -> None:
        self._plugin = plugin
        self._states = states
        self.name = type(plugin).__name__
        self.minval: float | None = plugin.minval
        self.maxval: float | None = plugin.maxval

    def weigh(self, request: Request, views: Sequence[HostView]) -> Sequence[float]:
        """Raw weights, computed by the plug-in for all hosts in one call."""
        hosts = [weights.WeighedObject(state, 0.0) for state, _ in _states(self._states, views)]
        with _named("weigher", self.name):
            found = [float(each) for each in self._plugin.weigh_objects(hosts, request.spec)]
            if len(found) != len(hosts):
                raise ValueError(f"{len(found)} weights for {len(hosts)} hosts")
        if weight_lines.is_wanted(len(views)):
            multipliers = self.multipliers(views)
            weight_lines.log_weights(self.name, views, found, multipliers, self.minval, self.maxval)
        return found

    def multipliers(self, views: Sequence[HostView]) -> Sequence[float]:
        """``weight_multiplier`` of each host."""
        states = [state for state, _ in _states(self._states, views)]
        with _named("weigher", self.name):
            return [float(self._plugin.weight_multiplier(state)) for state in states]


def configure_decider(decider: Decider, manager: HostManager, states: HostStates) -> None:
    """Give a decider the present settings, and the loaded filters and weighers."""
    names = (type(each).__name__ for each in manager.enabled_filters)
    wanted = configuration.decision_settings(names, weigher_names(manager))
    filters, weighers = site_filters(manager, states), site_weighers(manager, states)
    decider.configure(wanted, filters, weighers, NovaFilters(manager, states))


def site_filters(host_manager: HostManager, states: HostStates) -> dict[str, SiteFilter]:
    """The enabled filters that are not Nova's own, by class name."""
    return {
        type(each).__name__: SiteFilter(each, states)
        for each in host_manager.enabled_filters
        if not type(each).__module__.startswith(NATIVE_FILTERS)
    }


def site_weighers(host_manager: HostManager, states: HostStates) -> dict[str, SiteWeigher]:
    """The weighers that are not Nova's own, by ``weigher_names``."""
    return {_name_of(each): SiteWeigher(each, states) for each in host_manager.weighers if not _is_native(each)}


def weigher_names(host_manager: HostManager) -> tuple[str, ...]:
    """Nova's own weighers by class name, those of a site with their module, because Nova uses both if their
    class names are equal."""
    return tuple(_name_of(each) for each in host_manager.weighers)


def _name_of(weigher: Any) -> str:
    kind = type(weigher)
    return kind.__name__ if _is_native(weigher) else f"{kind.__module__}.{kind.__qualname__}"


def _is_native(weigher: Any) -> bool:
    return type(weigher).__module__.startswith(NATIVE_WEIGHERS)


def _states(states: HostStates, views: Sequence[HostView]) -> list[tuple[Any, HostView]]:
    return [(states.make(view), view) for view in views]

# SPDX-License-Identifier: Apache-2.0
"""What Nova's code, plug-ins and tests expect at ``manager.host_manager``.

It is Nova's own HostManager without its state.  Nova's loaders load filters and weighers from Nova's options,
and compute nodes are found by name in the databases, as in Nova.  It keeps no instance lists and no host
states, because the host table has them.
"""

from __future__ import annotations

import collections
import threading
from typing import Any

import nova.conf
from nova import exception
from nova.scheduler import filters, host_manager, weights

from shared_scheduler.nova.aggregates import AggregateCache

CONF = nova.conf.CONF


class PluginError(Exception):
    """A filter or weigher class cannot be loaded; the text names the option and the reason."""


class HostManager(host_manager.HostManager):
    """Filters, weighers and cells.  It queries no database before the result is needed."""

    def __init__(self, aggregates: AggregateCache) -> None:
        self._aggregates = aggregates
        self._cells_lock = threading.RLock()
        self._cells_read = False
        self.filter_handler = filters.HostFilterHandler()
        self.weight_handler = weights.HostWeightHandler()
        self.track_instance_changes = CONF.filter_scheduler.track_instance_changes
        self._instance_info: dict[str, Any] = {}
        self.load_plugins()

    def load_plugins(self) -> None:
        """Load filters and weighers, also again; if this raises, the loaded ones stay.

        :raises SchedulerHostFilterNotFound: when ``enabled_filters`` names one that does not exist
        :raises PluginError: when a class of ``available_filters`` or ``weight_classes`` cannot be loaded
        """
        options = CONF.filter_scheduler
        classes = _loaded(self.filter_handler, "available_filters", options.available_filters)
        weighers = _loaded(self.weight_handler, "weight_classes", options.weight_classes)
        by_name = {each.__name__: each for each in classes}
        unknown = [name for name in options.enabled_filters if name not in by_name]
        if unknown:
            raise exception.SchedulerHostFilterNotFound(
                f"[filter_scheduler] enabled_filters names {', '.join(unknown)}, which is neither a "
                "filter of Nova nor in available_filters: correct the name or add its class there"
            )
        self.filter_cls_map = by_name
        self.filter_obj_map: dict[str, Any] = {}
        self.enabled_filters = self._choose_host_filters(options.enabled_filters)
        self.weighers = [each() for each in weighers]

    @property
    def cells(self) -> dict[str, Any]:
        """Cell mappings by uuid, without cell0."""
        self._read_cells_once()
        return self._cells

    @cells.setter
    def cells(self, found: dict[str, Any]) -> None:
        self._cells = found

    @property
    def enabled_cells(self) -> list[Any]:
        """Cell mappings whose hosts may be selected."""
        self._read_cells_once()
        return self._enabled_cells

    @enabled_cells.setter
    def enabled_cells(self, found: list[Any]) -> None:
        self._enabled_cells = found

    def refresh_cells_caches(self) -> None:
        """Read the cells again, as Nova does at SIGHUP."""
        with self._cells_lock:
            self._cells_read = True  # because the method reads the attributes that it has just set
            try:
                super().refresh_cells_caches()
            except Exception:
                self._cells_read = False
                raise

    def _read_cells_once(self) -> None:
        if self._cells_read:
            return
        with self._cells_lock:
            if not self._cells_read:
                self.refresh_cells_caches()

    @property
    def aggs_by_id(self) -> dict[int, Any]:
        """Aggregates by id."""
        return {each.id: each for each in self._aggregates.all()}

    @property
    def host_aggregates_map(self) -> dict[str, set[int]]:
        """Ids of the aggregates of each host."""
        found: dict[str, set[int]] = collections.defaultdict(set)
        for each in self._aggregates.all():
            for host in each.hosts:
                found[host].add(each.id)
        return found

    def update_aggregates(self, aggregates: Any) -> None:
        """Cache changed aggregates."""
        self._aggregates.update(as_list(aggregates))

    def delete_aggregate(self, aggregate: Any) -> None:
        """Forget an aggregate."""
        self._aggregates.delete(aggregate.id)


def _loaded(handler: Any, option: str, names: list[str]) -> list[Any]:
    try:
        return list(handler.get_matching_classes(names))
    except (ImportError, AttributeError, ValueError, exception.ClassNotFound) as error:
        raise PluginError(f"[filter_scheduler] {option} = {','.join(names)} cannot be loaded: {error}") from error


def as_list(aggregates: Any) -> list[Any]:
    """The casts carry one aggregate, a list of them, or an AggregateList."""
    if isinstance(aggregates, list):
        return aggregates
    return list(aggregates.objects) if "objects" in aggregates.fields else [aggregates]

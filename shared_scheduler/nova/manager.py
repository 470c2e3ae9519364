# SPDX-License-Identifier: Apache-2.0
"""The manager that Nova's Service runs: RPC topic ``scheduler``, version 4.5.

Nova's own ``Service.create(..., manager=...)`` creates it, so the RPC server, the service record, its heartbeat and
the tracking of tasks at shutdown are Nova's.  Import it after the configuration was read, because the spacing of the
periodic task is read at import.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import nova.conf
import oslo_messaging as messaging
from nova import context as nova_context
from nova import exception, manager, objects, servicegroup
from nova.scheduler import utils
from oslo_service import periodic_task

from shared_scheduler.conf import opts
from shared_scheduler.conf.mode import CurrentMode, Mode
from shared_scheduler.core.effects import Answer, Fail
from shared_scheduler.decision.alternate_count import ALTERNATES_MAX, for_servers
from shared_scheduler.decision.request import Request
from shared_scheduler.nova import errors, selection
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.discovery import HostDiscovery
from shared_scheduler.nova.host_manager import HostManager, as_list
from shared_scheduler.nova.moves import move_of
from shared_scheduler.nova.notifications import Notifications
from shared_scheduler.nova.request_filters import RequestFilters
from shared_scheduler.nova.request_spec import make_request
from shared_scheduler.nova.running import RunningScheduler
from shared_scheduler.nova.shadow import pass_on
from shared_scheduler.nova.stock import StockScheduler
from shared_scheduler.nova.versions import MinimumComputeVersion
from shared_scheduler.service.engine import EngineBrokenError

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

opts.register(CONF)

_NOT_GIVEN = object()
#: The sleep of the periodic tasks' loop while the service shuts down.
SHUTDOWN_IDLE_S = 60.0


class SharedSchedulerManager(manager.Manager):
    """Every method without a leading underscore can be called over RPC."""

    target = messaging.Target(version="4.5")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, service_name="scheduler", **kwargs)
        self._aggregates = AggregateCache()
        self.host_manager = HostManager(self._aggregates)
        self.servicegroup_api = servicegroup.API()
        self._versions = MinimumComputeVersion()
        self._discovery = HostDiscovery(self.servicegroup_api)
        self._notifications = Notifications(self.notifier)
        self._request_filters = RequestFilters(self._aggregates, self._versions, self._aggregates_learned)
        self.mode = CurrentMode(Mode(CONF.shared_scheduler.mode))
        self.stock = StockScheduler()
        self._starting = threading.Lock()
        self._stopped = False
        self._running: RunningScheduler | None = None

    # -- life cycle, called by Nova's Service

    def init_host(self, service_ref: Any) -> None:
        """Load the state of all hosts; requests are accepted after that."""
        with self._starting:
            self._stopped = False  # a Service may be started again
        self._scheduler()

    def post_start_hook(self) -> None:
        """Read the aggregates again: casts that were sent before our consumer existed are lost."""
        facts = self._aggregates.read(nova_context.get_admin_context())
        self._scheduler().aggregates_changed(facts)
        self._send_aggregates_to_stock()

    def reset(self) -> None:
        """SIGHUP."""
        self._versions.forget()
        if self._running is None:
            self.host_manager.load_plugins()
            self.host_manager.refresh_cells_caches()
        else:
            self._running.reload()
        self._send_aggregates_to_stock()

    def _send_aggregates_to_stock(self) -> None:
        if self.mode.value is Mode.SHADOW:
            self.stock.send_aggregates()

    def set_shutdown_in_progress(self) -> None:
        """The first call of a stop.  The polls end here, because Nova's Service may not wait for
        ``graceful_shutdown``."""
        super().set_shutdown_in_progress()
        if self._running is not None:
            self._running.stop_polls()

    def check_alive(self) -> None:
        """Return if the scheduler handles events; do not return while it does not."""
        if self._running is not None:
            self._running.check_alive()

    def report(self) -> dict[str, Any]:
        """The state of the scheduler for a Guru Meditation Report."""
        return {"phase": "starting or stopped"} if self._running is None else self._running.report()

    def stop_within(self, timeout_s: float) -> None:
        """The service stops: requests under way may take at most this time from now on."""
        if self._running is not None:
            self._running.stop_within(timeout_s)

    def drain(self, timeout_s: float) -> None:
        """Wait for requests in flight, and for the deletes of what failed ones have written."""
        running = self._running
        if running is not None and not running.drain(timeout_s):
            LOG.warning("Some requests did not end within %.0f seconds", timeout_s)

    def graceful_shutdown(self, timeout: float) -> None:
        """Wait for requests in flight, then stop everything else.

        The wait is bounded by ``drain_timeout_s`` and not by the argument, because Nova's Service passes 0
        when ``graceful_shutdown_timeout`` is small, and never waits longer than that option.
        """
        self.drain(CONF.shared_scheduler.drain_timeout_s)
        self.cleanup_host()

    def cleanup_host(self) -> None:
        """Stop every thread, and return when all have stopped.  Idempotent."""
        with self._starting:
            self._stopped = True
            if self._running is not None:
                self._running.stop()
            self._running = None

    def _scheduler(self) -> RunningScheduler:
        with self._starting:
            if self._stopped:
                LOG.warning("A request arrived after this scheduler has stopped")
                raise errors.not_enough_hosts()
            if self._running is None:
                self._running = self._begin()
            return self._running

    def _begin(self) -> RunningScheduler:
        running = RunningScheduler(self.host, self.host_manager, self._aggregates, self._request_filters, self.mode)
        try:
            running.start()
        except BaseException:
            running.stop()
            raise
        return running

    # -- RPC

    @messaging.expected_exceptions(exception.NoValidHost)
    def select_destinations(
        self,
        context: Any,
        request_spec: Any = None,
        filter_properties: Any = None,
        spec_obj: Any = _NOT_GIVEN,
        instance_uuids: Sequence[str] | None = None,
        return_objects: bool = False,
        return_alternates: bool = False,
        num_alternates: int | None = None,
    ) -> Any:
        """Hosts for the instances: one list for each, the claimed host first, then alternates.

        Arguments and answer are those of version 4.5 of Nova's RPC API.  ``num_alternates`` is an addition:
        it overrides the flavor and the options (``decision/alternate_count.py``).
        """
        if self.mode.passes_on:
            arguments = {"instance_uuids": instance_uuids, "return_objects": return_objects,
                         "return_alternates": return_alternates}  # fmt: skip
            if spec_obj is _NOT_GIVEN:
                arguments |= {"request_spec": request_spec, "filter_properties": filter_properties}
            else:
                arguments["spec_obj"] = spec_obj
            return self._pass_on(context, arguments)
        wanted = return_objects and return_alternates
        alternates = _alternates(num_alternates, len(instance_uuids or ())) if wanted else 0
        with errors.internal_errors_hidden():
            if spec_obj is _NOT_GIVEN:
                spec_obj = objects.RequestSpec.from_primitives(context, request_spec, filter_properties)
            running = self._scheduler()
            request = self._request(context, spec_obj, instance_uuids, alternates)
            request = replace(request, move=move_of(request, return_alternates))
            if wanted and num_alternates is None:
                request = replace(request, flavor_sets_alternates=True)
            self._notifications.start(context, spec_obj)
            outcome = self._decide(running, request)
            if isinstance(outcome, Fail):
                raise errors.exception_of(outcome)
            answer = self._answer(running, outcome, return_objects)
        self._notify_end(context, spec_obj, request.request_id)
        return answer

    def _request(self, context: Any, spec: Any, instance_uuids: Sequence[str] | None, alternates: int) -> Request:
        """The request after Nova's request filters, which change the spec."""
        if not utils.request_is_rebuild(spec):
            self._request_filters(context, spec)
        return make_request(context, spec, instance_uuids, alternates, self.host_manager)

    def _pass_on(self, context: Any, arguments: dict[str, Any]) -> Any:
        """Mode shadow.  The request does not need anything of ours."""
        running = self._running
        comparisons = None if running is None else running.comparisons
        return pass_on(self.stock, comparisons, context, arguments, partial(self._dry_run, context, arguments))

    def _dry_run(self, context: Any, arguments: dict[str, Any]) -> Request:
        """The request that ours decides, made from a copy, because request filters change the spec.

        :raises NoValidHost: when a request filter refuses
        """
        if "spec_obj" in arguments:
            spec = arguments["spec_obj"].obj_clone()
        else:
            spec = objects.RequestSpec.from_primitives(
                context, arguments["request_spec"], arguments["filter_properties"]
            )
        return replace(self._request(context, spec, arguments["instance_uuids"], 0), dry_run=True)

    def _answer(self, running: RunningScheduler, outcome: Answer, return_objects: bool) -> Any:
        """What is sent to the conductor.  If it cannot be made, the allocations are deleted again."""
        try:
            found = selection.selections(outcome.choices, self._aggregates)
            return found if return_objects else selection.legacy(found)
        except Exception:
            LOG.exception("Request %s: the answer cannot be built from the chosen hosts", outcome.request.request_id)
            running.take_back(outcome)
            raise errors.not_enough_hosts() from None

    def _notify_end(self, context: Any, spec: Any, request_id: str) -> None:
        """Send the end notification.  Its failure is logged only, because the hosts are claimed already."""
        try:
            self._notifications.end(context, spec)
        except Exception:
            LOG.exception("Request %s is answered, but its end notification could not be sent", request_id)

    @staticmethod
    def _decide(running: RunningScheduler, request: Any) -> Answer | Fail:
        try:
            return running.decide(request)
        except EngineBrokenError as error:
            LOG.error("Request %s has no answer: %s", request.request_id, error)
            raise errors.not_enough_hosts() from None

    def update_aggregates(self, ctxt: Any, aggregates: Any) -> None:
        """Aggregates were created or changed."""
        facts = self._aggregates.update(as_list(aggregates))
        if self._running is not None:
            self._running.aggregates_changed(facts)
        self._pass_cast_on(ctxt, "update_aggregates", aggregates=aggregates)

    def delete_aggregate(self, ctxt: Any, aggregate: Any) -> None:
        """An aggregate was deleted."""
        self._aggregates.delete(aggregate.id)
        if self._running is not None:
            self._running.aggregate_deleted(aggregate.id)
        self._pass_cast_on(ctxt, "delete_aggregate", aggregate=aggregate)

    def update_instance_info(self, context: Any, host_name: str, instance_info: Any) -> None:
        """A host has these instances in addition; see ``_revalidate``."""
        self._revalidate(host_name)
        self._pass_cast_on(context, "update_instance_info", host_name=host_name, instance_info=instance_info)

    def delete_instance_info(self, context: Any, host_name: str, instance_uuid: str) -> None:
        """A host has one instance fewer; see ``_revalidate``."""
        self._revalidate(host_name)
        self._pass_cast_on(context, "delete_instance_info", host_name=host_name, instance_uuid=instance_uuid)

    def sync_instance_info(self, context: Any, host_name: str, instance_uuids: Sequence[str]) -> None:
        """A host has exactly these instances; see ``_revalidate``."""
        self._revalidate(host_name, frozenset(instance_uuids))
        self._pass_cast_on(context, "sync_instance_info", host_name=host_name, instance_uuids=instance_uuids)

    def _pass_cast_on(self, context: Any, method: str, **arguments: Any) -> None:
        if self.mode.passes_on:
            self.stock.cast(context, method, **arguments)

    def _revalidate(self, host: str, instances: frozenset[str] | None = None) -> None:
        """Read a host without an agent again, because nova-compute cast something about it.

        The content of such casts is not used: they are late, and some are wrong (contract 1.5).
        """
        if self._running is not None:
            self._running.hint(host, instances)

    # -- periodic

    @periodic_task.periodic_task(spacing=CONF.scheduler.discover_hosts_in_cells_interval, run_immediately=True)
    def _discover_hosts_in_cells(self, context: Any) -> None:
        self._discovery.discover(context)

    def periodic_tasks(self, context: Any, raise_on_error: bool = False) -> Any:
        """Run what is due, and return the seconds until the next run.

        Nova's own method returns None while the service shuts down, and the loop that calls it logs a
        traceback then.  This one lets the loop sleep until it is stopped.
        """
        idle_s = super().periodic_tasks(context, raise_on_error=raise_on_error)
        return SHUTDOWN_IDLE_S if idle_s is None else idle_s

    def _aggregates_learned(self, aggregates: list[Any]) -> None:
        if self._running is not None:
            self._running.aggregates_changed(self._aggregates.update(aggregates))


def _alternates(number: int | None, servers: int) -> int:
    """The number of the caller, of our option, or of Nova's."""
    chosen: int | None = CONF.shared_scheduler.alternates if number is None else number
    if chosen is not None:
        return for_servers(servers, chosen)
    return min(ALTERNATES_MAX, int(CONF.scheduler.max_attempts) - 1)

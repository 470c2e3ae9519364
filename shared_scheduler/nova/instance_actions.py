# SPDX-License-Identifier: Apache-2.0
"""The actions of a server, their events, and its faults, as Nova's own databases keep them.

nova-compute keeps a build that nova-conductor tries on another host as a success of its event, and keeps no fault of
it.  When nova-conductor gives up, its own fault quotes the error of the last node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from nova import context, exception, objects

from shared_scheduler.answers.shapes import FAULT, UNFINISHED, NovaEvent
from shared_scheduler.nova.source_readers import configure


def read(config_files: Sequence[Path], instances: Sequence[str]) -> list[NovaEvent]:
    """The events of all actions of these servers and their faults, oldest first; none of servers that are not known.

    :raises oslo_config.cfg.Error: when the configuration is wrong
    :raises oslo_db.exception.DBError: when a database does not answer
    """
    configure(config_files)
    found = (event for instance in instances for event in _of(instance))
    return sorted(found, key=lambda event: event["at"])


def _of(instance: str) -> Iterator[NovaEvent]:
    admin = context.get_admin_context()
    try:
        mapping = objects.InstanceMapping.get_by_instance_uuid(admin, instance)
    except exception.InstanceMappingNotFound:
        return
    if mapping.cell_mapping is not None:  # otherwise it was not scheduled yet
        with context.target_cell(admin, mapping.cell_mapping) as cell:
            yield from _events(cell, instance)
            yield from _faults(cell, instance)


def _faults(cell: context.RequestContext, instance: str) -> Iterator[NovaEvent]:
    """Nova does not keep to which action a fault belongs."""
    for fault in reversed(objects.InstanceFaultList.get_by_instance_uuids(cell, [instance])):  # the newest is first
        yield NovaEvent(
            at=fault.created_at.timestamp(), request_id="", action=FAULT, event=str(fault.code),
            host=fault.host or "", result="Error", details=fault.message or "", instance=instance,
        )  # fmt: skip


def _events(cell: context.RequestContext, instance: str) -> Iterator[NovaEvent]:
    for action in objects.InstanceActionList.get_by_instance_uuid(cell, instance):
        # Nova returns the newest first, and several may begin in one second
        for event in reversed(objects.InstanceActionEventList.get_by_action(cell, action.id)):
            yield NovaEvent(
                at=event.start_time.timestamp(), request_id=action.request_id, action=action.action,
                event=event.event, host=event.host or "", result=event.result or UNFINISHED,
                details=event.details or "", instance=instance,
            )  # fmt: skip

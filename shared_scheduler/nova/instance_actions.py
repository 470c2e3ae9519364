# SPDX-License-Identifier: Apache-2.0
"""The actions of a server and their events, as Nova's own databases keep them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from nova import context, exception, objects

from shared_scheduler.answers.shapes import NovaEvent
from shared_scheduler.nova.source_readers import configure


def read(config_files: Sequence[Path], instances: Sequence[str]) -> list[NovaEvent]:
    """The events of all actions of these servers, in the order of their start; none of servers that are not known.

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


def _events(cell: context.RequestContext, instance: str) -> Iterator[NovaEvent]:
    for action in objects.InstanceActionList.get_by_instance_uuid(cell, instance):
        # Nova returns the newest first, and several may begin in one second
        for event in reversed(objects.InstanceActionEventList.get_by_action(cell, action.id)):
            yield NovaEvent(
                at=event.start_time.timestamp(), request_id=action.request_id, action=action.action,
                event=event.event, host=event.host or "", result=event.result or "unfinished",
                details=event.details or "",
            )  # fmt: skip

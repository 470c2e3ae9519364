# SPDX-License-Identifier: Apache-2.0
"""The same cloud, options and requests in our table and pipeline.

Requests go through ``shared_scheduler.nova.request_spec`` and rows through the leaves, as in service.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nova import context as nova_context
from nova import objects

from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.decision.request import Request
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.model.compute_node import leaves_from_compute_node
from shared_scheduler.model.image_properties import counted
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.nova.configuration import decision_settings
from shared_scheduler.nova.request_spec import make_request
from shared_scheduler.protocol.messages import Consumer
from shared_scheduler.table.host_table import HostTable
from tests.oracle.clouds import Cloud, Node
from tests.oracle.nova_side import WEIGHERS


def host_table(cloud: Cloud) -> HostTable:
    """Rows in the order of the cloud's nodes."""
    table = HostTable()
    for host, service in cloud.services.items():
        table.set_service(ServiceFacts(host, service.disabled, service.forced_down, service.up))
    table.set_aggregates(
        AggregateFacts(one.id, str(one.id), f"aggregate{one.id}", frozenset(one.hosts), one.metadata)
        for one in cloud.aggregates
    )
    for node in cloud.nodes:
        table.upsert(node.uuid, node.cell, node.host, node.nodename)
        members = {uuid: Consumer({}, True) for uuid in cloud.instances[node.uuid]}
        images = [_pairs(cloud.images[uuid]) for uuid in cloud.instances[node.uuid]]
        table.load(node.uuid, leaves_from_compute_node(node.row) | counted(images), members)
    return table


def _pairs(properties: dict[str, str]) -> list[tuple[str, str]]:
    """As Nova's object has them."""
    made = objects.ImageMetaProps.from_dict(properties)
    return [(key, str(value)) for key, value in made.to_dict().items()]


class NamedNodes:
    """The only question that making a request asks of Nova's host manager."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes

    def get_compute_nodes_by_host_or_node(
        self, context: Any, host: str | None, node: str | None, cell: Any = None
    ) -> list[Node]:
        """Anything but one: then Nova's request stays as it is."""
        return self._nodes[:2] or self._nodes


def settings(enabled_filters: list[str]) -> DecisionSettings:
    """From Nova's configuration as it is now."""
    return decision_settings(enabled_filters, [weigher.__name__ for weigher in WEIGHERS])


def request(spec: Any, cloud: Cloud) -> Request:
    """Without what Placement is asked: that has its own oracle.  Nothing is claimed, so that nobody
    asks a database whether the instance is evacuated."""
    context = nova_context.get_admin_context()
    twice = NamedNodes([*cloud.nodes, *cloud.nodes])
    made = make_request(context, spec, None, 0, twice)
    return replace(made, forms=(), instance_uuids=(spec.instance_uuid,))


def decider(table: HostTable, enabled_filters: list[str]) -> Decider:
    """With the options of now."""
    return Decider(table, settings(enabled_filters))

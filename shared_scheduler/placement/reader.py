# SPDX-License-Identifier: Apache-2.0
"""Reads of resource providers, typed, at microversion 1.36.  Both programs use them.

Reads return data, or raise ``PlacementError``: ``UnreachableError`` without a usable answer, ``RefusedError`` if
Placement refused the request.  No exception of requests or keystoneauth1 leaves this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading as ks_loading

from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.placement.connection import SERVICE_TYPE, KeystoneTransport, Reply, Transport, data_of

GROUP = "placement"
#: Seconds for one HTTP request if ``[placement] timeout`` is not set.
CONFIGURED_TIMEOUT_S = 20


class PlacementConfigError(Exception):
    """``[placement]`` of nova.conf cannot be used; the text names the change that is needed."""


@dataclass(frozen=True, slots=True)
class ProviderAllocation:
    """The amounts of one provider that a consumer has, and the generation of the consumer."""

    amounts: dict[str, int]
    generation: int


@dataclass(frozen=True, slots=True)
class ListedProvider:
    """One resource provider in a list, without inventories, traits and aggregates."""

    uuid: str
    name: str
    generation: int
    parent: str | None
    root: str


class PlacementReader:
    """Reads providers.  Thread-safe, because all state is in the transport."""

    def __init__(
        self,
        transport: Transport,
        timeout_s: float | None = None,
        sweep_timeout_s: float | None = None,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Timeouts of a small call, and of a call whose cost grows with the cloud; None: the configured timeout.

        ``count`` is called after each call with the length of the longest list in its answer."""
        self._transport = transport
        self._timeout_s = timeout_s
        self._sweep_timeout_s = sweep_timeout_s
        self._count = count

    def providers(self, in_tree: str = "", required: str = "") -> tuple[ListedProvider, ...]:
        """The providers of one tree, or with one trait, or of the whole cloud."""
        asked = {"in_tree": in_tree, "required": required}
        query = urlencode({name: value for name, value in asked.items() if value})
        body = self._get("/resource_providers" + (f"?{query}" if query else ""), self._sweep_timeout_s)
        return tuple(_listed(item) for item in body["resource_providers"])

    def provider(self, listed: ListedProvider, known: Provider | None = None) -> Provider:
        """A provider with inventories, traits and aggregates.

        Inventories and traits of ``known``, the result of an earlier read, are reused if its generation is unchanged.
        The rest changes without the generation: name and parent, which are in the list, and the aggregates, if a client
        sets them with a microversion below 1.19."""
        uuid = listed.uuid
        if known is not None and known.generation == listed.generation:
            return replace(known, name=listed.name, parent=listed.parent, aggregates=self._aggregates(uuid))
        return Provider(
            uuid, listed.name, listed.parent, listed.generation,
            self.inventories(uuid), self._traits(uuid), self._aggregates(uuid),
        )  # fmt: skip

    def allocations(self, provider: str) -> dict[str, ProviderAllocation]:
        """consumer uuid -> what it has of this provider."""
        body = self._get(f"/resource_providers/{provider}/allocations")
        return {
            consumer: ProviderAllocation(dict(part["resources"]), part["consumer_generation"])
            for consumer, part in body["allocations"].items()
        }

    def inventories(self, provider: str) -> dict[str, Inventory]:
        """resource class -> inventory."""
        body = self._get(f"/resource_providers/{provider}/inventories")
        return {rc: Inventory.from_answer(row) for rc, row in body["inventories"].items()}

    def usages(self, provider: str) -> dict[str, int]:
        """resource class -> the amount used by all consumers."""
        return dict(self._get(f"/resource_providers/{provider}/usages")["usages"])

    def _traits(self, provider: str) -> frozenset[str]:
        return frozenset(self._get(f"/resource_providers/{provider}/traits")["traits"])

    def _aggregates(self, provider: str) -> frozenset[str]:
        return frozenset(self._get(f"/resource_providers/{provider}/aggregates")["aggregates"])

    def _get(self, path: str, timeout_s: float | None = None, request_id: str = "") -> Any:
        return data_of(self._call("GET", path, None, request_id, timeout_s))

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> Reply:
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        reply = self._transport.call(method, path, body, request_id, wait_s)
        self._count(_length(reply.body))
        return reply


def register_opts(conf: Any) -> None:
    """Register ``[placement]`` if Nova's own configuration is not imported."""
    ks_loading.register_auth_conf_options(conf, GROUP)
    ks_loading.register_session_conf_options(conf, GROUP)
    ks_loading.register_adapter_conf_options(conf, GROUP)


def transport_from(conf: Any) -> KeystoneTransport:
    """The transport for the Placement of ``[placement]``; it sends nothing yet.

    :raises PlacementConfigError: when ``[placement]`` is not valid
    """
    try:
        auth = ks_loading.load_auth_from_conf_options(conf, GROUP)
        if auth is None:
            raise PlacementConfigError("[placement] auth_type is not set: copy it from another service of Nova")
        session = ks_loading.load_session_from_conf_options(conf, GROUP, auth=auth)
        if session.timeout is None:
            session.timeout = CONFIGURED_TIMEOUT_S
        adapter = ks_loading.load_adapter_from_conf_options(conf, GROUP, session=session, auth=auth)
    except ks_exceptions.ClientException as error:
        raise PlacementConfigError(f"[placement] of nova.conf: {error}") from error
    adapter.service_type = adapter.service_type or SERVICE_TYPE
    return KeystoneTransport(adapter)


def _length(body: Any) -> int:
    """The length of the longest list or object in an answer."""
    parts = body.values() if isinstance(body, dict) else ()
    return max((len(part) for part in parts if isinstance(part, (list, dict))), default=0)


def _listed(item: Mapping[str, Any]) -> ListedProvider:
    return ListedProvider(
        item["uuid"], item["name"], item["generation"], item["parent_provider_uuid"], item["root_provider_uuid"],
    )  # fmt: skip


def common_generation(before: int | None, found: int) -> int:
    """The generation that the reads of several providers show for one consumer; 0 if they differ, because it was
    written in between."""
    return found if before in (None, found) else 0

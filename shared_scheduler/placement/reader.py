# SPDX-License-Identifier: Apache-2.0
"""The node's own providers and their consumers, read from Placement with nova-compute's account.

Reads only.  Source: placement API 1.28 (``in_tree``, consumer generations).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading as ks_loading

from shared_scheduler.model.providers import Provider
from shared_scheduler.model.resources import Inventory
from shared_scheduler.protocol.messages import Allocations

GROUP = "placement"
SERVICE_TYPE = "placement"
MICROVERSION = "1.28"
#: Seconds for one HTTP request where ``[placement] timeout`` is not set.
TIMEOUT_S = 20


class PlacementError(Exception):
    """Placement cannot be read now; says what to check."""


class ProviderGoneError(PlacementError):
    """There is nothing at the address of a provider: the tree that named it is old."""


class PlacementConfigError(Exception):
    """``[placement]`` of nova.conf cannot be used at all; says what to change."""


def register_opts(conf: Any) -> None:
    """Make ``[placement]`` known where Nova's own configuration is not imported."""
    ks_loading.register_auth_conf_options(conf, GROUP)
    ks_loading.register_session_conf_options(conf, GROUP)
    ks_loading.register_adapter_conf_options(conf, GROUP)


def adapter_from(conf: Any) -> Any:
    """A keystoneauth adapter.

    :raises PlacementConfigError: when ``[placement]`` is not valid; nothing is sent yet
    """
    try:
        auth = ks_loading.load_auth_from_conf_options(conf, GROUP)
        if auth is None:
            raise PlacementConfigError("[placement] auth_type is not set: copy it from nova-compute")
        session = ks_loading.load_session_from_conf_options(conf, GROUP, auth=auth)
        if session.timeout is None:
            session.timeout = TIMEOUT_S
        adapter = ks_loading.load_adapter_from_conf_options(conf, GROUP, session=session, auth=auth)
    except ks_exceptions.ClientException as error:
        raise PlacementConfigError(f"[placement] of nova.conf: {error}") from error
    adapter.service_type = adapter.service_type or SERVICE_TYPE
    adapter.default_microversion = MICROVERSION
    return adapter


class PlacementReader:
    """Reads trees and allocations.  What a provider has is not read again while its generation stands.

    Name and parent change without the generation; the list tells them.
    """

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, Provider]] = {}  # node -> its tree by uuid

    def tree(self, node: str) -> tuple[Provider, ...]:
        """All providers of the node's tree, empty if it has none yet.

        :raises PlacementError: when Placement cannot be read
        """
        rows = self._get(f"/resource_providers?in_tree={node}")["resource_providers"]
        with self._lock:
            known = self._known.get(node, {})
        found = {row["uuid"]: self._provider(row, known.get(row["uuid"])) for row in rows}
        with self._lock:
            self._known.pop(node, None)
            if found:
                self._known[node] = found
        return tuple(found.values())

    def allocations(self, providers: Iterable[str]) -> dict[str, Allocations]:
        """Consumer -> provider -> class -> amount.

        :raises PlacementError: when Placement cannot be read; ProviderGoneError when a provider was deleted
            without nova-compute
        """
        found: dict[str, dict[str, dict[str, int]]] = {}
        for provider in providers:
            path = f"/resource_providers/{provider}/allocations"
            for consumer, held in self._get(path)["allocations"].items():
                found.setdefault(consumer, {})[provider] = dict(held["resources"])
        return dict(found)

    def _provider(self, row: dict[str, Any], known: Provider | None) -> Provider:
        name, parent, generation = row["name"], row.get("parent_provider_uuid"), row["generation"]
        if known is not None and known.generation == generation:
            return replace(known, name=name, parent=parent)
        path = f"/resource_providers/{row['uuid']}"
        inventories = self._get(f"{path}/inventories")["inventories"]
        return Provider(
            uuid=row["uuid"],
            name=name,
            parent=parent,
            generation=generation,
            inventories={rc: Inventory.from_answer(values) for rc, values in inventories.items()},
            traits=frozenset(self._get(f"{path}/traits")["traits"]),
            aggregates=frozenset(self._get(f"{path}/aggregates")["aggregates"]),
        )

    def _get(self, path: str) -> dict[str, Any]:
        try:
            response = self._adapter.get(path, raise_exc=False)
            if response.status_code != 200:
                kind = ProviderGoneError if response.status_code == 404 else PlacementError
                raise kind(f"GET {path}: {response.status_code} {response.text[:200]}")
            answer: dict[str, Any] = response.json()
            return answer
        except ks_exceptions.ClientException as error:
            raise PlacementError(f"GET {path}: {type(error).__name__}: {error}") from error
        except ValueError as error:
            raise PlacementError(f"GET {path}: the answer is no JSON: {error}") from error

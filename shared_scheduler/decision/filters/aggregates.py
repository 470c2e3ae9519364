# SPDX-License-Identifier: Apache-2.0
"""Filters that compare the metadata of a host's aggregates with image, flavor and project."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from shared_scheduler.decision.context import DecisionContext
from shared_scheduler.decision.filters.base import Aggregates, NativeFilter, listed, metadata_of, values_of
from shared_scheduler.decision.masks import mask_of_slots
from shared_scheduler.decision.operators import satisfies
from shared_scheduler.protocol.messages import Leaf
from shared_scheduler.table.columns import BoolArray
from shared_scheduler.table.host_view import HostView

EXTRA_SPECS_SCOPE = "aggregate_instance_extra_specs"
TENANT_KEY_PREFIX = "filter_tenant_id"
FLAVOR_KEY = "instance_type"


class _AggregateFilter(NativeFilter):
    """A filter whose result depends only on the host's aggregates and on ``_asked``."""

    selects = True

    def mask(self, context: DecisionContext) -> BoolArray | None:
        asked = self._asked(context)
        if asked is None or not context.table.aggregates.all():
            return None if asked is None or self._passes((), asked) else _nobody(context)
        table, of = context.table, context.table.aggregates.of
        return context.masks.kinds(
            table,
            (self.code, asked),
            table.columns.host_aggregates,
            lambda: lambda row: self._passes(of(row.host), asked),
        )

    def detail(self, context: DecisionContext, view: HostView) -> Mapping[str, Leaf]:
        return self._detail(view.aggregates, self._asked(context))

    @abstractmethod
    def _asked(self, context: DecisionContext) -> Any:
        """The part of the request that is compared (hashable); None: every host passes."""

    @abstractmethod
    def _passes(self, aggregates: Aggregates, asked: Any) -> bool:
        """Whether hosts in these aggregates pass."""

    @abstractmethod
    def _detail(self, aggregates: Aggregates, asked: Any) -> Mapping[str, Leaf]:
        """The values that were compared, for hosts in these aggregates."""


def _nobody(context: DecisionContext) -> BoolArray:
    return mask_of_slots(context.high, ())


class AggregateImagePropertiesIsolation(_AggregateFilter):
    """Each image property that is a metadata key has one of the key's values."""

    code = "AggregateImagePropertiesIsolation"
    once = True
    on_rebuild = True

    def _asked(self, context: DecisionContext) -> Any:
        settings = context.settings
        namespace = settings.aggregate_image_properties_isolation_namespace
        prefix = ""
        if namespace:
            prefix = namespace + settings.aggregate_image_properties_isolation_separator
        properties = {
            key: str(value)
            for key, value in context.request.image_properties.items()
            if value and key.startswith(prefix)
        }
        return tuple(sorted(properties.items())) or None

    def _passes(self, aggregates: Aggregates, asked: Any) -> bool:
        metadata = metadata_of(aggregates)
        return all(value in metadata.get(key, {value}) for key, value in asked)

    def _detail(self, aggregates: Aggregates, asked: Any) -> Mapping[str, Leaf]:
        metadata = metadata_of(aggregates)
        return {
            key: {"image": value, "aggregates": listed(metadata[key])}
            for key, value in asked
            if value not in metadata.get(key, {value})
        }


class AggregateInstanceExtraSpecsFilter(_AggregateFilter):
    """Each extra spec without a scope, or with the filter's scope, is satisfied by a value of its key."""

    code = "AggregateInstanceExtraSpecsFilter"
    once = True

    def _asked(self, context: DecisionContext) -> Any:
        found = []
        for key, value in context.request.flavor.extra_specs.items():
            scope, colon, rest = key.partition(":")
            if not colon or scope == EXTRA_SPECS_SCOPE:
                found.append((rest if colon else key, value))
        return tuple(sorted(found)) or None

    def _passes(self, aggregates: Aggregates, asked: Any) -> bool:
        metadata = metadata_of(aggregates)
        return all(_any_satisfies(metadata.get(key, set()), wanted) for key, wanted in asked)

    def _detail(self, aggregates: Aggregates, asked: Any) -> Mapping[str, Leaf]:
        metadata = metadata_of(aggregates)
        return {
            key: {"required": wanted, "aggregates": listed(metadata.get(key, set()))}
            for key, wanted in asked
            if not _any_satisfies(metadata.get(key, set()), wanted)
        }


def _any_satisfies(values: set[str], wanted: str) -> bool:
    return any(satisfies(value, wanted) for value in values)


class AggregateMultiTenancyIsolation(_AggregateFilter):
    """Aggregates that name projects accept only these projects."""

    code = "AggregateMultiTenancyIsolation"
    once = True

    def _asked(self, context: DecisionContext) -> Any:
        return context.request.project_id

    def _passes(self, aggregates: Aggregates, asked: Any) -> bool:
        named = _projects(aggregates)
        return not named or asked in named

    def _detail(self, aggregates: Aggregates, asked: Any) -> Mapping[str, Leaf]:
        return {"project": asked, "projects": listed(_projects(aggregates))}


def _projects(aggregates: Aggregates) -> set[str]:
    found: set[str] = set()
    for key, values in metadata_of(aggregates).items():
        if key.startswith(TENANT_KEY_PREFIX):
            found |= values
    return found


class AggregateTypeAffinityFilter(_AggregateFilter):
    """Aggregates that name flavors accept only these flavors."""

    code = "AggregateTypeAffinityFilter"
    once = True

    def _asked(self, context: DecisionContext) -> Any:
        return context.request.flavor.name

    def _passes(self, aggregates: Aggregates, asked: Any) -> bool:
        values = values_of(aggregates, FLAVOR_KEY)
        return not values or any(asked in _words(value) for value in values)

    def _detail(self, aggregates: Aggregates, asked: Any) -> Mapping[str, Leaf]:
        return {"flavor": asked, "flavors": listed(values_of(aggregates, FLAVOR_KEY))}


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",")]

# SPDX-License-Identifier: Apache-2.0
"""What a request asks for, if it writes allocations of new consumers only.

The schemas are Placement's own (``placement/schemas/allocation.py``), compiled once.  A body that they refuse goes to
Placement's own handler, which answers with its own text.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastjsonschema
import webob
from oslo_serialization import jsonutils
from oslo_utils import uuidutils
from placement import microversion
from placement.schemas import allocation as schemas
from placement.util import wsgi_path_item

from shared_scheduler.placement_app.capacity import Amount

JSON = "application/json"

#: The first microversion with each schema; requests of an older or of a newer microversion are not taken.
PUT_SCHEMAS = {
    (1, 28): schemas.ALLOCATION_SCHEMA_V1_28,
    (1, 34): schemas.ALLOCATION_SCHEMA_V1_34,
    (1, 38): schemas.ALLOCATION_SCHEMA_V1_38,
}
POST_SCHEMAS = {
    (1, 28): schemas.POST_ALLOCATIONS_V1_28,
    (1, 34): schemas.POST_ALLOCATIONS_V1_34,
    (1, 38): schemas.POST_ALLOCATIONS_V1_38,
}
NEWEST_MICROVERSION = (1, 39)
#: The largest body, and the most consumers of one: a transaction locks all their providers.  Group commit sends 16.
BODY_MAX_BYTES = 1024 * 1024
CONSUMERS_MAX = 256


#: Raises ``fastjsonschema.JsonSchemaException``.
Validate = Callable[[Any], Any]


def compiled(schema: Any) -> Validate:
    """The validator of a schema, with the formats that Placement checks."""
    validate: Validate = fastjsonschema.compile(schema, formats={"uuid": uuidutils.is_uuid_like})
    return validate


class NotTakenError(Exception):
    """The write path does not carry this out; Placement's own handler does."""


@dataclass(frozen=True, slots=True)
class NewConsumer:
    """A consumer that must not exist yet, and what it gets."""

    uuid: str
    project: str
    user: str
    type: str | None  # None below microversion 1.38
    amounts: tuple[Amount, ...]  # in the order of the request


class Bodies:
    """Reads bodies of one kind of request."""

    def __init__(self, schemas_by_microversion: Mapping[tuple[int, int], Any]) -> None:
        self._validators: list[tuple[tuple[int, int], Validate]] = [
            (first, compiled(schema)) for first, schema in sorted(schemas_by_microversion.items(), reverse=True)
        ]

    def read(self, request: webob.Request) -> Any:
        """The body, which the schema of the request's microversion allows.

        :raises NotTakenError: when it does not, or there is no schema for this microversion
        """
        if request.content_type != JSON or (request.content_length or 0) > BODY_MAX_BYTES:
            raise NotTakenError("content type or length")
        validate = self._validator(request.environ[microversion.MICROVERSION_ENVIRON])
        try:
            body = jsonutils.loads(request.body)
            validate(body)
        except (ValueError, RecursionError, fastjsonschema.JsonSchemaException) as error:
            raise NotTakenError("body") from error
        return body

    def _validator(self, version: Any) -> Validate:
        if version <= NEWEST_MICROVERSION:
            for first, validator in self._validators:
                if version >= first:
                    return validator
        raise NotTakenError("microversion")


class PutRequests:
    """``PUT /allocations/{consumer_uuid}``."""

    def __init__(self) -> None:
        self._bodies = Bodies(PUT_SCHEMAS)

    def read(self, request: webob.Request) -> tuple[NewConsumer, ...]:
        """The one new consumer.

        :raises NotTakenError: when this is not for a new consumer, or anything is unusual
        """
        consumer = wsgi_path_item(request.environ, "consumer_uuid")
        return (_new_consumer(consumer, self._bodies.read(request)),)


class PostRequests:
    """``POST /allocations``."""

    def __init__(self) -> None:
        self._bodies = Bodies(POST_SCHEMAS)

    def read(self, request: webob.Request) -> tuple[NewConsumer, ...]:
        """The new consumers, in the order of the request.

        :raises NotTakenError: when one of them is not for a new consumer, or anything is unusual
        """
        body = self._bodies.read(request)
        if len(body) > CONSUMERS_MAX:
            raise NotTakenError(f"{len(body)} consumers")
        return tuple(_new_consumer(consumer, part) for consumer, part in body.items())


def _new_consumer(consumer: str, part: Mapping[str, Any]) -> NewConsumer:
    if part["consumer_generation"] is not None:
        raise NotTakenError("consumer with a generation")
    if not part["allocations"]:
        raise NotTakenError("no allocations")
    _check_uuid(consumer)
    return NewConsumer(
        consumer, part["project_id"], part["user_id"], part.get("consumer_type"), tuple(_amounts(part["allocations"]))
    )


def _amounts(allocations: Mapping[str, Any]) -> Iterator[Amount]:
    for provider, part in allocations.items():
        _check_uuid(provider)
        for resource_class, amount in part["resources"].items():
            # JSON has 1.0, which the schema calls an integer
            if type(amount) is not int:
                raise NotTakenError("amount")
            yield Amount(provider, resource_class, amount)


def _check_uuid(text: str) -> None:
    """Databases differ in whether they find a uuid that is written in another way."""
    try:
        usual = str(uuid.UUID(text)) == text
    except ValueError:
        usual = False
    if not usual:
        raise NotTakenError("form of a uuid")

# SPDX-License-Identifier: Apache-2.0
"""The transaction of the write path: lock, insert consumers, check, insert allocations, increment generations.

The lock is the first statement, because a snapshot begins with the first plain read (REPEATABLE READ) or with each
statement (READ COMMITTED): in both cases the capacity check sees everything that a writer committed before it gave the
lock back.  Where a database has no row locks (SQLite), or none between its nodes (Galera), the generation check at the
end, or the commit, fails instead.

The consumers come before the capacity check, as in Placement's own handler: a consumer that exists is a conflict, also
where its amounts do not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oslo_utils import timeutils
from placement import exception
from sqlalchemy import Connection

from shared_scheduler.placement_app import statements
from shared_scheduler.placement_app.cached_ids import Ids
from shared_scheduler.placement_app.capacity import CapacityReason, Inventories, InventoryUse, first_misfit
from shared_scheduler.placement_app.statements import one_of
from shared_scheduler.placement_app.write_request import NewConsumer, NotTakenError

#: Of a consumer after its first write, as Placement's own handler leaves it.
FIRST_GENERATION = 1

#: Provider -> its row ``id, uuid, generation``.
Locked = Mapping[str, Any]

MISFITS = {
    CapacityReason.CONSTRAINTS: exception.InvalidAllocationConstraintsViolated,
    CapacityReason.CAPACITY: exception.InvalidAllocationCapacityExceeded,
}


class NewConsumersWrite:
    """Writes new consumers with their allocations: all of them or none."""

    def __init__(self, context: Any, consumers: tuple[NewConsumer, ...], ids: Ids) -> None:
        """Look up the ids of projects, users and types, outside of the transaction.

        :raises placement.exception.NotFound: when one does not exist yet
        """
        self._ids = ids
        self._amounts = [amount for consumer in consumers for amount in consumer.amounts]
        self._providers = sorted({amount.provider for amount in self._amounts})
        self._consumer_rows = [self._consumer_row(context, consumer) for consumer in _by_uuid(consumers)]
        self._owners = [consumer.uuid for consumer in consumers for _ in consumer.amounts]

    def _consumer_row(self, context: Any, consumer: NewConsumer) -> dict[str, Any]:
        kind = None if consumer.type is None else self._ids.consumer_types.of(context, consumer.type)
        return {
            "uuid": consumer.uuid,
            "project_id": self._ids.projects.of(context, consumer.project),
            "user_id": self._ids.users.of(context, consumer.user),
            "consumer_type_id": kind,
            "generation": FIRST_GENERATION,
            "updated_at": timeutils.utcnow(),
        }

    def run(self, connection: Connection) -> None:
        """All statements, within the caller's transaction, which any exception rolls back.

        :raises NotTakenError: when a provider, an inventory or a consumer is not as a new write needs it
        :raises placement.exception.InvalidInventory: when an amount does not fit
        """
        locked = self._lock(connection)
        connection.execute(statements.INSERT_CONSUMERS, self._consumer_rows)
        inventories = self._inventories(connection, locked)
        self._check(inventories)
        connection.execute(statements.INSERT_ALLOCATIONS, list(self._allocation_rows(inventories, locked)))
        self._increment(connection, locked)

    def _lock(self, connection: Connection) -> Locked:
        lock = statements.lock_providers(len(self._providers))
        rows = connection.execute(lock, one_of("uuid", self._providers)).all()
        locked = {row.uuid: row for row in rows}
        if locked.keys() != set(self._providers):
            raise NotTakenError("no provider")
        return locked

    def _inventories(self, connection: Connection, locked: Locked) -> Inventories:
        uuids = {row.id: uuid for uuid, row in locked.items()}
        names = {amount.resource_class for amount in self._amounts}
        asked = {**one_of("id", sorted(uuids)), **one_of("name", sorted(names))}
        return {
            (uuids[row[0]], row[1]): InventoryUse._make((*row[2:-1], int(row.used or 0)))
            for row in connection.execute(statements.read_inventories(len(uuids), len(names)), asked)
        }

    def _check(self, inventories: Inventories) -> None:
        try:
            misfit = first_misfit(self._amounts, inventories)
        except KeyError as error:
            raise NotTakenError("no inventory") from error
        if misfit is not None:
            amount = misfit.amount
            raise MISFITS[misfit.reason](resource_class=amount.resource_class, resource_provider=amount.provider)

    def _allocation_rows(self, inventories: Inventories, locked: Locked) -> Iterable[dict[str, Any]]:
        for owner, amount in zip(self._owners, self._amounts, strict=True):
            yield {
                "resource_provider_id": locked[amount.provider].id,
                "resource_class_id": inventories[amount.provider, amount.resource_class].resource_class_id,
                "consumer_id": owner,
                "used": amount.amount,
            }

    def _increment(self, connection: Connection, locked: Locked) -> None:
        read = sorted((row.id, row.generation) for row in locked.values())
        asked = {**one_of("id", (number for number, _ in read)), **one_of("generation", (last for _, last in read))}
        if connection.execute(statements.increment_generations(len(read)), asked).rowcount != len(read):
            raise NotTakenError("provider that changed without its lock")


def _by_uuid(consumers: Iterable[NewConsumer]) -> list[NewConsumer]:
    """Writers that race for the same consumers insert them in the same order, so that they do not deadlock."""
    return sorted(consumers, key=lambda consumer: consumer.uuid)

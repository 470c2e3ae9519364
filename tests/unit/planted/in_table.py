# SPDX-License-Identifier: Apache-2.0
"""Bugs that people make in the host table."""

from __future__ import annotations

from typing import Any

import pytest

from shared_scheduler.model.topology import TopologyUsage
from shared_scheduler.table.assumed_claims import Overlay
from shared_scheduler.table.host_columns import HostColumns
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row import OwnClaim, Row
from shared_scheduler.table.row_writer import Members, RowWriter
from tests.unit.planted.planting import bug
from tests.unit.table.table_machine import TableMachine

# -- our claims


@bug(TableMachine)
def forget_a_forget(patch: pytest.MonkeyPatch) -> None:
    """A refused claim stays in the table."""
    patch.setattr(HostTable, "forget", lambda self, claim_id: None)


@bug(TableMachine)
def lose_claims_at_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    """A snapshot replaces our outstanding claims along with the rest (seed 000)."""

    def load(self: HostTable, node: str, *args: Any, **version: Any) -> None:
        for own in self.outstanding(node):
            self._overlay.forget(own.claim_id)
        real(self, node, *args, **version)

    real = HostTable.load
    patch.setattr(HostTable, "load", load)


@bug(TableMachine)
def end_a_claim_when_it_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    """A claim is given back as soon as Placement holds it, before its node shows it."""
    patch.setattr(HostTable, "confirm", HostTable.forget)


@bug(TableMachine)
def end_a_claim_that_is_only_assumed(patch: pytest.MonkeyPatch) -> None:
    """A claim ends when the node shows it, although it may yet be forgotten."""

    def accepted(self: Overlay, claim_id: str, epoch: int, sequence: int) -> Row | None:
        return self.confirm(claim_id) and real(self, claim_id, epoch, sequence)

    real = Overlay.accepted
    patch.setattr(Overlay, "accepted", accepted)


@bug(TableMachine)
def ignore_the_epoch_of_a_verdict(patch: pytest.MonkeyPatch) -> None:
    """A claim counts as shown by any life of the agent that is far enough."""

    def reached(self: OwnClaim, epoch: int, sequence: int) -> bool:
        return 0 < self.reflected_sequence <= sequence

    patch.setattr(OwnClaim, "reached", reached)


@bug(TableMachine)
def count_a_claim_beside_the_base(patch: pytest.MonkeyPatch) -> None:
    """A claim counts on, although its node shows its allocations."""
    patch.setattr("shared_scheduler.table.assumed_claims.has_allocations", lambda *args: False)


@bug(TableMachine)
def miss_that_a_claim_was_let_go(patch: pytest.MonkeyPatch) -> None:
    """The agent tells that a claim has ended, and the overlay ignores it."""
    patch.setattr(Overlay, "mark_ended", lambda self, row, pending: None)


# -- NUMA and PCI


@bug(TableMachine)
def take_devices_twice(patch: pytest.MonkeyPatch) -> None:
    """A claim takes its devices once more each time."""

    def consume_from(self: TopologyUsage, into: dict[str, Any]) -> None:
        real(self, into)
        for name, count in self.devices.items():
            into[name] -= count

    real = TopologyUsage.consume_from
    patch.setattr(TopologyUsage, "consume_from", consume_from)


@bug(TableMachine)
def pin_over_what_is_pinned(patch: pytest.MonkeyPatch) -> None:
    """The pinned CPUs of a claim replace those of the node."""

    def taken(cell: Any, take: Any) -> Any:
        return [cell[0] + take.cpu_usage, cell[1], format(take.pinned, "x"), cell[3]]

    patch.setattr("shared_scheduler.model.topology._taken", taken)


@bug(TableMachine)
def weigh_devices_that_are_claimed(patch: pytest.MonkeyPatch) -> None:
    """The column of free devices knows nothing of our claims."""

    def pools(self: RowWriter, row: Row) -> None:
        claims, row.claims = row.claims, {}
        real(self, row)
        row.claims = claims

    def numbers(self: Overlay, row: Row, claim: OwnClaim, sign: int) -> None:
        count(self, row, claim, sign)
        pools(self._writer, row)

    real, count = RowWriter.derive_pools, Overlay._count_numbers
    patch.setattr(Overlay, "_count_numbers", numbers)


# -- rows


@bug(TableMachine)
def keep_consumers_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    """A consumer that is gone stays in the row."""

    def apply(self: HostTable, node: str, leaves: Any, consumers: Any, *rest: Any, **at: Any) -> None:
        left = {uuid: one for uuid, one in consumers.items() if one is not None}
        real(self, node, leaves, left, *rest, **at)

    real = HostTable.apply
    patch.setattr(HostTable, "apply", apply)


@bug(TableMachine)
def keep_members_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    """An instance is found where it is no more."""
    patch.setattr(Members, "discard", lambda self, uuid, slot: None)


@bug(TableMachine)
def find_a_moved_instance_in_one_place(patch: pytest.MonkeyPatch) -> None:
    """While an instance is in two places, only the newer one is known."""
    patch.setattr(Members, "add", lambda self, uuid, slot: self._at.__setitem__(uuid, slot))


@bug(TableMachine)
def leave_a_node_that_went_open(patch: pytest.MonkeyPatch) -> None:
    """The columns of a slot go on saying what they said when its node has gone."""
    patch.setattr(HostColumns, "clear", lambda self, slot: None)


@bug(TableMachine)
def count_a_class_of_the_child_for_the_root(patch: pytest.MonkeyPatch) -> None:
    """What a consumer takes of a child provider is not given back when it goes."""

    def drop(self: RowWriter, row: Row, uuid: str, stored: Any) -> bool:
        return real(self, row, uuid, stored._replace(others=()))

    real = RowWriter._drop
    patch.setattr(RowWriter, "_drop", drop)

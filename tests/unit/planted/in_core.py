# SPDX-License-Identifier: Apache-2.0
"""Bugs that people make where confirmed claims are watched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared_scheduler.core.confirmed_claims import ConfirmedClaims
from shared_scheduler.core.events import ConsumerAnswered
from tests.unit.core.claim_machine import ClaimMachine
from tests.unit.planted.planting import bug


@bug(ClaimMachine)
def let_a_confirmed_claim_end_by_a_timer(patch: pytest.MonkeyPatch) -> None:
    """What a node does not show in time counts no more, although nobody has said that it is gone (W3)."""

    def on_timer(self: ConfirmedClaims, step: Any, claim_id: str) -> None:
        self._table.forget(claim_id)
        del self._watched[claim_id]

    patch.setattr(ConfirmedClaims, "on_timer", on_timer)


@bug(ClaimMachine)
def take_no_answer_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """Placement does not answer, and its silence is read as that it holds nothing."""

    def on_consumer(self: ConfirmedClaims, event: ConsumerAnswered) -> None:
        real(self, replace(event, error=""))

    real = ConfirmedClaims.on_consumer
    patch.setattr(ConfirmedClaims, "on_consumer", on_consumer)


@bug(ClaimMachine)
def forget_the_claims_of_others_too(patch: pytest.MonkeyPatch) -> None:
    """That one consumer is gone ends every claim that is watched."""

    def on_consumer(self: ConfirmedClaims, event: ConsumerAnswered) -> None:
        for watched in list(self._watched.values()):
            real(self, replace(event, consumer=watched.consumer))

    real = ConfirmedClaims.on_consumer
    patch.setattr(ConfirmedClaims, "on_consumer", on_consumer)


@bug(ClaimMachine)
def never_ask_placement_again(patch: pytest.MonkeyPatch) -> None:
    """Placement is asked once: what it holds then is never read again."""

    def on_timer(self: ConfirmedClaims, step: Any, claim_id: str) -> None:
        real(self, step, claim_id)
        self._timers.cancel(("unreported", claim_id))

    real = ConfirmedClaims.on_timer
    patch.setattr(ConfirmedClaims, "on_timer", on_timer)

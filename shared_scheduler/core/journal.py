# SPDX-License-Identifier: Apache-2.0
"""What is written down of a request while it is under way, and the record that it leaves.

A record is bounded: the first decisions and attempts of a request are kept, later ones are counted
in ``timings_ms`` as ``decisions`` and ``attempts``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared_scheduler.core.claims import ClaimState, OpenClaim
from shared_scheduler.core.effects import Choice, FailureCode
from shared_scheduler.decision.pipeline import Decision
from shared_scheduler.decision.record import Attempt, DecisionCounts, DecisionRecord, asked_of
from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Reason
from shared_scheduler.table.host_view import HostView

#: decisions and attempts that one record holds
DECISIONS_MAX = 64
ATTEMPTS_MAX = 128


@dataclass(slots=True)
class Journal:
    """The notes of one request."""

    decisions: list[DecisionCounts] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    decision_count: int = 0
    attempt_count: int = 0

    def decided(self, decision: Decision) -> None:
        """A decision was made; its counts are taken while the rows are as it saw them."""
        self.decision_count += 1
        if len(self.decisions) < DECISIONS_MAX:
            self.decisions.append(decision.counts())

    def refused_by_judge(self, instance: str, view: HostView, reason: Reason) -> None:
        """One of Nova's own filters did not want the host."""
        self._tried(
            Attempt(instance, view.node, view.host, reason.code, reason.detail, *view.version)
        )

    def claim_went(self, claim: OpenClaim, outcome: str) -> None:
        """A claim was written, or ended badly."""
        intent = claim.intent
        detail = dict(claim.reason.detail) if claim.reason is not None else {}
        if claim.write_detail:
            detail["text"] = claim.write_detail
        self._tried(
            Attempt(
                intent.consumer,
                intent.node,
                intent.host,
                outcome,
                detail,
                claim.seen.epoch,
                claim.seen.sequence,
                _milliseconds(claim.began_s if intent.by_agent else None, claim.judged_s),
                _milliseconds(claim.writing_s, claim.answered_s),
                claim.claim_id,
            )
        )

    def _tried(self, attempt: Attempt) -> None:
        self.attempt_count += 1
        if len(self.attempts) < ATTEMPTS_MAX:
            self.attempts.append(attempt)

    def record(
        self,
        request: Request,
        choices: tuple[tuple[Choice, ...], ...],
        total_s: float,
        code: FailureCode | None = None,
        text: str = "",
    ) -> DecisionRecord:
        """All of it, as the request ends."""
        timings = {
            "total": round(1000 * total_s, 3),
            "decisions": float(self.decision_count),
            "attempts": float(self.attempt_count),
        }
        return DecisionRecord(
            request.request_id,
            asked_of(request),
            tuple(self.decisions),
            tuple(self.attempts),
            tuple(tuple(choice.host for choice in inner) for inner in choices),
            "" if code is None else code.value,
            text,
            timings,
        )


def outcome_of(claim: OpenClaim, ending: ClaimState) -> str:
    """The most telling word for how a claim ended."""
    if ending == ClaimState.REFUSED and claim.reason is not None:
        return claim.reason.code
    if ending == ClaimState.NOT_WRITTEN and claim.write_code is not None:
        return claim.write_code.value
    return ending.value


def _milliseconds(from_s: float | None, until_s: float | None) -> float | None:
    if from_s is None or until_s is None:
        return None
    return round(1000 * (until_s - from_s), 3)

# SPDX-License-Identifier: Apache-2.0
"""The ledger compared with the true state of a node, with events in any order."""

from __future__ import annotations

from hypothesis import settings

from tests.support.examples import examples
from tests.unit.compute_agent.claim_ledger_machine import ClaimLedgerMachine

TestOneNode = ClaimLedgerMachine.TestCase
TestOneNode.settings = settings(max_examples=examples(100), stateful_step_count=40)

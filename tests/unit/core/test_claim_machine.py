# SPDX-License-Identifier: Apache-2.0
"""Confirmed claims count until there is evidence, in any order of anything."""

from __future__ import annotations

from hypothesis import settings

from tests.support.examples import examples
from tests.unit.core.claim_machine import ClaimMachine

TestClaims = ClaimMachine.TestCase
TestClaims.settings = settings(max_examples=examples(100), stateful_step_count=30)

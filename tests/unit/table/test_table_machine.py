# SPDX-License-Identifier: Apache-2.0
"""The host table against its model, in any order of anything."""

from __future__ import annotations

from hypothesis import settings

from tests.support.examples import examples
from tests.unit.table.table_machine import TableMachine

TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=examples(60), stateful_step_count=40)

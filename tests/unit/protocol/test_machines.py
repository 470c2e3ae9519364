# SPDX-License-Identifier: Apache-2.0
"""Pipe and window against models that a child could read, in any order of anything."""

from __future__ import annotations

from hypothesis import settings

from tests.support.examples import examples
from tests.unit.protocol.channel_machine import ChannelMachine
from tests.unit.protocol.pipe_machine import PipeMachine

TestPipe = PipeMachine.TestCase
TestPipe.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestChannel = ChannelMachine.TestCase
TestChannel.settings = settings(max_examples=examples(300), stateful_step_count=50)

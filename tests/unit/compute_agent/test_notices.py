# SPDX-License-Identifier: Apache-2.0
"""The log lines of an agent tell an operator what to do, in the words of the pages."""

from __future__ import annotations

import pytest

from compute_agent.effects import Notice, NoticeCode
from compute_agent.service.notices import NoticeLog
from tests.unit.compute_agent.node_facts import NODE


def test_a_forged_epoch_names_the_option_that_keeps_others_from_sending(caplog: pytest.LogCaptureFixture) -> None:
    NoticeLog().write(Notice(NoticeCode.EPOCH_REFUSED, NODE, {"asked": 7}, cause="resync"))

    (line,) = caplog.messages
    assert "a scheduler asks for an epoch above 7" in line
    assert "use host_keys" in line and "signing" not in line

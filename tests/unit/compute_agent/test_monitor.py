# SPDX-License-Identifier: Apache-2.0
"""The log filter that installing the tap adds to nova-compute."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint

import pytest

from compute_agent.tap.monitor import ENTRY_POINT

STEVEDORE = logging.getLogger("stevedore.extension")


def test_other_lines_of_stevedore_are_logged_at_each_level(caplog: pytest.LogCaptureFixture) -> None:
    # given an operator who wants to see what stevedore finds
    caplog.set_level(logging.DEBUG, STEVEDORE.name)

    # when it logs an entry point, and that it could not load another one and ours
    STEVEDORE.debug("found extension %r", EntryPoint("virt_driver", "nova.virt.fake", "nova.compute.monitors.cpu"))
    STEVEDORE.error("Could not load %r: %s", "virt_driver", "no such module")
    STEVEDORE.error("Could not load %r: %s", ENTRY_POINT, "it wants no tracker")

    # then only the last line is hidden
    found, failed = caplog.messages
    assert found.startswith("found extension EntryPoint(")
    assert failed == "Could not load 'virt_driver': no such module"

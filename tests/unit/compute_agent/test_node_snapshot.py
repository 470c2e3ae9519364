# SPDX-License-Identifier: Apache-2.0
"""The members of a node, according to the resource tracker's memory."""

from __future__ import annotations

from types import SimpleNamespace

from compute_agent.tap.node_snapshot import TrackerReader

NODE, SERVER = "cmp1", "f1000000-0000-0000-0000-000000000001"


def test_a_server_that_returns_after_an_audit_is_reported() -> None:
    # given a server that left: Nova's statistics keep it until the next audit
    states = {SERVER: "active"}
    stats = {NODE: SimpleNamespace(states=states)}
    reader = TrackerReader(SimpleNamespace(stats=stats, tracked_migrations={}))
    reader.move_ends(SERVER)
    reader.move_ended(NODE, SERVER)
    assert reader.members(NODE) == {}
    # when an audit has made them anew, and it comes back, in the very same state
    states.clear()
    assert reader.members(NODE) == {}
    states[SERVER] = "active"
    # then
    assert SERVER in reader.members(NODE)

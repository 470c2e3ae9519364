# SPDX-License-Identifier: Apache-2.0
"""One claim whose topology Nova's functions cannot process: the other claims of the batch are judged and kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nova import objects

from compute_agent.effects import Keep
from shared_scheduler.novalib.topology import NovaTopologyFit
from shared_scheduler.protocol.messages import RefusalCode, Verdict
from tests.unit.compute_agent.core_node import Node, said
from tests.unit.compute_agent.node_facts import claim


def empty(name: str) -> dict[str, Any]:
    """The primitive of an object of Nova without any field."""
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": getattr(objects, name).VERSION,
        "nova_object.data": {},
    }


ODD = {
    "another class": {"pci": [empty("Flavor")]},
    "another class of cells": {"numa": empty("Service")},
    "no fields": {"pci": [empty("InstancePCIRequest")]},
    "mappings of another kind": {"pci": [empty("InstancePCIRequest")], "mappings": 3},
    "no object": [],
}


@pytest.mark.parametrize("kind", ODD)
def test_only_the_odd_claim_is_refused(kind: str) -> None:
    # given an agent with Nova's own fit
    node = Node()
    node.core.ledger._fit = NovaTopologyFit()
    node.start()
    node.pass_s(1)

    # when a claim that cannot be processed comes between two others
    odd = claim("c2", "vm-2", topology=json.dumps(ODD[kind]))
    effects = node.send(claim("c1", "vm-1"), odd, claim("c3", "vm-3"))

    # then each gets its verdict, and the accepted ones are kept
    verdicts = {verdict.claim_id: verdict for verdict in said(effects, Verdict)}
    assert {name: verdict.accepted for name, verdict in verdicts.items()} == {"c1": True, "c2": False, "c3": True}
    assert verdicts["c2"].reason is not None and verdicts["c2"].reason.code == RefusalCode.MALFORMED
    kept = [kept.claim.claim_id for effect in effects if isinstance(effect, Keep) for kept in effect.claims]
    assert {"c1", "c3"} <= set(kept)

# SPDX-License-Identifier: Apache-2.0
"""A record and a line of the log never contain data that are private to the tenant."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nova import context as nova_context
from nova import objects

from shared_scheduler.core.effects import FailureCode, NodeChange, RecordBuild, RecordNode
from shared_scheduler.core.request_state import Journal
from shared_scheduler.nova import shadow
from shared_scheduler.nova.request_spec import make_request
from shared_scheduler.records import entries
from shared_scheduler.records.agreement import Chosen, compare
from shared_scheduler.records.askers import asker_of
from tests.unit.nova.conftest import PROJECT, USER, NoNodes, request_spec

UUID = "11111111-1111-4111-8111-111111111111"
SECRETS = ("t0ken", "passw0rd", "inj3cted", "us3rdata", "hint-c0ntent", "serv1ce-catalog")


def tenants_context() -> Any:
    catalog = [{"type": "serv1ce-catalog", "endpoints": []}]
    return nova_context.RequestContext(
        USER, PROJECT, auth_token="t0ken", service_catalog=catalog, request_id="req-local",
        global_request_id="req-global",
    )  # fmt: skip


def spec_with_secrets() -> Any:
    """A spec with a hint, and with each field that a caller could misuse."""
    spec = request_spec(scheduler_hints={"owner": ["hint-c0ntent"], "same_host": ["hint-c0ntent"]})
    spec.requested_networks = objects.NetworkRequestList(objects=[objects.NetworkRequest(tag="inj3cted")])
    return spec


def test_no_secret_is_recorded_or_logged() -> None:
    request = make_request(tenants_context(), spec_with_secrets(), (UUID,), 2, NoNodes())
    record = Journal().record(request, (), 0.5, FailureCode.NO_VALID_HOST, "0 of 3 hosts pass")

    kept, line = json.dumps(entries.entry(record, "sched1", 1.0), default=str), entries.line(record)

    assert request.hints["owner"] == ("hint-c0ntent",), "the decision needs what the record must not have"
    assert json.loads(kept)["asked"]["hints"] == ["owner", "same_host"]
    assert [secret for secret in SECRETS if secret in kept + line] == []


@pytest.mark.parametrize("kind", ["build", "node", "comparison"])
def test_no_secret_is_in_a_record_of_another_kind(kind: str) -> None:
    # given a request with secrets, and what follows from it
    context, spec = tenants_context(), spec_with_secrets()
    request = make_request(context, spec, (UUID,), 2, NoNodes())
    decision = Journal().record(request, (), 0.5)
    asked = shadow._asked(context, {"spec_obj": spec, "instance_uuids": [UUID]})
    stock = Chosen((("node-1", "cmp1"),))
    compared = compare(asked, decision, Chosen(), stock, 0.0, lambda _: "ComputeFilter")
    # when it is recorded
    kept = {
        "build": entries.build_entry(
            RecordBuild("node-1", "cmp1", UUID, True, "", cause="b"), asker_of(decision), "sched1", 1.0
        ),
        "node": entries.node_entry(RecordNode("cmp1", NodeChange.SNAPSHOT, 1, 2, 3, cause="n"), "sched1", 1.0),
        "comparison": compared.entry("sched1", 1.0),
    }[kind]
    # then the record has its kind, and no secret
    assert kept["kind"] == kind
    assert [secret for secret in SECRETS if secret in json.dumps(kept, default=str)] == []


def test_both_ids_of_a_request_are_recorded() -> None:
    request = make_request(tenants_context(), request_spec(), (UUID,), 2, NoNodes())

    kept = entries.entry(Journal().record(request, (), 0.5), "sched1", 1.0)

    assert (kept["request_id"], kept["global_request_id"]) == ("req-local", "req-global")

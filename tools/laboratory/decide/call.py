# SPDX-License-Identifier: Apache-2.0
"""The CPU time of one ``select_destinations`` inside the server, by step, without Placement.

It covers the steps from the text that oslo.messaging passes on to the text that it gets back.  It does not cover
oslo.messaging itself, nor the verdict and the write, for which other threads wait.
"""

import json
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any

from nova import context as nova_context
from nova.objects import base

from shared_scheduler.core.effects import Choice
from shared_scheduler.core.events import Candidate
from shared_scheduler.decision.pipeline import Decider
from shared_scheduler.nova import request_spec, selection
from shared_scheduler.nova.aggregates import AggregateCache
from shared_scheduler.nova.request_filters import RequestFilters
from tools.laboratory.decide import nova_side, workloads
from tools.laboratory.decide.burst import PLAIN

US = 1e6
ALTERNATES = 2
CALLS = 200


class NewComputes:
    """Reports that every nova-compute is of this release."""

    def reached(self, version: int) -> bool:
        """Whether all are at least of this version."""
        return True


class Steps:
    """CPU microseconds of each step, call by call."""

    def __init__(self) -> None:
        self.us: dict[str, list[float]] = {}

    def time(self, name: str, step: Callable[[], Any]) -> Any:
        """Run one step."""
        before = time.thread_time()
        done = step()
        self.us.setdefault(name, []).append((time.thread_time() - before) * US)
        return done


class Server:
    """The objects that a scheduler has when a call arrives."""

    def __init__(self, hosts: int) -> None:
        rng = Random(hosts)
        rows = [workloads.compute_node_row(number, {}, rng) for number in range(hosts)]
        self.table = workloads.make_table(PLAIN, rows)
        self.decider = Decider(self.table)
        self.context = nova_context.get_admin_context()
        self.context.request_id = "req-bench"
        self.serializer, self.aggregates = base.NovaObjectSerializer(), AggregateCache()
        versions: Any = NewComputes()
        self.filters = RequestFilters(self.aggregates, versions, lambda learned: None)

    def text(self, spec: Any) -> str:
        """A request as the conductor sends it."""
        return json.dumps(self.serializer.serialize_entity(self.context, spec))

    def read(self, text: str, steps: Steps) -> Any:
        """Convert the text to the request."""
        context, spec_of = self.context, self.serializer.deserialize_entity
        raw = steps.time("read the text", lambda: json.loads(text))
        spec = steps.time("make the RequestSpec", lambda: spec_of(context, raw))
        steps.time("request filters", lambda: self.filters(context, spec))
        wanted = [workloads.instance(1)]
        return steps.time(
            "read the request",
            lambda: request_spec.make_request(context, spec, wanted, ALTERNATES, None),
        )

    def choose(self, request: Any, claim: str, steps: Steps) -> list[list[Choice]]:
        """Decide, and claim in the table."""
        nodes = steps.time("decide", lambda: _nodes(self.decider, request))
        taken = {nodes[0]: request.forms[0].resources}
        steps.time("take it", lambda: self.table.assume(nodes[0], claim, claim, taken, request.usage))
        return [[_choice(self.table, node, request) for node in nodes]]

    def answer(self, choices: list[list[Choice]], steps: Steps) -> None:
        """Convert the choices to the text."""
        found = steps.time("make the Selections", lambda: selection.selections(choices, self.aggregates))
        answer = steps.time("serialise", lambda: self.serializer.serialize_entity(self.context, found))
        steps.time("write the text", lambda: json.dumps(answer))


def call(hosts: int) -> dict[str, Any]:
    """Medians by step; ``call_us`` is the median of whole calls, ``call_p90_us`` their 90th percentile."""
    server, steps = Server(hosts), Steps()
    text = server.text(nova_side.request_spec(PLAIN, hosts))
    for number in range(CALLS):
        claim = f"claim-{number}"
        request = server.read(text, steps)
        server.answer(server.choose(request, claim, steps), steps)
        server.table.forget(claim)
    whole = sorted(map(sum, zip(*steps.us.values(), strict=True)))
    return {
        "hosts": hosts,
        "request_bytes": len(text),
        "call_us": statistics.median(whole),
        "call_p90_us": whole[int(len(whole) * 0.9)],
        **{f"{name}, us": statistics.median(each) for name, each in steps.us.items()},
    }


def _nodes(decider: Any, request: Any) -> list[str]:
    found = decider.decide(request).nodes()
    return [next(found) for _ in range(1 + ALTERNATES)]


def _choice(table: Any, node: str, request: Any) -> Choice:
    view = table.view(node)
    candidate = Candidate({node: request.forms[0].resources}, {"": (node,)})
    return Choice(node, view.host, view.nodename, view.cell, candidate, {})

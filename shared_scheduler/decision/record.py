# SPDX-License-Identifier: Apache-2.0
"""A decision as data: the request, the hosts rejected by each reason, the best hosts, and the attempts.

Logs, ``why``, the records and replay are views of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from shared_scheduler.decision.request import Request
from shared_scheduler.protocol.messages import Leaf


@dataclass(frozen=True, slots=True)
class Weighed:
    """One of the best hosts, the version of the row that was weighed, and the share of each weigher in the weight."""

    node: str
    host: str
    weight: float
    epoch: int = 0
    sequence: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecisionCounts:
    """One decision: ``hosts`` is ``survivors`` plus the sum of ``reasons`` (code -> hosts)."""

    index: int
    hosts: int
    survivors: int
    reasons: Mapping[str, int]
    best: tuple[Weighed, ...] = ()
    #: the host that was chosen, if it is none of the best: others of nearly the same weight may be preferred
    chosen: Weighed | None = None
    #: the settings that are not Nova's defaults (``decision_settings.plain_settings``)
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: the multipliers of weighers that the metadata of aggregates may change
    multipliers_of_aggregates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One host that was tried for one instance.

    ``outcome``: "written", or the ending or reason code of the failure, with ``detail``.
    ``verdict_ms`` and ``write_ms`` are the times of the agent and of Placement; None: not asked.
    ``after_decisions``: how many decisions of the request were made before the try ended; 0: not known.
    """

    instance: str
    node: str
    host: str
    outcome: str
    detail: Mapping[str, Leaf] = field(default_factory=dict)
    epoch: int = 0
    sequence: int = 0
    verdict_ms: float | None = None
    write_ms: float | None = None
    #: identifies the messages of the claim and the log lines of the agent; empty: no claim
    claim_id: str = ""
    after_decisions: int = 0
    #: after a refusal for lack of room, who held it (``core/held_room.py``)
    held: Mapping[str, Leaf] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One select_destinations call.

    ``answer`` lists the hosts of each instance, the chosen one first; without an answer, ``failure`` is the code of
    the failure and ``text`` says why.  ``timings_ms``: the time of the request in all (``total``) and in each phase of
    ``core.requests``; ``decisions`` and ``attempts`` are no times, but how many there were.
    """

    request_id: str
    asked: Mapping[str, Any]
    decisions: tuple[DecisionCounts, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    answer: tuple[tuple[str, ...], ...] = ()
    failure: str = ""
    text: str = ""
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    #: the id in Nova's logs and instance actions, if ``request_id`` is a global one
    local_request_id: str = ""
    #: after a dry run: the weight of each node that passed for the first instance
    weights: Mapping[str, float] = field(default_factory=dict)


def asked_of(request: Request) -> dict[str, Any]:
    """A request as plain values, without Nova's own object."""
    return {
        "project_id": request.project_id,
        "user_id": request.user_id,
        "flavor": request.flavor.name,
        "extra_specs": dict(request.flavor.extra_specs),
        "sizes": {
            "vcpus": request.flavor.vcpus,
            "memory_mb": request.flavor.memory_mb,
            "root_gb": request.flavor.root_gb,
            "ephemeral_gb": request.flavor.ephemeral_gb,
        },
        "forms": [
            {
                "resources": dict(form.resources),
                "required": sorted(form.required),
                "forbidden": sorted(form.forbidden),
                "root_required": sorted(form.root_required),
                "root_forbidden": sorted(form.root_forbidden),
                "member_of": [sorted(any_of) for any_of in form.member_of],
                "forbidden_aggregates": sorted(form.forbidden_aggregates),
                "in_tree": form.in_tree,
                "numbered": [dict(group.resources) for group in form.numbered],
            }
            for form in request.forms
        ],
        "instances": list(request.instance_uuids),
        "image": request.image_id,
        "image_properties": {key: str(value) for key, value in request.image_properties.items()},
        "group": None if request.group is None else [request.group.uuid, request.group.policy],
        "spread": [asdict(constraint) for constraint in request.spread],
        "image_unread": request.image_unread,
        "availability_zone": request.availability_zone,
        "destination": None if request.destination is None else asdict(request.destination),
        "ignore_hosts": sorted(request.ignore_hosts),
        "force_hosts": list(request.force_hosts),
        "force_nodes": list(request.force_nodes),
        "hints": sorted(request.hints),  # names only, because a site's hints may contain personal data
        "is_rebuild": request.is_rebuild,
        "move": None if request.move is None else request.move.value,
        "has_numa": request.has_numa,
        "has_pci": request.has_pci,
    }

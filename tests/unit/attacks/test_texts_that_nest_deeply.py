# SPDX-License-Identifier: Apache-2.0
"""A host reports texts in JSON whose brackets nest deeper than Python can follow, or numbers beyond any other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared_scheduler.core import effects as ef
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.decision.pipeline import NOVA_DEFAULTS
from shared_scheduler.decision.request import Flavor, Request
from tests.unit.core.scheduler_driver import SMALL, SchedulerDriver, claims_in, of_kind, request

DEEP = "[" * 16_000
HUGE = "9" * 4_000
SPECS = [["x86_64", "kvm", "hvm"]]
METRICS = replace(
    NOVA_DEFAULTS, metrics_weight_setting=(("cpu.load", 1.0),), metrics_required=False,
    enabled_filters=(*NOVA_DEFAULTS.enabled_filters, "MetricsFilter"),
)  # fmt: skip


def with_specs(**specs: str) -> Flavor:
    return replace(SMALL, extra_specs={name.replace("__", ":"): value for name, value in specs.items()})


#: what is asked for, with which settings
REQUESTS: dict[str, tuple[Request, DecisionSettings]] = {
    "capabilities": (request(flavor=with_specs(capabilities__cpu_info__arch="x86_64")), NOVA_DEFAULTS),
    "address bits": (request(image_properties={"hw_architecture": "x86_64", "hw_maxphysaddr_bits": 42}), NOVA_DEFAULTS),
    "metrics": (request(), METRICS),
}  # fmt: skip
TEXTS = {
    "deep": DEEP,
    "a huge number": f'[{{"name": "cpu.load", "value": {HUGE}}}]',
    "a huge capability": f'{{"arch": {HUGE}, "maxphysaddr": {{"bits": {HUGE}}}}}',
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("asked", REQUESTS)
def test_the_request_is_placed_on_another_host(asked: str, text: str) -> None:
    wanted, settings = REQUESTS[asked]
    good = '{"arch": "x86_64", "maxphysaddr": {"bits": 48}}'
    load = '[{"name": "cpu.load", "value": 1}]'
    driver = SchedulerDriver(decision=settings)
    driver.with_agents("node-1", cn__cpu_info=TEXTS[text], cn__metrics=TEXTS[text], cn__supported_hv_specs=SPECS)
    driver.with_agents("node-2", free_mb=2048, cn__cpu_info=good, cn__metrics=load, cn__supported_hv_specs=SPECS)

    effects = driver.ask(wanted)

    assert of_kind(ef.Fail, effects) == []
    assert len(claims_in(effects)) == 1

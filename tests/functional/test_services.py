# SPDX-License-Identifier: Apache-2.0
"""A compute that is disabled is not selected; when it is enabled again, it is.

``tests/longer/test_services.py`` has the same of one that was forced down, or whose nova-compute is dead, which
``test_crashes.py`` has as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared_scheduler.answers.schema import schemas
from tests.functional import cloud_state
from tools.laboratory.cloud.cloud import Cloud

HOSTS = {"c1", "c2", "c3"}


def assert_shape(question: str, text: str) -> Any:
    """What a command has printed for programs, which obeys the schema of the question."""
    answer = json.loads(text)
    Draft202012Validator(schemas()[question]).validate(answer)
    return answer


@pytest.fixture(scope="module", autouse=True)
def one_scheduler(cloud: Cloud) -> None:
    cloud_state.begin(cloud)


@pytest.fixture(autouse=True)
def whole(cloud: Cloud) -> None:
    cloud.reset()
    cloud_state.wait_fresh(cloud, HOSTS)


def wait_choosable(cloud: Cloud, host: str, wanted: bool) -> None:
    cloud.wait(
        lambda: all(t[host]["choosable"] is wanted for t in cloud_state.tables(cloud).values()),
        f"{host} to be {'in' if wanted else 'out of'} the choice",
    )


TAKE_OUT: dict[str, tuple[Callable[[Cloud], object], Callable[[Cloud], object]]] = {
    "disabled": (lambda c: c.disable("c2"), lambda c: c.enable("c2")),
    "forced_down": (lambda c: c.force_down("c2"), lambda c: c.force_down("c2", down=False)),
    "dead": (lambda c: c.kill("c2"), lambda c: c.start("c2")),
}


def test_out_and_in_again(cloud: Cloud) -> None:
    assert_out_and_in_again(cloud, "disabled")


def assert_out_and_in_again(cloud: Cloud, way: str) -> None:
    """Assert that a compute gets no servers until it is taken in again, and then all that fit."""
    take_out, take_in = TAKE_OUT[way]
    take_out(cloud)
    wait_choosable(cloud, "c2", False)
    assert set(cloud.wait_active(cloud.boot(6, parallel=3)).values()) == {"c1", "c3"}

    take_in(cloud)
    cloud.wait_services_up()
    wait_choosable(cloud, "c2", True)
    assert set(cloud.wait_active(cloud.boot(3, parallel=3)).values()) == {"c2"}
    wait = ("--wait", str(cloud_state.SETTLE_S))
    compared = cloud_state.manage(cloud, "compare", *wait, "--format", "json")  # other tests fork the command
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert_shape("compare", compared.stdout)


def test_a_request_after_a_compute_was_disabled_is_placed_elsewhere(cloud: Cloud) -> None:
    assert_placed_elsewhere_at_once(cloud, "disabled")


def assert_placed_elsewhere_at_once(cloud: Cloud, way: str) -> None:
    """Assert that the next request knows that a compute was taken out."""
    # given a compute that every request would select, because the others have less memory left
    for other in ("c1", "c3"):
        cloud.wait_active(cloud.boot(availability_zone=f"nova:{other}"))
    take_out, take_in = TAKE_OUT[way]
    # when servers are requested at the moment at which it is taken out
    take_out(cloud)
    placed = cloud.wait_active(cloud.boot(2, parallel=2))
    # then none of them is there, although no poll can have found that
    take_in(cloud)
    cloud.wait_services_up()
    assert set(placed.values()) <= {"c1", "c3"}


def test_an_operator_has_a_host_read_anew_but_not_in_a_loop(cloud: Cloud) -> None:
    # when the command is given twice
    first, again = (cloud_state.manage(cloud, "resync", "c1", "--wait", "60", "--format", "json") for _ in range(2))
    # then each scheduler has its row from the agent, without a gap
    assert first.returncode == 0, first.stdout + first.stderr
    answers = assert_shape("resync", first.stdout)
    assert len(answers) == len(cloud_state.tables(cloud))
    for one in [node for answer in answers for node in answer["nodes"]]:
        assert (one["source"], one["result"], one["epoch"]) == ("agent", "read", one["epoch_before"])
        assert one["sequence"] >= one["sequence_before"] > 0
    cloud_state.wait_fresh(cloud, HOSTS)
    # and the second one asked nobody, unless the machine was very slow
    told = {node["result"] for answer in json.loads(again.stdout) for node in answer["nodes"]}
    assert told <= {"too_soon", "read"} and again.returncode == (1 if "too_soon" in told else 0)


@pytest.mark.parametrize("question", ["status", "nodes", "reads", "foreign-changes"])
def test_programs_get_the_state_of_a_scheduler_in_its_shape(cloud: Cloud, question: str) -> None:
    options = [] if question == "status" else [f"--{question}"]
    where = ["--socket-dir", str(cloud.layout.admin_sockets), "--format", "json"]

    told = cloud_state.manage_without_configuration(cloud, "status", *where, *options)

    assert told.returncode == 0, told.stderr
    assert len(assert_shape(question, told.stdout)) == len(cloud_state.tables(cloud))

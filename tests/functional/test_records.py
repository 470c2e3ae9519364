# SPDX-License-Identifier: Apache-2.0
"""Operators ask the records of a real cloud why a server is not there, in both stores and without a scheduler.

``tests/longer/test_records.py`` has a server whose first build failed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from shared_scheduler.core.change_kinds import EXPECTED
from shared_scheduler.records.plain_text import listed
from shared_scheduler.records.story import NOT_REFUSED, refusing
from tests.functional import cloud_state
from tests.support import forked_commands
from tools.laboratory.cloud import probes
from tools.laboratory.cloud.cloud import Cloud
from tools.laboratory.cloud.cloud_settings import SLOT_MB
from tools.laboratory.cloud.provisioning import Flavor
from tools.laboratory.groups.pairs import conductors_stopped

NO_ADDRESS = "No more IP addresses"
COMPUTES = ("c1", "c2", "c3")
DATABASE = "shared_scheduler_records"
TOO_LARGE = Flavor("too-large", ram_mb=100_000)
WITH_TRAIT = Flavor("with-trait", extra={"trait:HW_CPU_X86_AVX512F": "required"})
#: Bursts of requests until two schedulers have selected the same last place of a node at the same moment.
BURSTS_MAX = 8


@dataclass(frozen=True)
class Case:
    """A server, and what its story has to say: its end, and a part of each cause."""

    server: str
    outcome: str
    causes: Sequence[str] = ()


def global_id(name: str) -> str:
    """The global request id that the caller of Nova's API sends with the requests of a case."""
    return f"req-{uuid.uuid5(uuid.NAMESPACE_OID, name)}"


def sent_with(name: str) -> dict[str, str]:
    return {"X-OpenStack-Request-ID": global_id(name)}


def boot(cloud: Cloud, name: str, **extra: Any) -> tuple[str, dict[str, Any]]:
    """A server of a case that has been built, or has failed: its uuid and its row."""
    [server] = cloud.boot(1, headers=sent_with(name), **extra)
    return server, cloud.wait_built([server])[server]


def places(cloud: Cloud) -> list[str]:
    """What ``--records`` accepts for each store."""
    file = cloud.layout.state / "nova" / "shared-scheduler" / "records.jsonl"
    return [str(file), cloud.layout.database_url(DATABASE)]


def ask(cloud: Cloud, place: str, *arguments: str) -> Any:
    """The answer of another process, which knows nothing but the place of the records; None if there is no record."""
    python = cloud.layout.nova / "bin" / "python"
    done = forked_commands.run(python, *arguments, "--records", place, "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines if arguments[0] == "records" else lines[0] if lines else None


def wait_recorded(cloud: Cloud, case: Case, timeout_s: float = cloud_state.SETTLE_S) -> None:
    """Wait until both stores have the end of the server."""
    for place in places(cloud):
        cloud.wait(
            lambda place=place: ((ask(cloud, place, "why", case.server) or {}).get("outcome") == case.outcome),
            f"{case.outcome!r} of {case.server} in {place}", timeout_s,
        )  # fmt: skip


def request_ids(cloud: Cloud, server: str) -> list[str]:
    """As Nova returns and stores them in its instance actions."""
    query = "SELECT request_id FROM instance_actions WHERE instance_uuid = %s AND action = 'create'"
    names = ("nova_cell1", "nova_cell0")
    return [name for database in names for (name,) in cloud.sql(database, query, [server])]


def tried_by_nova(cloud: Cloud, server: str) -> list[str]:
    """The hosts on which Nova has tried to build the server, in order."""
    query = (
        "SELECT e.host FROM instance_actions_events e JOIN instance_actions a ON a.id = e.action_id"
        " WHERE a.instance_uuid = %s AND e.event = 'compute__do_build_and_run_instance' ORDER BY e.id"
    )
    return [host for (host,) in cloud.sql("nova_cell1", query, [server])]


def recorded_decisions(cloud: Cloud) -> Iterator[dict[str, Any]]:
    yield from ask(cloud, places(cloud)[0], "records", "last", "200", "--kind", "decision")


def refused_and_then_accepted(cloud: Cloud) -> Case:
    """Two schedulers select the last places of the nodes at the same moment, until a node refuses a claim.

    On a busy machine, nodes may only give no answer in time.
    """
    without_answer: list[Case] = []
    for _ in range(BURSTS_MAX):
        with conductors_stopped(cloud):
            servers = cloud.boot(3, parallel=3, headers=sent_with("refused and accepted"))
        hosts = cloud.wait_active(servers)
        for record in recorded_decisions(cloud):
            outcomes = [attempt["outcome"] for attempt in record["attempts"]]
            if len(outcomes) > 1 and outcomes[-1] == "written" and record["instances"][0] in hosts:
                server, refused = record["instances"][0], refusing(record)
                if refused:
                    return Case(server, f"became active on {hosts[server]} ({listed(refused)} refused before)")
                without_answer.append(Case(server, f"became active on {hosts[server]}"))
        cloud.delete(hosts)
    assert without_answer, f"no node has refused a claim in {BURSTS_MAX} bursts"
    return without_answer[-1]


def of_anti_affinity(cloud: Cloud) -> Case:
    """One member on each node, and another one."""
    body = {"server_group": {"name": "apart", "policy": "anti-affinity"}}
    group = cloud.compute("POST", "/os-server-groups", body).expect(200)["server_group"]["id"]
    for _ in COMPUTES:
        _, row = boot(cloud, "anti-affinity", hints={"group": group})
        assert row["status"] == "ACTIVE"
    server, row = boot(cloud, "anti-affinity", hints={"group": group})
    assert row["status"] == "ERROR"
    return Case(server, "no host was found (no_valid_host)", ["3 ServerGroupAntiAffinityFilter"])


def impossible(cloud: Cloud, name: str, flavor: Flavor, cause: str) -> Case:
    cloud.add_flavor(flavor)
    server, row = boot(cloud, name, flavor=flavor.name)
    assert row["status"] == "ERROR"
    return Case(server, "no host was found (no_candidates)", [cause])


def leave_one_place_each(cloud: Cloud) -> None:
    """Fill three computes of three slots until each has room for one more server."""
    for host in COMPUTES:
        while cloud.usages().get(host, {}).get("MEMORY_MB", 0) < 2 * SLOT_MB:
            cloud.wait_active(cloud.boot(1, availability_zone=f"nova:{host}"))


def begin(cloud: Cloud, **changes: Any) -> None:
    """Two schedulers that write their records to both stores."""
    with probes.database(cloud.layout) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    options = {"shared_scheduler": {"records_connection": cloud.layout.database_url(DATABASE)}}
    cloud_state.begin(cloud, schedulers=2, nova_options=options, **changes)


def end(cloud: Cloud, cases: dict[str, Case]) -> dict[str, Case]:
    """When it returns, no scheduler runs, and the records have the end of each."""
    for case in cases.values():
        wait_recorded(cloud, case)
    cloud.stop(*cloud.names("scheduler-shared"))  # their memory is gone, and their records are not
    return cases


@pytest.fixture(scope="module")
def cases(cloud: Cloud) -> dict[str, Case]:
    """All servers of this module."""
    begin(cloud)
    server, row = boot(cloud, "global request id")
    found = {"global request id": Case(server, f"became active on {row['host']}")}
    found["memory"] = impossible(cloud, "memory", TOO_LARGE, "3 no_room:MEMORY_MB")
    found["trait"] = impossible(cloud, "trait", WITH_TRAIT, "missing: HW_CPU_X86_AVX512F")
    found["anti-affinity"] = of_anti_affinity(cloud)
    leave_one_place_each(cloud)
    found["refused and accepted"] = refused_and_then_accepted(cloud)

    begin(cloud, hardware_of={host: {"refuses_builds": NO_ADDRESS} for host in COMPUTES})
    server, _ = boot(cloud, "addresses")
    found["addresses"] = Case(server, f"the builds on {listed(tried_by_nova(cloud, server))} failed", [NO_ADDRESS])
    return end(cloud, found)


@pytest.fixture(scope="module")
def last(cloud: Cloud, cases: dict[str, Case]) -> list[list[dict[str, Any]]]:
    """The last records of each store."""
    return [ask(cloud, place, "records", "last", "1000") for place in places(cloud)]


@pytest.mark.parametrize("store", [0, 1], ids=["file", "database"])
@pytest.mark.parametrize(
    "name", ["global request id", "memory", "trait", "anti-affinity", "refused and accepted", "addresses"]
)
def test_why_reports_the_result_and_the_real_causes(
    cloud: Cloud, cases: dict[str, Case], last: list[list[dict[str, Any]]], name: str, store: int
) -> None:
    assert_why(cloud, places(cloud)[store], name, cases[name])
    assert any(cases[name].server in record["instances"] for record in last[store])


def assert_why(cloud: Cloud, place: str, name: str, case: Case) -> None:
    """Ask with the uuid of the server, with Nova's id of the request, and with the caller's."""
    [request_id] = request_ids(cloud, case.server)
    for asked in (case.server, request_id):
        told = ask(cloud, place, "why", asked)
        assert told["outcome"] == case.outcome
        assert len(told["causes"]) == len(case.causes)
        assert all(part in cause for part, cause in zip(case.causes, told["causes"], strict=True))
    of_caller = ask(cloud, place, "why", global_id(name))
    servers = {server for record in of_caller["records"] for server in record["instances"]}
    assert case.server in servers
    assert len(servers) > 1 or of_caller["outcome"] == case.outcome, "one request; others have sent the same id"


@pytest.mark.parametrize("store", [0, 1], ids=["file", "database"])
def test_the_global_id_of_the_caller_finds_the_request(cloud: Cloud, cases: dict[str, Case], store: int) -> None:
    told = ask(cloud, places(cloud)[store], "why", global_id("global request id"))

    case = cases["global request id"]
    assert told["outcome"] == case.outcome
    assert [one["kind"] for one in told["records"]] == ["decision", "build"]
    best = told["records"][0]["decisions"][0]["best"]
    assert {one["host"] for one in best} == set(COMPUTES) and all(one["shares"] for one in best)


@pytest.mark.parametrize("store", [0, 1], ids=["file", "database"])
def test_the_records_of_a_project_have_its_requests_and_their_ends(
    cloud: Cloud, cases: dict[str, Case], last: list[list[dict[str, Any]]], store: int
) -> None:
    place, servers = places(cloud)[store], {case.server for case in cases.values()}
    own = [record for record in last[store] if servers & set(record["instances"])]
    [project] = {record["project_id"] for record in own}

    of_project = ask(cloud, place, "records", "last", "1000", "--project", project)

    # an agent may also have seen what nova-conductor and nova-compute do with the allocations of a failed build
    changes = {record["result"] for record in own if record["kind"] == "foreign"}
    assert {record["kind"] for record in own} - {"foreign"} == {"decision", "build"}
    assert changes <= set(EXPECTED)
    assert [record for record in own if record not in of_project] == []
    assert {record["project_id"] for record in of_project} == {project}


@pytest.mark.parametrize("store", [0, 1], ids=["file", "database"])
def test_each_host_of_a_build_is_reported(cloud: Cloud, cases: dict[str, Case], store: int) -> None:
    assert sorted(builds(cloud, places(cloud)[store], cases["addresses"])) == [(host, "failed") for host in COMPUTES]


def builds(cloud: Cloud, place: str, case: Case) -> list[tuple[str, str]]:
    """Host and result of each build."""
    records = ask(cloud, place, "why", case.server)["records"]
    return [(one["hosts"][0], one["result"]) for one in records if one["kind"] == "build"]


@pytest.mark.parametrize("store", [0, 1], ids=["file", "database"])
def test_the_numbers_of_a_refusal_are_reported(cloud: Cloud, cases: dict[str, Case], store: int) -> None:
    place = places(cloud)[store]
    near = {one["host"]: one for one in ask(cloud, place, "why", cases["memory"].server)["records"][-1]["near"]}
    assert near.keys() == set(COMPUTES)
    assert (near["c1"]["code"], near["c1"]["detail"]["asked"]) == ("no_room:MEMORY_MB", TOO_LARGE.ram_mb)
    assert near["c1"]["source"] == "agent" and near["c1"]["sequence"] and near["c1"]["age_s"] is not None
    [lacking] = ask(cloud, place, "why", cases["memory"].server)["would_help"]
    assert lacking.startswith(f"asked {TOO_LARGE.ram_mb} MB of MEMORY_MB; one server gets at most ")
    assert lacking.endswith(" on these 3 hosts, even if they are empty")

    [record, *_] = ask(cloud, place, "why", cases["refused and accepted"].server)["records"]
    *before, written = record["attempts"]
    refused = [one for one in before if one["outcome"] not in NOT_REFUSED]
    assert before and written["outcome"] == "written"
    assert all(one["detail"] and one["host"] != written["host"] for one in refused), before


def test_novas_own_actions_are_shown_between_our_records(cloud: Cloud, cases: dict[str, Case]) -> None:
    server = cases["addresses"].server

    done = cloud_state.manage(cloud, "why", server, "--nova", "--format", "json")
    python, conf = cloud.layout.nova / "bin" / "python", str(cloud.layout.nova_conf())
    text = forked_commands.run(python, "why", "--config-file", conf, server, "--nova").stdout

    told = json.loads(done.stdout)
    tried = [one["host"] for one in told["nova"] if one["event"] == "compute__do_build_and_run_instance"]
    assert tried == tried_by_nova(cloud, server)
    assert {one["request_id"] for one in told["nova"] if one["action"] == "create"} == {*request_ids(cloud, server)}
    [fault] = [one["details"] for one in told["nova"] if one["action"] == "fault"]
    assert NO_ADDRESS in fault, "of nova-conductor, which quotes the last node"
    lines = text.splitlines()
    parts = ["decision of", "Nova, create: ", *(f"build of {server} on {host}: failed" for host in tried)]
    found = [next(number for number, line in enumerate(lines) if part in line) for part in parts]
    assert found[2:] == sorted(found[2:]), "the builds, in order"


def test_fit_foretells_where_servers_go_and_what_stops_the_next_one(cloud: Cloud) -> None:
    cloud_state.begin(cloud, schedulers=1)  # three computes with room for three servers each
    question = ("fit", "--flavor", "m400", "--number", "40", "--format", "json")

    before = cloud_state.manage(cloud, *question)
    foretold = json.loads(before.stdout)
    hosts = list(cloud.wait_active(cloud.boot(foretold["fit"])).values())
    after = cloud_state.manage(cloud, *question)

    assert (before.returncode, after.returncode) == (1, 1)
    assert {one["host"]: one["servers"] for one in foretold["hosts"]} == {host: hosts.count(host) for host in hosts}
    assert json.loads(after.stdout)["fit"] == 0
    assert sum(foretold["next"]["reasons"].values()) == len(COMPUTES)
    assert all(code.startswith("no_room:") for code in foretold["next"]["reasons"])

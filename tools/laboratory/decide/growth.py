# SPDX-License-Identifier: Apache-2.0
"""How the CPU time of a decision grows with survivors, host aggregates and flavors.

Each is measured at one number of hosts, with everything else as in the plain workload.  The workloads show the growth
with hosts.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from statistics import median

from shared_scheduler.decision.request import Request
from shared_scheduler.model.aggregates import AggregateFacts
from shared_scheduler.table.host_table import HostTable
from tools.laboratory.decide import measure, workloads
from tools.laboratory.decide.measure import US
from tools.laboratory.decide.workloads import Workload

RESOURCES = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
PLAIN = Workload("plain", [], {"resources": RESOURCES})
AGGREGATES = Workload(
    "aggregates",
    [],
    {"resources": RESOURCES, "extra_specs": {"ssd": "true"}},
    filters=["AggregateInstanceExtraSpecsFilter"],
)

#: hosts of a rack, see ``workloads.provider_leaf``
RACK = 40
RACKS = (1, 5, 25, 125, 250)
AGGREGATES_COUNTS = (1, 10, 100, 1000)
FLAVORS = (1, 10, 100, 1000)
#: the minimum number of decisions for each point; each flavor is decided once before they are counted
DECISIONS = 200

#: (survivors, aggregates or flavors; median microseconds)
Points = list[tuple[float, float]]


def growth(hosts: int) -> dict[str, Points]:
    """One line for each of the three."""
    return {
        "survivors": [survivors(hosts, racks) for racks in RACKS if racks * RACK <= hosts],
        "aggregates": [aggregates(hosts, count) for count in AGGREGATES_COUNTS],
        "flavors": [flavors(hosts, count) for count in FLAVORS],
    }


def survivors(hosts: int, racks: int) -> tuple[float, float]:
    """The hosts of this number of racks pass."""
    request = workloads.make_request(PLAIN, hosts, "")
    members = frozenset(f"rack{number}" for number in range(racks))
    form = replace(request.forms[0], member_of=(members,))
    asked = [replace(request, forms=(form,))]
    return racks * RACK, decisions(PLAIN, table_of(PLAIN, hosts), asked)


def aggregates(hosts: int, count: int) -> tuple[float, float]:
    """All hosts are spread over this number of aggregates, half of which have the requested value."""
    table = table_of(AGGREGATES, hosts)
    table.set_aggregates(_spread(hosts, count))
    asked = [workloads.make_request(AGGREGATES, hosts, "")]
    return count, decisions(AGGREGATES, table, asked)


def _spread(hosts: int, count: int) -> list[AggregateFacts]:
    found = []
    for number in range(count):
        names = frozenset(f"compute{host}" for host in range(number, hosts, count))
        metadata = {"ssd": "true" if number % 2 == 0 else "false"}
        found.append(AggregateFacts(number + 1, f"a{number}", f"a{number}", names, metadata))
    return found


def flavors(hosts: int, count: int) -> tuple[float, float]:
    """Requests of this number of flavors alternate."""
    request = workloads.make_request(PLAIN, hosts, "")
    asked = [_of_flavor(request, number) for number in range(count)]
    return count, decisions(PLAIN, table_of(PLAIN, hosts), asked)


def _of_flavor(request: Request, number: int) -> Request:
    resources = RESOURCES | {"MEMORY_MB": 512 + number}
    flavor = replace(request.flavor, name=f"flavor-{number}", memory_mb=resources["MEMORY_MB"])
    form = replace(request.forms[0], resources=resources)
    usage = replace(request.usage, memory_mb=flavor.memory_mb)
    return replace(request, flavor=flavor, forms=(form,), usage=usage)


def table_of(workload: Workload, hosts: int) -> HostTable:
    """The hosts of a workload."""
    rng = Random(hosts)
    rows = [workloads.compute_node_row(number, workload.fleet, rng) for number in range(hosts)]
    return workloads.make_table(workload, rows)


def decisions(workload: Workload, table: HostTable, requests: Sequence[Request]) -> float:
    """Median CPU microseconds of a decision with its claim; the requests alternate."""
    rng, decider = Random(1), measure.make_decider(table, workload)
    for request in requests:
        decider.decide(request)
    took = []
    for number in range(max(DECISIONS, len(requests))):
        request = requests[number % len(requests)]
        took += measure.run(table, decider, request, 1, rng)[0]
    return median(took) * US

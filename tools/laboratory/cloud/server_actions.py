# SPDX-License-Identifier: Apache-2.0
"""Carries out an action on a server and waits for its end in Nova's databases, without load on the API.

An action has ended when the instance has no task and is in one of the states in which the action leaves it, whether it
succeeded or not. Nova's message about a failure is in the events of the action or, after a build, in the fault.
"""

import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tools.laboratory.cloud.cloud import FAULT_WAIT_S, Cloud
from tools.laboratory.errors import LabError

TIMEOUT_S = 240.0
POLL_S = 0.2
REQUEST_ID = "x-openstack-request-id"

AT_REST = (
    "finished", "confirmed", "reverted", "error", "failed", "completed", "cancelled", "done",
)  # fmt: skip
"""States of a migration that is not in progress; a finished one waits to be confirmed."""

GONE = "gone"
REFUSED = "refused"
"""The API refused the request, so nothing was begun."""


@dataclass(frozen=True)
class Action:
    """`body` of the POST under `name`; `ends`: the states in which it may leave an instance, `done`: the wanted one."""

    name: str
    done: str
    ends: frozenset[str]
    body: Any = None


def action(name: str, done: str, *others: str, body: Any = None) -> Action:
    """`others`: the states after a failure; `error` is always among them."""
    return Action(name, done, frozenset({done, "error", *others}), body)


def resize(flavor: str) -> Action:
    """To the flavor with this id."""
    return action("resize", "resized", "active", body={"flavorRef": flavor})


def cold_migrate(host: str | None = None) -> Action:
    return action("migrate", "resized", "active", "stopped", body={"host": host} if host else None)


def live_migrate(host: str | None = None) -> Action:
    return action("os-migrateLive", "active", body={"host": host, "block_migration": "auto"})


def evacuate() -> Action:
    """Nova leaves the server stopped (since microversion 2.95)."""
    return action("evacuate", "stopped", body={})


def unshelve(host: str) -> Action:
    """To this host."""
    return action("unshelve", "active", "shelved_offloaded", body={"host": host})


def rebuild(image: str) -> Action:
    """With the image of this id."""
    return action("rebuild", "active", body={"imageRef": image})


CONFIRM = action("confirmResize", "active")
REVERT = action("revertResize", "active")
CONFIRM_STOPPED = action("confirmResize", "stopped")
REVERT_STOPPED = action("revertResize", "stopped")
START = action("os-start", "active", "stopped")
SHELVE = action("shelve", "shelved_offloaded", "active")
UNSHELVE = action("unshelve", "active", "shelved_offloaded")


@dataclass(frozen=True)
class Instance:
    """A row of Nova: the host of an instance, and its state."""

    uuid: str
    state: str
    task: str | None
    host: str | None
    cell: int


@dataclass(frozen=True)
class Ended:
    """The result of a request. `why`: Nova's message, empty if it succeeded."""

    server: str
    ok: bool
    state: str
    host: str | None
    why: str = ""


def act(cloud: Cloud, server: str, what: Action, timeout_s: float = TIMEOUT_S) -> Ended:
    """Carry out an action, and wait until it has ended."""
    before = find(cloud, server)
    answer = cloud.compute("POST", f"/servers/{server}/action", {what.name: what.body})
    if answer.status not in (200, 202, 204):
        return Ended(server, False, REFUSED, before.host if before else None, f"HTTP {answer.status}: {answer.body}")
    request_id = {key.lower(): value for key, value in answer.headers.items()}[REQUEST_ID]
    found = settle(cloud, server, what.ends, timeout_s)
    cloud.wait(lambda: not (open_events(cloud, found, request_id) or open_migrations(cloud, found)),
               f"what {request_id} began to end on every host", timeout_s)  # fmt: skip
    found = settle(cloud, server, what.ends, timeout_s)
    why = failure(cloud, found, request_id)
    return Ended(server, found.state == what.done and not why, found.state, found.host, why)


def built(cloud: Cloud, server: str, timeout_s: float = TIMEOUT_S) -> Ended:
    """Wait until a server that was just requested is built or has failed."""
    found = settle(cloud, server, {"active", "error"}, timeout_s)
    return Ended(server, found.state == "active", found.state, found.host, fault(cloud, found))


def delete(cloud: Cloud, server: str, timeout_s: float = TIMEOUT_S) -> Ended:
    """Delete a server, and wait until Nova has deleted it."""
    cloud.compute("DELETE", f"/servers/{server}").expect(204, 404)
    cloud.wait(lambda: find(cloud, server) is None, f"{server} to be deleted", timeout_s)
    return Ended(server, True, GONE, None)


def settle(cloud: Cloud, server: str, states: Collection[str], timeout_s: float = TIMEOUT_S) -> Instance:
    """Wait until the instance has no task and is in one of these states.

    :raises LabError: when it is not, within the time
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = find(cloud, server)
        if found is not None and found.task is None and found.state in states:
            return found
        if time.monotonic() > deadline:
            raise LabError(f"{server} is not {'/'.join(sorted(states))} after {timeout_s:.0f} s, but {found}")
        time.sleep(POLL_S)


def find(cloud: Cloud, server: str) -> Instance | None:
    """The present row of the instance in Nova's databases; None if it is in none of them."""
    query = "SELECT vm_state, task_state, host FROM instances WHERE uuid = %s AND deleted = 0"
    for cell in cells(cloud):
        for state, task, host in cloud.sql(f"nova_cell{cell}", query, [server]):
            return Instance(server, state, task, host, cell)
    return None


def open_events(cloud: Cloud, instance: Instance, request_id: str) -> list[str]:
    """Events of this request that are still in progress; the instance is ready shortly before they end."""
    query = (
        "SELECT e.event FROM instance_actions_events e JOIN instance_actions a ON a.id = e.action_id"
        " WHERE a.instance_uuid = %s AND a.request_id = %s AND e.finish_time IS NULL"
    )
    return [event for (event,) in cloud.sql(f"nova_cell{instance.cell}", query, [instance.uuid, request_id])]


def open_migrations(cloud: Cloud, instance: Instance) -> list[str]:
    """Migrations of the instance that a compute still works on, such as the source of a completed live migration."""
    query = "SELECT uuid FROM migrations WHERE deleted = 0 AND instance_uuid = %s AND status NOT IN %s"
    return [uuid for (uuid,) in cloud.sql(f"nova_cell{instance.cell}", query, [instance.uuid, AT_REST])]


def failure(cloud: Cloud, instance: Instance, request_id: str) -> str:
    """The error in the events of this request; the first one is the cause."""
    query = (
        "SELECT e.event, e.details FROM instance_actions_events e JOIN instance_actions a ON a.id = e.action_id"
        " WHERE a.instance_uuid = %s AND a.request_id = %s AND e.result = 'Error' ORDER BY e.id"
    )
    rows = cloud.sql(f"nova_cell{instance.cell}", query, [instance.uuid, request_id])
    return next((f"{event}: {details}" for event, details in rows), "")


def fault(cloud: Cloud, instance: Instance) -> str:
    """The newest fault of an instance in error; empty otherwise."""
    if instance.state != "error":
        return ""
    query = "SELECT message FROM instance_faults WHERE instance_uuid = %s ORDER BY id DESC LIMIT 1"
    found: list[str] = []

    def written() -> bool:
        found.extend(str(message) for (message,) in cloud.sql(f"nova_cell{instance.cell}", query, [instance.uuid]))
        return bool(found)

    with contextlib.suppress(LabError):  # Nova writes the state first
        cloud.wait(written, "the fault", FAULT_WAIT_S)
    return found[0] if found else "in error without a fault"


def cells(cloud: Cloud) -> range:
    """The numbers of all cell databases; 0 has the servers that were never placed."""
    return range(cloud.settings.cells + 1)

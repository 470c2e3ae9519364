# SPDX-License-Identifier: Apache-2.0
"""The trace of a server with a failed check: the operations on it, and the log lines about it."""

import re
from collections.abc import Iterable, Iterator

from tools.laboratory.chaos.history import History
from tools.laboratory.cloud.cloud import Cloud

LINES_MAX = 60
LINE_WIDTH = 300
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"^\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d\.\d+) ")


def collect(cloud: Cloud, history: History, sentences: Iterable[str]) -> list[str]:
    """Traces of all servers that the sentences name, line by line."""
    named = sorted({uuid for sentence in sentences for uuid in UUID.findall(sentence)})
    return [line for uuid in named for line in (f"-- {uuid}", *_operations(history, uuid), *_logged(cloud, uuid))]


def _operations(history: History, server: str) -> Iterator[str]:
    if not history.operations:
        return
    first_at = history.operations[0].began_at
    for operation in history.operations:
        if server in operation.server:
            ended_s = (operation.ended_at or operation.began_at) - first_at
            ending = "ok" if operation.ok else operation.why
            yield f"{operation.began_at - first_at:6.1f} to {ended_s:6.1f} s  {operation.name}: {ending}"


def _logged(cloud: Cloud, uuid: str) -> list[str]:
    """The lines of all services that name it, ordered by time; of many, the first and the last ones."""
    found = sorted(
        (match[1], f"{match[1]} {name}: {line[match.end() : match.end() + LINE_WIDTH]}")
        for name in cloud.names()
        for line in cloud.logs(name).splitlines()
        if uuid in line and (match := TIME.match(line))
    )
    lines = [line for _, line in found]
    half = LINES_MAX // 2
    return lines if len(lines) <= LINES_MAX else [*lines[:half], "...", *lines[-half:]]

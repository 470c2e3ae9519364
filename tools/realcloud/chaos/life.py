# SPDX-License-Identifier: Apache-2.0
"""The life of a server of which something is wrong: what was done to it, and what the services wrote of it."""

import re
from collections.abc import Iterable, Iterator

from ..cloud import Cloud
from .story import Story

LINES_MAX = 60
LINE_WIDTH = 300
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"^\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d\.\d+) ")


def lives(cloud: Cloud, story: Story, sentences: Iterable[str]) -> list[str]:
    """The lives of all that the sentences name, line by line."""
    named = sorted({uuid for sentence in sentences for uuid in UUID.findall(sentence)})
    return [line for uuid in named for line in (f"-- {uuid}", *_deeds(story, uuid), *_logged(cloud, uuid))]


def _deeds(story: Story, server: str) -> Iterator[str]:
    if not story.deeds:
        return
    first_at = story.deeds[0].began_at
    for deed in story.deeds:
        if server in deed.server:
            ended_s = (deed.ended_at or deed.began_at) - first_at
            yield f"{deed.began_at - first_at:6.1f} to {ended_s:6.1f} s  {deed.name}: {'ok' if deed.ok else deed.why}"


def _logged(cloud: Cloud, uuid: str) -> list[str]:
    """Lines of all services that name it, in the order of their times: the first and the last of many."""
    found = sorted(
        (match[1], f"{match[1]} {name}: {line[match.end() : match.end() + LINE_WIDTH]}")
        for name in cloud.names()
        for line in cloud.logs(name).splitlines()
        if uuid in line and (match := TIME.match(line))
    )
    lines = [line for _, line in found]
    half = LINES_MAX // 2
    return lines if len(lines) <= LINES_MAX else [*lines[:half], "...", *lines[-half:]]

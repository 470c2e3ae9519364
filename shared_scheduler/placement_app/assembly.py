# SPDX-License-Identifier: Apache-2.0
"""Placement's application with our routes in it, and the header that announces them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from placement import handler

from shared_scheduler.placement_app.handler import WritesHandler

Application = Callable[[dict[str, Any], Any], Any]

#: In each answer: racing writes of this Placement do not over-commit a provider.  The value is a version.
HEADER = ("OpenStack-Shared-Scheduler-Writes", "1")


def assemble(load: Callable[[], Application]) -> Application:
    """The application that ``load`` assembles from Placement's middleware, with our handler at its end."""
    with _in_place_of_placements_handler() as made:
        application = load()
    for one in made:
        one.start()
    return announcing(application) if any(one.announces for one in made) else application


@contextmanager
def _in_place_of_placements_handler() -> Iterator[list[WritesHandler]]:
    """Placement's ``deploy`` finds the handler by its name in the module; it is put back at the end."""
    made: list[WritesHandler] = []
    own = handler.PlacementHandler

    def make(config: Any) -> WritesHandler:
        made.append(WritesHandler(config))
        return made[-1]

    handler.PlacementHandler = make
    try:
        yield made
    finally:
        handler.PlacementHandler = own


def announcing(application: Application) -> Application:
    """The application with our header in each answer."""

    def announce(environ: dict[str, Any], start_response: Any) -> Any:
        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*headers, HEADER], *rest)

        return application(environ, start)

    return announce

# SPDX-License-Identifier: Apache-2.0
"""The reader of nova-conductor, which imports Nova when it reads for the first time.

Most agents are told everything by the tap, and never read.  Nova's objects take about 60 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compute_agent.sources.conductor import ConductorReader, NodeRecord


class ConductorReaderLater:
    """See ``sources.conductor.ConductorReader``.  ``configure`` reads nova.conf for Nova."""

    def __init__(self, host: str, configure: Callable[[], None]) -> None:
        self._host = host
        self._configure = configure
        self._made: ConductorReader | None = None

    def seen_up(self) -> Hashable | None:
        """See ``ConductorReader``.

        :raises ConductorError: when nova-conductor does not answer
        """
        return self._reader().seen_up()

    def nodes(self) -> Sequence[NodeRecord]:
        """See ``ConductorReader``.

        :raises ConductorError: when nova-conductor does not answer
        """
        return self._reader().nodes()

    def _reader(self) -> ConductorReader:
        if self._made is None:
            self._configure()
            from compute_agent.sources.conductor import ConductorReader

            self._made = ConductorReader(self._host)
        return self._made

# SPDX-License-Identifier: Apache-2.0
"""The near end of `agents`: starts the processes, reads what they did."""

import json
from collections import Counter
from pathlib import Path

from .world import World


class AgentProcesses:
    """So many processes that together are the agents of hosts 1 to `count`."""

    def __init__(self, world: World, count: int, processes: int, takes_over_after_s: float) -> None:
        self._world, self._count, self._takes_over_after_s = world, count, takes_over_after_s
        self.names = [f"agents-{index}" for index in range(1, min(processes, count) + 1)]

    def start(self) -> None:
        """Returns when all nodes have introduced themselves."""
        for name in self.names:
            self._stats(name).unlink(missing_ok=True)
        python = str(self._world.layout.nova / "bin" / "python")
        for index, name in enumerate(self.names):
            first, last = self._share(index)
            argv = [python, "-m", "tools.benchmarks.agents", self._world.layout.transport_url(1), str(first), str(last),
                    str(self._takes_over_after_s), str(self._stats(name))]  # fmt: skip
            self._world.start(name, argv, self._stats(name).exists)

    def _share(self, index: int) -> tuple[int, int]:
        """First and last host of one process."""
        total = len(self.names)
        return index * self._count // total + 1, (index + 1) * self._count // total

    def _stats(self, name: str) -> Path:
        return self._world.layout.state / f"{name}.stats"

    def counts(self) -> Counter[str]:
        """What all nodes did so far, at most a second old; see `simulated.Counts`."""
        total: Counter[str] = Counter()
        for name in self.names:
            total.update(json.loads(self._stats(name).read_text()))
        return total

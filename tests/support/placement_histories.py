# SPDX-License-Identifier: Apache-2.0
"""Random requests to two Placements, one of them with the write path: equal answers, and equal tables after each.

``python -m tests.support.placement_histories --requests 100000`` prints how many the write path carried out.  A seed
gives the same requests again.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.support.placement_pair import Asked, PlacementPair

CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_A", "CUSTOM_B")
#: Mostly those that the write path takes.
VERSIONS = ("1.28", "1.34", "1.36", "1.36", "1.36", "1.38", "1.39", "1.0", "1.8", "1.12", "1.27")
PROVIDERS, CONSUMERS = 6, 12
#: Requests of one history: after these, it begins with empty tables again.
LENGTH = 200
#: Tables are compared after so many requests.
COMPARED_EVERY = 4


class History:
    """One random sequence of requests."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._pair = PlacementPair()
        self._providers = [self._uuid() for _ in range(PROVIDERS)]
        self._consumers = [self._uuid() for _ in range(CONSUMERS)]
        self.statuses: Counter[str] = Counter()
        self._kinds: dict[Callable[[], Asked], int] = {
            self._put: 100, self._post: 70, self._put_inventories: 25, self._delete_allocations: 25,
            self._delete_provider: 2, self._create_provider: 12, self._create_class: 10, self._delete_class: 2,
            self._reshape: 6,
        }  # fmt: skip

    @property
    def by_write_path(self) -> int:
        return self.statuses["write"] - self._pair.left_to_placement

    def run(self, requests: int = LENGTH) -> None:
        """So many requests.

        :raises AssertionError: when the answers or the tables differ
        """
        for provider in self._providers:
            self._ask(self._create_provider(provider))
            self._ask(self._put_inventories(provider))
        for name in CLASSES[3:]:
            self._ask(Asked("PUT", f"/resource_classes/{name}"))
        for _ in range(requests):
            kind = self._chance.choices(list(self._kinds), list(self._kinds.values()))[0]
            self._ask(kind())
        self._pair.compare_tables()
        self._pair.close()

    def _ask(self, asked: Asked) -> None:
        answer = self._pair.ask(asked)
        if not self._chance.randrange(COMPARED_EVERY):
            self._pair.compare_tables()
        self.statuses[f"{answer.status_code}"] += 1
        self.statuses["write"] += asked.path.startswith("/allocations") and asked.method != "DELETE"

    # -- requests ----------------------------------------------------------------------------------

    def _put(self) -> Asked:
        version = self._chance.choice(VERSIONS)
        consumer = self._consumer()
        return Asked("PUT", f"/allocations/{consumer}", self._odd(self._body(consumer, version)), version)

    def _post(self) -> Asked:
        version = self._chance.choice([version for version in VERSIONS if version not in ("1.0", "1.8", "1.12")])
        consumers = {self._consumer() for _ in range(self._chance.choice((1, 1, 2, 3, 5)))}
        body = {consumer: self._body(consumer, version) for consumer in sorted(consumers)}
        return Asked("POST", "/allocations", self._odd(body), version)

    def _reshape(self) -> Asked:
        provider, consumer = self._chance.choice(self._providers), self._consumer()
        generation = self._pair.generation_of(provider)
        inventories = {provider: {"resource_provider_generation": generation, "inventories": self._inventories()}}
        body = {"inventories": inventories, "allocations": {consumer: self._body(consumer, "1.36")}}
        return Asked("POST", "/reshaper", body)

    def _put_inventories(self, provider: str | None = None) -> Asked:
        name = provider or self._chance.choice(self._providers)
        body = {"resource_provider_generation": self._pair.generation_of(name), "inventories": self._inventories()}
        return Asked("PUT", f"/resource_providers/{name}/inventories", body)

    def _delete_allocations(self) -> Asked:
        return Asked("DELETE", f"/allocations/{self._chance.choice(self._consumers)}")

    def _create_provider(self, provider: str | None = None) -> Asked:
        name = provider or self._chance.choice(self._providers)
        return Asked("POST", "/resource_providers", {"name": name, "uuid": name})

    def _delete_provider(self) -> Asked:
        return Asked("DELETE", f"/resource_providers/{self._chance.choice(self._providers)}")

    def _create_class(self) -> Asked:
        return Asked("PUT", f"/resource_classes/{self._chance.choice(('CUSTOM_A', 'CUSTOM_B'))}")

    def _delete_class(self) -> Asked:
        return Asked("DELETE", f"/resource_classes/{self._chance.choice(('CUSTOM_A', 'CUSTOM_B'))}")

    # -- their parts -------------------------------------------------------------------------------

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def _consumer(self) -> str:
        """Often a new one; some of them are met again."""
        if self._chance.random() < 0.5:
            self._consumers[self._chance.randrange(CONSUMERS)] = self._uuid()
        return self._chance.choice(self._consumers)

    def _body(self, consumer: str, version: str) -> dict[str, Any]:
        """What a client of this microversion sends, with the generation that the consumer has, or another one."""
        number = int(version.split(".")[1])
        allocations = self._allocations()
        body: dict[str, Any] = {"allocations": allocations}
        if number < 12:
            body["allocations"] = [
                {"resource_provider": {"uuid": name}, "resources": part["resources"]}
                for name, part in allocations.items()
            ]
        if number >= 8:
            body |= {"project_id": f"p{self._chance.randrange(4)}", "user_id": f"u{self._chance.randrange(4)}"}
        if number >= 28:
            right = self._pair.consumer_generation_of(consumer)
            body["consumer_generation"] = right if self._chance.random() < 0.9 else self._chance.choice((None, 0, 1, 2))
        if number >= 34 and self._chance.random() < 0.5:
            body["mappings"] = {"": list(allocations) or [consumer]}
        if number >= 38:
            body["consumer_type"] = self._chance.choice(("INSTANCE", "MIGRATION", "OTHER"))
        return body

    def _allocations(self) -> dict[str, Any]:
        count = self._chance.choices((0, 1, 2, 3), (1, 14, 5, 1))[0]
        names = [self._uuid() if self._chance.random() < 0.01 else self._chance.choice(self._providers)
                 for _ in range(count)]  # fmt: skip
        return {name: {"resources": self._resources()} for name in names}

    def _resources(self) -> dict[str, Any]:
        known = CLASSES[:3] if self._chance.random() < 0.8 else CLASSES
        names = self._chance.sample(known, self._chance.choices((0, 1, 2, 3), (1, 60, 30, 10))[0])
        return {name: self._amount() for name in names}

    def _amount(self) -> Any:
        if self._chance.random() < 0.02:
            return self._chance.choice((0, -1, 1.0, 2.5, True, "1", None, 2**31, 2**40))
        return self._chance.choice((1, 1, 1, 1, 2, 2, 2, 3, 4, 6, 8, 20))

    def _inventories(self) -> dict[str, Any]:
        names = [*CLASSES[:3], self._chance.choice(CLASSES)]
        if self._chance.random() < 0.1:
            names = self._chance.sample(CLASSES, 2)
        return {name: self._inventory() for name in names}

    def _inventory(self) -> dict[str, Any]:
        total = self._chance.choice((1, 4, 10, 16, 30, 100, 1000))
        inventory: dict[str, Any] = {"total": total}
        if self._chance.random() < 0.3:
            inventory["allocation_ratio"] = self._chance.choice((0.1, 0.7, 0.9, 1.5, 16.0))
        if self._chance.random() < 0.2:
            inventory["reserved"] = self._chance.randrange(total)
        if self._chance.random() < 0.1:
            inventory |= {"min_unit": self._chance.choice((1, 2)), "step_size": self._chance.choice((1, 2, 3))}
        if self._chance.random() < 0.15:
            inventory["max_unit"] = self._chance.choice((1, 4, 10))
        return inventory

    def _odd(self, body: Any) -> Any:
        """Seldom, something that no client sends on purpose."""
        chance = self._chance.random()
        if chance < 0.01:
            return self._chance.choice((b"", b"{", b"[]", b"null", b'"x"', b"{}"))
        if chance < 0.03 and body:
            changed = dict(body)
            changed.pop(self._chance.choice(list(changed)))
            return changed
        if chance < 0.04:
            return body | {"surprise": 1}
        return body


def run(requests: int, seed: int, tell: Callable[[str], object] = lambda line: None) -> Counter[str]:
    """So many requests, in histories; the counters of all.  ``tell`` is called after each history."""
    counted: Counter[str] = Counter()
    for number in range(-(-requests // LENGTH)):
        history = History(seed + number)
        try:
            history.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed + number}") from error
        counted += history.statuses
        counted["by write path"] += history.by_write_path
        tell(f"seed {seed + number}: all equal, {(number + 1) * LENGTH} of {requests} requests")
    return counted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())
    counted = run(arguments.requests, arguments.seed, partial(print, file=sys.stderr, flush=True))
    print(json.dumps(counted, indent=1, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())

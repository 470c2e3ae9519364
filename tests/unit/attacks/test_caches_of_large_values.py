# SPDX-License-Identifier: Apache-2.0
"""One host publishes large values that are different each time; caches that count entries only keep thousands.

16,384 topologies of 64 KiB, each in its own increment, would take more than 10 GiB of every scheduler.
"""

from __future__ import annotations

from shared_scheduler.model.interning import Pool
from shared_scheduler.protocol import digest
from shared_scheduler.protocol.messages import Consumer, Leaf
from shared_scheduler.table import row
from shared_scheduler.table.host_table import HostTable
from shared_scheduler.table.row_writer import RowWriter
from tests.unit.core.scheduler_driver import node_leaves

NODE = "node-1"
KIB, MIB = 1024, 1024 * 1024
#: characters of all keys of a pool, and amounts of all consumers of a table
CHARS_MAX, AMOUNTS_MAX = 4 * MIB, 128 * KIB


def chars_in(pool: Pool) -> int:
    return sum(len(repr(key)) for key in pool._known)


def test_a_pool_is_bounded_in_characters() -> None:
    pool, largest = Pool(), 0

    for n in range(600):
        pool.leaf("numa.static", [{"cpuset": list(range(n, n + 3000))}])
        largest = max(largest, chars_in(pool)) if n % 50 == 49 else largest

    assert largest < CHARS_MAX


def test_a_pool_still_shares_what_many_hosts_have() -> None:
    pool = Pool()
    made: list[Leaf] = [pool.leaf("cn.cpu_info", "y" * 16_000 + str(n % 12)) for n in range(1000)]
    assert len({id(value) for value in made}) == 12


def writer_of(table: HostTable) -> RowWriter:
    table.upsert(NODE, "cell-1", "host-1", "host-1")
    table.load(NODE, node_leaves(NODE, 4, 8192), {})
    return table._writer


def large(n: int) -> Consumer:
    return Consumer({NODE: {f"CUSTOM_{k}": n + 1 for k in range(2000)}}, True)


def test_consumers_that_are_kept_for_others_are_bounded_in_amounts() -> None:
    table = HostTable()
    writer = writer_of(table)

    for n in range(200):
        table.apply(NODE, {}, {f"vm-{n}": large(n), f"vm-{n - 1}": None}, {}, epoch=1, sequence=n + 1)

    assert sum(len(stored.root or ()) for stored in writer._stored.values()) < AMOUNTS_MAX


def test_digests_remember_no_large_consumers() -> None:
    table = HostTable()
    writer_of(table)
    row.part_of_digest.cache_clear()

    for n in range(10):
        table.apply(NODE, {}, {f"vm-{n}": large(n)}, {}, epoch=1, sequence=n + 1)
        table.digest(NODE)

    assert row.part_of_digest.cache_info().currsize == 0


def test_digests_remember_no_large_texts() -> None:
    digest._hash_plain.cache_clear()

    for n in range(10):
        digest.digest_of({"cn.cpu_info": "y" * 16_000 + str(n)}, {}, {})
        digest.digest_of({"cn.vcpus": n}, {}, {})

    assert digest._hash_plain.cache_info().currsize == 10

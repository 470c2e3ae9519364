# SPDX-License-Identifier: Apache-2.0
"""The number of instances of a node with each image property, one leaf for each property (``model/leaves.py``).

Nova's ImagePropertiesWeigher counts pairs of a property and its value as text.  A boot changes only the counts of its
own image's pairs, and all nodes share the names of the leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from shared_scheduler.model.leaves import IMAGE_PROPERTY
from shared_scheduler.protocol.messages import Leaf

#: (property, value as text)
Pair = tuple[str, str]

#: maximum number of pairs of one node; beyond it, the rarest are omitted
PAIRS_MAX = 1024
#: a longer name, or one that is not printable, is replaced by a digest
NAME_MAX_CHARS = 160
DIGEST_BYTES = 16


def leaf_of(pair: Pair) -> str:
    """The name of the leaf of a pair, equal in all programs."""
    name = IMAGE_PROPERTY + "=".join(pair)
    if len(name) <= NAME_MAX_CHARS and name.isprintable():
        return name
    return IMAGE_PROPERTY + blake2b(repr(pair).encode(), digest_size=DIGEST_BYTES).hexdigest()


def counted(instances: Iterable[Iterable[Pair]]) -> dict[str, Leaf]:
    """The leaves of a node with these instances."""
    counts = Counter(leaf_of(pair) for pairs in instances for pair in pairs)
    commonest = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return dict(commonest[:PAIRS_MAX])

"""Which shard a queue lives on: a pure function of its path, its placement and the number of shards.

The number of shards of a store is fixed when it is created, so the shard of a queue never changes. The hash is of the
path and not of the uuid: the path is known before the queue exists, to every process and to every client, so no table
has to be asked. Rendezvous hashing instead of a remainder: a store that is written again with more shards moves only
the queues that the new shards win.

The shard that the path alone gives is the *home* of the queue. A queue with another placement has an entry of the same
path at its home that holds no messages and names the placement, so the home decides whether the queue exists and where
(docs/adr/0047).
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

from penstock import limits

HASH_NAME = "rdv1"
"""The name of this function in `GET /v1/cluster/map`."""
PLACEMENT_PATTERN = r"^(queue|namespace|shard:(0|[1-9][0-9]{0,3}))$"
BY_QUEUE, BY_NAMESPACE = "queue", "namespace"
_PIN = "shard:"
_MASK = (1 << 64) - 1
_is_placement = re.compile(PLACEMENT_PATTERN).match


def is_placement(text: str) -> bool:
    return _is_placement(text) is not None


@lru_cache(maxsize=65_536)
def home_of(path: str, shards: int) -> int:
    """The shard of a queue by its path."""
    return _highest(path, shards)


def shard_of(path: str, placement: str, shards: int) -> int:
    """The shard of a queue. A pin beyond the number of shards is returned as it is: the caller refuses it."""
    if placement == BY_QUEUE:
        return home_of(path, shards)
    if placement == BY_NAMESPACE:
        return home_of(path.partition("/")[0], shards)
    return int(placement[len(_PIN) :])


def _highest(text: str, shards: int) -> int:
    """Rendezvous: each shard has a weight for this text, and the highest wins."""
    key = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    best, winner = -1, 0
    for shard in range(shards):
        # The finalizer of splitmix64 over the hash of the text and the shard.
        mixed = key ^ (shard + 1) * 0x9E3779B97F4A7C15 & _MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        mixed ^= mixed >> 31
        if mixed > best:
            best, winner = mixed, shard
    return winner


assert limits.SHARDS_MAX <= 10_000

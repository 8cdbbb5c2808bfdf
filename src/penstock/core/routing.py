"""Key -> partition.

The function is a property of the queue: it is recorded when the queue is created and never changes, so that the
messages of one key stay in one partition. Each version keeps this rule: when partitions are added, a key stays where
it is or moves to one of the new partitions.

    1   rendezvous hashing: a digest of the key for each partition, the highest wins. Queues that were created before
        versions were recorded.
    2   hash slots: a checksum of the key names one of 16,384 slots, and each slot belongs to a partition. The cost of
        a key does not depend on the number of partitions, and partitions differ by a few slots at most.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from zlib import crc32

from penstock import limits

RENDEZVOUS = 1
SLOTS = 2
CURRENT = SLOTS
"""The version of new queues."""
_SLOT_BITS = 14
_SHIFT = 32 - _SLOT_BITS
_MULTIPLIER = 0xC2B2AE35
"""Multiplying spreads the bits of a checksum that differ into the top ones, which name the slot."""
_LOW_32 = 2**32 - 1


def partition_of(key: bytes, partitions: int, version: int) -> int:
    """The partition of a key in a queue with so many partitions; 0 for messages without a key."""
    if not key or partitions == 1:
        return 0
    if version == RENDEZVOUS:
        return _rendezvous(key, partitions)
    return owners(partitions)[(crc32(key) * _MULTIPLIER & _LOW_32) >> _SHIFT]


def _rendezvous(key: bytes, partitions: int) -> int:
    best, winner = b"", 0
    for number in range(partitions):
        bid = blake2b(key, digest_size=8, salt=number.to_bytes(8, "little")).digest()
        if bid > best:
            best, winner = bid, number
    return winner


@lru_cache(maxsize=64)
def owners(partitions: int) -> bytes:
    """The partition of each slot.

    Partition 0 has all slots. Each further partition takes its equal share, rounded down, from the end of the lists of
    those before it: as many from each, and one more from the first ones until the share is complete.
    """
    owned = [list(range(1 << _SLOT_BITS))]
    for number in range(1, partitions):
        share = (1 << _SLOT_BITS) // (number + 1)
        each, more = divmod(share, number)
        taken: list[int] = []
        largest_first = sorted(range(number), key=lambda giver: -len(owned[giver]))
        for turn, giver in enumerate(largest_first):
            given = each + (turn < more)
            if given:
                taken += owned[giver][-given:]
                del owned[giver][-given:]
        owned.append(taken)
    table = bytearray(1 << _SLOT_BITS)
    for number, slots in enumerate(owned):
        for slot in slots:
            table[slot] = number
    return bytes(table)


assert limits.PARTITIONS_MAX <= 256, "the partition of a slot is one byte"

"""Counting members of a stretch, in ranges and in bits, against a plain set."""

from __future__ import annotations

import random

import pytest

from penstock.core.offsets.bits import OffsetBits
from penstock.core.offsets.ranges import RangeSet


@pytest.mark.parametrize("kind", [RangeSet, OffsetBits])
@pytest.mark.parametrize("seed", range(4))
def test_counted_as_in_a_plain_set(kind, seed):
    chance = random.Random(seed)
    members, plain = kind(), set()
    for _ in range(60):
        first = chance.randint(0, 5000)
        stop = first + chance.choice([1, 3, 200, 1024])
        members.add(first, stop)
        plain |= set(range(first, stop))
        if chance.random() < 0.4:
            cut = chance.randint(0, 5000)
            members.remove(cut, cut + 300)
            plain -= set(range(cut, cut + 300))
        for _ in range(5):
            begin = chance.randint(0, 6000)
            end = begin + chance.choice([0, 1, 1024, chance.randint(0, 4000)])
            assert members.count_in(begin, end) == len(plain & set(range(begin, end)))

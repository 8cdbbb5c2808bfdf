"""A small mutating fuzzer: no instrumentation, no dependencies, one seed reproduces everything.

Inputs are seeds of the target with a few random edits: flipped bits, changed, removed, repeated and inserted bytes,
cut ends, pieces of other seeds, and the integers that break parsers written into random places.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from fuzz.targets import Target

_NASTY = [struct.pack("<I", value) for value in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)]
_NASTY += [struct.pack("<Q", value) for value in (2**63 - 1, 2**63, 2**64 - 1)]
_NASTY += [b"\x00", b"\xff", b"\n", b'"', b"{", b"[", b"-1", b"1e999", b"\xc3\x28", b"\xed\xa0\x80"]


class Finding(Exception):
    """The target broke its invariant on this input."""

    def __init__(self, data: bytes, cause: BaseException):
        super().__init__(repr(cause))
        self.data = data
        self.cause = cause


def fuzz(target: Target, runs: int, seed: int) -> None:
    """Raises Finding at the first broken invariant."""
    for data in inputs(target.seeds, runs, seed):
        try:
            target.check(data)
        except Exception as error:
            raise Finding(data, error) from error


def inputs(seeds: list[bytes], runs: int, seed: int) -> Iterator[bytes]:
    """The seeds themselves, then `runs` mutations of them, the same ones for the same seed."""
    yield from seeds
    yield b""
    chance = random.Random(seed)
    for _ in range(runs):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            _edit(data, chance, seeds)
        yield bytes(data)


def _edit(data: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(8)
    if kind == 0 and data:
        data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
    elif kind == 1 and data:
        data[min(at, len(data) - 1)] = chance.randrange(256)
    elif kind == 2:
        del data[at : at + chance.randrange(1, 9)]
    elif kind == 3:
        data[at:at] = chance.randbytes(chance.randrange(1, 9))
    elif kind == 4:
        del data[at:]
    elif kind == 5:
        data[at:at] = data[at : at + chance.randrange(1, 33)] * chance.randrange(1, 5)
    elif kind == 6:
        nasty = chance.choice(_NASTY)
        data[at : at + len(nasty)] = nasty
    else:
        other = chance.choice(seeds)
        start = chance.randrange(len(other) + 1)
        data[at:at] = other[start : start + chance.randrange(1, 65)]

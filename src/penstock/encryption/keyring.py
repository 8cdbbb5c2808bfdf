"""The keyring of a shard: a data key for each namespace, queue and message key, and which of them were destroyed.

A *unit* can be erased on its own: a namespace, a queue, or the messages of a queue with one key (a subject). The data
key of a subject is below the key of its queue, which is below the key of its namespace. Data keys are derived
(`KeyTree`); the keyring itself is stored, wrapped by a master key.

An erasure begins a new *generation* of the keyring. Every encrypted record names the generation that it was written in.
A unit that was erased has other keys from that generation on, so it can be used again, and what was written before
cannot be read any more. Names of units are kept as keyed digests only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from penstock.encryption.key_tree import KEY_BYTES, KeyTree

NAME_DIGITS = 16
"""Digits of a namespace and of a queue in the tree. Two names that share them share a key, so an erasure of one would
erase the other: 64 bits of a keyed digest."""
SUBJECT_DIGITS = 12
"""Digits of a subject, of which there are many more and whose keys are derived more often."""
ID_BYTES = 8
SALT_BYTES = 16
RANDOM_BYTES = KEY_BYTES + ID_BYTES + SALT_BYTES
NO_SUBJECT = b""
"""The subject of messages without a key."""


class Unit(NamedTuple):
    """A namespace, a queue of it (by its path), or a subject of that queue: each can be erased."""

    namespace: str
    queue: str | None = None
    subject: bytes | None = None


def namespace_of(path: str) -> str:
    return path.partition("/")[0]


class _Stored(msgspec.Struct):
    """The keyring as it is stored."""

    id: bytes
    salt: bytes
    generation: int
    nodes: dict[str, dict[str, bytes]]
    """Nodes of the tree: place of the parent -> last digit (of the root: none) -> key."""
    erased: dict[bytes, list[int]]
    """Digest of a unit -> the generations that began with an erasure of it."""


class Keyring:
    """A value: an erasure returns another one."""

    def __init__(self, stored: _Stored):
        self._stored = stored
        self._tree = KeyTree(
            {place + digit: key for place, below in stored.nodes.items() for digit, key in below.items()}
        )
        self._queues: dict[str, tuple[str, KeyTree]] = {}
        """Path -> place of its key, and a tree that has the keys below it."""
        self.id = stored.id
        self.generation = stored.generation

    @classmethod
    def new(cls, random: bytes) -> Keyring:
        """From `RANDOM_BYTES` secret bytes."""
        assert len(random) == RANDOM_BYTES
        root, id, salt = random[:KEY_BYTES], random[KEY_BYTES:-SALT_BYTES], random[-SALT_BYTES:]
        return cls(_Stored(id, salt, 0, {"": {"": root}}, {}))

    @classmethod
    def load(cls, data: bytes) -> Keyring:
        """Raises msgspec.DecodeError."""
        return cls(msgspec.msgpack.decode(data, type=_Stored))

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self._stored)

    def data_key(self, path: str, subject: bytes, generation: int) -> bytes | None:
        """The key of the messages of a queue with this key, as of this generation; None if it was destroyed."""
        unit = Unit(namespace_of(path), path, subject)
        if self._stored.erased and self._was_erased_after(unit, generation):
            return None
        known = self._queues.get(path)
        if known is None:
            place = self._place(_with_those_above(Unit(unit.namespace, path)))
            key = self._tree.key_at(place)
            # None: the key of one of its subjects was destroyed, so that the key of the queue is gone too.
            known = self._queues[path] = (place, self._tree if key is None else KeyTree({place: key}))
        place, tree = known
        return tree.key_at(place + self._digits(unit))

    def erased(self, units: Iterable[Unit]) -> Keyring:
        """The keyring of the next generation, in which the keys of these units are destroyed."""
        tree, generation = self._tree, self.generation + 1
        erased = dict(self._stored.erased)
        for unit in dict.fromkeys(units):
            tree = tree.without(self._place(_with_those_above(unit)))
            digest = self._digest(unit)
            erased[digest] = [*erased.get(digest, []), generation]
        nodes: dict[str, dict[str, bytes]] = {}
        for place, key in tree.nodes.items():
            nodes.setdefault(place[:-1], {})[place[-1:]] = key
        return Keyring(_Stored(self.id, self._stored.salt, generation, nodes, erased))

    def _was_erased_after(self, unit: Unit, generation: int) -> bool:
        erased = self._stored.erased
        return any(erased.get(self._digest(each), (0,))[-1] > generation for each in _with_those_above(unit))

    def _place(self, units: Sequence[Unit]) -> str:
        return "".join(map(self._digits, units))

    def _digits(self, unit: Unit) -> str:
        """The digits that this unit adds to the place of the one above it. An erasure gives it others."""
        digest = self._digest(unit)
        times = bisect_right(self._stored.erased.get(digest, ()), self.generation)
        digits = NAME_DIGITS if unit.subject is None else SUBJECT_DIGITS
        return blake2b(digest + times.to_bytes(8, "little"), digest_size=8).hexdigest()[:digits]

    def _digest(self, unit: Unit) -> bytes:
        """Stands for the name of a unit."""
        text = msgspec.msgpack.encode(unit)
        return blake2b(text, key=self._stored.salt, digest_size=16).digest()


def _with_those_above(unit: Unit) -> list[Unit]:
    """The namespace of a unit, its queue and its subject, as far as it has them."""
    above = [Unit(unit.namespace)]
    if unit.queue is not None:
        above.append(Unit(unit.namespace, unit.queue))
    if unit.subject is not None:
        above.append(unit)
    return above

"""Encryption of `published` records: payloads and headers become ciphertext in place, of the same length.

All rows of a record with the same message key are encrypted together, under the data key of that key (`Keyring`): one
call of AES-256-GCM for a batch without keys, one for each different key otherwise. Everything else in the frame stays
readable, because order, delays and duplicates follow from it, also after a key was destroyed.

The associated data binds the ciphertext to its place: queue, partition, offset, id and time of the record, the
generation of the keyring, the message key, and all readable columns. A record that was moved or changed is refused.

No nonce is used twice with a key. The cipher key follows from the data key, from the term of the journal, which is
raised and durable at every open, and from a salt drawn at every open; the nonce is a counter that lives as long as the
`RecordCipher`. A frame that was lost with a crash is followed by another term. A data directory that was restored from
a copy, and comes to the same term twice, has another salt. A commit that is written again has the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.batch import Batch, layout
from penstock.core.records import EncryptedPublished, Published
from penstock.encryption.key_tree import derive
from penstock.encryption.keyring import NO_SUBJECT, Keyring

SALT_BYTES = 16
TAG_BYTES = 16
NONCE_BYTES = 12
CIPHERS_MAX = 10_000
"""Ciphers that are kept, for writing and for reading: about a kilobyte each."""
_VERSION = 1
_SEAL = struct.Struct("<BQQ16sQ")
"""Version, generation, term, salt, and the counter of the first nonce; the tags follow."""
_CONTEXT = struct.Struct("<Q8sQQQQ16sI")
"""Generation, keyring, time, queue, partition, offset, id and number of messages."""


class NotDecrypted(Exception):
    """The record was changed, moved, or encrypted under another key."""


class DecryptedRecord(NamedTuple):
    """A record that was decrypted."""

    records: list[Published]
    """Its messages whose keys exist, as runs."""
    erased: list[tuple[int, int]]
    """(first, stop) offsets of the others."""


class RecordCipher:
    """Encrypts and decrypts the records of one shard, from one open of its journal to the next."""

    def __init__(self, keyring: Keyring, term: int, salt: bytes):
        assert len(salt) == SALT_BYTES
        self.keyring = keyring
        self._term = term
        self._salt = salt
        self._counter = 0
        self._writing: dict[tuple[str, bytes], AESGCM] = {}
        self._reading: dict[tuple[str, bytes, int, int, bytes], AESGCM | None] = {}

    def use(self, keyring: Keyring) -> None:
        """Encrypt and decrypt by this keyring from now on. It must be durable."""
        self.keyring = keyring
        self._writing.clear()
        self._reading.clear()

    # -- encryption ---------------------------------------------------------------------------------------------------

    def encrypt(self, record: Published, path: str) -> EncryptedPublished:
        batch = _whole(record.batch)
        frame, aad = bytearray(batch.frame), self._context(record, batch, path, self.keyring.generation)
        groups, tags, writing = list(_subjects(batch)), [], self._writing
        first = self._counter
        # All at once, before the first is used: no error leads to a second use.
        self._counter += len(groups)
        source = frame if len(groups) == 1 else bytes(frame)
        for counter, (subject, spans) in enumerate(groups, first):
            cipher = writing.get((path, subject)) or self._cipher_to_write(path, subject)
            nonce = counter.to_bytes(NONCE_BYTES, "big")
            if len(spans) == 1:
                # A group of one row without headers, or of all rows: most of the time of a batch with many keys.
                ((begin, end),) = spans
                sealed = cipher.encrypt(nonce, source[begin:end], aad + subject)
                frame[begin:end] = sealed[:-TAG_BYTES]
            else:
                sealed = cipher.encrypt(nonce, _gathered(source, spans), aad + subject)
                _scatter(frame, spans, sealed)
            tags.append(sealed[-TAG_BYTES:])
        seal = _SEAL.pack(_VERSION, self.keyring.generation, self._term, self._salt, first) + b"".join(tags)
        return EncryptedPublished(
            record.at, record.queue, record.partition, record.offset, record.id, Batch.open(bytes(frame), known=True),
            record.producer, record.epoch, record.seqs, path, seal,
        )  # fmt: skip

    def _cipher_to_write(self, path: str, subject: bytes) -> AESGCM:
        key = self.keyring.data_key(path, subject, self.keyring.generation)
        assert key is not None, "a unit that was erased has a new key"
        if len(self._writing) >= CIPHERS_MAX:
            del self._writing[next(iter(self._writing))]
        made = self._writing[path, subject] = _cipher(key, self._term, self._salt)
        return made

    # -- decryption ---------------------------------------------------------------------------------------------------

    def decrypt(self, record: EncryptedPublished) -> DecryptedRecord:
        """Raises NotDecrypted."""
        batch = record.batch
        groups = list(_subjects(batch))
        if len(record.seal) != _SEAL.size + TAG_BYTES * len(groups):
            raise NotDecrypted("its seal does not fit its messages")
        version, generation, term, salt, counter = _SEAL.unpack_from(record.seal)
        if version != _VERSION:
            raise NotDecrypted(f"version {version} of its seal is not supported")
        frame, aad = bytearray(batch.frame), self._context(record, batch, record.path, generation)
        erased: list[int] = []
        for number, (subject, spans) in enumerate(groups):
            cipher = self._cipher_to_read(record.path, subject, generation, term, salt)
            if cipher is None:
                erased += _rows_of(batch, subject)
                continue
            at = _SEAL.size + TAG_BYTES * number
            sealed = _gathered(frame, spans) + record.seal[at : at + TAG_BYTES]
            try:
                opened = cipher.decrypt((counter + number).to_bytes(NONCE_BYTES, "big"), sealed, aad + subject)
            except InvalidTag:
                raise NotDecrypted("it was changed, moved to another place, or encrypted under another key") from None
            _scatter(frame, spans, opened)
        return _opened(record, Batch.open(bytes(frame), known=True), sorted(erased))

    def _cipher_to_read(self, path: str, subject: bytes, generation: int, term: int, salt: bytes) -> AESGCM | None:
        """None if the key was destroyed."""
        name = (path, subject, generation, term, salt)
        if name not in self._reading:
            if len(self._reading) >= CIPHERS_MAX:
                del self._reading[next(iter(self._reading))]
            key = self.keyring.data_key(path, subject, generation)
            self._reading[name] = None if key is None else _cipher(key, term, salt)
        return self._reading[name]

    def _context(self, record: Published, batch: Batch, path: str, generation: int) -> bytes:
        """The associated data of all rows; that of a group of rows ends with their message key."""
        place = _CONTEXT.pack(
            generation, self.keyring.id, record.at, record.queue, record.partition, record.offset,
            record.id.to_bytes(16, "big"), batch.count,
        )  # fmt: skip
        return place + sha256(path.encode() + b"\0" + b"".join(_readable(batch))).digest()


def _cipher(key: bytes, term: int, salt: bytes) -> AESGCM:
    return AESGCM(derive(key, b"penstock record " + term.to_bytes(8, "little") + salt))


def _whole(batch: Batch) -> Batch:
    """The batch with a frame of its own."""
    return Batch.open(batch.frame, known=True)


Spans = Sequence[tuple[int, int]]


def _columns(batch: Batch) -> list[tuple[memoryview, int]]:
    """(offsets, base) of the columns that are encrypted, in the order of the frame."""
    columns = [batch.located(layout.HEADERS)] if batch.has(layout.HEADERS) else []
    return [*columns, batch.located(0)]


def _subjects(batch: Batch) -> Iterator[tuple[bytes, Spans]]:
    """Each message key of the batch, with the bytes of the frame that are encrypted under it."""
    columns = _columns(batch)
    keys = batch.strings(layout.KEY) if batch.has(layout.KEY) else []
    different = len(set(keys))
    if different <= 1:
        yield keys[0] if keys else NO_SUBJECT, [(base + offsets[0], base + offsets[-1]) for offsets, base in columns]
        return
    if different == len(keys):
        yield from zip(keys, zip(*(_rows(*column) for column in columns), strict=True), strict=True)
        return
    spans: dict[bytes, list[tuple[int, int]]] = {}
    for offsets, base in columns:
        for key, span in zip(keys, _rows(offsets, base), strict=True):
            spans.setdefault(key, []).append(span)
    yield from spans.items()


def _rows(offsets: memoryview, base: int) -> Iterator[tuple[int, int]]:
    """The bytes of each row."""
    return pairwise([base + offset for offset in offsets.tolist()])


def _rows_of(batch: Batch, subject: bytes) -> list[int]:
    if not batch.has(layout.KEY):
        return list(range(batch.count))
    return [row for row, key in enumerate(batch.strings(layout.KEY)) if key == subject]


def _readable(batch: Batch) -> Iterator[memoryview]:
    """The bytes of the frame that are not encrypted."""
    view, at = memoryview(batch.frame), 0
    for offsets, base in _columns(batch):
        yield view[at : base + offsets[0]]
        at = base + offsets[-1]
    yield view[at:]


def _gathered(frame: bytes | bytearray, spans: Spans) -> bytes:
    return b"".join([frame[first:stop] for first, stop in spans])


def _scatter(frame: bytearray, spans: Spans, data: bytes) -> None:
    """`data` may have more bytes behind those of the spans."""
    at = 0
    for first, stop in spans:
        frame[first:stop] = data[at : at + stop - first]
        at += stop - first


def _opened(record: Published, batch: Batch, erased: list[int]) -> DecryptedRecord:
    if not erased:
        return DecryptedRecord([_run(record, batch, 0, batch.count)], [])
    ranges = [(first, stop) for first, stop in _ranges(erased)]
    starts = [0, *(stop for _, stop in ranges)]
    ends = [*(first for first, _ in ranges), batch.count]
    kept = [_run(record, batch, first, stop) for first, stop in zip(starts, ends, strict=True) if first < stop]
    return DecryptedRecord(kept, [(record.offset + first, record.offset + stop) for first, stop in ranges])


def _ranges(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Ascending rows as half-open ranges."""
    first = rows[0]
    for row, following in pairwise([*rows, -1]):
        if following != row + 1:
            yield first, row + 1
            first = following


def _run(record: Published, batch: Batch, first: int, stop: int) -> Published:
    if (first, stop) == (0, batch.count):
        return Published(
            record.at, record.queue, record.partition, record.offset, record.id, batch, record.producer, record.epoch,
            record.seqs,
        )  # fmt: skip
    # A run has a frame of its own: nothing of an erased message stays in memory with it.
    run = Batch.open(batch.run(first, stop).frame, known=True)
    return Published(record.at, record.queue, record.partition, record.offset + first, record.id + first, run)

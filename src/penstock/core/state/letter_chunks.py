"""Dead letters as bytes: 64 in a chunk for each, and its texts once per chunk.

A chunk holds letters of one group side by side, oldest first. Most letters of a queue have the same consumer, reason
and error, so a chunk keeps each text once, and a letter has positions of texts. A chunk that was written to a blob is
named by snapshots until it changes (`runtime/stored_letters.py`). Layout: docs/formats/snapshot.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct

import msgspec

from penstock.core.state.sorted_pairs import PairChunk
from penstock.core.state.stored_chunk import StoredChunk

TEXT_BYTES = 64 * 1024
"""A chunk with texts of so many bytes is full."""
PAIR_BYTES = 16
_FIELDS = Struct("<qqqIiIIII")
"""first_at, last_at, key, attempts, budget, redriven; positions of consumer, reason, error."""
ROW_BYTES = _FIELDS.size
_LENGTH = Struct("<I")


class DeadLetter(msgspec.Struct, gc=False, omit_defaults=True):
    attempts: int
    first_at: int
    last_at: int
    dead_at: int
    consumer: str
    reason: str
    error: str
    budget: int = -1
    """The message's own `max_retries`, -1 for the queue's: a redrive starts over with it."""
    redriven: int = 0
    """How often it was redriven before, and given up again."""
    key: int = 0
    """Hash of the key that waits with it, where the queue parks keys."""


class LetterChunk(PairChunk):
    """Letters by (dead_at, offset)."""

    __slots__ = ("_removed", "changes", "rows", "stored", "texts")

    def __init__(self) -> None:
        super().__init__()
        self.rows = bytearray()
        self.texts = bytearray()
        """Each as its length and its UTF-8 bytes; a position is where the length begins."""
        self._removed = 0
        """Letters that were removed since the texts were last rewritten; theirs may be left over."""
        self.changes = 0
        """Soft: tells whether the chunk has changed while it was written."""
        self.stored: StoredChunk | None = None
        """Soft: where it was written as it is now."""

    @property
    def full(self) -> bool:
        return super().full or len(self.texts) >= TEXT_BYTES

    def fits(self, other: PairChunk) -> bool:
        assert isinstance(other, LetterChunk)
        return super().fits(other) and len(self.texts) + len(other.texts) <= TEXT_BYTES // 2

    def letter(self, row: int) -> DeadLetter:
        first_at, last_at, key, attempts, budget, redriven, consumer, reason, error = _FIELDS.unpack_from(
            self.rows, row * ROW_BYTES
        )
        return DeadLetter(
            attempts, first_at, last_at, self.firsts[row], self._text(consumer), self._text(reason), self._text(error),
            budget, redriven, key,
        )  # fmt: skip

    def keys(self) -> Iterator[tuple[int, int]]:
        """(offset, key) of letters that a key waits with."""
        for offset, (_, _, key, *_) in zip(self.seconds, _FIELDS.iter_unpack(self.rows), strict=True):
            if key:
                yield offset, key

    def insert_letter(self, row: int, offset: int, letter: DeadLetter) -> None:
        self.insert(row, (letter.dead_at, offset))
        self.rows[row * ROW_BYTES : row * ROW_BYTES] = self._encoded(letter)
        self._change()

    def remove(self, row: int) -> None:
        super().remove(row)
        del self.rows[row * ROW_BYTES : (row + 1) * ROW_BYTES]
        self._change()
        self._removed += 1
        if self._removed > len(self):
            self._rewrite_texts()

    def move(self, source: PairChunk, begin: int) -> None:
        assert isinstance(source, LetterChunk)
        for row in range(begin, len(source)):
            self.insert_letter(len(self), source.seconds[row], source.letter(row))
        del source.firsts[begin:]
        del source.seconds[begin:]
        del source.rows[begin * ROW_BYTES :]
        source._change()
        source._rewrite_texts()

    def encode(self) -> bytes:
        return b"".join((self.firsts.tobytes(), self.seconds.tobytes(), self.rows, self.texts))

    @classmethod
    def load(cls, letters: int, text_bytes: int, data: bytes) -> LetterChunk:
        if not letters or len(data) != encoded_bytes(letters, text_bytes):
            raise ValueError(f"{letters} dead letters with {text_bytes} bytes of text do not have {len(data)} bytes")
        chunk = cls()
        chunk.firsts = array("q", data[: 8 * letters])
        chunk.seconds = array("q", data[8 * letters : PAIR_BYTES * letters])
        texts = (PAIR_BYTES + ROW_BYTES) * letters
        chunk.rows = bytearray(data[PAIR_BYTES * letters : texts])
        chunk.texts = bytearray(data[texts:])
        return chunk

    def _change(self) -> None:
        self.changes += 1
        self.stored = None

    def _encoded(self, letter: DeadLetter) -> bytes:
        return _FIELDS.pack(
            letter.first_at, letter.last_at, letter.key, letter.attempts, letter.budget, letter.redriven,
            self._position(letter.consumer), self._position(letter.reason), self._position(letter.error),
        )  # fmt: skip

    def _position(self, text: str) -> int:
        """Of this text, which is added if it is not there."""
        data = text.encode()
        entry = _LENGTH.pack(len(data)) + data
        # Wherever these bytes are found they are the text, also across the border of two others.
        at = self.texts.find(entry)
        if at < 0:
            at = len(self.texts)
            self.texts += entry
        return at

    def _text(self, position: int) -> str:
        begin = position + _LENGTH.size
        (length,) = _LENGTH.unpack_from(self.texts, position)
        return self.texts[begin : begin + length].decode()

    def _rewrite_texts(self) -> None:
        """Leave out texts that no letter has any more."""
        before, rows = self.texts, self.rows
        self.rows, self.texts = bytearray(), bytearray()
        moved: dict[int, int] = {}
        """Position before -> position now."""
        for row in _FIELDS.iter_unpack(rows):
            for position in row[-3:]:
                if position not in moved:
                    moved[position] = len(self.texts)
                    (length,) = _LENGTH.unpack_from(before, position)
                    self.texts += before[position : position + _LENGTH.size + length]
            self.rows += _FIELDS.pack(*row[:-3], *[moved[position] for position in row[-3:]])
        self._removed = 0


def encoded_bytes(letters: int, text_bytes: int) -> int:
    """Of a chunk with so many letters."""
    return (PAIR_BYTES + ROW_BYTES) * letters + text_bytes

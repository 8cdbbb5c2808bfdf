"""Events of messages as arrays: the input of timelines, and the stored events of open messages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.pipeline import lifecycle_rules as rules
from penstock.pipeline.queue_catalog import RangeEnd

Integers: TypeAlias = Any
"""An array of integers. `Any`, because numpy's array types would need many casts."""
Flags: TypeAlias = Any

SCHEMA = pa.schema(
    [("queue_id", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64()), ("place", pa.int64()),
     ("kind", pa.string()), ("at_ms", pa.int64()), ("id", pa.string()), ("group", pa.string()),
     ("consumer", pa.string()), ("lease", pa.int64()), ("reason", pa.string()), ("error", pa.string()),
     ("due_ms", pa.int64()), ("kept", pa.bool_())]
)  # fmt: skip
DDL = (
    "queue_id bigint, partition int, offset bigint, place bigint, kind string, at_ms bigint, id string, "
    "`group` string, consumer string, lease bigint, reason string, error string, due_ms bigint, kept boolean"
)
"""`SCHEMA` for Spark."""
_NUMBERS = ("queue_id", "partition", "offset", "place", "kind", "at_ms", "due_ms", "lease", "kept")
_TEXTS = ("id", "group", "consumer", "reason", "error")
NONE = -1
"""Stands for null in columns of numbers."""
KIND = {kind: number for number, kind in enumerate(rules.KINDS)}
OTHER = len(KIND)
"""The number of all unknown kinds."""


@dataclass(frozen=True)
class Words:
    """A dictionary-encoded column of texts; `NONE` is the code of null."""

    codes: Integers
    words: list[str]

    def is_one_of(self, *words: str) -> Flags:
        known = [number for number, word in enumerate(self.words) if word in words]
        return np.isin(self.codes, known)


@dataclass(frozen=True)
class History:
    """One entry per event and message, in any order."""

    queue_id: Integers
    partition: Integers
    offset: Integers
    place: Integers
    kind: Integers
    at_ms: Integers
    due_ms: Integers
    lease: Integers
    kept: Integers
    id: Words
    group: Words
    consumer: Words
    reason: Words
    error: Words

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def of(cls, table: pa.Table) -> History:
        """From a table with the columns of `SCHEMA`."""
        kinds = _words(table["kind"])
        codes = np.array([KIND.get(word, OTHER) for word in kinds.words] or [OTHER], dtype=np.int64)
        numbers = {name: _numbers(table[name]) for name in _NUMBERS if name not in ("kind", "kept")}
        return cls(
            **numbers,
            kind=codes[kinds.codes] if len(kinds.codes) else kinds.codes,
            kept=_numbers(table["kept"].cast(pa.int64())),
            **{name: _words(table[name]) for name in _TEXTS},
        )

    def to_table(self, chosen: Integers) -> pa.Table:
        """These entries, in the columns of `SCHEMA`."""
        kinds = pa.array(self.kind[chosen]).cast(pa.int32())
        columns = {
            "kind": pa.DictionaryArray.from_arrays(kinds, [*rules.KINDS, "other"]).cast(pa.string()),
            "kept": _array(self.kept[chosen]).cast(pa.bool_()),
        }
        for name in _TEXTS:
            words: Words = getattr(self, name)
            columns[name] = pa.array(words.words, pa.string()).take(_array(words.codes[chosen]))
        for field in SCHEMA:
            if field.name not in columns:
                columns[field.name] = _array(getattr(self, field.name)[chosen]).cast(field.type)
        return pa.table([columns[field.name] for field in SCHEMA], schema=SCHEMA)

    def with_ends(self, ends: Sequence[RangeEnd]) -> History:
        """This history with an event per message for each purge, trim or deletion."""
        published = np.flatnonzero(self.kind == KIND["published"])
        hit: list[Integers] = []
        by: list[RangeEnd] = []
        for end in ends:
            of_it = (self.queue_id[published] == end.queue_id) & (self.place[published] < end.place)
            if end.partition is not None:
                offset = self.offset[published]
                of_it &= (self.partition[published] == end.partition) & (offset >= end.first) & (offset < end.until)
            if of_it.any():
                hit.append(published[of_it])
                by.append(end)
        if not hit:
            return self
        rows = np.concatenate(hit)
        counts = [len(each) for each in hit]
        added = {
            "place": np.repeat([end.place for end in by], counts),
            "kind": np.repeat([KIND[end.kind] for end in by], counts),
            "at_ms": np.repeat([end.at_ms for end in by], counts),
        }
        nothing = np.full(len(rows), NONE, dtype=np.int64)
        changed: dict[str, Any] = {}
        for name in _NUMBERS:
            more = added.get(
                name, getattr(self, name)[rows] if name in ("queue_id", "partition", "offset") else nothing
            )
            changed[name] = np.concatenate([getattr(self, name), more])
        for name in _TEXTS:
            words: Words = getattr(self, name)
            codes = words.codes[rows] if name == "id" else nothing
            changed[name] = Words(np.concatenate([words.codes, codes]), words.words)
        return replace(self, **changed)


def words_at(words: Words, row: int) -> str | None:
    code = int(words.codes[row])
    return None if code == NONE else words.words[code]


def numbered(*columns: Integers) -> tuple[Integers, Integers]:
    """(numbers, firsts): equal rows have equal numbers, from 0 in sorted order; the index of the first row of each."""
    count = len(columns[0])
    if not count:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    order = np.lexsort(columns[::-1])
    is_new = np.zeros(count, dtype=bool)
    is_new[0] = True
    for column in columns:
        ordered = column[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    numbers = np.empty(count, dtype=np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return numbers, order[is_new]


def _numbers(column: Any) -> Integers:
    filled = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(filled.fill_null(NONE).cast(pa.int64()), dtype=np.int64)


def _words(column: Any) -> Words:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = whole.cast(pa.string()).dictionary_encode()
    return Words(_numbers(encoded.indices), encoded.dictionary.to_pylist())


def _array(values: Integers) -> pa.Array:
    return pa.array(values, mask=values == NONE)

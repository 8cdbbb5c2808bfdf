"""Messages as views of the frames in which they came; nothing is decoded before it is asked for. Without I/O.

A lease or a read answers with runs. A `MessageRun` is one of them; a `StoredMessage` is a row of it and costs two
references; `MessageSequence` is a sequence over the rows of several runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Generic, SupportsIndex, TypeVar, overload

import msgspec

from penstock import ids
from penstock.batch import Batch, layout
from penstock.wire.delivery import Run

T = TypeVar("T")
M = TypeVar("M", bound="StoredMessage")

_decode_json = msgspec.json.Decoder().decode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class MessageRun:
    """Messages that were stored next to each other: row *i* has offset `meta.offset + i`."""

    __slots__ = ("_first_id", "_looked", "_payloads", "batch", "meta")

    def __init__(self, meta: Run, batch: Batch):
        self.meta = meta
        self.batch = batch
        self._payloads: list[bytes] | None = None
        self._looked = False
        self._first_id: int | None = None

    def payload(self, row: int) -> bytes:
        if self._payloads is not None:
            return self._payloads[row]
        if self._looked:
            return self.payloads()[row]  # a second look means that more follow
        self._looked = True
        return self.batch.payload(row)

    def payloads(self) -> list[bytes]:
        """All payloads, cut out in one pass and kept, for loops over all of them."""
        if self._payloads is None:
            self._payloads = self.batch.payloads()
        return self._payloads

    def id(self, row: int) -> str:
        if self._first_id is None:
            self._first_id = ids.ulid_value(self.meta.id)
        return ids.ulid_text(self._first_id + row)


class StoredMessage:
    """A message as it is in the queue's log. Immutable; every attribute is read from the frame when asked for."""

    __slots__ = ("_row", "_run")

    def __init__(self, run: MessageRun, row: int):
        self._run = run
        self._row = row

    @property
    def run(self) -> MessageRun:
        """The run that it is a row of; for the client itself."""
        return self._run

    @property
    def payload(self) -> bytes:
        """The bytes that were published; of a JSON value, its text."""
        return self._run.payload(self._row)

    @property
    def is_json(self) -> bool:
        """True if the message was published as a JSON value, false if it was published as bytes."""
        return self._run.batch.is_json(self._row)

    @property
    def value(self) -> Any:
        """The JSON value that was published, or the bytes of a message that was published as bytes."""
        return self.json() if self.is_json else self.payload

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = Any) -> Any:
        """The payload as JSON, also if it was published as bytes; `type` may be any type that msgspec can decode into.

        Raises ValueError if it is not JSON or does not fit the type.
        """
        try:
            return _decode_json(self.payload) if type is Any else msgspec.json.decode(self.payload, type=type)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"message {self.id}: {error}") from None

    @property
    def id(self) -> str:
        """The server's id of the message, a ULID."""
        return self._run.id(self._row)

    @property
    def queue(self) -> str:
        return self._run.meta.queue

    @property
    def partition(self) -> int:
        return self._run.meta.partition

    @property
    def offset(self) -> int:
        return self._run.meta.offset + self._row

    @property
    def key(self) -> str | None:
        return self._run.batch.string(layout.KEY, self._row).decode() or None

    @property
    def priority(self) -> int:
        batch = self._run.batch
        return int(batch.integers(layout.PRIORITY)[self._row]) if batch.has(layout.PRIORITY) else 0

    @property
    def tenant(self) -> str | None:
        return self._run.batch.string(layout.TENANT, self._row).decode() or None

    @property
    def headers(self) -> dict[str, str]:
        text = self._run.batch.string(layout.HEADERS, self._row)
        return _decode_headers(text) if text else {}

    @property
    def client_id(self) -> str | None:
        """The `id` that the publisher chose for deduplication, if any."""
        return self._run.batch.string(layout.ID, self._row).decode() or None

    @property
    def published_at_ms(self) -> int:
        return self._run.meta.published_at_ms

    @property
    def published_at(self) -> datetime:
        return datetime.fromtimestamp(self._run.meta.published_at_ms / 1000, UTC)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.queue}[{self.partition}] offset {self.offset}>"


class MessageSequence(Sequence[M], Generic[M]):
    """A sequence over the rows of some runs. Subclasses choose the class of its elements."""

    __slots__ = ("_runs", "_stops")

    def __init__(self, runs: list[MessageRun]):
        self._runs = runs
        self._stops = list(accumulate(run.batch.count for run in runs))

    def _message(self, run: MessageRun, row: int) -> M:
        raise NotImplementedError

    def __len__(self) -> int:
        return self._stops[-1] if self._stops else 0

    @overload
    def __getitem__(self, index: SupportsIndex) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> list[M]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        number = bisect_right(self._stops, at)
        return self._message(self._runs[number], at - (self._stops[number - 1] if number else 0))

    def __iter__(self) -> Iterator[M]:
        for run in self._runs:
            run.payloads()
            for row in range(run.batch.count):
                yield self._message(run, row)

    def payloads(self) -> list[bytes]:
        """The payloads alone, which is the fastest way to all of them."""
        if len(self._runs) == 1:
            return self._runs[0].payloads()
        return [payload for run in self._runs for payload in run.payloads()]

    def values(self) -> list[Any]:
        """Every message's `value`. Raises ValueError if one that claims to be JSON is not."""
        values: list[Any] = []
        for run in self._runs:
            if run.batch.flags & layout.KIND_MASK == layout.KIND_JSON:
                try:
                    values += list(map(_decode_json, run.payloads()))
                    continue
                except (msgspec.DecodeError, UnicodeDecodeError):
                    pass  # the slow way below meets the same message and names it
            values += [StoredMessage(run, row).value for row in range(run.batch.count)]
        return values

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} messages>"


class LogBatch(MessageSequence[StoredMessage]):
    """The answer to a read: messages in log order, and where to read on. Empty if there was nothing yet."""

    __slots__ = ("end_offset", "next_offset", "skipped", "start_offset")

    def __init__(
        self, runs: list[MessageRun], *, next_offset: int, end_offset: int, start_offset: int, skipped: int = 0
    ):
        super().__init__(runs)
        self.next_offset = next_offset
        """Pass it as `offset` to continue."""
        self.end_offset = end_offset
        """Where the next published message will go."""
        self.start_offset = start_offset
        """The oldest message that is still there."""
        self.skipped = skipped
        """How many offsets were asked for that retention has removed."""

    @property
    def runs(self) -> list[MessageRun]:
        """For the client itself."""
        return self._runs

    def with_runs(self, runs: list[MessageRun]) -> LogBatch:
        """Other messages at the same position."""
        return LogBatch(
            runs, next_offset=self.next_offset, end_offset=self.end_offset, start_offset=self.start_offset,
            skipped=self.skipped,
        )  # fmt: skip

    def _message(self, run: MessageRun, row: int) -> StoredMessage:
        return StoredMessage(run, row)

"""Messages under a lease: which are settled, lost, still to be renewed. Without I/O.

The state of a message is in its run, so that a batch and the messages taken out of it always agree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TypeVar

from penstock import limits
from penstock.batch import Batch
from penstock.client.messages.spans import Span, merged
from penstock.client.messages.stored import DeliveredRun, Messages, StoredMessage
from penstock.wire.delivery import Run


class LeasedRun(DeliveredRun):
    """A run as a lease delivered it. While it waits in the buffer it holds its own lease (a `Holder`)."""

    __slots__ = ("lost_rows", "next_row", "renew_at", "settled_rows")

    def __init__(self, meta: Run, batch: Batch):
        super().__init__(meta, batch)
        self.renew_at = 0.0
        self.next_row = 0
        """The first row that still waits in the buffer."""
        self.settled_rows: set[int] = set()
        self.lost_rows: set[int] = set()
        """Rows whose lease ended before they were settled, as far as a renewal has found."""

    @property
    def lease_ms(self) -> int:
        """The length of the lease, as the server answered it; 0 if there is none to renew."""
        return self.meta.lease_ms or 0

    @property
    def leased(self) -> bool:
        """False for a queue that delivers at most once: there is nothing to settle and nothing to renew."""
        return self.meta.receipt is not None

    def spans(self) -> list[Span]:
        return self.spans_of(range(self.next_row, self.batch.count), self.lost_rows)

    def spans_of(self, rows: range, without: set[int]) -> list[Span]:
        prefix = self.meta.receipt
        if prefix is None or not rows:
            return []
        offset = self.meta.offset
        if not without:
            return [Span(prefix, offset + rows[0], offset + rows[-1])]
        return merged(Span(prefix, offset + row, offset + row) for row in rows if row not in without)

    def lost(self, spans: Sequence[Span]) -> None:
        self.lost_rows.update(self._rows_of(spans))

    def settle(self, spans: Sequence[Span]) -> None:
        self.settled_rows.update(self._rows_of(spans))

    def unsettle(self, spans: Sequence[Span]) -> None:
        self.settled_rows.difference_update(self._rows_of(spans))

    def _rows_of(self, spans: Sequence[Span]) -> list[int]:
        """The rows of this run in some spans, which may be of other leases or reach beyond this run."""
        offset, count = self.meta.offset, self.batch.count
        return [
            row
            for span in spans
            if span.prefix == self.meta.receipt
            for row in range(max(span.first - offset, 0), min(span.last + 1 - offset, count))
        ]


class LeasedMessage(StoredMessage):
    """One message that this consumer may handle until its lease ends."""

    __slots__ = ("__weakref__", "renew_at")

    _run: LeasedRun

    def __init__(self, run: LeasedRun, row: int):
        super().__init__(run, row)
        self.renew_at = run.renew_at

    @property
    def attempt(self) -> int:
        """1 on the first delivery."""
        return self._run.meta.attempt

    @property
    def receipt(self) -> str | None:
        """The handle with which the HTTP API settles this message; None if the queue delivers at most once."""
        prefix = self._run.meta.receipt
        return None if prefix is None else f"{prefix}{self.offset}"

    @property
    def settled(self) -> bool:
        """True once it was acked, nacked or rejected here, or if the queue delivers at most once."""
        return not self._run.leased or self._row in self._run.settled_rows

    @property
    def lease_lost(self) -> bool:
        """True if a renewal found the lease ended: the message is or will be delivered again, stop working on it."""
        return self._row in self._run.lost_rows

    @property
    def lease_ms(self) -> int:
        return self._run.lease_ms

    def open_spans(self) -> list[Span]:
        """The message, or nothing if it is settled already."""
        prefix = self._run.meta.receipt
        return [] if prefix is None or self.settled else [Span(prefix, self.offset, self.offset)]

    def spans(self) -> list[Span]:
        return [] if self.lease_lost else self.open_spans()

    def lost(self, spans: Sequence[Span]) -> None:
        self._run.lost(spans)

    def mark(self, spans: Sequence[Span], *, settled: bool) -> None:
        """Mark `spans`, as `open_spans` gave them, as settled or not settled."""
        if spans:
            (self._run.settled_rows.add if settled else self._run.settled_rows.discard)(self._row)


LM = TypeVar("LM", bound=LeasedMessage)


class LeasedBatch(Messages[LM]):
    """Messages that came with one lease. Settling the batch settles what was not settled one by one before."""

    __slots__ = ("__weakref__", "renew_at")

    _runs: list[LeasedRun]  # type: ignore[assignment]

    def __init__(self, runs: list[LeasedRun]):
        super().__init__(list(runs))
        self.renew_at = min((run.renew_at for run in runs), default=0.0)

    @property
    def lease_ms(self) -> int:
        """The shortest lease in the batch: a batch of several queues is renewed as often as that one needs it."""
        return min((run.lease_ms for run in self._runs if run.leased), default=0)

    @property
    def settled(self) -> bool:
        return not self.open_spans()

    @property
    def lease_lost(self) -> bool:
        """True if a renewal found the lease of at least one message ended."""
        return any(run.lost_rows for run in self._runs)

    def open_spans(self) -> list[Span]:
        return [span for run in self._runs for span in run.spans_of(range(run.batch.count), run.settled_rows)]

    def spans(self) -> list[Span]:
        return [
            span
            for run in self._runs
            for span in run.spans_of(range(run.batch.count), run.settled_rows | run.lost_rows)
        ]

    def lost(self, spans: Sequence[Span]) -> None:
        for run, own in self._by_run(spans):
            run.lost(own)

    def mark(self, spans: Sequence[Span], *, settled: bool) -> None:
        for run, own in self._by_run(spans):
            (run.settle if settled else run.unsettle)(own)

    def _by_run(self, spans: Sequence[Span]) -> Iterator[tuple[LeasedRun, list[Span]]]:
        """Each run with those of the spans that concern it. A batch may have as many runs as messages."""
        by_lease: dict[str, list[Span]] = {}
        for span in merged(spans):
            by_lease.setdefault(span.prefix, []).append(span)
        for run in self._runs:
            of_lease = by_lease.get(run.meta.receipt or "")
            if of_lease:
                first, stop = run.meta.offset, run.meta.offset + run.batch.count
                begin, end = bisect_left(of_lease, first, key=_last_of), bisect_left(of_lease, stop, key=_first_of)
                if begin < end:
                    yield run, of_lease[begin:end]


_first_of = attrgetter("first")
_last_of = attrgetter("last")


def error_text(error: BaseException) -> str:
    """The text of a nack for an exception: enough to recognise it among dead letters."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text[: limits.ERROR_CHARS_MAX]

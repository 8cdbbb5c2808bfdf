"""Runs under a lease, and ranges of receipts: which messages are settled, lost, still to be renewed. Without I/O.

A receipt is the prefix of its lease and an offset, and the server takes ranges (`prefix12-99`). So the client counts in
spans: settling or renewing a thousand neighbours is one short string. The state of a message is in its run, so that a
batch and the messages taken out of it always agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock import limits
from penstock.batch import Batch
from penstock.client.messages.stored import MessageRun
from penstock.errors import StaleReceipt
from penstock.ids import parse_offsets
from penstock.wire.delivery import Run, Settled


class ReceiptSpan(NamedTuple):
    """Messages `first` to `last`, both included, of the lease that `prefix` names."""

    prefix: str
    first: int
    last: int

    @property
    def receipt(self) -> str:
        return f"{self.prefix}{self.first}" if self.first == self.last else f"{self.prefix}{self.first}-{self.last}"

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def merged(spans: Iterable[ReceiptSpan]) -> list[ReceiptSpan]:
    """The same messages in as few spans as possible."""
    result: list[ReceiptSpan] = []
    for span in sorted(spans):
        if result and result[-1].prefix == span.prefix and span.first <= result[-1].last + 1:
            before = result.pop()
            span = ReceiptSpan(span.prefix, before.first, max(before.last, span.last))
        result.append(span)
    return result


def common(spans: Iterable[ReceiptSpan], others: Sequence[ReceiptSpan]) -> list[ReceiptSpan]:
    """The messages that are in both."""
    return [
        ReceiptSpan(span.prefix, max(span.first, other.first), min(span.last, other.last))
        for span in spans
        for other in others
        if span.prefix == other.prefix and span.first <= other.last and other.first <= span.last
    ]


def receipts_of(spans: Iterable[ReceiptSpan]) -> list[str]:
    return [span.receipt for span in spans]


def stale_spans(results: Iterable[Settled]) -> list[ReceiptSpan]:
    """The messages that were not leased to this consumer any more, by the results of a call that settles."""
    spans = []
    for result in results:
        if result.status == "stale":
            prefix, dot, offsets = result.receipt.rpartition(".")
            if pair := parse_offsets(offsets):
                spans.append(ReceiptSpan(prefix + dot, *pair))
    return spans


def stale_error(lost: Sequence[ReceiptSpan], of: int) -> StaleReceipt:
    count = sum(span.size for span in lost)
    return StaleReceipt(
        f"{count} of {of} messages were no longer leased to this consumer: the lease ran out or they were settled "
        "before; what was not settled is delivered again",
        details={"receipts": receipts_of(lost)},
    )


class LeasedRun(MessageRun):
    """A run as a lease delivered it. While it waits in the buffer it holds its own lease (a `LeaseHolder`)."""

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

    def spans(self) -> list[ReceiptSpan]:
        return self.spans_of(range(self.next_row, self.batch.count), self.lost_rows)

    def spans_of(self, rows: range, without: set[int]) -> list[ReceiptSpan]:
        prefix = self.meta.receipt
        if prefix is None or not rows:
            return []
        offset = self.meta.offset
        if not without:
            return [ReceiptSpan(prefix, offset + rows[0], offset + rows[-1])]
        return merged(ReceiptSpan(prefix, offset + row, offset + row) for row in rows if row not in without)

    def lost(self, spans: Sequence[ReceiptSpan]) -> None:
        self.lost_rows.update(self._rows_of(spans))

    def settle(self, spans: Sequence[ReceiptSpan]) -> None:
        self.settled_rows.update(self._rows_of(spans))

    def unsettle(self, spans: Sequence[ReceiptSpan]) -> None:
        self.settled_rows.difference_update(self._rows_of(spans))

    def _rows_of(self, spans: Sequence[ReceiptSpan]) -> list[int]:
        """The rows of this run in some spans, which may be of other leases or reach beyond this run."""
        offset, count = self.meta.offset, self.batch.count
        return [
            row
            for span in spans
            if span.prefix == self.meta.receipt
            for row in range(max(span.first - offset, 0), min(span.last + 1 - offset, count))
        ]


def error_text(error: BaseException) -> str:
    """The text of a nack for an exception: enough to recognise it among dead letters."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text[: limits.ERROR_CHARS_MAX]

"""Runs under a lease: which of their messages are settled, lost, still to be renewed. Without I/O.

The state of a message is in its run, so that a batch and the messages taken out of it always agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock import limits
from penstock.batch import Batch
from penstock.client.messages.spans import ReceiptSpan, merged
from penstock.client.messages.stored import MessageRun
from penstock.wire.delivery import Run


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

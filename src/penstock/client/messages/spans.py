"""Ranges of receipts. Without I/O.

A receipt is the prefix of its lease and an offset, and the server takes ranges (`prefix12-99`). So the client counts in
spans: settling or renewing a thousand neighbours is one short string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.errors import StaleReceipt
from penstock.ids import parse_offsets
from penstock.wire.delivery import Settled


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

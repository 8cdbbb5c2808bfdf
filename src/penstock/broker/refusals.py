"""Refusals that more than one call gives, in one set of words."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import Conflict, QueueNotFound, StaleReceipt
from penstock.wire.delivery import Settled

STALE_SHOWN = 100
"""Stale receipts that the refusal of a transaction names."""


def not_found(path: str) -> QueueNotFound:
    return QueueNotFound(f"there is no queue {path}", details={"queue": path})


def other_incarnation(path: str, asked: str, present: str) -> Conflict:
    """The caller means a queue that was deleted; a new one has its path."""
    return Conflict(
        f"queue {path} was deleted and created again: its uuid is {present}, not {asked}",
        details={"field": "uuid", "uuid": present},
    )


def stale(results: Sequence[Settled]) -> StaleReceipt:
    """To ack them was part of something larger, which therefore was not done."""
    receipts = [result.receipt for result in results if result.status != "acked"]
    return StaleReceipt(
        f"{len(receipts)} of the receipts to ack are stale, so nothing was acked and nothing published",
        details={"receipts": receipts[:STALE_SHOWN]},
    )

"""One command's share of a commit: its bytes, what to index once they are durable, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.core import commands
from penstock.core.records import Leased, Published, QueueDeleted, QueuePurged, Record
from penstock.journal.codec import encode

ATTACHED_INLINE_BYTES = 4096
"""Smaller batches are copied next to their record: one buffer is cheaper to write than two."""

Cut = Callable[[int, bytes, int], None]
"""Told the index, the chain and the locator of the frame that a cut was made behind (locator 0: of an earlier run)."""


class Parked:
    """The share, from its decision until it is durable."""

    __slots__ = ("ahead", "cut", "emptied", "future", "leaving", "parts", "published", "reply", "size")

    def __init__(self, reply: Any, future: asyncio.Future[Any] | None, *, ahead: bool = False):
        self.reply = reply
        self.future = future
        self.ahead = ahead
        """Whoever waits for the reply does nothing with it but answer, and may prepare that while the disk works."""
        self.parts: list[bytes] = []
        self.size = 0
        self.cut: Cut | None = None
        self.published: list[tuple[Published, int, int]] = []
        """(record, position within this share, length)"""
        self.emptied: list[QueueDeleted | QueuePurged] = []
        self.leaving: list[commands.LeasedRun] = []
        """Messages that are handed over with the reply."""

    def add(self, record: Record) -> None:
        head, attached = encode(record)
        at = self.size
        self.size += len(head)
        if attached is not None:
            self.size += len(attached)
            if len(attached) <= ATTACHED_INLINE_BYTES:
                self.parts.append(head + attached)
            else:
                self.parts += (head, attached)
            self.published.append((record, at, self.size - at))  # type: ignore[arg-type]
            return
        self.parts.append(head)
        if isinstance(record, QueueDeleted | QueuePurged):
            self.emptied.append(record)
        elif isinstance(record, Leased):
            self.leaving = self.reply

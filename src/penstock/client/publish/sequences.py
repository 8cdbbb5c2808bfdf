"""Sequence numbers: with them a publish can be repeated until it is answered and is still stored once."""

from __future__ import annotations

import secrets
import threading

from penstock.client.calls.publish import ProducerSeq

EPOCH = 1
"""A client's producer id is its own and random, so no earlier epoch of it can exist."""


def new_producer() -> str:
    return f"sdk-{secrets.token_hex(12)}"


class Sequencer:
    """Numbers of one producer in one queue. Every frame gets its own, and keeps them however often it is sent.

    The numbers of a frame that was refused are not used again: the server would take other content under them for a
    repetition and drop it. Gaps cost nothing. May be used from many threads.
    """

    __slots__ = ("_lock", "_next", "_producer")

    def __init__(self, producer: str):
        self._lock = threading.Lock()
        self._producer = producer
        self._next = 0

    def take(self, count: int) -> ProducerSeq:
        with self._lock:
            first = self._next
            self._next += count
        return ProducerSeq(self._producer, EPOCH, first)

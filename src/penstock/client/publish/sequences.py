"""Sequence numbers: what lets a publish be repeated until it is answered and still be stored once."""

from __future__ import annotations

import secrets
import threading

from penstock.client.calls.api import ProducerSeq

EPOCH = 1
"""A client's producer id is its own and random, so no earlier epoch of it can exist."""


def new_producer() -> str:
    return f"sdk-{secrets.token_hex(12)}"


class Sequencer:
    """Numbers of one producer in one queue. Every frame gets its own, and keeps them however often it is sent.

    A frame that was refused gives its numbers up: using them for other content would let the server take that content
    for a repetition and drop it. Gaps cost nothing. May be used from many threads.
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

"""Exact deduplication of messages: by client id, and by producer and sequence number.

Exact means: no filter with false positives, and no assumption on order. The accepted numbers of a producer are kept as
ranges, so two batches that overtake each other on the network are both stored, and a repetition of either is found.
The same record stores a message and changes this state, so neither is ever known without the other.

A repetition within 24 hours, the window, is a duplicate; after the window it is a new message. A client id also
identifies its message in calls such as cancel, until the message is finished. A cancelled message frees its id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from penstock import limits
from penstock.core.offsets.ranges import RangeSet
from penstock.core.state.client_ids import ClientIds, Place


class SeqRun(msgspec.Struct, gc=False):
    """Messages with the sequence numbers `[first, stop)`, stored at consecutive offsets from `offset` on."""

    first: int
    stop: int
    partition: int
    offset: int
    id: int


class Producer(msgspec.Struct):
    epoch: int
    used_at: int
    accepted: RangeSet
    runs: list[SeqRun] = []
    """The latest runs, from which the reply to a repeated publish is made."""
    sizes: list[int] = []
    """Soft: the number of runs of each publish. The oldest runs are dropped by whole publishes."""

    def remember(self, runs: list[SeqRun]) -> None:
        for run in runs:
            self.accepted.add(run.first, run.stop)
            # Ids of one publish are close to each other; each publish begins at a random id.
            if self.sizes and run.id - self.runs[-self.sizes[-1]].id < limits.BATCH_MESSAGES_MAX:
                self.sizes[-1] += 1
            else:
                self.sizes.append(1)
            self.runs.append(run)
        self.accepted.close_gaps(limits.PRODUCER_RANGES_MAX)
        while len(self.sizes) > limits.PRODUCER_PUBLISHES_KEPT or (
            len(self.runs) > limits.PRODUCER_RUNS_MAX and len(self.sizes) > 1
        ):
            del self.runs[: self.sizes.pop(0)]

    def places(self, first: int, stop: int) -> dict[int, Place]:
        """The places of the messages with the numbers `[first, stop)`, as far as their runs are kept."""
        found: dict[int, Place] = {}
        # Most repetitions are of the latest publish.
        for run in reversed(self.runs):
            for seq in range(max(first, run.first), min(stop, run.stop)):
                found[seq] = Place(run.partition, run.offset + seq - run.first, run.id + seq - run.first)
            if len(found) == stop - first:
                break
        return found


class Dedup:
    """The deduplication state of one queue. All of it is hard state."""

    __slots__ = ("ids", "producers")

    def __init__(self) -> None:
        self.ids = ClientIds()
        self.producers: dict[str, Producer] = {}
        """By name, the least recently used producer first."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def first_with(self, client_id: bytes, now_ms: int) -> Place | None:
        """The stored message that makes another one with this client id a duplicate; None after the window."""
        known = self.ids.get(client_id)
        return known[1] if known is not None and known[0] >= now_ms - limits.DEDUP_WINDOW_MS else None

    def place_of(self, client_id: bytes) -> Place | None:
        """The latest message with this client id. Known until the message is finished, and at least for the window."""
        known = self.ids.get(client_id)
        return known[1] if known is not None else None

    def producer(self, name: str, now_ms: int) -> Producer | None:
        """None for a producer that is unknown, or has published nothing within the window."""
        known = self.producers.get(name)
        return known if known is not None and known.used_at >= now_ms - limits.DEDUP_WINDOW_MS else None

    # -- changes ------------------------------------------------------------------------------------------------------

    def remember_ids(self, client_ids: Sequence[bytes], at_ms: int, place: Place) -> None:
        """Note the client ids of messages at consecutive offsets from `place` on. Empty: the message has none."""
        self.ids.add(client_ids, at_ms, place)

    def free_id(self, client_id: bytes, at_ms: int) -> None:
        """The message with this client id was cancelled: the next message with the id is stored."""
        self.ids.free(client_id, at_ms)

    def remember_seqs(self, producer: str, epoch: int, at_ms: int, runs: list[SeqRun]) -> None:
        entry = self.producer(producer, at_ms)
        self.producers.pop(producer, None)
        if entry is None or entry.epoch < epoch:
            entry = Producer(epoch, at_ms, RangeSet())
        entry.used_at = at_ms
        entry.remember(runs)
        self.producers[producer] = entry

    def forget(self, now_ms: int, is_unfinished: Callable[[Place], bool], most: int) -> None:
        """Drop entries that are older than the window, except ids of unfinished messages. Each call checks up to `most`
        ids, which is more than arrive between two calls, so that old ids do not accumulate."""
        before_ms = now_ms - limits.DEDUP_WINDOW_MS
        if self.ids.chunks:
            self.ids.forget_before(before_ms, now_ms, is_unfinished, most)
        while self.producers:
            producer = next(iter(self.producers))
            if self.producers[producer].used_at >= before_ms:
                break
            del self.producers[producer]

"""Exact deduplication: what was published under a client's id, or under a producer's sequence number.

Exact means: no filter that can be wrong, and no assumption on order. A producer's accepted numbers are kept as ranges,
so two batches that overtake each other on the network are both stored, and each is still recognised when it is sent
again. The state moves in the same record as the message: there is no moment in which one is known and not the other.

What is repeated within a window of 24 hours is a duplicate; afterwards it is another message. A client id is also a
handle of its message, and stays one for as long as the message is not finished. A cancelled message frees its id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from penstock import limits
from penstock.core.offsets.ranges import RangeSet
from penstock.core.state.client_ids import ClientIds, Place


class SeqRun(msgspec.Struct, gc=False):
    """Sequence numbers `first` to `stop`, stored one after another from `offset` on."""

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
    """The latest ones, so that the answer to a repeated publish can be repeated too."""
    sizes: list[int] = []
    """Soft: how many runs each remembered publish has. What is forgotten is forgotten by whole publishes."""

    def remember(self, runs: list[SeqRun]) -> None:
        for run in runs:
            self.accepted.add(run.first, run.stop)
            # The ids of one publish lie close together and those of two, which begin at random, do not.
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
        """Where the numbers from `first` to `stop` went, as far as that is still remembered."""
        found: dict[int, Place] = {}
        # What is repeated is mostly what was sent last.
        for run in reversed(self.runs):
            for seq in range(max(first, run.first), min(stop, run.stop)):
                found[seq] = Place(run.partition, run.offset + seq - run.first, run.id + seq - run.first)
            if len(found) == stop - first:
                break
        return found


class Dedup:
    """Hard state of one queue, all of it."""

    __slots__ = ("ids", "producers")

    def __init__(self) -> None:
        self.ids = ClientIds()
        self.producers: dict[str, Producer] = {}
        """Least recently used first."""

    # -- questions ----------------------------------------------------------------------------------------------------

    def first_with(self, client_id: bytes, now_ms: int) -> Place | None:
        """The message that another one with this client id would be a duplicate of; None after the window."""
        known = self.ids.get(client_id)
        return known[1] if known is not None and known[0] >= now_ms - limits.DEDUP_WINDOW_MS else None

    def place_of(self, client_id: bytes) -> Place | None:
        """The latest message with this client id: for as long as it is not finished, and at least for the window."""
        known = self.ids.get(client_id)
        return known[1] if known is not None else None

    def producer(self, name: str, now_ms: int) -> Producer | None:
        """None also for a producer that was not heard of within the window."""
        known = self.producers.get(name)
        return known if known is not None and known.used_at >= now_ms - limits.DEDUP_WINDOW_MS else None

    # -- changes ------------------------------------------------------------------------------------------------------

    def remember_ids(self, client_ids: Sequence[bytes], at_ms: int, place: Place) -> None:
        """Of messages that were stored side by side from `place` on; empty for a message without a client id."""
        self.ids.add(client_ids, at_ms, place)

    def free_id(self, client_id: bytes, at_ms: int) -> None:
        """Its message was cancelled: the next one with this id is stored."""
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
        """Drop what is older than the window, but for the ids of unfinished messages. Looks at up to `most` ids: more
        than come in, so that the oldest are soon gone."""
        before_ms = now_ms - limits.DEDUP_WINDOW_MS
        if self.ids.chunks:
            self.ids.forget_before(before_ms, now_ms, is_unfinished, most)
        while self.producers:
            producer = next(iter(self.producers))
            if self.producers[producer].used_at >= before_ms:
                break
            del self.producers[producer]

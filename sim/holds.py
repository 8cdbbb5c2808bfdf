"""The ledger's model of holds: messages that an archive has not copied yet are stored until it reads them (I19)."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core import records
from sim.entries import LedgerQueue


class Holds:
    def __init__(self) -> None:
        self._standing: dict[str, dict[int, dict[int, int]]] = {}
        """Name -> queue -> partition -> the first offset that is held."""

    def set(self, record: records.HoldSet, queues: Iterable[LedgerQueue]) -> None:
        places = self._standing[record.name] = {}
        flat = iter(record.offsets)
        for number, partition, offset in zip(flat, flat, flat, strict=True):
            places.setdefault(number, {})[partition] = offset
        self._follow(queues)

    def ended(self, record: records.HoldEnded, queues: Iterable[LedgerQueue]) -> None:
        """The hold was removed, or lost because it spanned too much."""
        self._standing.pop(record.name, None)
        self._follow(queues)

    def deleted(self, queue: LedgerQueue) -> None:
        for places in self._standing.values():
            places.pop(queue.number, None)

    def _follow(self, queues: Iterable[LedgerQueue]) -> None:
        for queue in queues:
            self.follow(queue)

    def follow(self, queue: LedgerQueue) -> None:
        """The first held offsets of the queue now. Partitions that are not named are held completely."""
        holding = [places[queue.number] for places in self._standing.values() if queue.number in places]
        for number, partition in enumerate(queue.partitions):
            partition.settle_start(queue.config)  # the broker was free to remove messages up to now
            partition.held_from = held_from = min((offsets.get(number, 0) for offsets in holding), default=None)
            for message in partition.messages[partition.start :]:
                if held_from is None or message.offset < held_from:
                    message.promised = False
                elif not message.finished():
                    message.promised = True

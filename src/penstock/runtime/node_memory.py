"""Memory that all shards of a node share: recent messages, pieces of the log that were read, and prints of keys.

The bounds hold for the node, so a node with many shards needs no more memory than a node with one, and a busy shard may
use what idle shards leave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

from penstock import limits

if TYPE_CHECKING:
    from penstock.runtime.stored import Piece


class KeepsRecent(Protocol):
    """The log of a shard, as far as its recent messages are concerned."""

    def cool(self, place: tuple[int, int]) -> int:
        """Drop the oldest recent record of this partition; returns its bytes."""


class RecentMessages:
    """Records that are in memory since they were published, over all shards. The oldest is dropped first."""

    def __init__(self, room: int):
        self._room = room
        self._order: deque[tuple[KeepsRecent, tuple[int, int]]] = deque()

    def add(self, log: KeepsRecent, place: tuple[int, int], size: int) -> None:
        self._order.append((log, place))
        self._room -= size
        while self._room < 0:
            oldest, at = self._order.popleft()
            self._room += oldest.cool(at)

    def forget(self, log: KeepsRecent, which: Callable[[tuple[int, int]], bool] = lambda _: True) -> None:
        """Drop all records of a log, or those of some of its partitions."""
        kept: deque[tuple[KeepsRecent, tuple[int, int]]] = deque()
        for each in self._order:
            if each[0] is log and which(each[1]):
                self._room += log.cool(each[1])
            else:
                kept.append(each)
        self._order = kept


PieceKey = tuple[int, int, int, int, int]
"""Queue, partition, locator, skip and length of a stored piece."""


class _Pinned:
    __slots__ = ("piece", "readers")

    def __init__(self) -> None:
        self.readers = 0
        self.piece: Piece | None = None


class ReadPieces:
    """Pieces of the logs of all shards that were read last. The one that was used longest ago is dropped first."""

    def __init__(self, room: int):
        self._room = room
        self._cached: dict[tuple[Any, PieceKey], Piece] = {}
        """(owner, key) -> piece, the one that was used longest ago first."""

        self._pinned: dict[tuple[Any, PieceKey], _Pinned] = {}
        """Pieces that readers need, in addition to the room of the others."""

    def get(self, owner: Any, key: PieceKey) -> Piece | None:
        found = self._cached.pop((owner, key), None)
        if found is not None:
            self._cached[owner, key] = found
            return found
        pinned = self._pinned.get((owner, key))
        return pinned.piece if pinned is not None else None

    def has(self, owner: Any, key: PieceKey) -> bool:
        return (owner, key) in self._cached or (
            (pinned := self._pinned.get((owner, key))) is not None and pinned.piece is not None
        )

    def pin(self, owner: Any, keys: Collection[PieceKey]) -> None:
        """Keep these pieces until `unpin`, once for each reader, from now on or from when they are put."""
        for key in keys:
            pinned = self._pinned.setdefault((owner, key), _Pinned())
            pinned.readers += 1
            pinned.piece = pinned.piece or self._cached.get((owner, key))

    def unpin(self, owner: Any, keys: Collection[PieceKey]) -> None:
        for key in keys:
            pinned = self._pinned[owner, key]
            pinned.readers -= 1
            if not pinned.readers:
                del self._pinned[owner, key]

    def put(self, owner: Any, key: PieceKey, piece: Piece) -> None:
        if (pinned := self._pinned.get((owner, key))) is not None:
            pinned.piece = piece
        if self._cached.pop((owner, key), None) is None:
            self._room -= key[4]
            while self._room < 0 and self._cached:
                oldest = next(iter(self._cached))
                del self._cached[oldest]
                self._room += oldest[1][4]
        self._cached[owner, key] = piece

    def forget(self, owner: Any) -> None:
        for each in [each for each in self._cached if each[0] is owner]:
            del self._cached[each]
            self._room += each[1][4]
        for each, pinned in self._pinned.items():
            if each[0] is owner:
                pinned.piece = None


class NodeMemory:
    """The bounds of one node. Every log that is opened with it takes part until it is closed."""

    def __init__(
        self,
        recent_bytes: int = limits.HOT_BYTES_MAX,
        read_bytes: int = limits.LAST_READ_BYTES_MAX,
        print_bytes: int = limits.KEY_PRINTS_BYTES_MAX,
    ):
        self.recent = RecentMessages(recent_bytes)
        self.read = ReadPieces(read_bytes)
        self._print_bytes = print_bytes
        self._logs: set[KeepsRecent] = set()

    def join(self, log: KeepsRecent) -> None:
        self._logs.add(log)

    def leave(self, log: KeepsRecent) -> None:
        self._logs.discard(log)
        self.recent.forget(log)

    @property
    def print_bytes_each(self) -> int:
        """Bytes of prints of keys that one log may keep."""
        return self._print_bytes // max(1, len(self._logs))

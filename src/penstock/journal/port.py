"""The one port that every engine implements: where journals and blobs live.

An engine stores bytes and enforces ownership; it understands neither records nor messages. The conformance suite in
`penstock.testing.check_engine` states the contract as tests, and every engine passes the same one.

Outcomes of a write are told apart, because they ask for different things:

- `Fenced`: a newer term exists. Surely not written. The caller is no longer the owner and steps down.
- `OutOfSpace`: surely not written; the journal is as it was before the call.
- `Failed`: nobody knows. The engine accepts nothing more; memory must be dropped and the journal read again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from penstock.batch import Buffer
from penstock.journal.frame import Frame


class EngineError(Exception):
    """Base of what an engine raises about its store."""


class Fenced(EngineError):
    pass


class OutOfSpace(EngineError):
    pass


class Failed(EngineError):
    pass


class Damaged(EngineError):
    """The store holds something that must not be believed; the message names the file and the offset."""


class Tail(msgspec.Struct, frozen=True):
    """Where a journal ends."""

    index: int
    chain: bytes


class ShardJournal(Protocol):
    """One shard's journal, opened by its owner."""

    term: int
    tail: Tail

    async def append(self, index: int, parts: Sequence[Buffer]) -> int:
        """Store the frame made of these parts as frame `index`; returns its locator for `read`.

        Durable when it returns, if the engine's policy is so; `durable` says. One call at a time.
        """

    @property
    def durable(self) -> bool:
        """True if a returned append survives the loss of power."""

    @property
    def short_of_space(self) -> bool:
        """True while only what finishes messages should be written."""

    def replay(self, after: int) -> AsyncGenerator[tuple[int, Frame], None]:
        """(locator, frame) for every frame with an index greater than `after`, in order.

        What is trimmed while this runs is still delivered; what is appended meanwhile may be.
        """

    async def read_frames(self, after: int, bytes_max: int) -> list[Frame]:
        """The frames that follow `after`, about `bytes_max` of them and at least one if there is one. Empty at the end.

        Like `replay`, in pieces, and without holding up the thread of the caller. Of what was trimmed nothing is told:
        the first frame then has a higher index than `after + 1`.
        """

    def bytes_since(self, index: int) -> int:
        """About how much is stored from this frame on."""

    async def index_before(self, at_ms: int) -> int:
        """An index up to which every frame is older than this, as far as frames know their time: where a search may
        begin. Need not be the highest."""

    def read(self, locator: int, skip: int, length: int) -> bytes:
        """`length` bytes of a stored frame, from its byte `skip` on. Only for locators of this journal."""

    def where(self, locator: int, skip: int) -> str:
        """The same place in words, for messages about damage: the file and the offset in it."""

    async def trim(self, upto: int) -> None:
        """Frames up to this index will not be asked for again; the engine may drop them, whole files at a time."""

    async def roll(self) -> None:
        """Store the next frame in a new file, so that everything before it can be trimmed. `OutOfSpace` if there is no
        room for one. Nothing to do for an engine that trims frame by frame."""

    def file_ends(self) -> list[tuple[int, int]]:
        """For each file that takes no more frames, oldest first: the index of its last frame, and a locator that is not
        lower than that of any of its frames and lower than that of every later one."""

    async def first_kept(self) -> int:
        """The lowest index that `replay` could still deliver."""

    async def put_blob(self, name: str, parts: Sequence[Buffer]) -> None:
        """Store an immutable blob, whole and durable, or not at all. A name is used once."""

    def read_blob(self, name: str, start: int, length: int) -> bytes: ...

    async def list_blobs(self, prefix: str) -> list[tuple[str, int]]:
        """(name, size), sorted by name; only blobs that are whole."""

    async def delete_blob(self, name: str) -> None: ...

    async def check_space(self) -> None:
        """Look again whether there is room; called while `short_of_space`."""

    def free_bytes(self) -> int:
        """About how many bytes can still be stored. A large number where the store has no bound of its own."""

    async def hold_room_for(self, blob_bytes: int) -> None:
        """Hold back room for one more blob of this size: a snapshot, without which nothing could be trimmed."""

    async def close(self) -> None:
        """Make everything durable and let go."""


@runtime_checkable
class InlineJournal(Protocol):
    """An optional second way to append: on the caller's thread, in two steps with time for other work between them.

    A journal offers it if its store is so fast that handing a frame to another thread would take as long as writing it.
    `write` followed by `sync` is one `append`, with the same outcomes; `OutOfSpace` is raised by `write` only.
    """

    def can_write_inline(self) -> bool:
        """True if `write` would neither wait for other work of the journal nor overtake it."""

    def write(self, index: int, parts: Sequence[Buffer]) -> int:
        """Hand the frame to the store, which may begin to make it durable; returns its locator."""

    def sync(self) -> None:
        """Make the frame durable, if the engine's policy is so."""


class Engine(Protocol):
    def node_id(self, fresh: bytes) -> bytes:
        """Who writes here: the 16 bytes given at the first call ever, where the store can remember them."""

    async def acquire(self, shard: int, owner: bytes) -> ShardJournal:
        """Open a shard's journal under a new term, durable before this returns, that fences every earlier owner."""

    async def close(self) -> None: ...

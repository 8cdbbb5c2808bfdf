"""The port that every storage engine implements: it stores journals and blobs.

An engine stores bytes and enforces ownership; it does not interpret records or messages. The conformance suite in
`penstock.testing.check_engine` states the contract as tests, which every engine must pass.

A shard has a journal of frames, immutable blobs, and a head that names the snapshot from which the next owner starts.
Blobs are put first, then the head is committed, then blobs that the head does not need are deleted and frames before
it are trimmed. The head is fenced like an append, so an owner of an earlier term that still runs cannot delete anything
that its successor needs.

A write has five kinds of failure, which need different reactions:

- `Fenced`: a newer term exists. The frame was not written. The caller is no longer the owner and steps down.
- `OutOfSpace`: the frame was not written; the journal is as it was before the call.
- `StoreUnavailable`: the frame was not sent, because the store cannot be reached. The caller tries again.
- `Ambiguous`: the frame was sent and the answer is missing. The caller asks `ResolvableJournal.resolve` whether it was
  written. Only engines whose store is another process have this outcome. Calls other than `append` may be repeated
  after it.
- `Failed`: the outcome is unknown and cannot be found out in this process. The engine refuses further writes; the
  caller drops its state and reads the journal again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from penstock.batch import Buffer
from penstock.journal.frame import Frame


class EngineError(Exception):
    """Base of the errors of an engine."""


class Fenced(EngineError):
    pass


class OutOfSpace(EngineError):
    pass


class StoreUnavailable(EngineError):
    pass


class Ambiguous(EngineError):
    pass


class Failed(EngineError):
    pass


class Damaged(EngineError):
    """The store holds invalid data; the message names the file and the offset."""


class Misconfigured(EngineError):
    """The store is set up so that it cannot be used, or could lose messages; the message names the setting."""


class Tail(msgspec.Struct, frozen=True):
    """The end of a journal."""

    index: int
    chain: bytes


class Traits(msgspec.Struct, frozen=True):
    """Properties of a store that the runtime adapts to."""

    durability: Literal["memory", "disk", "replicated"]
    """The loss that a frame survives after `append` has returned: none, that of power, or that of a machine."""
    frame_bytes_max: int
    """A commit takes more entries into a frame only up to this size."""
    read_ms: float
    """About how long one `fetch` takes. 0: `peek` returns every stored byte."""
    shared: bool
    """True if owners on other machines open the same store: blob names contain the term of their owner."""


class Head(msgspec.Struct, frozen=True):
    """The snapshot from which a shard is recovered, and the frame behind which it was taken."""

    snapshot: str
    index: int


Source: TypeAlias = int | str
"""The locator of a frame, or the name of a blob."""


class Place(NamedTuple):
    """Bytes in the store."""

    source: Source
    skip: int
    length: int


class ShardJournal(Protocol):
    """One shard's journal, opened by its owner."""

    term: int
    tail: Tail

    @property
    def traits(self) -> Traits: ...

    async def append(self, index: int, parts: Sequence[Buffer]) -> int:
        """Store the frame made of these parts as frame `index`; return its locator.

        The frame is durable on return if `durable` is true. One call at a time.
        """

    @property
    def durable(self) -> bool:
        """True if a frame survives a power loss after `append` returned."""

    @property
    def short_of_space(self) -> bool:
        """True while only records that settle or remove messages should be written."""

    def replay(self, after: int) -> AsyncGenerator[tuple[int, Frame], None]:
        """Yield (locator, frame) for every frame with an index greater than `after`, in order.

        Frames trimmed during the iteration are still yielded; frames appended during the iteration may be.
        """

    async def read_frames(self, after: int, bytes_max: int) -> list[Frame]:
        """Return the frames after `after`, about `bytes_max` bytes and at least one frame if there is one; empty at the
        end.

        Like `replay` in pieces, without blocking the caller's thread. If frames were trimmed, the first frame has a
        higher index than `after + 1`.
        """

    def bytes_since(self, index: int) -> int:
        """The approximate number of bytes stored from this frame on."""

    async def index_before(self, at_ms: int) -> int:
        """An index up to which every frame is older than this time, as the start of a search. It need not be the
        highest."""

    def peek(self, source: Source, skip: int, length: int) -> bytes | None:
        """Read `length` bytes of a frame or a blob from byte `skip` on, fewer if the blob ends before.

        Returns at once: None if the bytes are not at hand, so that `fetch` has to be asked. Raises FileNotFoundError
        for a blob that does not exist.
        """

    async def fetch(self, places: Sequence[Place]) -> list[bytes]:
        """The bytes of each of these places, like `peek`. Raises StoreUnavailable if the store cannot be reached."""

    def has(self, locator: int, size: int) -> bool:
        """True if the journal has the file of this locator, and `size` bytes from it on."""

    def where(self, locator: int, skip: int) -> str:
        """The file and the offset of a locator as text, for errors about damage."""

    async def trim(self, upto: int) -> None:
        """Allow the engine to drop frames up to this index, whole files at a time.

        The caller has committed a head at or behind this index. An engine of a shared store drops nothing behind the
        head, and keeps the first frame of every term.
        """

    async def roll(self) -> None:
        """Store the next frame in a new file, so that everything before it can be trimmed. `OutOfSpace` if there is no
        room for one. Nothing to do for an engine that trims frame by frame."""

    async def scrub(self) -> None:
        """Give back space that keeps the bytes of frames that were trimmed. An engine of a store that is another
        process leaves that to the store."""

    def file_ends(self) -> list[tuple[int, int]]:
        """For each file that takes no more frames, oldest first: the index of its last frame, and a locator that is not
        lower than that of any of its frames and lower than that of every later one."""

    async def first_kept(self) -> int:
        """The lowest index that `replay` can still yield."""

    async def put_blobs(self, blobs: Sequence[tuple[str, Sequence[Buffer]]]) -> None:
        """Store immutable blobs, (name, parts) each: durable on return. A name is used once. A crash leaves any of the
        blobs, each of them whole."""

    async def head(self) -> Head | None:
        """The head that was committed last; None if there is none."""

    async def commit_head(self, head: Head) -> None:
        """Recover from this snapshot from now on: durable on return, and refused (`Fenced`) in an earlier term.

        May be repeated after `StoreUnavailable` and `Ambiguous`.
        """

    async def list_blobs(self, prefix: str) -> list[tuple[str, int]]:
        """(name, size) of the complete blobs, sorted by name."""

    async def delete_blobs(self, names: Sequence[str]) -> None:
        """Delete those of these blobs that are there."""

    async def check_space(self) -> None:
        """Measure the free space again; called while `short_of_space`."""

    def free_bytes(self) -> int:
        """About how many bytes can still be stored; a large number if the store has no bound of its own."""

    async def hold_room_for(self, blob_bytes: int) -> None:
        """Reserve space for one more blob of this size: a snapshot, without which nothing could be trimmed."""

    async def close(self) -> None:
        """Make all frames durable and release the journal."""


@runtime_checkable
class InlineJournal(Protocol):
    """An optional second way to append: on the caller's thread, in two steps with other work between them.

    A journal offers it if passing a frame to another thread would take as long as writing it.
    `write` followed by `sync` is one `append`, with the same outcomes; `OutOfSpace` is raised by `write` only.
    """

    def can_write_inline(self) -> bool:
        """True if `write` would neither wait for pending work of the journal nor overtake it."""

    def write(self, index: int, parts: Sequence[Buffer]) -> int:
        """Write the frame to the store, which may start to make it durable; return its locator."""

    def sync(self) -> None:
        """Make the frame durable, if the engine's fsync policy requires it."""


class Resolved(msgspec.Struct, frozen=True):
    """The end of a journal behind which a new term began."""

    found: Tail
    """The last frame before the frame of the new term."""
    locator: int
    """The locator of the last frame."""


@runtime_checkable
class ResolvableJournal(Protocol):
    """A journal whose appends can be `Ambiguous`."""

    async def resolve(self) -> Resolved:
        """Begin a new term of this owner, behind which no append of an earlier term can be written any more.

        The term begins with a frame without records; `term` and `tail` are those of that frame on return. Raises
        `Fenced` if another owner took over; `StoreUnavailable` or `Ambiguous` if the call must be repeated. Until it
        has returned, nothing else may be written.
        """


@runtime_checkable
class WatchedJournal(Protocol):
    """A journal that finds out by itself that its term has ended, also while its owner writes nothing."""

    on_fenced: Callable[[str], None]
    """Called with the reason."""


class Engine(Protocol):
    def node_id(self, fresh: bytes) -> bytes:
        """The 16-byte id of the store: the bytes given at the first call, or those that the store was created with.
        A store that is not persistent has a new one each time."""

    def shard_count(self, fresh: int) -> int:
        """The number of shards of this store, which never changes: the number given at the first call, if the store is
        persistent."""

    def missing(self) -> str | None:
        """Why the store must not be used now, as far as the engine knows: it is not where it was opened, or it has
        become unsafe. None: it can be used."""

    async def check(self) -> None:
        """Reach the store and make it ready for use, before any other call. Raises Misconfigured or
        StoreUnavailable."""

    async def acquire(self, shard: int, owner: bytes) -> ShardJournal:
        """Open a shard's journal under a new term, which is durable before this returns and fences every earlier
        owner."""

    async def close(self) -> None: ...

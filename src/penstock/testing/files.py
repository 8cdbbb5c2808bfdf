"""In-memory files with fault injection: unsynced writes may be lost, whole or in part.

Two kinds of failure are distinguished:

- `kill` ends the *process*. The page cache survives: the next process sees all writes, synced or not. Locks and handles
  are released.
- `crash` ends the *machine*. The disk survives. Of the writes since a file's last sync any subset may have arrived,
  each whole, torn (at a byte, a sector or a page), or as zeros; of the entries of a directory since its last sync any
  prefix. A file without a synced directory entry is lost, even if the file itself was synced.

`faults` is called before every operation that changes a file or a directory. It injects an error, or ends the process
at that point, for example between a write and its sync or between a rename and the sync of its directory. A failed sync
marks its pages clean and loses their content, as on Linux: the cache still returns the data, a second sync reports
success, and after the cache is dropped the pages are zeros. A disk with a `capacity` writes the bytes that fit and then
raises ENOSPC.

Not modelled: bit rot (use `damage`), a disk that lies about a sync, and reordering between directories and files beyond
the above. The behaviour is a function of the calls and of the given `random.Random`.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

from penstock.batch import Buffer

T = TypeVar("T")

Operation = Literal["create", "write", "sync", "truncate", "allocate", "rename", "remove", "sync_dir"]
Verdict: TypeAlias = OSError | Literal["cut"] | None
"""The decision of `faults`: no fault, an error, or (for a write) the end of the process in the middle of it."""

_PAGE_SIZES = (1, 512, 4096)
_Change: TypeAlias = tuple[Literal["write", "resize", "grow"], int, bytes]
"""A write at a position, a new size, or a minimal size: a write with lost content."""


class ProcessStopped(BaseException):
    """The simulated process has ended. A BaseException, so that no code of the process handles it."""


class _Node:
    """A file, independent of its name (an inode)."""

    __slots__ = ("allocated", "cache", "changes", "disk", "unreadable")

    def __init__(self) -> None:
        self.cache = bytearray()
        """The content that a reader sees."""
        self.disk = bytearray()
        """The content that survives a power loss."""
        self.changes: list[_Change] = []
        """The changes from `disk` to `cache`, in order."""
        self.unreadable: list[tuple[int, int]] = []
        """Pages marked clean by a failed sync; they exist in the cache only."""
        self.allocated = 0

    @property
    def size(self) -> int:
        return max(len(self.cache), self.allocated)

    def change(self, change: _Change) -> None:
        self.changes.append(change)
        _make(change, self.cache)

    def sync(self) -> None:
        for change in self.changes:
            _make(change, self.disk)
        self.changes.clear()

    def fail_sync(self) -> None:
        """Sizes are metadata and stay pending; the content of the pages is lost."""
        for position, (kind, at, data) in enumerate(self.changes):
            if kind == "write":
                self.unreadable.append((at, at + len(data)))
                self.changes[position] = ("grow", at + len(data), b"")

    def drop_cache(self) -> None:
        for first, stop in self.unreadable:
            length = min(stop, len(self.cache)) - first
            if length > 0:
                self.cache[first : first + length] = bytes(self.disk[first : first + length]).ljust(length, b"\0")
        self.unreadable.clear()

    def crash(self, rng: Random) -> None:
        for change in _survivors(self.changes, rng):
            _make(change, self.disk)
        self.cache = bytearray(self.disk)
        self.changes.clear()
        self.unreadable.clear()


class _Directory:
    __slots__ = ("changes", "disk", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.disk: dict[str, _Node] = {}
        self.changes: list[tuple[str, _Node | None, str | None]] = []
        """(name, its new file or None, the name it was renamed from), in order."""

    def set(self, name: str, node: _Node | None, renamed_from: str | None = None) -> None:
        self.changes.append((name, node, renamed_from))
        _set_entry(self.entries, name, node, renamed_from)

    def sync(self) -> None:
        self.disk = dict(self.entries)
        self.changes.clear()

    def crash(self, rng: Random) -> None:
        for name, node, renamed_from in self.changes[: rng.randint(0, len(self.changes))]:
            _set_entry(self.disk, name, node, renamed_from)
        self.entries = dict(self.disk)
        self.changes.clear()


class SimFiles:
    """The files of one simulated machine; implements `penstock.engines.local.files.Files`.

    One object outlives the processes that use it: after `kill` or `crash` the next process simply opens its files.
    """

    def __init__(
        self,
        *,
        latency: Callable[[], float] = lambda: 0.0,
        faults: Callable[[Operation, str], Verdict] = lambda _operation, _path: None,
        on_stop: Callable[[], None] = lambda: None,
    ):
        self.latency = latency
        """Duration in seconds of the next offloaded call."""
        self.faults = faults
        self.on_stop = on_stop
        """Called when `faults` ends the process. The callback must call `kill` or `crash` after the stack is
        unwound."""
        self.capacity: int | None = None
        """Size of the disk in bytes; None means unlimited."""
        self._directories: dict[str, _Directory] = {}
        self._handles: dict[int, tuple[_Node, str]] = {}
        self._next_handle = 3
        self._locks: dict[str, int] = {}
        self._work: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._timer: asyncio.Handle | None = None
        self._dying = False
        """True after the process was ended in the middle of a call: further operations of its stack fail."""

    # -- failures -----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End the process: its pending work, handles and locks are gone; its writes can still be read."""
        self._dying = False
        self._handles.clear()
        self._locks.clear()
        self._work.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def crash(self, rng: Random) -> None:
        """Cut the power of the machine. The random generator decides which unsynced writes had arrived."""
        self.kill()
        nodes: dict[int, _Node] = {}
        for directory in self._directories.values():
            directory.crash(rng)
            for node in directory.entries.values():
                nodes[id(node)] = node
        for node in nodes.values():
            node.crash(rng)
        if self.capacity:
            # A file is back if its removal did not arrive.
            self.capacity = max(self.capacity, self.used())

    def damage(self, path: str, at: int, mask: int) -> None:
        """Flip bits of a byte on the disk and in the cache (bit rot)."""
        node = self._find(path)
        for content in (node.disk, node.cache):
            if at < len(content):
                content[at] ^= mask

    def length(self, path: str) -> int:
        return self._find(path).size

    def used(self) -> int:
        """Bytes of the files that have a name or a handle."""
        nodes = {id(node): node for directory in self._directories.values() for node in directory.entries.values()}
        nodes.update((id(node), node) for node, _ in self._handles.values())
        return sum(node.size for node in nodes.values())

    def paths(self) -> list[str]:
        return [f"{place}/{name}" for place, directory in self._directories.items() for name in directory.entries]

    # -- Files --------------------------------------------------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        self._directories.setdefault(path, _Directory())

    def is_at(self, handle: int, path: str) -> bool:
        return self.exists(path) and self._find(path) is self._handles[handle][0]

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def sync_dir(self, path: str) -> None:
        self._fault("sync_dir", path)
        self._directory(path).sync()

    def open(self, path: str, *, create: bool = False) -> int:
        if not create:
            return self._handle(self._find(path), path)
        directory, name = self._split(path)
        if name in directory.entries:
            raise FileExistsError(errno.EEXIST, "the file exists already", path)
        return self._create(directory, name, path)

    def open_cell(self, path: str) -> int:
        directory, name = self._split(path)
        node = directory.entries.get(name)
        return self._handle(node, path) if node is not None else self._create(directory, name, path)

    def close(self, handle: int) -> None:
        if self._dying:
            raise ProcessStopped
        _, path = self._node(handle)
        del self._handles[handle]
        if self._locks.get(path) == handle:
            del self._locks[path]

    def size(self, handle: int) -> int:
        return self._node(handle)[0].size

    def write(self, handle: int, at: int, parts: Sequence[Buffer]) -> None:
        node, path = self._node(handle)
        data = b"".join(parts)
        verdict = self._ask("write", path)
        if verdict is not None:
            # Half of the bytes stand for any partial write.
            self._put(node, at, data[: len(data) // 2])
            self._carry_out(verdict)
        self._put(node, at, data)

    def read(self, handle: int, at: int, length: int) -> bytes:
        return bytes(self._node(handle)[0].cache[at : at + length])

    def sync(self, handle: int) -> None:
        node, path = self._node(handle)
        verdict = self._ask("sync", path)
        if verdict is not None:
            if verdict != "cut":
                node.fail_sync()
            self._carry_out(verdict)
        node.sync()

    def begin_sync(self, handle: int, at: int, length: int) -> None:
        """A hint without effect here: a disk may write pending pages at any time anyway."""

    def truncate(self, handle: int, size: int) -> None:
        node, path = self._node(handle)
        self._fault("truncate", path)
        node.change(("resize", size, b""))

    def allocate(self, handle: int, size: int) -> None:
        node, path = self._node(handle)
        self._fault("allocate", path)
        if self.capacity is not None and self.used() - node.size + size > self.capacity:
            raise OSError(errno.ENOSPC, "the disk is full", path)
        node.allocated = size

    def free(self, path: str) -> int:  # noqa: ARG002  there is one disk
        return 1 << 40 if self.capacity is None else max(0, self.capacity - self.used())

    def drop_cache(self, handle: int) -> None:
        self._node(handle)[0].drop_cache()

    def rename(self, old: str, new: str) -> None:
        self._fault("rename", new)
        directory, name = self._split(new)
        source, old_name = self._split(old)
        assert source is directory, "a rename must stay within one directory"
        node = self._find(old)
        directory.set(name, node, old_name)

    def remove(self, path: str) -> None:
        directory, name = self._split(path)
        if name in directory.entries:
            self._fault("remove", path)
            directory.set(name, None)

    def exists(self, path: str) -> bool:
        place, _, name = path.rpartition("/")
        directory = self._directories.get(place)
        return path in self._directories or (directory is not None and name in directory.entries)

    def lock(self, path: str) -> int:
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "the lock is held", path)
        handle = self.open_cell(path)
        self._locks[path] = handle
        return handle

    async def offload(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._work.append((work, future))
        if self._timer is None:
            self._timer = loop.call_later(self.latency(), self._do_next)
        return await future

    async def offload_bulk(self, work: Callable[[], T]) -> T:
        """Uses the same queue as `offload`: this disk has only one."""
        return await self.offload(work)

    def idle(self) -> bool:
        return self._timer is None

    def stop(self) -> None:
        """No-op: there is no thread to stop."""

    def _do_next(self) -> None:
        work, future = self._work.popleft()
        self._timer = None
        try:
            result = work()
        except ProcessStopped:
            return
        except BaseException as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)
        if self._work and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.latency(), self._do_next)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _ask(self, operation: Operation, path: str) -> Verdict:
        if self._dying:
            raise ProcessStopped
        return self.faults(operation, path)

    def _fault(self, operation: Operation, path: str) -> None:
        verdict = self._ask(operation, path)
        if verdict is not None:
            self._carry_out(verdict)

    def _carry_out(self, verdict: OSError | Literal["cut"]) -> NoReturn:
        if verdict != "cut":
            raise verdict
        self._dying = True
        self.on_stop()
        raise ProcessStopped

    def _put(self, node: _Node, at: int, data: bytes) -> None:
        growth = at + len(data) - node.size
        fits = len(data)
        if growth > 0 and self.capacity is not None:
            fits -= max(0, min(fits, growth - max(0, self.capacity - self.used())))
        if fits:
            node.change(("write", at, data[:fits]))
        if fits < len(data):
            raise OSError(errno.ENOSPC, "the disk is full")

    def _create(self, directory: _Directory, name: str, path: str) -> int:
        self._fault("create", path)
        node = _Node()
        directory.set(name, node)
        return self._handle(node, path)

    def _handle(self, node: _Node, path: str) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = (node, path)
        return handle

    def _node(self, handle: int) -> tuple[_Node, str]:
        found = self._handles.get(handle)
        if found is None:
            raise OSError(errno.EBADF, "no such handle")
        return found

    def _directory(self, path: str) -> _Directory:
        directory = self._directories.get(path)
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return directory

    def _split(self, path: str) -> tuple[_Directory, str]:
        place, _, name = path.rpartition("/")
        return self._directory(place), name

    def _find(self, path: str) -> _Node:
        directory, name = self._split(path)
        node = directory.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node


def _make(change: _Change, content: bytearray) -> None:
    kind, at, data = change
    if kind == "write":
        if at > len(content):
            content.extend(bytes(at - len(content)))
        content[at : at + len(data)] = data
    elif at > len(content):
        content.extend(bytes(at - len(content)))
    elif kind == "resize":
        del content[at:]


def _set_entry(entries: dict[str, _Node], name: str, node: _Node | None, renamed_from: str | None) -> None:
    if renamed_from is not None:
        entries.pop(renamed_from, None)
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _survivors(changes: list[_Change], rng: Random) -> list[_Change]:
    """The changes that had reached the disk at the power loss."""
    if not changes:
        return []
    chance = rng.random()
    if chance < 0.25:
        return []
    kept = list(changes)
    if chance < 0.5:
        kept = kept[: rng.randint(1, len(kept))]
    elif chance < 0.75:
        kept = [change for change in kept if rng.random() < 0.5]
    if kept and rng.random() < 0.6:
        victim = rng.randrange(len(kept))
        kept[victim : victim + 1] = _torn(kept[victim], rng)
    return kept


def _torn(change: _Change, rng: Random) -> list[_Change]:
    """The parts of a write of which only some pages arrived; pages beyond the old end of the file may be zeros."""
    kind, at, data = change
    if kind != "write":
        return []
    page = rng.choice(_PAGE_SIZES)
    if page == 1:
        pieces: list[_Change] = [("write", at, data[: rng.randint(0, len(data))])]
    else:
        cuts = [at, *range(at - at % page + page, at + len(data), page), at + len(data)]
        pieces = [
            ("write", first, data[first - at : stop - at]) for first, stop in pairwise(cuts) if rng.random() < 0.5
        ]
    if rng.random() < 0.5:
        pieces.append(("grow", at + len(data), b""))
    return pieces

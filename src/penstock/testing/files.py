"""Files in memory that behave like a disk on a bad day: what was not synced may be gone, whole or in part.

Two things a program can lose are kept apart, because the remedies differ:

- A *process* that dies (`kill`) leaves the page cache behind. Whoever opens the files next sees everything that was
  written, synced or not; locks and handles are gone.
- A *machine* that dies (`crash`) leaves the platter behind. Of the writes since a file's last sync any subset may
  have arrived, each whole, torn (at a byte, a sector or a page), or as zeros; of the entries of a directory since its
  last sync any prefix. A file whose entry never arrived is gone, however often it was synced itself.

Errors are injected by `faults`, which is asked before every operation that changes something. A sync that fails marks
its pages clean and forgets their content, as Linux does: the data can still be read through the cache, a second sync
reports success, and after the cache is dropped there are zeros. A disk with a `capacity` writes what fits and then
raises ENOSPC.

Not modelled: bytes that rot in place (use `damage`), a disk that lies about a sync, reordering between directories
and files beyond what the above allows. Everything is a function of the calls and of the `random.Random` passed in.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal, TypeAlias, TypeVar

from penstock.batch import Buffer

T = TypeVar("T")

Operation = Literal["create", "write", "write_at", "sync", "truncate", "allocate", "rename", "remove", "sync_dir"]
Verdict: TypeAlias = OSError | Literal["cut"] | None
"""What `faults` wants: nothing, an error, or (of a write) that the process dies in the middle of it."""

_PAGE_SIZES = (1, 512, 4096)
_Change: TypeAlias = tuple[int, bytes | None]
"""A write at a position, or (with None) a new size."""


class ProcessStopped(BaseException):
    """The process is no more. Not an Exception: no code of the process may handle its own death."""


class _Node:
    """A file, whatever its name is now."""

    __slots__ = ("allocated", "cache", "changes", "disk", "handles", "links", "unreadable")

    def __init__(self) -> None:
        self.cache = bytearray()
        """What a reader sees."""
        self.disk = bytearray()
        """What is there when the power goes."""
        self.changes: list[_Change] = []
        """From `disk` to `cache`, in order."""
        self.unreadable: list[tuple[int, int]] = []
        """Pages marked clean by a failed sync: in the cache, nowhere else."""
        self.allocated = 0
        self.links = 0
        self.handles = 0

    @property
    def size(self) -> int:
        return max(len(self.cache), self.allocated)

    def sync(self) -> None:
        for at, data in self.changes:
            _write(self.disk, at, data)
        self.changes.clear()

    def fail_sync(self) -> None:
        """Sizes are metadata and stay pending; the content of the pages is lost."""
        for position, (at, data) in enumerate(self.changes):
            if data is not None:
                self.unreadable.append((at, at + len(data)))
                self.changes[position] = (at + len(data), None)
        # A file never shrinks by being written to.
        size = len(self.disk)
        kept: list[_Change] = []
        for at, _ in self.changes:
            size = at if at < size and (at, None) in self.changes and not self._written(at) else max(size, at)
            kept.append((size, None))
        self.changes = kept

    def _written(self, stop: int) -> bool:
        return any(stop == end for _, end in self.unreadable)

    def drop_cache(self) -> None:
        for first, stop in self.unreadable:
            stop = min(stop, len(self.cache))
            there = bytes(self.disk[first:stop])
            self.cache[first:stop] = there + bytes(max(0, stop - first - len(there)))
        self.unreadable.clear()

    def crash(self, rng: Random) -> None:
        if self.changes:
            kept = _survivors(self.changes, rng)
            for at, data in kept:
                _write(self.disk, at, data)
        self.cache = bytearray(self.disk)
        self.changes.clear()
        self.unreadable.clear()


class _Directory:
    __slots__ = ("changes", "disk", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.disk: dict[str, _Node] = {}
        self.changes: list[tuple[str, _Node | None, str | None]] = []
        """(name, the file it now means or None, the name it was renamed from), in order."""

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
        on_stop: Callable[[ProcessStopped], None] | None = None,
    ):
        self.latency = latency
        """Seconds that the next piece of offloaded work takes."""
        self.faults = faults
        self.on_stop = on_stop
        """Told when `faults` ended the process inside offloaded work."""
        self.capacity: int | None = None
        """Bytes the disk has; None for as many as you like."""
        self._directories: dict[str, _Directory] = {}
        self._handles: dict[int, tuple[_Node, str]] = {}
        self._next_handle = 3
        self._locks: dict[str, int] = {}
        self._work: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._timer: asyncio.Handle | None = None

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process ends: no more of its work is done, its handles and locks are gone. Written bytes stay readable."""
        for node, _ in self._handles.values():
            node.handles = 0
        self._handles.clear()
        self._locks.clear()
        self._work.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def crash(self, rng: Random) -> None:
        """The machine loses its power, and the process with it. Chance decides what of the unsynced had arrived."""
        self.kill()
        nodes: dict[int, _Node] = {}
        for directory in self._directories.values():
            directory.crash(rng)
            for node in directory.entries.values():
                nodes[id(node)] = node
        for node in nodes.values():
            node.crash(rng)
            node.links = 0
        for directory in self._directories.values():
            for node in directory.entries.values():
                node.links += 1

    def damage(self, path: str, at: int, mask: int) -> None:
        """Flip bits of a byte on the platter, and in the cache: what `crash` never does."""
        node = self._find(path)
        node.disk[at] ^= mask
        node.cache[at] ^= mask

    def used(self) -> int:
        """Bytes taken by files that have a name or a handle."""
        nodes = {id(node): node for directory in self._directories.values() for node in directory.entries.values()}
        nodes.update((id(node), node) for node, _ in self._handles.values())
        return sum(node.size for node in nodes.values())

    def paths(self) -> list[str]:
        return [f"{place}/{name}" for place, directory in self._directories.items() for name in directory.entries]

    # -- Files --------------------------------------------------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        self._directories.setdefault(path, _Directory())

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
            raise FileExistsError(errno.EEXIST, "it is there already", path)
        return self._create(directory, name, path)

    def open_cell(self, path: str) -> int:
        directory, name = self._split(path)
        node = directory.entries.get(name)
        return self._handle(node, path) if node is not None else self._create(directory, name, path)

    def close(self, handle: int) -> None:
        node, path = self._node(handle)
        node.handles -= 1
        del self._handles[handle]
        if self._locks.get(path) == handle:
            del self._locks[path]

    def size(self, handle: int) -> int:
        return self._node(handle)[0].size

    def write(self, handle: int, parts: Sequence[Buffer]) -> None:
        node, path = self._node(handle)
        data = b"".join(parts)
        verdict = self.faults("write", path)
        if verdict is not None:
            # Half of it is as good as any part of it: what counts is that it is neither all nor nothing.
            self._put(node, len(node.cache), data[: len(data) // 2])
            raise ProcessStopped if verdict == "cut" else verdict
        self._put(node, len(node.cache), data)

    def write_at(self, handle: int, at: int, data: bytes) -> None:
        node, path = self._node(handle)
        self._fault("write_at", path)
        self._put(node, at, data)

    def read(self, handle: int, at: int, length: int) -> bytes:
        return bytes(self._node(handle)[0].cache[at : at + length])

    def sync(self, handle: int) -> None:
        node, path = self._node(handle)
        verdict = self.faults("sync", path)
        if verdict is not None:
            if verdict == "cut":
                raise ProcessStopped
            node.fail_sync()
            raise verdict
        node.sync()

    def truncate(self, handle: int, size: int) -> None:
        node, path = self._node(handle)
        self._fault("truncate", path)
        node.changes.append((size, None))
        _write(node.cache, size, None)

    def allocate(self, handle: int, size: int) -> None:
        node, path = self._node(handle)
        self._fault("allocate", path)
        if self.capacity is not None and self.used() - node.size + size > self.capacity:
            raise _full(path)
        node.allocated = size

    def drop_cache(self, handle: int) -> None:
        self._node(handle)[0].drop_cache()

    def rename(self, old: str, new: str) -> None:
        self._fault("rename", new)
        directory, name = self._split(new)
        source, old_name = self._split(old)
        assert source is directory, "only names of one directory are swapped at once"
        node = self._find(old)
        replaced = directory.entries.get(name)
        if replaced is not None:
            replaced.links -= 1
        directory.set(name, node, old_name)

    def remove(self, path: str) -> None:
        directory, name = self._split(path)
        node = directory.entries.get(name)
        if node is not None:
            self._fault("remove", path)
            node.links -= 1
            directory.set(name, None)

    def exists(self, path: str) -> bool:
        place, _, name = path.rpartition("/")
        directory = self._directories.get(place)
        return path in self._directories or (directory is not None and name in directory.entries)

    def lock(self, path: str) -> int:
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "somebody has the lock", path)
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

    def _do_next(self) -> None:
        work, future = self._work.popleft()
        self._timer = None
        try:
            result = work()
        except ProcessStopped as stopped:
            if self.on_stop is None:
                raise
            self.on_stop(stopped)
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

    def _fault(self, operation: Operation, path: str) -> None:
        verdict = self.faults(operation, path)
        if verdict is not None:
            raise ProcessStopped if verdict == "cut" else verdict

    def _put(self, node: _Node, at: int, data: bytes) -> None:
        growth = at + len(data) - node.size
        if growth > 0 and self.capacity is not None:
            short = growth - max(0, self.capacity - self.used())
            if short > 0:
                data = data[: max(0, len(data) - short)]
                if data:
                    node.changes.append((at, data))
                    _write(node.cache, at, data)
                raise _full("")
        if data:
            node.changes.append((at, data))
            _write(node.cache, at, data)

    def _create(self, directory: _Directory, name: str, path: str) -> int:
        self._fault("create", path)
        node = _Node()
        node.links = 1
        directory.set(name, node)
        return self._handle(node, path)

    def _handle(self, node: _Node, path: str) -> int:
        handle = self._next_handle
        self._next_handle += 1
        node.handles += 1
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

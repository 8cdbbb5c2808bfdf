"""The only module that touches the disk. `penstock.testing.files` has the twin that forgets what was not synced.

Handles are integers. Every method may raise OSError; no layer below the journal interprets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

from penstock.batch import Buffer
from penstock.engines.local.writeback import begin_writing

T = TypeVar("T")

_Work: TypeAlias = tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]

IOV_MAX = 1000
"""Buffers per call of writev; Linux allows 1,024."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a write on a full disk or over a quota."""


class Files(Protocol):
    def make_dir(self, path: str) -> None:
        """Create the directory if it is not there, and those above it; their entries are durable afterwards."""

    def list_dir(self, path: str) -> list[str]: ...
    def sync_dir(self, path: str) -> None: ...
    def open(self, path: str, *, create: bool = False) -> int:
        """For reading and writing. With `create` the file must not exist yet."""

    def open_cell(self, path: str) -> int:
        """Like `open`, created empty if it is not there."""

    def close(self, handle: int) -> None: ...
    def size(self, handle: int) -> int: ...
    def write(self, handle: int, at: int, parts: Sequence[Buffer]) -> None:
        """All of it, from position `at` on. If it raises, any part of it may have been written."""

    def read(self, handle: int, at: int, length: int) -> bytes:
        """Fewer bytes only at the end of the file."""

    def sync(self, handle: int) -> None: ...
    def begin_sync(self, handle: int, at: int, length: int) -> None:
        """These bytes will be synced in a moment: the disk may begin to write them. Promises nothing."""

    def truncate(self, handle: int, size: int) -> None: ...
    def allocate(self, handle: int, size: int) -> None:
        """Make sure that `size` bytes are really there."""

    def free(self, path: str) -> int:
        """Bytes that can still be written to the file system of this directory."""

    def drop_cache(self, handle: int) -> None:
        """Forget cached pages, so that the next read sees what the disk has."""

    def rename(self, old: str, new: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def exists(self, path: str) -> bool: ...
    def is_at(self, handle: int, path: str) -> bool:
        """True if this is the path of the open file still."""

    def lock(self, path: str) -> int:
        """An exclusive lock that ends with the process. BlockingIOError if another process has it."""

    async def offload(self, work: Callable[[], T]) -> T:
        """Run blocking work without stopping the loop. Work of one `Files` runs in the order it was given."""

    async def offload_bulk(self, work: Callable[[], T]) -> T:
        """Like `offload`, in a queue of its own: for what takes long, and no commit should have to wait behind."""

    def idle(self) -> bool:
        """True if work done on the caller's own thread would neither wait for offloaded work nor overtake it, and the
        disk has nothing large to do that would make it slow."""

    def stop(self) -> None:
        """There will be no more work to offload."""


class OsFiles:
    """Real files, through two worker threads: one for commits, and one for what is large and in no hurry.

    Measured: a commit behind half a megabyte that is being synced takes 8 ms longer, beside it none.
    """

    def __init__(self) -> None:
        self._worker: DiskWorker | None = None
        self._bulk_worker: DiskWorker | None = None

    def make_dir(self, path: str) -> None:
        if not os.path.isdir(path):
            parent = os.path.dirname(path.rstrip("/")) or "."
            self.make_dir(parent)
            os.mkdir(path, mode=0o700)
            self.sync_dir(parent)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def open(self, path: str, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        return os.open(path, flags | os.O_CREAT | os.O_EXCL if create else flags, 0o600)

    def open_cell(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self, handle: int) -> None:
        os.close(handle)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def write(self, handle: int, at: int, parts: Sequence[Buffer]) -> None:
        written = 0
        if len(parts) <= IOV_MAX:
            written = os.pwritev(handle, parts, at)
            if written == sum(map(len, parts)):
                return
        # A short write is not an error: it is an invitation to go on.
        waiting = list(parts)
        while waiting:
            if not written:
                written = os.pwritev(handle, waiting[:IOV_MAX], at)
            at += written
            done = 0
            while done < len(waiting) and written >= len(waiting[done]):
                written -= len(waiting[done])
                done += 1
            del waiting[:done]
            if written:
                waiting[0] = memoryview(waiting[0])[written:]
                written = 0

    def read(self, handle: int, at: int, length: int) -> bytes:
        try:
            return self._read(handle, at, length)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{_path_of(handle)}, offset {at}") from None

    def _read(self, handle: int, at: int, length: int) -> bytes:
        data = os.pread(handle, length, at)
        if len(data) == length or not data:
            return data
        chunks = [data]
        while (missing := length - sum(map(len, chunks))) and (
            more := os.pread(handle, missing, at + length - missing)
        ):
            chunks.append(more)
        return b"".join(chunks)

    def sync(self, handle: int) -> None:
        os.fdatasync(handle)

    begin_sync = staticmethod(begin_writing)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def allocate(self, handle: int, size: int) -> None:
        os.posix_fallocate(handle, 0, size)

    def free(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def drop_cache(self, handle: int) -> None:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True  # not `os.path.exists`: a disk that cannot be read is no reason to believe that nothing is there

    def is_at(self, handle: int, path: str) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def lock(self, path: str) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return fd

    async def offload(self, work: Callable[[], T]) -> T:
        if self._worker is None:
            self._worker = DiskWorker()
        return await self._worker.run(work)

    async def offload_bulk(self, work: Callable[[], T]) -> T:
        if self._bulk_worker is None:
            self._bulk_worker = DiskWorker()
        return await self._bulk_worker.run(work)

    def idle(self) -> bool:
        worker, bulk = self._worker, self._bulk_worker
        return (worker is None or not worker.outstanding) and (bulk is None or not bulk.outstanding)

    def stop(self) -> None:
        for worker in (self._worker, self._bulk_worker):
            if worker is not None:
                worker.stop()
        self._worker = self._bulk_worker = None


class DiskWorker:
    """A thread that does one piece of work after another.

    An executor would do, at twice the price: its two futures and their chaining cost more than a small commit's write.
    """

    def __init__(self) -> None:
        self.outstanding = 0
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        threading.Thread(target=self._run, name="penstock-disk", daemon=True).start()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.outstanding += 1
        self._work.put((work, future, loop))
        return future

    def stop(self) -> None:
        self._work.put(None)

    def _run(self) -> None:
        while (given := self._work.get()) is not None:
            work, future, loop = given
            result: Any = None
            failure: BaseException | None = None
            try:
                result = work()
            except BaseException as error:
                failure = error
            # The caller may have been cancelled and have closed its loop since.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._settle, future, result, failure)
            del given, work, future, result, failure

    def _settle(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self.outstanding -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _path_of(handle: int) -> str:
    """The path of an open file, for an error message."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return "a file"


def portions(parts: Sequence[Buffer], size: int) -> Iterator[list[Buffer]]:
    """The parts, in order, in portions of about this size; at least one."""
    portion: list[Buffer] = []
    held, given = 0, False
    for part in parts:
        portion.append(part)
        held += len(part)
        if held >= size:
            yield portion
            portion, held, given = [], 0, True
    if portion or not given:
        yield portion

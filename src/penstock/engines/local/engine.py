"""The embedded default: journals and blobs as files in one directory, owned by one process."""

from __future__ import annotations

import asyncio

from penstock import limits
from penstock.engines.local.files import Files, OsFiles
from penstock.engines.local.journal import ZERO_AHEAD_BYTES, LocalJournal
from penstock.engines.local.recovery import Fsync
from penstock.errors import InvalidRequest, Unavailable
from penstock.ids import ULID_CHARS, ulid_text, ulid_value
from penstock.journal.frame import PAGE_BYTES
from penstock.journal.port import Damaged

SHARDS_CHARS = 5


class LocalEngine:
    """Holds the lock of a data directory from construction to `close`, or for one of several processes that share the
    directory the locks of its shards."""

    def __init__(
        self,
        root: str,
        *,
        fsync: Fsync = "always",
        files: Files | None = None,
        segment_bytes: int = limits.JOURNAL_SEGMENT_BYTES,
        zero_ahead_bytes: int = ZERO_AHEAD_BYTES,
        page_bytes: int = PAGE_BYTES,
        process: int | None = None,
    ):
        """`process`: the number of this process among those that share the directory, under a process that holds its
        lock."""
        self._root = root
        self._process = process
        self._reserve = f"{root}/reserve-{process}" if process else f"{root}/reserve"
        self._locks: dict[int, int] = {}
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._zero_ahead_bytes = zero_ahead_bytes
        self._page_bytes = page_bytes
        self._files: Files = files or OsFiles()
        self._journals: dict[int, LocalJournal] = {}
        self._acquiring = asyncio.Lock()
        self._files.make_dir(root)
        if process is None:
            self._lock = self._take_lock(f"{root}/lock", root)
            for name in self._files.list_dir(root):
                if name.startswith("reserve-"):  # of processes that shared the directory
                    self._files.remove(f"{root}/{name}")
        else:
            self._lock = self._files.open(f"{root}/lock")

    def _take_lock(self, path: str, what: str) -> int:
        try:
            return self._files.lock(path)
        except BlockingIOError:
            raise Unavailable(
                f"{what} is in use by another process; two brokers on one data directory would destroy it"
            ) from None

    def node_id(self, fresh: bytes) -> bytes:
        """Kept in the file `node`, as the text of a ULID."""
        files, path = self._files, f"{self._root}/node"
        if files.exists(path):
            handle = files.open(path)
            text = files.read(handle, 0, ULID_CHARS)
            files.close(handle)
            try:
                return ulid_value(text.decode("ascii", "replace")).to_bytes(16, "big")
            except InvalidRequest:
                raise Damaged(f"{path}, offset 0: this is not the id of a node") from None
        if files.exists(f"{self._root}/shard-0/term"):
            raise Damaged(f"{path}, offset 0: the file is missing, and leases and positions name the id that was in it")
        self._write_once(path, ulid_text(int.from_bytes(fresh, "big")))
        return fresh

    def shard_count(self, fresh: int) -> int:
        """Kept in the file `shards`, as a decimal number; a directory without the file has one shard."""
        files, path = self._files, f"{self._root}/shards"
        if files.exists(path):
            handle = files.open(path)
            text = files.read(handle, 0, SHARDS_CHARS).decode("ascii", "replace").rstrip("\n")
            files.close(handle)
            if not text.isdigit() or not 1 <= int(text) <= limits.SHARDS_MAX:
                raise Damaged(f"{path}, offset 0: this is not a number of shards")
            return int(text)
        if files.exists(f"{self._root}/shard-1/term"):
            raise Damaged(f"{path}, offset 0: the file is missing, and the directory has several shards")
        if fresh == 1 or files.exists(f"{self._root}/shard-0/term"):
            return 1
        self._write_once(path, str(fresh))
        return fresh

    def _write_once(self, path: str, text: str) -> None:
        files = self._files
        files.remove(f"{path}.tmp")
        handle = files.open(f"{path}.tmp", create=True)
        files.write(handle, 0, [text.encode() + b"\n"])
        files.sync(handle)
        files.close(handle)
        files.rename(f"{path}.tmp", path)
        files.sync_dir(self._root)

    async def check(self) -> None:
        return

    def missing(self) -> str | None:
        if self._files.is_at(self._lock, f"{self._root}/lock"):
            return None
        return f"the data directory {self._root} was deleted or moved away"

    async def acquire(self, shard: int, owner: bytes) -> LocalJournal:  # noqa: ARG002  the lock stands for the owner
        # The lock of the directory excludes other processes; within this process only the latest owner may write. One
        # at a time: an owner has to be known before the next one can fence it.
        async with self._acquiring:
            if self._process is not None and shard not in self._locks:
                # A process that was stopped keeps its locks until it is killed.
                self._locks[shard] = self._take_lock(f"{self._root}/lock-{shard}", f"shard {shard} of {self._root}")
            earlier = self._journals.pop(shard, None)
            if earlier is not None:
                earlier.fence()
            journal = LocalJournal(
                self._files, f"{self._root}/shard-{shard}", shard, self._reserve, self._fsync,
                self._segment_bytes, self._zero_ahead_bytes, self._page_bytes,
            )  # fmt: skip
            await self._files.offload(journal.open)
            self._journals[shard] = journal
            return journal

    async def close(self) -> None:
        for lock in (self._lock, *self._locks.values()):
            self._files.close(lock)
        self._files.stop()

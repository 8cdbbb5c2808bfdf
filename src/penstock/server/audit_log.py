"""The audit trail of a server: one JSON object per line in `audit.log`, chained by hashes.

Each entry has the SHA-256 of the entry before it (`previous`), and its own (`hash`) over its line with an empty `hash`.
A changed, removed or inserted entry breaks the chain at that place. A chain that is cut off at its end, or rewritten as
a whole, is told only by a hash that was noted elsewhere: `penstock audit verify` prints the newest.

Writers wait for one fsync together. A line that a crash cut off was never answered for: it is removed at open.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.broker.audit import ORIGIN
from penstock.clock import Clock
from penstock.errors import Unavailable
from penstock.logs import get_logger
from penstock.security.buckets import Rate, TokenBucket
from penstock.security.principal import Principal
from penstock.wire.audit import AuditEntry, AuditStateReply

NAME = "audit.log"
FIRST = "0" * 64
_NOTES = Rate(100, "m")
"""Refusals that are kept, of known actors and of others each; of the rest only the number."""
_log = get_logger("penstock.audit")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode


class AuditFinding(NamedTuple):
    """The outcome of a verification."""

    entries: int
    newest: str
    """The hash of the last entry."""
    problem: str = ""


class AuditLog:
    """Appends to the file. Raises OSError if it cannot be opened, Unavailable if its end is not an entry."""

    def __init__(self, path: Path, clock: Clock):
        self._clock = clock
        self._path = path
        self._sequence, self._previous = _cut_torn_line(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pending: list[AuditEntry] = []
        self._writing = asyncio.Lock()
        self._notes = {True: TokenBucket(_NOTES), False: TokenBucket(_NOTES)}
        """Of known actors, and of others: a flood of wrong credentials does not hide what known actors try."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._dropped = 0
        self._failed = False

    async def write(self, actor: Principal | None, operation: str, object: str, result: str) -> None:
        origin = ORIGIN.get()
        kind, id, name = (actor.kind, actor.id, actor.name) if actor is not None else ("", "", "")
        self._pending.append(
            AuditEntry(
                self._clock.now_ms(), kind, id, name, origin.address, origin.request, operation, object, result,
            )
        )  # fmt: skip
        # A writer that goes away ends neither the write nor its turn: the next entry follows this one in the chain.
        task = asyncio.get_running_loop().create_task(self._write_pending(self._pending[-1]))
        self._tasks.add(task)
        task.add_done_callback(self._written)
        await asyncio.shield(task)

    async def _write_pending(self, mine: AuditEntry) -> None:
        async with self._writing:
            if any(entry is mine for entry in self._pending):
                entries, self._pending = self._pending, []
                await self._append(entries)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the writer may have gone, and then the error has no other reader

    async def _append(self, entries: list[AuditEntry]) -> None:
        if self._failed:
            raise _unwritable()
        lines = []
        for entry in entries:
            self._sequence += 1
            entry.sequence, entry.previous = self._sequence, self._previous
            entry.hash = self._previous = _hash(entry)
            lines.append(_encode(entry) + b"\n")
        try:
            await asyncio.to_thread(self._sync, b"".join(lines))
        except OSError as error:
            # The end of the file is unknown now; the next start reads it again.
            self._failed = True
            _log.critical("audit_write_failed", reason=str(error))
            raise _unwritable() from None

    def _sync(self, data: bytes) -> None:
        written = os.write(self._file, data)
        if written != len(data):
            raise OSError("the disk took only a part of the entry")
        os.fsync(self._file)

    def note(self, actor: Principal | None, operation: str, object: str, result: str) -> None:
        if self._notes[actor is not None].take(self._clock.monotonic()):
            self._dropped += 1
            return
        if self._dropped:
            result, self._dropped = f"{result} (and {self._dropped} more refusals)", 0
        task = asyncio.get_running_loop().create_task(self.write(actor, operation, object, result))
        self._tasks.add(task)
        task.add_done_callback(self._written)

    def read(self, after: int | None, limit: int) -> list[AuditEntry]:
        """Entries with a higher sequence number, or the newest ones; oldest first. Costs what is returned."""
        with _mapped(self._path) as trail:
            end = trail.rfind(b"\n") + 1
            if after is None:
                begin = end
                for _ in range(limit):
                    begin = _line_start(trail, begin)
            else:
                begin = _behind(trail, end, after)
                limit_end = begin
                for _ in range(limit):
                    limit_end = trail.find(b"\n", limit_end, end) + 1 or end
                end = limit_end
            return [_decode(line) for line in trail[begin:end].splitlines()]

    def verify(self) -> AuditStateReply:
        found = verify(self._path)
        return AuditStateReply(found.entries, found.newest, found.problem)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        os.close(self._file)


def verify(path: Path) -> AuditFinding:
    """Follow the chain from the first entry."""
    previous, sequence = FIRST, 0
    for number, line in enumerate(_lines(path), 1):
        try:
            entry = _decode(line)
        except msgspec.DecodeError:
            return AuditFinding(sequence, previous, f"line {number} is not an entry")
        if entry.sequence != sequence + 1 or entry.previous != previous:
            return AuditFinding(sequence, previous, f"line {number} does not follow entry {sequence}")
        if entry.hash != _hash(entry) or line != _encode(entry):
            return AuditFinding(sequence, previous, f"entry {entry.sequence} was changed")
        previous, sequence = entry.hash, entry.sequence
    return AuditFinding(sequence, previous)


def _unwritable() -> Unavailable:
    return Unavailable("the audit trail cannot be written; make room on the disk, then restart the server")


def _hash(entry: AuditEntry) -> str:
    return hashlib.sha256(_encode(msgspec.structs.replace(entry, hash=""))).hexdigest()


def _lines(path: Path) -> Iterator[bytes]:
    """Complete lines."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


@contextmanager
def _mapped(path: Path) -> Iterator[mmap | bytes]:
    """The bytes of the file, read where they are looked at."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""  # an empty file cannot be mapped
            return
        with mmap(file.fileno(), 0, access=ACCESS_READ) as trail:
            yield trail


def _line_start(trail: mmap | bytes, end: int) -> int:
    """Where the line begins that ends before this position."""
    return trail.rfind(b"\n", 0, max(0, end - 1)) + 1


def _behind(trail: mmap | bytes, end: int, sequence: int) -> int:
    """Where the first entry with a higher sequence number begins: they ascend."""
    low, high = 0, end
    while low < high:
        begin = _line_start(trail, (low + high) // 2 + 1)
        stop = trail.find(b"\n", begin) + 1
        if _decode(trail[begin : stop - 1]).sequence > sequence:
            high = begin
        else:
            low = stop
    return low


def _cut_torn_line(path: Path) -> tuple[int, str]:
    """Remove an incomplete last line; return sequence number and hash of the last entry."""
    last, size = b"", 0
    if path.exists():
        with _mapped(path) as trail:
            size = trail.rfind(b"\n") + 1
            last = trail[_line_start(trail, size) : max(0, size - 1)]
        if size != path.stat().st_size:
            os.truncate(path, size)
    if not last:
        return 0, FIRST
    try:
        entry = _decode(last)
    except msgspec.DecodeError:
        raise Unavailable(
            f"the last line of {path} is not an audit entry; move the file away to start a new one"
        ) from None
    return entry.sequence, entry.hash

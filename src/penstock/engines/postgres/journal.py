"""One shard's journal in PostgreSQL. Tables: docs/formats/postgres.md.

A frame is one inserted row; no row is updated by an append. The insert has two conditions: the frame before it has the
same term, and the shard still has this term. The primary key is the fence: a new owner begins its term by inserting a
frame without records at the next index, which is the only index that an earlier owner could still write.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import asyncpg
from asyncpg.cursor import Cursor

from penstock import limits
from penstock.batch import Buffer
from penstock.engines.postgres.frames import FrameSizes
from penstock.engines.postgres.schema import PART_BYTES
from penstock.engines.postgres.session import LOST, Connection, bounded
from penstock.journal.frame import CHAIN_START, HEADER, BadFrame, Frame, FrameWriter, read_frame, time_of
from penstock.journal.port import (
    Ambiguous,
    Damaged,
    Failed,
    Fenced,
    Head,
    OutOfSpace,
    Place,
    Resolved,
    Source,
    StoreUnavailable,
    Tail,
    Traits,
)

if TYPE_CHECKING:
    from penstock.engines.postgres.engine import PostgresEngine

T = TypeVar("T")

FRAME_BYTES_MAX = 2 * limits.MIB
READ_BYTES = 4 * limits.MIB
"""Bytes of frames that are read in one step."""
READ_S = 60.0
"""A step of a replay that takes longer than this has failed."""
ROWS_MAX = 2_000
LOCK_TIMEOUT = "2s"
"""How long a new owner waits for a statement of an earlier one before it ends that session."""
ACQUIRE_S = 30.0
LOCK_NOT_AVAILABLE = "55P03"
TRIM_BYTES = 64 * limits.MIB
BLOB_S = 300.0
"""A blob that takes longer than this to be stored counts as failed."""


_OWN = {
    "share": "select snapshot_index from {}.shard where shard = $1 and term = $2 for share",
    "no key update": "select snapshot_index from {}.shard where shard = $1 and term = $2 for no key update",
}


class _Taken(NamedTuple):
    term: int
    found: Tail
    """The last frame of a term up to the expected one, or the last frame of all."""
    tail: Tail


class PostgresJournal:
    """Satisfies `ShardJournal` and `ResolvableJournal`. Made by `PostgresEngine.acquire`."""

    short_of_space = False

    def __init__(self, engine: PostgresEngine, shard: int, owner: bytes):
        self._engine = engine
        self.shard = shard
        self.on_fenced: Callable[[str], None] = lambda _: None
        self._owner = owner
        self._schema = engine.address.schema
        self._claims: list[bytes] = []
        """Of attempts to begin a term: a row with one of them was written by this owner."""
        self._sizes = FrameSizes()
        self._head: Head | None = None
        """The head that was seen last."""
        self._first = 1
        self._closed = False
        self._unresolved = False
        self._session = engine.new_session(f"penstock {secrets.token_hex(8)}")
        self.term = 0
        self.tail = Tail(0, CHAIN_START)

    @property
    def traits(self) -> Traits:
        durability = "replicated" if self._engine.replicated else "disk"
        return Traits(durability, FRAME_BYTES_MAX, 1.0, shared=True)  # type: ignore[arg-type]

    @property
    def durable(self) -> bool:
        return True

    @property
    def resolving(self) -> bool:
        """True while this owner may be beginning a term of its own: the shard can be ahead of `term`."""
        return self._unresolved or bool(self._claims)

    # -- terms --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin a term, whatever term the shard was in. Raises StoreUnavailable if that was not possible in time."""
        taken = await self._take(None)
        self.term, self.tail = taken.term, taken.tail
        blocks = await self._ask(
            lambda connection: connection.fetch(
                self._sql("""
                select min(idx) as first, max(idx) as last, count(*) as frames, sum(octet_length(body))::bigint as bytes
                from {}.frame where shard = $1 group by idx / 64 order by 1"""), self.shard
            )
        )  # fmt: skip
        self._first = await self._ask(self._find_first)
        await self.head()
        for block in blocks:
            if block["last"] >= self._first:
                self._sizes.add(block["first"], block["bytes"], block["last"])

    async def _find_first(self, connection: Connection) -> int:
        """The index behind the last gap: of frames before it only first frames of terms are left."""
        gap = await connection.fetchval(
            self._sql("""
            select max(f.idx) from {}.frame f where f.shard = $1 and not exists (
                select from {}.frame before where before.shard = $1 and before.idx = f.idx - 1)"""), self.shard
        )  # fmt: skip
        return int(gap or 1)

    async def resolve(self) -> Resolved:
        self._check_open()
        self._session.drop()
        taken = await self._take(self.term)
        if taken.found.index < self.tail.index:
            raise Damaged(
                f"the journal of shard {self.shard} ends with frame {taken.found.index}, but frame {self.tail.index} "
                "was acknowledged: PostgreSQL has lost the end of its history"
            )
        for index in range(self.tail.index + 1, taken.tail.index + 1):
            self._sizes.add(index, HEADER.size)
        self.term, self.tail, self._unresolved = taken.term, taken.tail, False
        return Resolved(taken.found, taken.found.index)

    async def _take(self, expected: int | None) -> _Taken:
        """Begin a new term, of which the first frame is durable on return. With `expected` only if the shard is still
        in that term, or in one that an earlier attempt of this owner began."""
        deadline = time.monotonic() + ACQUIRE_S
        while True:
            claim = secrets.token_bytes(16)
            self._claims.append(claim)
            try:
                taken = await self._session.run(partial(self._begin_term, claim, expected))
            except asyncpg.PostgresError as error:
                if error.sqlstate != LOCK_NOT_AVAILABLE:
                    raise StoreUnavailable(f"PostgreSQL refused a new term: {error}") from error
                await self._end_earlier_sessions()
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"shard {self.shard} is locked by a session of PostgreSQL that cannot be ended: {error}"
                    ) from error
            except OutOfSpace as error:
                # Not `OutOfSpace` for the caller: the frame whose outcome is asked for may be stored.
                raise StoreUnavailable(f"PostgreSQL has no space for a new term: {error}") from error
            except Ambiguous:
                if expected is not None or time.monotonic() > deadline:
                    raise
            else:
                self._claims.clear()
                return taken

    async def _begin_term(self, claim: bytes, expected: int | None, connection: Connection) -> _Taken:
        async with connection.transaction():
            await connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
            row = await connection.fetchrow(
                self._sql("select term, claim from {}.shard where shard = $1 for update"), self.shard
            )
            if row is None:
                await connection.execute(
                    self._sql("insert into {}.shard values ($1, 0, $2, '', '', '') on conflict do nothing"),
                    self.shard, self._owner,
                )  # fmt: skip
                row = await connection.fetchrow(
                    self._sql("select term, claim from {}.shard where shard = $1 for update"), self.shard
                )
                assert row is not None
            if expected is not None and row["term"] != expected and bytes(row["claim"]) not in self._claims:
                raise Fenced(f"term {expected} of shard {self.shard} has ended: term {row['term']} is another owner's")
            term = row["term"] + 1
            await connection.execute(
                self._sql("""
                update {}.shard set term = $2, owner = $3, claim = $4, session = $5, engine = $6 where shard = $1"""),
                self.shard, term, self._owner, claim, self._session.name, self._engine.name,
            )  # fmt: skip
            tail = await self._put_first_frame(connection, term)
            found = await self._last_frame(connection, expected if expected is not None else term - 1)
        return _Taken(term, found, tail)

    async def _put_first_frame(self, connection: Connection, term: int) -> Tail:
        """Waits for the outcome of an append that is under way, because it has inserted the same key."""
        while True:
            last = await self._last_frame(connection, term)
            writer = FrameWriter(self._owner, term, last.index + 1, last.chain)
            header = writer.seal(int(time.time() * 1000), [])
            status = await connection.execute(
                self._sql("insert into {}.frame values ($1, $2, $3, $4) on conflict do nothing"),
                self.shard, last.index + 1, term, header,
            )  # fmt: skip
            if status.endswith(" 1"):
                return Tail(last.index + 1, writer.chain)

    async def _last_frame(self, connection: Connection, term: int) -> Tail:
        """The last frame of a term up to this one."""
        row = await connection.fetchrow(
            self._sql("""
            select idx, substring(body from 1 for 72) as header from {}.frame where shard = $1 and term <= $2
            order by idx desc limit 1"""), self.shard, term
        )  # fmt: skip
        return Tail(0, CHAIN_START) if row is None else Tail(row["idx"], bytes(row["header"][HEADER.size - 16 :]))

    async def _end_earlier_sessions(self) -> None:
        """End the sessions of the last owner: their names were recorded when its term began."""
        await self._ask(
            lambda connection: connection.fetch(
                self._sql("""
                select pg_terminate_backend(a.pid) from pg_stat_activity a, {}.shard s
                where s.shard = $1 and a.application_name in (s.session, s.engine)
                and a.application_name not in ($2, '') and a.pid <> pg_backend_pid()"""),
                self.shard, self._engine.name,
            )
        )  # fmt: skip

    # -- appending ----------------------------------------------------------------------------------------------------

    async def append(self, index: int, parts: Sequence[Buffer]) -> int:
        self._check_open()
        assert index == self.tail.index + 1, "frames are appended in order"
        assert not self._unresolved, "an append whose outcome is unknown has to be resolved first"
        reason = self._engine.missing()
        if reason is not None:
            raise StoreUnavailable(reason)
        body = b"".join(parts)
        self._unresolved = True
        try:
            status = await self._session.run(
                lambda connection: connection.execute(self._append_sql, self.shard, index, self.term, body)
            )
        except (Ambiguous, asyncio.CancelledError):
            raise
        except asyncpg.PostgresError as error:
            self._unresolved = False
            raise StoreUnavailable(f"PostgreSQL refused the frame: {error}") from error
        except BaseException:
            self._unresolved = False
            raise
        self._unresolved = False
        if not status.endswith(" 1"):
            raise await self._why_refused(index)
        self.tail = Tail(index, bytes(parts[0][HEADER.size - 16 : HEADER.size]))
        self._sizes.add(index, len(body))
        return index

    @property
    def _append_sql(self) -> str:
        return self._sql("""
            insert into {}.frame (shard, idx, term, body)
            select $1::int, $2::bigint, $3::bigint, $4::bytea
            where exists (select from {}.frame where shard = $1 and idx = $2 - 1 and term = $3)
            and exists (select from {}.shard where shard = $1 and term = $3)
            on conflict do nothing""")

    async def _why_refused(self, index: int) -> Fenced | Damaged:
        row = await self._ask(
            lambda connection: connection.fetchrow(
                self._sql("""
                select term, (select max(idx) from {}.frame where shard = $1) as last
                from {}.shard where shard = $1"""),
                self.shard,
            )
        )  # fmt: skip
        if row is None or row["term"] < self.term or (row["last"] or 0) < index - 1:
            found = "no such shard" if row is None else f"term {row['term']}, frame {row['last']}"
            return Damaged(
                f"PostgreSQL has lost the end of its history: shard {self.shard} was acknowledged up to term "
                f"{self.term}, frame {index - 1}, and has {found}"
            )
        return Fenced(f"term {self.term} of shard {self.shard} has ended; the shard is in term {row['term']}")

    # -- reading ------------------------------------------------------------------------------------------------------

    async def replay(self, after: int) -> AsyncGenerator[tuple[int, Frame], None]:
        """From one snapshot of the database, so that frames which are trimmed meanwhile are still there."""
        session = self._engine.new_session(self._engine.name)
        try:
            connection = await session.connected()
            cursor = await bounded(connection, self._open_cursor(connection, after), READ_S)
            count = max(1, min(ROWS_MAX, READ_BYTES // self._sizes.average))
            expected: tuple[int, bytes] | None = None
            while rows := await bounded(connection, cursor.fetch(count), READ_S):
                for index, body in rows:
                    frame = self._frame(index, body, expected)
                    expected = (index + 1, frame.chain)
                    yield index, frame
        except (*LOST, asyncpg.PostgresError) as error:
            raise StoreUnavailable(f"the journal cannot be read: {error or 'no answer'}") from error
        finally:
            session.drop()

    async def _open_cursor(self, connection: Connection, after: int) -> Cursor[Any]:
        """In a transaction that ends with the connection."""
        await connection.execute("set idle_in_transaction_session_timeout = 0")
        await connection.transaction(isolation="repeatable_read", readonly=True).start()
        return await connection.cursor(
            self._sql("select idx, body from {}.frame where shard = $1 and idx > $2 order by idx"),
            self.shard, max(after, self._first - 1),
        )  # fmt: skip

    def _frame(self, index: int, body: bytes, expected: tuple[int, bytes] | None) -> Frame:
        try:
            frame = read_frame(memoryview(body), 0, expected)
            if frame.index != index:
                raise BadFrame(f"it contains frame {frame.index}")
            return frame
        except BadFrame as error:
            raise Damaged(f"{self.where(index, 0)}: {error}") from None

    async def read_frames(self, after: int, bytes_max: int) -> list[Frame]:
        self._check_open()
        count = max(1, min(ROWS_MAX, bytes_max // self._sizes.average + 1))
        rows = await self._ask(
            lambda connection: connection.fetch(
                self._sql("select idx, body from {}.frame where shard = $1 and idx > $2 order by idx limit $3"),
                self.shard, max(after, self._first - 1), count,
            )
        )  # fmt: skip
        found: list[Frame] = []
        for index, body in rows:
            found.append(self._frame(index, body, (index, found[-1].chain) if found else None))
            bytes_max -= len(body)
            if bytes_max <= 0:
                break
        return found

    def bytes_since(self, index: int) -> int:
        return self._sizes.since(index)

    async def index_before(self, at_ms: int) -> int:
        low, high = self._first - 1, self.tail.index
        while low < high:
            middle = (low + high + 1) // 2
            header = await self._ask(partial(self._header, middle))
            if header is not None and time_of(header) < at_ms:
                low = middle
            else:
                high = middle - 1
        return low

    async def _header(self, index: int, connection: Connection) -> bytes | None:
        sql = self._sql("select substring(body from 1 for 72) from {}.frame where shard = $1 and idx = $2")
        header: bytes | None = await connection.fetchval(sql, self.shard, index)
        return header

    def peek(self, source: Source, skip: int, length: int) -> bytes | None:  # noqa: ARG002  nothing is at hand
        return None

    async def fetch(self, places: Sequence[Place]) -> list[bytes]:
        found: list[bytes | None] = [None] * len(places)
        frames = [(at, place) for at, place in enumerate(places) if isinstance(place.source, int)]
        blobs = [(at, place) for at, place in enumerate(places) if isinstance(place.source, str)]
        if frames:
            for at, data in await self._fetch(self._FRAMES, frames):
                found[at] = data
        if blobs:
            parts: dict[int, list[bytes]] = {}
            for at, data in await self._fetch(self._BLOBS, blobs):
                parts.setdefault(at, []).append(data)
            for at, pieces in parts.items():
                found[at] = b"".join(pieces)
        for place, read in zip(places, found, strict=True):
            if read is None:
                if isinstance(place.source, int):
                    raise Damaged(f"{self.where(place.source, place.skip)}: the frame is missing")
                raise FileNotFoundError(place.source)
        return [read or b"" for read in found]

    _FRAMES = """
        select p.n, substring(f.body from p.skip + 1 for p.length) as data
        from unnest($2::bigint[], $3::int[], $4::int[]) with ordinality as p(source, skip, length, n)
        join {}.frame f on f.shard = $1 and f.idx = p.source"""
    _BLOBS = f"""
        select p.n, substring(b.data from greatest(p.skip - b.part * {PART_BYTES}, 0) + 1
            for greatest(0, p.skip + p.length - greatest(p.skip, b.part * {PART_BYTES}))) as data
        from unnest($2::text[], $3::int[], $4::int[]) with ordinality as p(source, skip, length, n)
        join {{}}.blob b on b.shard = $1 and b.name = p.source
        and (b.part between p.skip / {PART_BYTES} and (p.skip + p.length) / {PART_BYTES} or b.part = 0)
        order by p.n, b.part"""  # noqa: S608  # nosec B608

    async def _fetch(self, sql: str, places: list[tuple[int, Place]]) -> list[tuple[int, bytes]]:
        rows = await self._ask(
            lambda connection: connection.fetch(
                self._sql(sql), self.shard, [place.source for _, place in places],
                [place.skip for _, place in places], [place.length for _, place in places],
            )
        )  # fmt: skip
        return [(places[row["n"] - 1][0], bytes(row["data"])) for row in rows]

    def has(self, locator: int, size: int) -> bool:  # noqa: ARG002  a row is stored whole
        return self._first <= locator <= self.tail.index

    def where(self, locator: int, skip: int) -> str:
        return f"{self._schema}.frame, shard {self.shard}, idx {locator}, offset {skip}"

    async def first_kept(self) -> int:
        return self._first

    async def trim(self, upto: int) -> None:
        """In steps. First frames of terms have no records, and stay: they are the fence."""
        self._check_open()
        while True:
            last = await self._ask(lambda connection: self._trim_step(connection, upto))
            if last is None:
                return
            self._first = max(self._first, last + 1)
            self._sizes.drop(last)

    async def _trim_step(self, connection: Connection, upto: int) -> int | None:
        """The index up to which frames are gone now; None if there is nothing to trim."""
        async with connection.transaction():
            head = await self._own(connection, "share")
            upto = min(upto, head, self.tail.index - 1)
            frames = max(1, TRIM_BYTES // self._sizes.average)
            stop = min(upto, self._first + frames - 1)
            if stop < self._first:
                return None
            await connection.execute(
                self._sql("delete from {}.frame where shard = $1 and idx <= $2 and octet_length(body) > 72"),
                self.shard, stop,
            )  # fmt: skip
        return stop

    async def roll(self) -> None:
        self._check_open()
        self._sizes.mark(self.tail.index - 1)

    async def scrub(self) -> None:
        self._check_open()

    def file_ends(self) -> list[tuple[int, int]]:
        return self._sizes.ends(self.tail.index)

    # -- head and blobs -----------------------------------------------------------------------------------------------

    async def _own(self, connection: Connection, lock: Literal["share", "no key update"]) -> int:
        """Check that this term still owns the shard, and keep it so until the end of the transaction. Returns the index
        of the head."""
        term = self.term
        row = await connection.fetchrow(self._sql(_OWN[lock]), self.shard, term)
        if row is None:
            raise self._ended(term)
        return row["snapshot_index"] or 0

    def _ended(self, term: int) -> StoreUnavailable | Fenced:
        """The error of a write under a term that the shard is not in any more. If `resolve` began the next term, or is
        about to, the owner is the same, and the write can be repeated."""
        if self._unresolved or self.term != term:
            return StoreUnavailable(f"shard {self.shard} is between two terms of this owner")
        return Fenced(f"term {term} of shard {self.shard} has ended")

    async def head(self) -> Head | None:
        self._head = await self._ask(self._find_head)
        return self._head

    async def _find_head(self, connection: Connection) -> Head | None:
        row = await connection.fetchrow(
            self._sql("select snapshot, snapshot_index from {}.shard where shard = $1"), self.shard
        )
        return None if row is None or row["snapshot"] is None else Head(row["snapshot"], row["snapshot_index"])

    async def commit_head(self, head: Head) -> None:
        """Replaces the head that this owner saw last: a request of before whose answer was missing, and which the
        server meets only now, finds another one and does nothing."""
        self._check_open()
        term, seen = self.term, self._head
        while not await self._ask(partial(self._replace_head, term, seen, head)):
            # An earlier request was done after all, or the term has ended.
            found = await self.head()
            if found == head:
                return
            if found == seen:
                raise self._ended(term)
            seen = found
        self._head = head

    async def _replace_head(self, term: int, seen: Head | None, head: Head, connection: Connection) -> bool:
        status = await connection.execute(
            self._sql("""
            update {}.shard set snapshot = $3, snapshot_index = $4 where shard = $1 and term = $2
            and snapshot is not distinct from $5"""),
            self.shard, term, head.snapshot, head.index, seen.snapshot if seen is not None else None,
        )  # fmt: skip
        return status.endswith(" 1")

    async def put_blobs(self, blobs: Sequence[tuple[str, Sequence[Buffer]]]) -> None:
        for name, parts in blobs:
            self._check_open()
            await self._ask(partial(self._put, name, parts), timeout_s=BLOB_S)

    async def _put(self, name: str, parts: Sequence[Buffer], connection: Connection) -> None:
        async with connection.transaction():
            await connection.execute(
                self._sql("delete from {}.blob where shard = $1 and name = $2"), self.shard, name
            )  # of an attempt whose outcome was unknown
            insert = await connection.prepare(self._sql("insert into {}.blob values ($1, $2, $3, $4)"))
            for number, part in enumerate(_parts(parts)):
                await insert.fetch(self.shard, name, number, part)
            await self._own(connection, "share")

    async def list_blobs(self, prefix: str) -> list[tuple[str, int]]:
        rows = await self._ask(
            lambda connection: connection.fetch(
                self._sql("""
                select name, sum(octet_length(data))::bigint as size from {}.blob
                where shard = $1 and starts_with(name, $2) group by name order by name"""), self.shard, prefix
            )
        )  # fmt: skip
        return [(row["name"], row["size"]) for row in rows]

    async def delete_blobs(self, names: Sequence[str]) -> None:
        self._check_open()
        if names:
            await self._ask(lambda connection: self._delete(connection, names))

    async def _delete(self, connection: Connection, names: Sequence[str]) -> None:
        """Waits for puts that are about to be committed, although the client heard nothing of them any more: what they
        store is deleted as well."""
        async with connection.transaction():
            await self._own(connection, "no key update")
            await connection.execute(
                self._sql("delete from {}.blob where shard = $1 and name = any($2)"), self.shard, list(names)
            )

    # -- space, end ---------------------------------------------------------------------------------------------------

    async def check_space(self) -> None:
        return

    def free_bytes(self) -> int:
        return 1 << 40

    async def hold_room_for(self, blob_bytes: int) -> None:  # noqa: ARG002  the server has no reserve
        return

    async def close(self) -> None:
        self._closed = True
        self._engine.journals.discard(self)
        await self._session.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Failed("the journal is closed")

    def _sql(self, text: str) -> str:
        return text.replace("{}", self._schema)

    async def _ask(self, work: Callable[[Connection], Awaitable[T]], timeout_s: float = 60.0) -> T:
        return await self._engine.sessions.run(work, timeout_s)


def _parts(parts: Sequence[Buffer]) -> list[bytes]:
    """Pieces of `PART_BYTES`; a blob without bytes has one empty piece."""
    data = b"".join(parts)
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)] or [b""]

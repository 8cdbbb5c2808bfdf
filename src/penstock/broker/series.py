"""Minute series of queues and groups: the short history that charts need, without a lake.

Once a minute the counters of every queue become one row. The current hour and the one before are in memory. An hour is
stored as a block of minutes, kept for two days, and added to the block of its day in steps of ten minutes, kept for a
month. So the space is bounded by the number of queues, whatever their traffic. The blocks are statistics: they are
written every few minutes without a sync, and a damaged one is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.broker.series_block import (
    COLUMNS,
    GAUGES,
    NO_LATENCIES,
    SUMS,
    UNKNOWN,
    BadBlock,
    KeyRows,
    SeriesBlock,
    SeriesRow,
    StoredBlock,
)
from penstock.broker.stats import Stats
from penstock.logs import get_logger
from penstock.runtime.latencies import NONE, merged, percentiles
from penstock.runtime.view import ShardView

MINUTE_MS = 60_000
HOUR, DAY = 60, 1_440
COARSE = 10
HOURS_KEPT = 48
DAYS_KEPT = 31
SAVE_MINUTES = 5
KEYS_MAX = 4_000
"""Queues and groups with a history. Beyond it the largest ones are not favoured: the first ones stay."""
POINTS_MAX = 1_500
_STEPS = (1, 2, 5, 10, 30, 60, 120)
SLICE = 50
"""Queues that are sampled before other requests get their turn."""
WHOLE = ""
"""The key of the sum over all queues."""

_log = get_logger("penstock.series")


class BlockStore(Protocol):
    """Blocks by name. The calls block, so they run in a thread."""

    def names(self) -> list[str]: ...
    def load(self, name: str) -> bytes | None: ...
    def save(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...


class MemoryBlocks:
    """Blocks of a server without a data directory: nothing is kept beyond the hours in memory."""

    def names(self) -> list[str]:
        return []

    def load(self, name: str) -> bytes | None:  # noqa: ARG002
        return None

    def save(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


class Series:
    def __init__(self, view: ShardView, stats: Stats):
        self._view = view
        self._stats = stats
        self._store: BlockStore = MemoryBlocks()
        self._hour = self._new_hour(view.now_ms() // MINUTE_MS)
        self._before: SeriesBlock | None = None
        self._seen: dict[str, tuple[int, ...]] = {}
        """Key -> the counters that its last row included."""
        self._task: asyncio.Task[None] | None = None

    # -- sampling -----------------------------------------------------------------------------------------------------

    async def start(self, store: BlockStore) -> None:
        """Continue the hours of an earlier process, and sample every minute."""
        self._store = store
        minute = self._view.now_ms() // MINUTE_MS
        start = minute // HOUR * HOUR
        self._before = await asyncio.to_thread(self._open, _hour_name(start - HOUR))
        current = await asyncio.to_thread(self._open, _hour_name(start))
        self._hour = current or self._new_hour(minute)
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Store the current hour."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._record(self._view.now_ms() // MINUTE_MS, save=True)

    async def _run(self) -> None:
        while True:
            now_ms = self._view.now_ms()
            await asyncio.sleep((MINUTE_MS - now_ms % MINUTE_MS) / 1000)
            minute = now_ms // MINUTE_MS
            await self._record(minute, save=minute % SAVE_MINUTES == 0)

    async def _record(self, minute: int, *, save: bool) -> None:
        """A failure costs a row or a file of statistics, and nothing else."""
        try:
            await self.sample(minute)
            if save:
                await self._save(self._hour)
        except OSError as error:
            _log.warning("series_not_saved", reason=str(error))
        except Exception:
            _log.exception("series_failed")

    async def sample(self, minute: int) -> None:
        """Write the row of a minute, which is over or ends with the process."""
        if minute >= self._hour.start + HOUR:
            await self._turn(minute)
        whole = [0] * (len(SUMS) + len(GAUGES))
        waits: dict[int, int] = {}
        serves: dict[int, int] = {}
        for place, number in enumerate([queue.number for queue in self._view.queues()]):
            if place % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            queue = self._view.queue_numbered(number)
            if queue is None:
                continue  # deleted meanwhile
            row = self._stats.row(queue)
            gauges = (row.depth, row.ready, row.leased, row.scheduled, row.dead)
            values = self._since(queue.path, tuple(row.totals[name] for name in SUMS)) + gauges
            waited, served = self._waits(queue), self._sample_groups(queue, minute)
            self._put(queue.path, minute, values, percentiles(waited) + percentiles(served))
            whole = [one + other for one, other in zip(whole, values, strict=True)]
            waits, serves = merged((waits, waited)), merged((serves, served))
        self._hour.put(WHOLE, minute, (*whole, *percentiles(waits), *percentiles(serves)))

    def _waits(self, queue: Any) -> dict[int, int]:
        """Publish to first delivery, of the messages that were delivered in this minute."""
        latencies = self._view.counters.of(queue.number).waits
        return {} if latencies is None else latencies.end_minute()

    def _sample_groups(self, queue: Any, minute: int) -> dict[int, int]:
        """Returns the times from delivery to end of all groups."""
        served: dict[int, int] = {}
        for name, number in queue.groups.items():
            backlog = self._stats.backlog(queue, number)
            work = self._view.counters.work(queue.number, number, self._view.now_ms())
            own = {} if work.latencies is None else work.latencies.end_minute()
            served = merged((served, own)) if own else served
            (done,) = self._since(group_key(queue.path, name), (work.finished,))
            gauges = (backlog["lag"], backlog["ready"], backlog["leased"], backlog["scheduled"], 0)
            self._put(group_key(queue.path, name), minute, (0, 0, done, 0, *gauges), NONE + percentiles(own))
        return served

    def _since(self, key: str, totals: tuple[int, ...]) -> tuple[int, ...]:
        before = self._seen.get(key, (0,) * len(totals))
        self._seen[key] = totals
        # The counters of a queue that was created again start at zero.
        return tuple(now - then if now >= then else now for now, then in zip(totals, before, strict=True))

    def _put(self, key: str, minute: int, values: tuple[int, ...], latencies: tuple[int, ...] = NO_LATENCIES) -> None:
        hour = self._hour
        if key in hour.keys or (any(values) and len(hour.keys) < KEYS_MAX):
            hour.put(key, minute, values + latencies)

    # -- blocks -------------------------------------------------------------------------------------------------------

    def _new_hour(self, minute: int) -> SeriesBlock:
        return SeriesBlock(minute // HOUR * HOUR, 1, HOUR)

    async def _turn(self, minute: int) -> None:
        """Begin the hour of this minute."""
        ended, self._before, self._hour = self._hour, self._hour, self._new_hour(minute)
        live = {queue.path: queue.groups for queue in self._view.queues()}
        self._seen = {key: seen for key, seen in self._seen.items() if _is_live(key, live)}
        await self._save(ended)
        await asyncio.to_thread(self._add_to_day, ended)
        await asyncio.to_thread(self._expire, minute)

    async def _save(self, block: SeriesBlock) -> None:
        encoded = await asyncio.to_thread(block.encode)
        await asyncio.to_thread(self._store.save, _hour_name(block.start), encoded)

    def _open(self, name: str) -> SeriesBlock | None:
        stored = self._load(name)
        try:
            return None if stored is None else stored.open()
        except BadBlock as error:
            _log.warning("series_damaged", block=name, reason=str(error))
            return None

    def _load(self, name: str) -> StoredBlock | None:
        data = self._store.load(name)
        try:
            return None if data is None else StoredBlock(data)
        except BadBlock as error:
            _log.warning("series_damaged", block=name, reason=str(error))
            return None

    def _add_to_day(self, hour: SeriesBlock) -> None:
        start = hour.start // DAY * DAY
        day = self._open(_day_name(start)) or SeriesBlock(start, COARSE, DAY // COARSE)
        for key in hour.keys:
            for row in hour.rows(key):
                day.put(key, row.minute, row.values)
        self._store.save(_day_name(start), day.encode())

    def _expire(self, minute: int) -> None:
        oldest = {"m": minute - HOURS_KEPT * HOUR, "d": minute - DAYS_KEPT * DAY}
        for name in self._store.names():
            kind, _, start = name.partition("-")
            if int(start) < oldest.get(kind, minute + 1):
                self._store.remove(name)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def read(self, key: str, first_ms: int, last_ms: int, columns: Sequence[str] = COLUMNS) -> dict[str, Any]:
        """The series of a key between two times: at most `POINTS_MAX` steps, in minutes if they are kept."""
        now, first, last = self._view.now_ms() // MINUTE_MS, first_ms // MINUTE_MS, last_ms // MINUTE_MS
        fine = first >= now - HOURS_KEPT * HOUR
        wanted = (last - first) // POINTS_MAX + 1
        step = next((each for each in _STEPS if each >= max(wanted, 1 if fine else COARSE)), _STEPS[-1])
        first = max(first // step * step, last - step * POINTS_MAX)
        block = SeriesBlock(first, step, (last - first) // step + 1)
        size, count = (HOUR, "m") if fine else (DAY, "d")
        in_memory = [each for each in (self._before, self._hour) if each is not None]
        stored = {each.start for each in in_memory} if fine else set()
        starts = [start for start in range(first // size * size, last + 1, size) if start not in stored]
        names = [f"{count}-{start}" for start in starts if start <= now]
        for row in await asyncio.to_thread(lambda: [*self._stored_rows(names, key)]):
            _put_within(block, row)
        for each in in_memory if fine else [self._hour]:
            for row in each.rows(key):
                _put_within(block, row)
        rows = block.keys.get("") or KeyRows(block.count)
        return {
            "step_ms": step * MINUTE_MS,
            "at_ms": [(first + at * step) * MINUTE_MS for at in range(block.count)],
            "series": {name: _values(rows, COLUMNS.index(name), block.count) for name in columns},
        }

    def recent(self, key: str, column: str = "published") -> list[int]:
        """The last hour of a column, minute by minute, from memory."""
        last, at = self._view.now_ms() // MINUTE_MS - 1, COLUMNS.index(column)
        found = [0] * HOUR
        for block in (self._before, self._hour):
            for minute, value in block.column(key, at) if block is not None else ():
                if last - HOUR < minute <= last:
                    found[minute - last - 1] = value
        return found

    def _stored_rows(self, names: list[str], key: str) -> Iterator[SeriesRow]:
        for name in names:
            stored = self._load(name)
            try:
                yield from stored.rows(key) if stored is not None else ()
            except BadBlock as error:
                _log.warning("series_damaged", block=name, reason=str(error))


def _put_within(block: SeriesBlock, row: SeriesRow) -> None:
    if block.start <= row.minute < block.start + block.count * block.step:
        block.put("", row.minute, row.values)


def _values(rows: KeyRows, column: int, count: int) -> list[int | None]:
    """The values of a column, None where nothing was recorded."""
    if not rows.known:
        return [None] * count
    values = (rows.cell(column, at) if rows.known >> at & 1 else UNKNOWN for at in range(count))
    return [None if value == UNKNOWN else value for value in values]


def _is_live(key: str, live: Mapping[str, Mapping[str, int]]) -> bool:
    queue, _, group = key.partition("\0")
    return queue in live and (not group or group in live[queue])


def group_key(queue: str, group: str) -> str:
    return f"{queue}\0{group}"


def _hour_name(start: int) -> str:
    return f"m-{start}"


def _day_name(start: int) -> str:
    return f"d-{start}"

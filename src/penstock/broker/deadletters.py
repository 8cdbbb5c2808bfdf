"""Looking through the dead letters of a queue: by page, by filter, by message id; and deleting what was found.

A queue may have a million of them and a filter may ask for the payload of each. So nothing is collected that is not
shown, and whoever looks does so a few letters at a time: between two steps everybody else has a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from penstock import limits
from penstock.batch import layout
from penstock.broker.confirm import Confirmations
from penstock.broker.types import DeliveredRun, FoundLetter
from penstock.core import commands
from penstock.core.deadletters import DeadLetter, Position, oldest_first
from penstock.core.records import Published
from penstock.core.state import Queue
from penstock.errors import InvalidRequest, QueueNotFound
from penstock.ids import ulid_text, ulid_value
from penstock.runtime.loop import ShardLoop
from penstock.wire.filters import Filter, Value, parse_filter

STEP_LETTERS = 200
"""Looked at between two turns of the event loop, while that takes no more bytes than this:"""
STEP_BYTES = 256 * limits.KIB
DELETE_STEP = 500

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_decode_payload = msgspec.json.Decoder().decode


class Which(NamedTuple):
    """The letters that somebody means: by filter or by id, of one group or of all."""

    group: str = ""
    filter: Filter | None = None
    ids: Sequence[int] | None = None


def parse_which(group: str | None, filter: str | None, ids: Sequence[str] | None) -> Which:
    """Raises InvalidRequest unless exactly one of `filter` and `ids` is given, and makes sense."""
    if (filter is None) == (ids is None):
        raise InvalidRequest("give exactly one of filter and ids", details={"field": "filter"})
    return Which(
        group or "",
        parse_filter(filter) if filter is not None else None,
        None if ids is None else [ulid_value(text, "ids") for text in dict.fromkeys(ids)],
    )


class Candidate:
    """One letter and its message, as a filter sees it. The message is read when it is asked for, and then kept."""

    __slots__ = ("_log", "_now_ms", "_payload", "_stored", "letter", "position", "queue")

    def __init__(self, queue: Queue, position: Position, letter: DeadLetter, loop: ShardLoop):
        self.queue = queue
        self.position = position
        self.letter = letter
        self._log = loop.log
        self._now_ms = loop.now_ms()
        self._stored: tuple[Published, int] | None = None
        self._payload: tuple[Any] | None = None

    def stored(self) -> tuple[Published, int] | None:
        """The record that holds the message, and its row; None for the moment in which it is not durable yet."""
        if self._stored is None:
            _, partition, offset, _ = self.position
            for record, first, _ in self._log.runs(self.queue.number, partition, offset, offset + 1):
                self._stored = record, first - record.offset
        return self._stored

    @property
    def run(self) -> DeliveredRun | None:
        """The message, as a frame of its own."""
        if (stored := self.stored()) is None:
            return None
        record, row = stored
        return DeliveredRun(
            self.queue.path, self.position.partition, self.position.offset, 1, record.id + row, record.at,
            record.batch.run(row, row + 1), self.letter.attempts,
        )  # fmt: skip

    @property
    def read_bytes(self) -> int:
        return 0 if self._stored is None else self._stored[0].batch.payload_bytes(self._stored[1], self._stored[1] + 1)

    def field(self, name: str) -> Value:
        if name == "age":
            return self._now_ms - self.letter.dead_at
        if name == "group":
            return self.queue.group_names[self.position.group]
        if name == "id":
            stored = self.stored()
            return None if stored is None else ulid_text(stored[0].id + stored[1])
        if name == "key":
            return self._text(layout.KEY).decode() or None
        value: Value = getattr(self.letter, name)
        return value

    def header(self, name: str) -> str | None:
        text = self._text(layout.HEADERS)
        return _decode_headers(text).get(name) if text else None

    def payload(self) -> Any:
        if self._payload is None:
            value, stored = None, self.stored()
            if stored is not None and stored[0].batch.is_json(stored[1]):
                try:
                    value = _decode_payload(stored[0].batch.payload(stored[1]))
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    value = None  # a client called it JSON, and it is not
            self._payload = (value,)
        return self._payload[0]

    def _text(self, column: int) -> bytes:
        stored = self.stored()
        return b"" if stored is None else stored[0].batch.string(column, stored[1])

    @property
    def name(self) -> commands.Letter:
        dead_at, partition, offset, group = self.position
        return commands.Letter(partition, group, offset, dead_at)

    def found(self) -> FoundLetter | None:
        run = self.run
        if run is None:
            return None
        return FoundLetter(run, self.queue.group_names[self.position.group], self.letter)


class Scan:
    """Goes through the letters of a queue once, oldest first, in steps. Between steps everything may change."""

    def __init__(
        self, loop: ShardLoop, queue: int, which: Which, *, after: Position | None = None, until_ms: int | None = None
    ):
        self._loop = loop
        self._queue = queue
        self._which = which
        self._until_ms = until_ms
        """What was given up later than this is left alone."""
        self._ids_seen = 0
        self.position = after
        """The letter that was looked at last."""
        self.looked = 0
        self.ended = False

    def step(self, wanted: int = STEP_LETTERS) -> list[Candidate]:
        """The matching ones among the next few. Raises QueueNotFound."""
        queue = self._loop.shard.queues.get(self._queue)
        if queue is None:
            raise QueueNotFound("the queue was deleted meanwhile")
        group = queue.groups.get(self._which.group, -1) if self._which.group else None
        if self._which.ids is not None:
            return self._by_id(queue, group, self._which.ids, wanted)
        matches = self._which.filter.matches if self._which.filter is not None and self._which.filter.text else None
        found: list[Candidate] = []
        read = 0
        letters = oldest_first([partition.dead for partition in queue.partitions], self.position)
        for position, letter in islice(letters, STEP_LETTERS):
            if self._until_ms is not None and position.dead_at > self._until_ms:
                break
            self.position = position
            self.looked += 1
            if group is None or position.group == group:
                candidate = Candidate(queue, position, letter, self._loop)
                if matches is None or matches(candidate):
                    found.append(candidate)
                read += candidate.read_bytes
            if len(found) >= wanted or read >= STEP_BYTES:
                return found
        else:
            self.ended = self.looked == 0 or self._is_last(queue)
            return found
        self.ended = True
        return found

    def _is_last(self, queue: Queue) -> bool:
        return next(oldest_first([partition.dead for partition in queue.partitions], self.position), None) is None

    def _by_id(self, queue: Queue, group: int | None, ids: Sequence[int], wanted: int) -> list[Candidate]:
        found: list[Candidate] = []
        # Looking up an id may read from the disk: a few are enough for one step.
        for message_id in ids[self._ids_seen : self._ids_seen + min(wanted, STEP_LETTERS // 4)]:
            self._ids_seen += 1
            for number, partition in enumerate(queue.partitions):
                if not len(partition.dead):
                    continue
                offset = self._loop.log.find(queue.number, number, message_id)
                if offset is None:
                    continue
                for other in queue.group_names if group is None else [group]:
                    letter = partition.dead.get(other, offset)
                    if letter is not None and (self._until_ms is None or letter.dead_at <= self._until_ms):
                        position = Position(letter.dead_at, number, offset, other)
                        found.append(Candidate(queue, position, letter, self._loop))
                break
        self.ended = self._ids_seen >= len(ids)
        return found

    async def __aiter__(self) -> AsyncIterator[Candidate]:
        while not self.ended:
            for candidate in self.step():
                yield candidate
            await asyncio.sleep(0)


class DeadLetterDesk:
    """What the facade asks about dead letters."""

    def __init__(self, loop: ShardLoop, confirmations: Confirmations):
        self._loop = loop
        self._confirmations = confirmations

    async def page(
        self, queue: Queue, *, group: str | None, filter: str | None, page: int, limit: int, after: str | None
    ) -> dict[str, Any]:
        """One page, oldest first. New letters join at the end, so earlier pages stay as they are.

        `total` is None if that would take looking at too many; `next` says where to go on, None at the end.
        """
        if after is not None and page != 1:
            raise InvalidRequest("give either page or after", details={"field": "after"})
        scan = Scan(self._loop, queue.number, _browsed(group, filter), after=_position(after))
        entries: list[FoundLetter] = []
        matched, last = 0, None
        plain = not group and not filter
        skipped = (page - 1) * limit
        while not scan.ended:
            for candidate in scan.step():
                matched += 1
                if skipped < matched and len(entries) < limit:
                    entry = candidate.found()
                    if entry is None:
                        matched -= 1
                        continue
                    entries.append(entry)
                    last = candidate.position
            if (plain and len(entries) >= limit) or (not plain and scan.looked >= limits.SCAN_LETTERS_MAX):
                break
            await asyncio.sleep(0)
        # A page that was not filled before its time was up goes on behind what was looked at last.
        onward = last if len(entries) >= limit else scan.position
        if scan.ended and matched <= skipped + len(entries):
            onward = None
        total: int | None = sum(len(partition.dead) for partition in queue.partitions)
        if not plain:
            total = matched if scan.ended and after is None else None
        return {
            "dead_letters": entries,
            "total": total,
            "page": page,
            "limit": limit,
            "next": None if onward is None else ".".join(map(str, onward)),
        }

    async def count(self, queue: Queue, which: Which, sample: int = 0) -> tuple[int, list[FoundLetter]]:
        """How many there are now, and the first few of them."""
        count = 0
        entries: list[FoundLetter] = []
        async for candidate in Scan(self._loop, queue.number, which, until_ms=self._loop.now_ms()):
            count += 1
            if len(entries) < sample and (entry := candidate.found()) is not None:
                entries.append(entry)
        return count, entries

    async def delete(self, queue: Queue, which: Which, confirm: str | None) -> dict[str, Any]:
        """Confirmed by a token that is good for this choice of letters only."""
        target = f"{queue.path}/{_fingerprint(which)}"
        until_ms = self._loop.now_ms()
        if not self._confirmations.confirms("delete dead letters of", target, confirm, until_ms):
            count, _ = await self.count(queue, which)
            raise self._confirmations.refusal(
                "delete dead letters of", target, until_ms, {"dead_letters": count}, shown=queue.path
            )
        deleted = 0
        scan = Scan(self._loop, queue.number, which, until_ms=until_ms)
        while not scan.ended:
            letters = [candidate.name for candidate in scan.step(DELETE_STEP)]
            if letters:
                deleted += await self._loop.submit(commands.DeleteLetters(queue.number, letters))
            await asyncio.sleep(0)
        return {"queue": queue.path, "deleted": deleted}


def _browsed(group: str | None, filter: str | None) -> Which:
    return Which(group or "", parse_filter(filter) if filter else None)


def _position(text: str | None) -> Position | None:
    if text is None:
        return None
    numbers = text.split(".")
    if len(numbers) != 4 or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in numbers):
        raise InvalidRequest(
            f"after {text[:64]!r} is not what an earlier page gave as next", details={"field": "after"}
        )
    return Position(*map(int, numbers))


def _fingerprint(which: Which) -> str:
    text = repr((which.group, which.filter.text if which.filter is not None else None, which.ids))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

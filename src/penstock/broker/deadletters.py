"""Looking through the dead letters of a queue: by page, by filter, by message id; and deleting what was found.

A queue may have a million of them. Letters are kept in order, so a page and a count without a filter cost no more than
the letters that are shown. A filter looks at each letter and may ask for its payload: the scan goes in short steps, and
other requests run between two of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.broker.confirm import Confirmations
from penstock.broker.types import DeliveredRun, FoundLetter, LetterPage, Submit
from penstock.core import commands
from penstock.core.records import Published
from penstock.core.state import Queue
from penstock.core.state.dead_letters import Position, count_letters, oldest_first, position_at
from penstock.core.state.letter_chunks import DeadLetter
from penstock.errors import InvalidRequest, QueueNotFound
from penstock.ids import QueuePath, ulid_text, ulid_value
from penstock.runtime.stored import DamagedMessages, NotAtHand, when_at_hand
from penstock.runtime.view import ShardView
from penstock.wire.filters import Filter, Value, parse_filter

STEP_COST = 400
"""The cost of the letters that one step of a scan looks at, about a millisecond. A letter costs 1. Costs are counted,
not timed, so that a simulated run can be repeated."""
READ_COST = 10
"""More for a letter whose message is read, and for so many bytes of it:"""
READ_COST_BYTES = 1024

_EMPTY = Batch.open(build([b""], kinds=[0]))
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_decode_payload = msgspec.json.Decoder().decode


class Which(NamedTuple):
    """The letters that a call selects: by filter or by id, of one group or of all."""

    group: str = ""
    filter: Filter | None = None
    ids: Sequence[int] | None = None

    @property
    def filtered(self) -> bool:
        """True if letters have to be looked at to tell whether they are meant."""
        return self.ids is not None or (self.filter is not None and bool(self.filter.text))

    def group_in(self, queue: Queue) -> int | None:
        """The number of the group; None for all groups, -1 for a group that does not exist."""
        return queue.groups.get(self.group, -1) if self.group else None


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

    __slots__ = ("_log", "_now_ms", "_payload", "_stored", "damaged", "letter", "position", "queue")

    def __init__(self, queue: Queue, position: Position, letter: DeadLetter, view: ShardView):
        self.queue = queue
        self.position = position
        self.letter = letter
        self._log = view.log
        self._now_ms = view.now_ms()
        self._stored: tuple[Published, int] | None = None
        self._payload: tuple[Any] | None = None
        self.damaged = False
        """True if the message was asked for and cannot be read."""

    def stored(self) -> tuple[Published, int] | None:
        """The record that holds the message, and its row; None for the moment in which it is not durable yet, and for
        a damaged message."""
        if self._stored is None and not self.damaged:
            _, partition, offset, _ = self.position
            try:
                for record, first, _ in self._log.runs(self.queue.number, partition, offset, offset + 1):
                    self._stored = record, first - record.offset
            except DamagedMessages:
                self.damaged = True
        return self._stored

    @property
    def run(self) -> DeliveredRun | None:
        """The message, as a frame of its own; one that is damaged is empty."""
        if (stored := self.stored()) is None:
            return self._placeholder() if self.damaged else None
        record, row = stored
        return DeliveredRun(
            self.queue.path, self.position.partition, self.position.offset, 1, record.id + row, record.at,
            record.batch.run(row, row + 1), self.letter.attempts,
        )  # fmt: skip

    def _placeholder(self) -> DeliveredRun:
        _, partition, offset, _ = self.position
        message_id = self._log.id_at(self.queue.number, partition, offset)
        return DeliveredRun(
            self.queue.path, partition, offset, 1, message_id, message_id >> 80, _EMPTY, self.letter.attempts
        )

    @property
    def cost(self) -> int:
        """The cost of this letter in a step of a scan."""
        if self._stored is None:
            return 1
        record, row = self._stored
        return 1 + READ_COST * (1 + record.batch.payload_bytes(row, row + 1) // READ_COST_BYTES)

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
        self, view: ShardView, queue: int, which: Which, *, after: Position | None = None, until_ms: int | None = None
    ):
        self._view = view
        self._queue = queue
        self._which = which
        self._until_ms = until_ms
        """Messages that were given up later than this are left out."""
        self._ids_seen = 0
        self.position = after
        """The letter that was looked at last."""
        self.looked = 0
        self.ended = False

    def step(self, wanted: int = STEP_COST) -> list[Candidate]:
        """The matching ones among the next few. Raises QueueNotFound."""
        queue = self._view.queue_numbered(self._queue)
        if queue is None:
            raise QueueNotFound("the queue was deleted meanwhile")
        group = self._which.group_in(queue)
        if self._which.ids is not None:
            return self._by_id(queue, group, self._which.ids, wanted)
        matches = self._which.filter.matches if self._which.filter is not None and self._which.filtered else None
        found: list[Candidate] = []
        cost = 0
        for position, letter in oldest_first([partition.dead for partition in queue.partitions], self.position, group):
            if self._until_ms is not None and position.dead_at > self._until_ms:
                break
            if len(found) >= wanted or cost >= STEP_COST:
                return found
            self.position = position
            self.looked += 1
            candidate = Candidate(queue, position, letter, self._view)
            if matches is None or matches(candidate):
                found.append(candidate)
            cost += candidate.cost
        self.ended = True
        return found

    def _by_id(self, queue: Queue, group: int | None, ids: Sequence[int], wanted: int) -> list[Candidate]:
        found: list[Candidate] = []
        # Looking up an id may read from the disk: a few are enough for one step.
        for message_id in ids[self._ids_seen : self._ids_seen + min(wanted, STEP_COST // READ_COST)]:
            self._ids_seen += 1
            for number, partition in enumerate(queue.partitions):
                if not len(partition.dead):
                    continue
                offset = self._view.log.find(queue.number, number, message_id)
                if offset is None:
                    continue
                for other in queue.group_names if group is None else [group]:
                    letter = partition.dead.get(other, offset)
                    if letter is not None and (self._until_ms is None or letter.dead_at <= self._until_ms):
                        position = Position(letter.dead_at, number, offset, other)
                        found.append(Candidate(queue, position, letter, self._view))
                break
        self.ended = self._ids_seen >= len(ids)
        return found

    async def read_step(self, wanted: int = STEP_COST) -> list[Candidate]:
        """Like `step`, for a filter that may read messages which have to be fetched."""
        while True:
            begun = self._ids_seen, self.position, self.looked, self.ended
            try:
                return self.step(wanted)
            except NotAtHand as missing:
                self._ids_seen, self.position, self.looked, self.ended = begun
                await missing.fetch()

    async def __aiter__(self) -> AsyncIterator[Candidate]:
        while not self.ended:
            for candidate in await self.read_step():
                yield candidate
            await self._view.give_way()


class DeadLetterOperations:
    def __init__(self, view: ShardView, submit: Submit, confirmations: Confirmations):
        self._view = view
        self._submit = submit
        self._confirmations = confirmations

    async def page(
        self,
        path: QueuePath,
        *,
        group: str | None = None,
        filter: str | None = None,
        page: int = 1,
        limit: int = 50,
        after: str | None = None,
    ) -> LetterPage:
        """One page. New letters join at the end, so earlier pages stay as they are."""
        if after is not None and page != 1:
            raise InvalidRequest("give either page or after", details={"field": "after"})
        queue = self._view.queue(path)
        which = Which(group or "", parse_filter(filter) if filter else None)
        find = self._scanned if which.filtered else self._in_order
        entries, total, onward = await find(queue, which, _position(after), (page - 1) * limit, limit)
        onward_text = None if onward is None else ".".join(map(str, onward))
        return LetterPage({"dead_letters": entries, "total": total, "page": page, "limit": limit, "next": onward_text})

    async def _in_order(
        self, queue: Queue, which: Which, after: Position | None, skipped: int, limit: int
    ) -> tuple[list[FoundLetter], int | None, Position | None]:
        """(letters, total, position to go on from) of letters that are all meant."""
        dead, group = [partition.dead for partition in queue.partitions], which.group_in(queue)
        total = count_letters(dead, group)
        entries: list[FoundLetter] = []
        if skipped >= total:
            return entries, total, None
        if skipped:
            after = position_at(dead, skipped - 1, group)
        scan = Scan(self._view, queue.number, which, after=after)
        while not scan.ended and len(entries) < limit:
            for candidate in await scan.read_step(limit - len(entries)):
                if (entry := await when_at_hand(candidate.found)) is not None:
                    entries.append(entry)
            await self._view.give_way()
        last = (
            next(oldest_first([partition.dead for partition in queue.partitions], scan.position, group), None) is None
        )
        return entries, total, None if last else scan.position

    async def _scanned(
        self, queue: Queue, which: Which, after: Position | None, skipped: int, limit: int
    ) -> tuple[list[FoundLetter], int | None, Position | None]:
        """The same of letters that match a filter, as far as one call looks."""
        scan = Scan(self._view, queue.number, which, after=after)
        entries: list[FoundLetter] = []
        matched, last = 0, None
        while not scan.ended and scan.looked < limits.SCAN_LETTERS_MAX:
            for candidate in await scan.read_step():
                if skipped <= matched and len(entries) < limit:
                    if (entry := await when_at_hand(candidate.found)) is None:
                        continue
                    entries.append(entry)
                    last = candidate.position
                matched += 1
            await self._view.give_way()
        # A page that was not filled before its time was up goes on behind the letter that was looked at last.
        onward = last if len(entries) >= limit else scan.position
        if scan.ended and matched <= skipped + len(entries):
            onward = None
        return entries, matched if scan.ended and after is None else None, onward

    async def count(self, queue: Queue, which: Which, sample: int = 0) -> tuple[int, list[FoundLetter]]:
        """How many there are now, and the first few of them."""
        count = 0
        entries: list[FoundLetter] = []
        total = count_letters([partition.dead for partition in queue.partitions], which.group_in(queue))
        async for candidate in Scan(self._view, queue.number, which, until_ms=self._view.now_ms()):
            if not which.filtered and len(entries) >= sample:
                return total, entries
            count += 1
            if len(entries) < sample and (entry := await when_at_hand(candidate.found)) is not None:
                entries.append(entry)
        return count, entries

    async def delete(
        self,
        path: QueuePath,
        *,
        group: str | None = None,
        filter: str | None = None,
        ids: Sequence[str] | None = None,
        confirm: str | None = None,
    ) -> dict[str, Any]:
        """Confirmed by a token that is good for this choice of letters only."""
        queue, which = self._view.queue(path), parse_which(group, filter, ids)
        target = f"{queue.path}/{_fingerprint(which)}"
        until_ms = self._view.now_ms()
        if not self._confirmations.confirms("delete dead letters of", target, confirm, until_ms):
            count, _ = await self.count(queue, which)
            raise self._confirmations.refusal(
                "delete dead letters of", target, until_ms, {"dead_letters": count}, shown=queue.path
            )
        deleted = 0
        scan = Scan(self._view, queue.number, which, until_ms=until_ms)
        while not scan.ended:
            letters = [candidate.name for candidate in await scan.read_step()]
            if letters:
                deleted += await self._submit(commands.DeleteLetters(queue.number, letters))
            await self._view.give_way()
        return {"queue": queue.path, "deleted": deleted}


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

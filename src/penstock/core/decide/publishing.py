"""Deciding a publish: what of it is new, where it goes, and which facts that makes.

The usual batch (no client ids, one partition, numbers never seen) is decided as a whole and stored as the frame that
came in. Rows are looked at one by one only where the semantics ask for it.
"""

from __future__ import annotations

import msgspec

from penstock import limits
from penstock.batch import Batch, layout
from penstock.core.commands import Part, Publish, PublishedRun
from penstock.core.offsets.ranges import RangeSet
from penstock.core.records import Published, Record
from penstock.core.state import Queue, Shard
from penstock.core.state.client_ids import Place
from penstock.errors import Conflict, FencedProducer, QueueFull, QueueNotFound
from penstock.ids import id_at


class _Draft:
    """The records of one publish, as far as its parts are decided."""

    __slots__ = ("added", "ends", "records", "runs", "with_ids")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.runs: list[PublishedRun] = []
        self.ends: dict[tuple[int, int], int] = {}
        """(queue, partition) -> the end of its log."""
        self.added: dict[int, int] = {}
        """Queue -> messages."""
        self.with_ids: dict[int, list[Published]] = {}
        """Queue -> the records whose messages have client ids."""

    def add(self, record: Published) -> None:
        self.records.append(record)
        if record.batch.columns & layout.ID:
            self.with_ids.setdefault(record.queue, []).append(record)

    def place_of_ids(self, queue: int) -> dict[bytes, Place]:
        """Client id -> the first message with it."""
        places: dict[bytes, Place] = {}
        for record in self.with_ids.get(queue, ()):
            for row, client_id in enumerate(record.batch.strings(layout.ID)):
                places.setdefault(client_id, Place(record.partition, record.offset + row, record.id + row))
        return places


def decide_publish(shard: Shard, command: Publish, now_ms: int) -> tuple[list[Record], list[PublishedRun]]:
    """All parts or an error. Parts see what earlier parts of the same command store."""
    draft = _Draft()
    # Ids only grow, also when the clock does not.
    next_id = max(id_at(now_ms, shard.number, command.entropy), shard.last_id + 1)
    seq = command.seq
    for number, part in enumerate(command.parts):
        queue = shard.queues.get(part.queue)
        if queue is None:
            raise QueueNotFound("the queue was deleted meanwhile")
        fresh, duplicates, echoes = _split(queue, part, command, seq, draft, now_ms)
        count = part.batch.count if fresh is None else len(fresh)
        adding = draft.added.get(part.queue, 0)
        _check_room(queue, count, adding)
        draft.added[part.queue] = adding + count
        if duplicates:
            draft.runs += _repeated(number, queue, duplicates)
        for partition, rows, batch in _routed(queue, part.batch, fresh):
            end = draft.ends.get((part.queue, partition), queue.partitions[partition].end)
            for first, stop in _cuts(queue, batch):
                draft.add(
                    Published(
                        now_ms, part.queue, partition, end + first, next_id + first, _own(batch, first, stop),
                        command.producer, command.epoch, _seqs(command, seq, rows, first, stop),
                    )
                )  # fmt: skip
            draft.runs.append(PublishedRun(number, part.queue, partition, end, batch.count, next_id, False, rows))
            draft.ends[part.queue, partition] = end + batch.count
            next_id += batch.count
        if echoes:
            places = draft.place_of_ids(part.queue)
            draft.runs += _repeated(number, queue, [(row, places[client_id]) for row, client_id in echoes])
        seq += part.batch.count
    return draft.records, draft.runs


def check_publish(shard: Shard, command: Publish, now_ms: int) -> None:
    """Raise the refusal of `decide_publish`. A part whose queue does not exist yet has number 0 and is not checked."""
    seq = command.seq
    counts: dict[int, int] = {}
    ids: dict[int, set[bytes]] = {}
    for part in command.parts:
        queue = shard.queues.get(part.queue)
        if queue is not None:
            fresh, _, _ = _split(queue, part, command, seq, _Draft(), now_ms)
            count = part.batch.count if fresh is None else len(fresh)
            if part.batch.has(layout.ID):
                count = _count_new_ids(part.batch, fresh, ids.setdefault(part.queue, set()))
            counts[part.queue] = counts.get(part.queue, 0) + count
            _check_room(queue, counts[part.queue], 0)
        seq += part.batch.count


def _count_new_ids(batch: Batch, rows: list[int] | None, taken: set[bytes]) -> int:
    """Rows that no earlier part of the same publish stores; `taken` has the client ids of the earlier parts."""
    ids = batch.strings(layout.ID) if rows is None else [batch.string(layout.ID, row) for row in rows]
    new = [client_id for client_id in ids if not client_id or client_id not in taken]
    taken.update(new)
    return len(new)


def _cuts(queue: Queue, batch: Batch) -> list[tuple[int, int]]:
    """The records that a batch is stored as. One, unless its messages will be read one by one and in another order."""
    size = len(batch.frame)
    if size <= limits.SCATTERED_RECORD_BYTES or not queue.config.indexed:
        return [(0, batch.count)]
    step = max(1, limits.SCATTERED_RECORD_BYTES * batch.count // size)
    return [(first, min(first + step, batch.count)) for first in range(0, batch.count, step)]


def _own(batch: Batch, first: int, stop: int) -> Batch:
    """Apart from the whole, which would otherwise stay in memory for as long as one of its parts."""
    return batch if stop - first == batch.count else Batch.open(batch.run(first, stop).frame, known=True)


def _seqs(command: Publish, seq: int, rows: list[int] | None, first: int, stop: int) -> list[int]:
    if not command.producer:
        return []
    if rows is None:
        return [seq + first, seq + stop]
    return RangeSet([(seq + row, seq + row + 1) for row in rows[first:stop]]).flat()


def _split(
    queue: Queue, part: Part, command: Publish, seq: int, draft: _Draft, now_ms: int
) -> tuple[list[int] | None, list[tuple[int, Place]], list[tuple[int, bytes]]]:
    """Rows that are new (None: all of them), duplicates with the place of their first, and echoes.

    An echo repeats a client id of this very publish: a duplicate whose first one has no place yet.
    """
    batch = part.batch
    fresh: list[int] | None = None
    duplicates: list[tuple[int, Place]] = []
    if command.producer:
        known = queue.dedup.producer(command.producer, now_ms)
        if known is not None and known.epoch > command.epoch:
            raise FencedProducer(
                f"producer {command.producer!r} has moved on to epoch {known.epoch}; this is epoch {command.epoch}",
                details={"epoch": known.epoch},
            )
        if known is not None and known.epoch == command.epoch and known.accepted.overlaps(seq, seq + batch.count):
            fresh = []
            places = known.places(seq, seq + batch.count)
            for row in range(batch.count):
                if seq + row not in known.accepted:
                    fresh.append(row)
                    continue
                place = places.get(seq + row)
                if place is None:
                    raise Conflict(
                        f"sequence number {seq + row} of producer {command.producer!r} is so far behind that it is no "
                        "longer known whether it was stored, and under which id",
                        details={"seq": seq + row},
                    )
                duplicates.append((row, place))
    echoes: list[tuple[int, bytes]] = []
    if batch.has(layout.ID):
        ids = batch.strings(layout.ID)
        earlier_parts = draft.with_ids.get(part.queue, ())
        taken = {client_id for record in earlier_parts for client_id in record.batch.strings(layout.ID)}
        still_fresh: list[int] = []
        for row in range(batch.count) if fresh is None else fresh:
            client_id = ids[row]
            earlier = queue.dedup.first_with(client_id, now_ms) if client_id else None
            if earlier is not None:
                duplicates.append((row, earlier))
            elif client_id and client_id in taken:
                echoes.append((row, client_id))
            else:
                taken.add(client_id)
                still_fresh.append(row)
        fresh = None if len(still_fresh) == batch.count else still_fresh
    return fresh, duplicates, echoes


def _check_room(queue: Queue, count: int, adding: int) -> None:
    blocked = max([each.blocked_keys for each in queue.dispatchers.values()]) if queue.dispatchers else 0
    if blocked > limits.BLOCKED_KEYS_MAX:
        raise QueueFull(
            f"queue {queue.path} has {blocked} keys with messages that wait behind one that failed; look at its dead "
            "letters, and at why attempts fail",
            details={"blocked_keys": blocked, "max_blocked_keys": limits.BLOCKED_KEYS_MAX},
            retry_after_ms=1_000,
        )
    limit = queue.config.max_messages
    if limit is not None:
        depth = queue.depth() + adding
        if depth + count > limit:
            raise QueueFull(
                f"queue {queue.path} holds {depth} of at most {limit} messages; {count} more do not fit",
                details={"depth": depth, "max_messages": limit},
                retry_after_ms=1_000,
            )


def _repeated(number: int, queue: Queue, duplicates: list[tuple[int, Place]]) -> list[PublishedRun]:
    runs: list[PublishedRun] = []
    for row, place in sorted(duplicates):
        last = runs[-1] if runs else None
        if (
            last is not None
            and last.partition == place.partition
            and last.offset + last.count == place.offset
            and last.id + last.count == place.id
        ):
            assert last.rows is not None
            last.rows.append(row)
            runs[-1] = msgspec.structs.replace(last, count=last.count + 1)
        else:
            runs.append(PublishedRun(number, queue.number, place.partition, place.offset, 1, place.id, True, [row]))
    return runs


def _routed(queue: Queue, batch: Batch, fresh: list[int] | None) -> list[tuple[int, list[int] | None, Batch]]:
    """(partition, rows, their batch) for the new rows; rows None means the whole batch."""
    if fresh is not None and not fresh:
        return []
    partitions = len(queue.partitions)
    if partitions == 1 or not batch.has(layout.KEY):
        # Without keys a batch stays together; batches take turns.
        partition = 0
        if partitions > 1:
            # Counted from the last growth on: new partitions take their turn, they do not make up for the past.
            since = [*(queue.growths[-1] if queue.growths else []), *[0] * partitions]
            partition = min(range(partitions), key=lambda n: queue.partitions[n].end - since[n])
        return [(partition, fresh, batch if fresh is None else batch.pick(fresh))]
    routes: dict[int, list[int]] = {}
    keys = batch.strings(layout.KEY)
    homes = {key: queue.partition_of(key) for key in set(keys)}
    for row in range(batch.count) if fresh is None else fresh:
        routes.setdefault(homes[keys[row]], []).append(row)
    if fresh is None and len(routes) == 1:
        return [(next(iter(routes)), None, batch)]
    numbers = sorted(routes)
    rows = [routes[number] for number in numbers]
    return list(zip(numbers, rows, batch.split(rows), strict=True))

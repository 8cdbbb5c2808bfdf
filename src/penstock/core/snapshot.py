"""Conversion between hard state and plain values, for snapshots and for comparisons. Format: docs/formats/snapshot.md.

- `capture` takes the values for a snapshot. It copies memory and iterates over nothing large, so that it can run
  between two commands; `slices.encoded` turns the values into bytes later, in slices.
- `dump` takes the same values in a canonical form: equal states have equal values, whatever records led to them.
  `digest` is a hash of that form.
- `load` reads both forms. The loaded state behaves like the captured one, and like a replay of the records that led to
  it: when both are advanced to the same time, their `digest` is the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from copy import copy
from hashlib import blake2b
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec

from penstock.core.config import QueueConfig, shared
from penstock.core.offsets.agenda import Agenda, Chunk, Read, unread
from penstock.core.offsets.bits import OffsetBits
from penstock.core.offsets.ranges import CrumblingSet, RangeSet
from penstock.core.rebuild import rebuild
from penstock.core.records import Transacted, TransactedRun
from penstock.core.routing import RENDEZVOUS
from penstock.core.slices import Later, Rows, encoded_whole, plain
from penstock.core.state import (
    FormerQueue,
    Hold,
    KeptOffsets,
    Partition,
    Progress,
    Queue,
    Schedule,
    Shard,
    Webhook,
    Window,
)
from penstock.core.state.client_ids import DIGEST_BYTES, KEPT, RUN_BYTES, ClientIds, IdChunk, Place
from penstock.core.state.dead_letters import DeadLetters, Redrive
from penstock.core.state.dedup import Producer, SeqRun
from penstock.core.state.holds import follow as follow_holds
from penstock.core.state.keys import StoredKey
from penstock.core.state.leases import Held, Lease
from penstock.core.state.letter_chunks import DeadLetter, LetterChunk, encoded_bytes
from penstock.core.state.members import Membership
from penstock.core.state.retries import Retries, Retry
from penstock.core.state.stored_chunk import ReadStored, StoredChunk, nothing_stored
from penstock.core.state.users import StoredUser

COMPARABLE = 1
"""Agendas are sorted lists of their valid entries. Earlier versions wrote snapshots in this form."""
CAPTURED = 4
"""Agendas, client ids and dead letters are arrays, as in memory, and references to chunks in blobs. Version 3 had dead
letters as a list, version 2 also client ids."""


def dump(shard: Shard, read: Read = unread) -> dict[str, Any]:
    """Plain values, the same for equal states. `read` reads the parts of agendas that are not in memory."""
    values: dict[str, Any] = plain(_dump_shard(shard, COMPARABLE, read))
    return values


def capture(shard: Shard) -> dict[str, Any]:
    """The state as it is now, for `slices.encoded`. Later changes of the state do not change the result."""
    return _dump_shard(shard, CAPTURED, unread)


def capture_shard(shard: Shard) -> dict[str, Any]:
    """The fields of the shard itself: without `queues` and `leases`."""
    return _dump_fields(shard, CAPTURED)


def capture_queue(queue: Queue) -> dict[str, Any]:
    return _dump_queue(queue, 0, CAPTURED, unread)


def digest(shard: Shard, read: Read = unread) -> str:
    """Equal for equal hard states, whatever records led to them."""
    return blake2b(encoded_whole(_dump_shard(shard, COMPARABLE, read)), digest_size=16).hexdigest()


def _dump_shard(shard: Shard, form: int, read: Read) -> dict[str, Any]:
    fields = _dump_fields(shard, form)
    return {
        **fields,
        "queues": [_dump_queue(queue, fields["advanced_ms"], form, read) for _, queue in sorted(shard.queues.items())],
        "leases": _rows([dump_lease(lease) for _, lease in sorted(shard.leases.items())]),
    }


def _dump_fields(shard: Shard, form: int) -> dict[str, Any]:
    return {
        "version": form,
        "now_ms": shard.now_ms,
        # Delays that are over by this time are not written: the progress of the groups implies them.
        "advanced_ms": max(shard.now_ms, shard.advanced_ms),
        "term": shard.term,
        "next_queue": shard.next_queue,
        "next_lease": shard.next_lease,
        "last_id": shard.last_id.to_bytes(16, "big"),
        "schedules": [copy(schedule) for _, schedule in sorted(shard.schedules.items())],
        "transactions": [(known.at, known.key, known.runs) for known in shard.transactions.values()],
        "holds": [_dump_hold(hold) for _, hold in sorted(shard.holds.items())],
        "former_queues": [
            (number, former.path, sorted(former.groups.items())) for number, former in shard.former_queues.items()
        ],
        # Absent if empty, so that the digest of a state without them is that of earlier versions.
        **({"webhooks": [copy(hook) for _, hook in sorted(shard.webhooks.items())]} if shard.webhooks else {}),
        **({"keys": [key for _, key in sorted(shard.keys.items())]} if shard.keys else {}),
        **({"users": [user for _, user in sorted(shard.users.items())]} if shard.users else {}),
    }


def load(values: dict[str, Any], read: ReadStored = nothing_stored, *, replaying: bool = False) -> Shard:
    """The state, including soft fields; `replaying`: records are applied to it before it is read."""
    if values["version"] not in range(COMPARABLE, CAPTURED + 1):
        raise ValueError(f"snapshot version {values['version']} is not known here (known: up to {CAPTURED})")
    shard = Shard()
    shard.replaying = replaying
    shard.now_ms = values["now_ms"]
    shard.advanced_ms = values["advanced_ms"]
    shard.term = values["term"]
    shard.next_queue = values["next_queue"]
    shard.next_lease = values["next_lease"]
    shard.last_id = int.from_bytes(values["last_id"], "big")
    for entry in values["queues"]:
        queue = _load_queue(shard, entry, read)
        shard.queues[queue.number] = queue
        shard.paths[queue.path] = queue.number
    for entry in sorted(values["leases"], key=itemgetter("id")):
        lease = _load_lease(entry)
        shard.leases[lease.id] = lease
        for run in lease.held:
            shard.queues[lease.queue].partitions[lease.partition].progress[lease.group].leased.add(run.first, run.stop)
    for entry in values.get("schedules", ()):
        schedule = msgspec.convert(entry, Schedule)
        shard.schedules[schedule.name] = schedule
    for entry in values.get("webhooks", ()):
        webhook = msgspec.convert(entry, Webhook)
        shard.webhooks[webhook.id] = webhook
    for entry in values.get("keys", ()):
        stored = msgspec.convert(entry, StoredKey)
        shard.keys[stored.id] = stored
    for entry in values.get("users", ()):
        user = msgspec.convert(entry, StoredUser)
        shard.users[user.email] = user
    for at, key, runs in values.get("transactions", ()):
        shard.transactions[key] = Transacted(at, key, [msgspec.convert(run, TransactedRun) for run in runs])
    for name, max_bytes, index, offsets, set_at, lost_at in values.get("holds", ()):
        by_queue = {queue: dict(partitions) for queue, partitions in offsets}
        shard.holds[name] = Hold(name, max_bytes, index, by_queue, set_at, lost_at)
    for number, path, groups in values.get("former_queues", ()):
        shard.former_queues[number] = FormerQueue(path, dict(groups))
    follow_holds(shard)
    rebuild(shard)
    return shard


def _dump_hold(hold: Hold) -> tuple[Any, ...]:
    offsets = [(queue, sorted(partitions.items())) for queue, partitions in sorted(hold.offsets.items())]
    return hold.name, hold.max_bytes, hold.index, offsets, hold.set_at, hold.lost_at


def _dump_queue(queue: Queue, now_ms: int, form: int, read: Read) -> dict[str, Any]:
    return {
        "number": queue.number,
        "path": queue.path,
        "config": queue.config,
        "groups": _rows(sorted((number, name) for name, number in queue.groups.items())),
        "memberships": [(group, *members.dump()) for group, members in sorted(queue.memberships.items())],
        "growths": list(queue.growths),
        "ids": _dump_ids(queue.dedup.ids, form),
        "producers": [_dump_producer(name, entry) for name, entry in queue.dedup.producers.items()],
        "readers": [(client, sorted(kept.offsets.items()), kept.used_at) for client, kept in queue.readers.items()],
        "partitions": [_dump_partition(queue, number, now_ms, form, read) for number in range(len(queue.partitions))],
        "redrives": [msgspec.to_builtins(redrive) for redrive in queue.redrives.values()],
        # Absent if empty, so that the digest of a state without them is that of earlier versions.
        **({"routing": queue.routing} if queue.routing != RENDEZVOUS else {}),
        **(
            {"next_group": queue.next_group, "former_groups": list(queue.former_groups.items())}
            if queue.former_groups
            else {}
        ),
    }


def _load_queue(shard: Shard, entry: dict[str, Any], read: ReadStored) -> Queue:
    config = shared(msgspec.convert(entry["config"], QueueConfig))
    queue = Queue(entry["number"], entry["path"], config, entry.get("routing", RENDEZVOUS))
    for number, name in entry["groups"]:
        queue.groups[name] = number
        queue.group_names[number] = name
    queue.next_group = entry.get("next_group", max(queue.group_names, default=-1) + 1)
    queue.former_groups = dict(entry.get("former_groups", ()))
    queue.growths = entry.get("growths", [])
    for group, *membership in entry.get("memberships", ()):
        queue.memberships[group] = Membership.load(membership, max(shard.now_ms, shard.advanced_ms))
    _load_ids(queue.dedup.ids, entry, read, shard.now_ms)
    for name, epoch, used_at, accepted, runs in entry["producers"]:
        producer = queue.dedup.producers[name] = Producer(epoch, used_at, RangeSet.from_flat(accepted))
        producer.remember(
            [SeqRun(first, stop, p, offset, int.from_bytes(id_, "big")) for first, stop, p, offset, id_ in runs]
        )
    for client, offsets, used_at in entry.get("readers", ()):
        queue.readers[client] = KeptOffsets(dict(offsets), used_at)
    queue.partitions = queue.partitions.replaced([
        None if values is None else _load_partition(values, shard.now_ms, queue.config, read)
        for values in entry["partitions"]
    ])  # fmt: skip
    queue.redrives = {each["id"]: msgspec.convert(each, Redrive) for each in entry.get("redrives", ())}
    return queue


def _dump_producer(name: str, entry: Producer) -> tuple[Any, ...]:
    runs = [(run.first, run.stop, run.partition, run.offset, run.id.to_bytes(16, "big")) for run in entry.runs]
    return name, entry.epoch, entry.used_at, _flat(entry.accepted), _rows(runs)


def _dump_ids(ids: ClientIds, form: int) -> dict[str, Any]:
    if form == COMPARABLE:
        return {"first": ids.first, "rows": _rows(list(ids.rows()))}
    return {"first": ids.first, "chunks": [_capture_id_chunk(chunk) for chunk in ids.chunks]}


def _capture_id_chunk(chunk: IdChunk) -> tuple[Any, ...]:
    entries, runs = len(chunk), len(chunk.starts)
    # Columns only grow, so their first `entries` and `runs` values can be encoded later.
    where = chunk.stored or (Later(lambda: chunk.encode(entries, runs)),)
    return (chunk.first, chunk.base, entries, runs, *where)


def _load_ids(ids: ClientIds, entry: dict[str, Any], read: ReadStored, now_ms: int) -> None:
    values = entry["ids"]
    if isinstance(values, list):
        for client_id, at, *place in values:
            ids.add([client_id], at, _load_place(place))
        for client_id, *place in entry.get("handles", ()):
            ids.add([client_id], now_ms, _load_place(place), KEPT)
        return
    ids.load(values["first"], [_load_id_chunk(chunk, read) for chunk in values.get("chunks", ())])
    for row in values.get("rows", ()):
        ids.restore(row)


def _load_place(values: list[Any]) -> Place:
    return Place(values[0], values[1], int.from_bytes(values[2], "big"))


def _load_id_chunk(values: list[Any], read: ReadStored) -> IdChunk:
    first, base, entries, runs, *where = values
    if len(where) == 1:
        return IdChunk.load(first, base, entries, runs, where[0])
    stored = StoredChunk(*where)
    chunk = IdChunk.load(first, base, entries, runs, read("ids", stored, DIGEST_BYTES * entries + RUN_BYTES * runs))
    chunk.stored = stored
    return chunk


def _dump_partition(queue: Queue, number: int, now_ms: int, form: int, read: Read) -> dict[str, Any] | None:
    """None in a snapshot, if the partition is not used."""
    blank = queue.partitions.is_blank(number)
    if blank and form == CAPTURED:
        return None
    partition = Partition(queue.config) if blank else queue.partitions[number]
    keeps = queue.config.retention.mode == "keep"
    agendas: dict[str, Any]
    if form == COMPARABLE:
        agendas = {
            "schedule": _rows(_schedule(partition, now_ms, read)),
            "expiries": _rows(_expiries(partition, now_ms, read, keeps=keeps)),
            "overdue": _rows(_overdue(partition, now_ms, read, keeps=keeps)),
        }
    else:
        agendas = {
            "delayed": _flat(partition.delayed),
            "schedule": _capture_agenda(partition.schedule),
            "scheduled": Later(partition.scheduled.copy().dump),
            "moved": _items(partition.moved, form),
            "expiries": _capture_agenda(partition.expiries),
            "overdue": _rows(list(partition.overdue)),
        }
    return {
        "start": partition.start,
        "end": partition.end,
        "gone": _flat(partition.gone),
        "traits": _dump_traits(partition, form, keeps=keeps),
        **agendas,
        "max_retries": _items(partition.max_retries, form),
        **_dump_letters(partition.dead, form),
        "timeless": _flat(partition.timeless),
        "window": None if partition.window is None else partition.window.copy(),
        "progress": [
            (group, *_dump_progress(partition, progress, form))
            for group, progress in sorted(partition.progress.items())
        ],
    }


def _dump_traits(partition: Partition, form: int, *, keeps: bool) -> dict[str, Any]:
    if form != CAPTURED:
        return partition.traits.values(partition.live(keeps=keeps)) if any(partition.traits.columns()) else {}
    captured = {name: column.capture() for name, column in partition.traits.columns()}
    return {name: Rows(len(pages), _pages(pages)) for name, pages in captured.items()}


def _pages(pages: dict[int, array[int]]) -> Iterator[tuple[int, bytes]]:
    """Page by page, with whatever else is on a page."""
    for page in sorted(pages):
        yield page, pages[page].tobytes()


def _load_partition(values: dict[str, Any], now_ms: int, config: QueueConfig, read: ReadStored) -> Partition:
    partition = Partition(config)
    partition.traits.load(values.get("traits", {}))
    partition.start, partition.end = values["start"], values["end"]
    partition.gone = RangeSet.from_flat(values["gone"])
    _load_agenda(partition.schedule, values["schedule"], now_ms)
    _load_agenda(partition.expiries, values["expiries"], now_ms)
    if "scheduled" in values:
        partition.scheduled = OffsetBits.load(*values["scheduled"])
        partition.moved = dict(values["moved"])
    else:
        for _, first, count in partition.schedule:
            partition.scheduled.add(first, first + count)
    partition.overdue = RangeSet(sorted((first, stop) for first, stop in values["overdue"]))
    partition.max_retries = dict(values["max_retries"])
    _load_letters(partition.dead, values, read)
    partition.timeless = RangeSet.from_flat(values.get("timeless", []))
    window = values.get("window")
    partition.window = None if window is None else msgspec.convert(window, Window)
    for group, *progress in values["progress"]:
        partition.progress[group] = _load_progress(progress)
    _load_delayed(partition, values.get("delayed"))
    return partition


def _load_delayed(partition: Partition, delayed: list[int] | None) -> None:
    """Load `delayed` of a partition. Earlier versions had, for each group, the offsets that its cursor skips."""
    if delayed is not None:
        partition.delayed = RangeSet.from_flat(delayed)
        return
    groups = list(partition.progress.values())
    partition.delayed = RangeSet(sorted(run for progress in groups for run in progress.undelayed))
    for progress in groups:
        passed, progress.undelayed = progress.undelayed, RangeSet()
        for first, stop in partition.delayed.within(progress.cursor, partition.end):
            for inside, after in passed.gaps(first, stop):
                progress.undelayed.add(inside, after)


def _schedule(partition: Partition, now_ms: int, read: Read) -> list[tuple[int, int, int]]:
    """Valid entries that are due after `now_ms`. The progress of the groups implies the earlier ones."""
    return _merged(
        (due, inside, after - inside)
        for due, first, count in partition.schedule.entries(read)
        if due > now_ms
        for inside, after in partition.scheduled_in(due, first, first + count)
    )


def _expiries(partition: Partition, now_ms: int, read: Read, *, keeps: bool) -> list[tuple[int, int, int]]:
    return _merged(
        (due, inside, after - inside)
        for due, first, count in partition.expiries.entries(read)
        if due > now_ms
        for inside, after in partition.expiring_in(first, first + count, keeps=keeps)
    )


def _merged(entries: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The canonical form of an agenda: sorted by offset, with adjacent entries of one time merged."""
    merged: list[tuple[int, int, int]] = []
    for due, first, count in sorted(entries, key=lambda entry: entry[1]):
        if merged and merged[-1][0] == due and merged[-1][1] + merged[-1][2] == first:
            merged[-1] = (due, merged[-1][1], merged[-1][2] + count)
        elif not (merged and merged[-1] == (due, first, count)):
            merged.append((due, first, count))
    return merged


def _overdue(partition: Partition, now_ms: int, read: Read, *, keeps: bool) -> list[tuple[int, int]]:
    """Messages whose time to live has passed and which have not expired yet; the rule of `waiting._expire`."""
    due = [(first, first + count) for at, first, count in partition.expiries.entries(read) if at <= now_ms]
    late = RangeSet()
    for first, stop in sorted([*partition.overdue, *due]):
        for inside, after in partition.expiring_in(first, stop, keeps=keeps):
            late.add(inside, after)
    return list(late)


def _capture_agenda(agenda: Agenda) -> dict[str, Any]:
    entries, flats, chunks = agenda.copy()
    return {
        "entries": Later(lambda: b"".join([array("q", chain.from_iterable(entries)).tobytes(), *flats])),
        "chunks": Rows(len(chunks), chunks),
    }


def _load_agenda(agenda: Agenda, values: Any, now_ms: int) -> None:
    if isinstance(values, dict):
        flat = array("q")
        flat.frombytes(values["entries"])
        agenda.restore(flat, [Chunk(*chunk) for chunk in values["chunks"]], now_ms)
    else:
        for due, first, count in values:
            agenda.add(due, first, count, now_ms)


def _rows(values: list[Any]) -> Rows:
    """A list of values that need no conversion."""
    return Rows(len(values), values)


def _flat(ranges: RangeSet) -> Rows:
    copied = ranges.copy()
    return Rows(2 * copied.ranges, chain.from_iterable(copied))


def _dump_letters(dead: DeadLetters, form: int) -> dict[str, Any]:
    if form == COMPARABLE:
        return {"dead": _rows([(*place, letter) for place, letter in sorted(dead.items(), key=itemgetter(0))])}
    return {
        "letters": [
            (group, _rows([_capture_letter_chunk(chunk) for chunk in dead.order(group).chunks]))
            for group in sorted(dead.groups())
        ]
    }


def _capture_letter_chunk(chunk: LetterChunk) -> tuple[Any, ...]:
    return (len(chunk), len(chunk.texts), *(chunk.stored or (chunk.encode(),)))


def _load_letters(dead: DeadLetters, values: dict[str, Any], read: ReadStored) -> None:
    for group, chunks in values.get("letters", ()):
        dead.load(group, [_load_letter_chunk(chunk, read) for chunk in chunks])
    letters = [(group, offset, msgspec.convert(letter, DeadLetter)) for group, offset, letter in values.get("dead", ())]
    for group, offset, letter in sorted(letters, key=lambda entry: entry[2].dead_at):
        dead.put(group, offset, letter)


def _load_letter_chunk(values: list[Any], read: ReadStored) -> LetterChunk:
    letters, text_bytes, *where = values
    if len(where) == 1:
        return LetterChunk.load(letters, text_bytes, where[0])
    stored = StoredChunk(*where)
    chunk = LetterChunk.load(letters, text_bytes, read("letters", stored, encoded_bytes(letters, text_bytes)))
    chunk.stored = stored
    return chunk


def _items(table: dict[Any, Any], form: int) -> Rows:
    """The items of a dictionary, sorted in the comparable form."""
    items = sorted(table.items()) if form == COMPARABLE else table.copy().items()
    return Rows(len(items), items)


def _dump_progress(partition: Partition, progress: Progress, form: int) -> tuple[Any, ...]:
    return (
        progress.floor,
        progress.cursor,
        _flat(progress.done),
        _flat(RangeSet(list(progress.delayed(partition))) if form == COMPARABLE else progress.undelayed),
        _items(progress.retries, form),
    )


def _load_progress(values: list[Any]) -> Progress:
    floor, cursor, done, undelayed, retries = values
    progress = Progress(floor)
    progress.cursor = cursor
    progress.done = CrumblingSet.from_flat(done)
    progress.undelayed = RangeSet.from_flat(undelayed)
    progress.retries = Retries((offset, msgspec.convert(retry, Retry)) for offset, retry in retries)
    return progress


def dump_lease(lease: Lease) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(lease)
    return values


def _load_lease(values: dict[str, Any]) -> Lease:
    lease = msgspec.convert({**values, "held": []}, Lease)
    lease.held = [msgspec.convert(run, Held) for run in values["held"]]
    return lease

"""Hard state <-> plain values: what a snapshot holds, and what two states are compared by.

`dump` copies what it must and no more, so that it can run between two commands; turning the values into bytes can
happen elsewhere. `load(dump(state))` behaves like `state`, and so does the sum of the records that led to it: once
both were advanced to the same time, their `digest` is the same. Format: docs/formats/snapshot.md.
"""

from __future__ import annotations

from copy import copy
from hashlib import blake2b
from typing import Any

import msgspec

from penstock.core.agenda import Agenda
from penstock.core.config import QueueConfig
from penstock.core.dedup import Dedup, Place, Producer, SeqRun
from penstock.core.ranges import RangeSet
from penstock.core.schedules import arm
from penstock.core.state import (
    DeadLetter,
    Held,
    KeptOffsets,
    Lease,
    Partition,
    Progress,
    Queue,
    Retry,
    Schedule,
    Shard,
    Window,
)

VERSION = 1


def dump(shard: Shard) -> dict[str, Any]:
    # Delays that are over by this time are not written: that they are over follows from the groups' progress.
    by_ms = max(shard.now_ms, shard.advanced_ms)
    return {
        "version": VERSION,
        "now_ms": shard.now_ms,
        "advanced_ms": by_ms,
        "term": shard.term,
        "next_queue": shard.next_queue,
        "next_lease": shard.next_lease,
        "last_id": shard.last_id.to_bytes(16, "big"),
        "queues": [_dump_queue(queue, by_ms) for _, queue in sorted(shard.queues.items())],
        "leases": [_dump_lease(lease) for _, lease in sorted(shard.leases.items())],
        "schedules": [copy(schedule) for _, schedule in sorted(shard.schedules.items())],
    }


def load(values: dict[str, Any]) -> Shard:
    """The state, soft fields included."""
    if values["version"] != VERSION:
        raise ValueError(f"snapshot version {values['version']} is not known here (known: {VERSION})")
    shard = Shard()
    shard.now_ms = values["now_ms"]
    shard.advanced_ms = values["advanced_ms"]
    shard.term = values["term"]
    shard.next_queue = values["next_queue"]
    shard.next_lease = values["next_lease"]
    shard.last_id = int.from_bytes(values["last_id"], "big")
    for entry in values["queues"]:
        queue = _load_queue(shard, entry)
        shard.queues[queue.number] = queue
        shard.paths[queue.path] = queue.number
    for entry in values["leases"]:
        lease = _load_lease(entry)
        shard.leases[lease.id] = lease
        for run in lease.held:
            shard.queues[lease.queue].partitions[lease.partition].progress[lease.group].leased.add(run.first, run.stop)
    for entry in values.get("schedules", ()):
        schedule = msgspec.convert(entry, Schedule)
        shard.schedules[schedule.name] = schedule
    rebuild(shard)
    return shard


def rebuild(shard: Shard) -> None:
    """Every soft field from the hard ones."""
    shard.deadlines = sorted((run.deadline, lease.id) for lease in shard.leases.values() for run in lease.held)
    shard.timers, shard.overdue, shard.overdue_partitions = [], [], {}
    shard.alarms, shard.due_schedules = [], {}
    for schedule in shard.schedules.values():
        arm(shard, schedule)
    for queue in shard.queues.values():
        for number, partition in enumerate(queue.partitions):
            scheduled = RangeSet(sorted((first, first + count) for _, first, count in partition.schedule))
            upcoming = [due for due in (partition.schedule.next_ms(), partition.expiries.next_ms()) if due is not None]
            if partition.overdue or partition.window is not None:
                upcoming.append(shard.now_ms)
            if upcoming:
                shard.arm(min(upcoming), queue.number, number)
            for group, progress in partition.progress.items():
                progress.rebuild(scheduled, partition.end)
                if progress.waiting:
                    shard.arm(progress.waiting[0][0], queue.number, number, group)


def digest(shard: Shard) -> str:
    """Equal for equal hard states, whatever road led to them."""
    return blake2b(msgspec.msgpack.encode(dump(shard)), digest_size=16).hexdigest()


def _dump_queue(queue: Queue, now_ms: int) -> dict[str, Any]:
    return {
        "number": queue.number,
        "path": queue.path,
        "config": queue.config,
        "groups": sorted((number, name) for name, number in queue.groups.items()),
        "ids": [(client_id, at, *_dump_place(place)) for client_id, (at, place) in queue.dedup.ids.items()],
        "readers": [(client, sorted(kept.offsets.items()), kept.used_at) for client, kept in queue.readers.items()],
        "producers": [
            (
                name, entry.epoch, entry.used_at, entry.accepted.flat(),
                [(run.first, run.stop, run.partition, run.offset, run.id.to_bytes(16, "big")) for run in entry.runs],
            )
            for name, entry in queue.dedup.producers.items()
        ],
        "partitions": [
            _dump_partition(partition, now_ms, keeps=queue.config.retention.mode == "keep")
            for partition in queue.partitions
        ],
    }  # fmt: skip


def _load_queue(shard: Shard, entry: dict[str, Any]) -> Queue:
    queue = Queue(entry["number"], entry["path"], msgspec.convert(entry["config"], QueueConfig))
    for number, name in entry["groups"]:
        queue.groups[name] = number
        queue.group_names[number] = name
    queue.dedup = Dedup()
    for client_id, at, *place in entry["ids"]:
        queue.dedup.ids[client_id] = (at, _load_place(place))
    for name, epoch, used_at, accepted, runs in entry["producers"]:
        producer = queue.dedup.producers[name] = Producer(epoch, used_at, RangeSet.from_flat(accepted))
        producer.remember(
            [SeqRun(first, stop, p, offset, int.from_bytes(id_, "big")) for first, stop, p, offset, id_ in runs]
        )
    for client, offsets, used_at in entry.get("readers", ()):
        queue.readers[client] = KeptOffsets(dict(offsets), used_at)
    queue.partitions = [_load_partition(values, shard.now_ms) for values in entry["partitions"]]
    return queue


def _dump_place(place: Place) -> tuple[int, int, bytes]:
    return place.partition, place.offset, place.id.to_bytes(16, "big")


def _load_place(values: list[Any]) -> Place:
    return Place(values[0], values[1], int.from_bytes(values[2], "big"))


def _dump_partition(partition: Partition, now_ms: int, *, keeps: bool) -> dict[str, Any]:
    return {
        "start": partition.start,
        "end": partition.end,
        "gone": partition.gone.flat(),
        "schedule": _dump_schedule(partition, now_ms),
        "expiries": _merged([entry for entry in partition.expiries if entry[0] > now_ms]),
        "overdue": _overdue(partition, now_ms, keeps=keeps),
        "max_retries": sorted(partition.max_retries.items()),
        "dead": [(*place, letter) for place, letter in sorted(partition.dead.items())],
        "window": None if partition.window is None else partition.window.copy(),
        "progress": [(group, *_dump_progress(progress)) for group, progress in sorted(partition.progress.items())],
    }


def _load_partition(values: dict[str, Any], now_ms: int) -> Partition:
    partition = Partition()
    partition.start, partition.end = values["start"], values["end"]
    partition.gone = RangeSet.from_flat(values["gone"])
    _load_agenda(partition.schedule, values["schedule"], now_ms)
    for _, first, count in partition.schedule:
        partition.scheduled.add(first, first + count)
    _load_agenda(partition.expiries, values["expiries"], now_ms)
    partition.overdue = [(first, stop) for first, stop in values["overdue"]]
    partition.max_retries = dict(values["max_retries"])
    partition.dead = {(group, offset): msgspec.convert(letter, DeadLetter) for group, offset, letter in values["dead"]}
    window = values.get("window")
    partition.window = None if window is None else msgspec.convert(window, Window)
    for group, *progress in values["progress"]:
        partition.progress[group] = _load_progress(progress)
    return partition


def _dump_schedule(partition: Partition, now_ms: int) -> list[tuple[int, int, int]]:
    """Valid entries whose time has not come. What came due by `now_ms` follows from the groups' progress."""
    entries: list[tuple[int, int, int]] = []
    for due, first, count in partition.schedule:
        if due > now_ms:
            if not partition.moved and partition.scheduled.covers(first, first + count):
                entries.append((due, first, count))
            else:
                entries += [
                    (due, offset, 1)
                    for offset in partition.scheduled.within(first, first + count)
                    if partition.moved.get(offset, due) == due
                ]
    return _merged(entries)


def _merged(entries: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Sorted by offset, neighbours of one time as one entry: one way to write each agenda."""
    merged: list[tuple[int, int, int]] = []
    for due, first, count in sorted(entries, key=lambda entry: entry[1]):
        if merged and merged[-1][0] == due and merged[-1][1] + merged[-1][2] == first:
            merged[-1] = (due, merged[-1][1], merged[-1][2] + count)
        elif not (merged and merged[-1] == (due, first, count)):
            merged.append((due, first, count))
    return merged


def _overdue(partition: Partition, now_ms: int, *, keeps: bool) -> list[tuple[int, int]]:
    """Past their time to live and not over yet; the rule of `waiting._expire`."""
    due = [(first, first + count) for at, first, count in partition.expiries if at <= now_ms]
    late = RangeSet(sorted([*partition.overdue, *due]))
    late.remove_below(partition.start)
    for first, stop in partition.gone:
        late.remove(first, stop)
    for first, stop in [] if keeps else list(late):
        for inside, after in partition.finished(first, stop):
            late.remove(inside, after)
    return list(late)


def _load_agenda(agenda: Agenda, entries: list[tuple[int, int, int]], now_ms: int) -> None:
    for due, first, count in entries:
        agenda.add(due, first, count, now_ms)


def _dump_progress(progress: Progress) -> tuple[Any, ...]:
    return (
        progress.floor,
        progress.cursor,
        progress.done.flat(),
        progress.skip.flat(),
        [(offset, retry) for offset, retry in sorted(progress.retries.items())],
    )


def _load_progress(values: list[Any]) -> Progress:
    floor, cursor, done, skip, retries = values
    progress = Progress(floor)
    progress.cursor = cursor
    progress.done = RangeSet.from_flat(done)
    progress.skip = RangeSet.from_flat(skip)
    progress.retries = {offset: msgspec.convert(retry, Retry) for offset, retry in retries}
    return progress


def _dump_lease(lease: Lease) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(lease)
    return values


def _load_lease(values: dict[str, Any]) -> Lease:
    lease = msgspec.convert({**values, "held": []}, Lease)
    lease.held = [msgspec.convert(run, Held) for run in values["held"]]
    return lease

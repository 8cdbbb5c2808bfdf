"""State now, as numbers: per queue, partition and group; and rates over the last minute. One pass, no disk."""

from __future__ import annotations

from typing import Any

from penstock.broker.alarms import Alarms
from penstock.broker.members import describe, owner_of
from penstock.broker.types import QueueRow
from penstock.core import windows
from penstock.core.state import Partition, Progress, Queue
from penstock.runtime.holding import spanned_bytes
from penstock.runtime.loop import ShardLoop


class Stats:
    def __init__(self, loop: ShardLoop, alarms: Alarms):
        self._loop = loop
        self._alarms = alarms

    def queue(self, queue: Queue) -> dict[str, Any]:
        partitions = [
            {
                "partition": number,
                "start_offset": partition.start,
                "end_offset": partition.end,
                "depth": queue.partition_depth(partition),
                "scheduled": partition.scheduled.count,
                "dead": len(partition.dead),
            }
            for number, partition in enumerate(queue.partitions)
        ]
        now_ms = self._loop.now_ms()
        groups = self.groups(queue)["groups"]
        first = groups[0] if groups else None
        depth = sum(entry["depth"] for entry in partitions)
        scheduled = sum(entry["scheduled"] for entry in partitions)
        return {
            "queue": queue.path,
            "depth": depth,
            "ready": first["ready"] if first else depth - scheduled,
            "scheduled": scheduled,
            "leased": sum(group["leased"] for group in groups),
            "waiting_for_retry": sum(group["waiting_for_retry"] for group in groups),
            "dead": sum(entry["dead"] for entry in partitions),
            "dead_letter_alarm": self._alarms.of(queue),
            "oldest_age_ms": self._oldest_age_ms(queue),
            "window_opens_at_ms": windows.opens_at(queue, self._loop.now_ms()) if queue.config.window_ms else None,
            "totals": self._loop.counters.of(queue.number).as_dict(),
            "rates": {name: round(rate, 3) for name, rate in self._loop.counters.rates(queue.number, now_ms).items()},
            "partitions": partitions,
            "groups": groups,
        }

    def rows(self, prefix: str) -> list[QueueRow]:
        shard = self._loop.shard
        return [self._row(shard.queues[shard.paths[path]]) for path in sorted(shard.paths) if path.startswith(prefix)]

    def _row(self, queue: Queue) -> QueueRow:
        now_ms = self._loop.now_ms()
        progress = [each for part in queue.partitions for each in part.progress.values()]
        depth, scheduled = queue.depth(), sum(part.scheduled.count for part in queue.partitions)
        leased = sum(each.leased.count for each in progress)
        waiting = sum(len(each.waiting_for_retry(now_ms)) for each in progress)
        return QueueRow(
            queue.path, queue.config.order, queue.config.queue_priority, depth,
            max(0, depth - scheduled - leased - waiting), scheduled, leased, waiting,
            sum(len(part.dead) for part in queue.partitions),
            self._loop.counters.of(queue.number).as_dict(), self._loop.counters.rates(queue.number, now_ms),
        )  # fmt: skip

    def groups(self, queue: Queue) -> dict[str, Any]:
        now_ms = self._loop.now_ms()
        entries = []
        held = held_alone(queue)
        for name, number in sorted(queue.groups.items()):
            parts = [(part, part.progress[number]) for part in queue.partitions]
            work = self._loop.counters.work(queue.number, number, now_ms)
            entries.append(
                {
                    "group": name,
                    **describe(queue, number, now_ms),
                    **self.backlog(queue, number),
                    "held": held.get(number, 0),
                    "oldest_unacked_at_ms": self._published_at(queue, [progress.floor for _, progress in parts]),
                    "last_asked_at_ms": self._loop.last_asked_ms(queue, name),
                    "waiting_consumers": self._loop.waiting_in(queue, name),
                    "busy_workers": work.busy,
                    "finished": work.finished,
                    "service_s": work.served_ms / 1000,
                    **_dispatch(queue, number),
                    "partitions": [
                        {
                            "partition": place,
                            "owner": owner_of(queue, number, place),
                            "lag": progress.undone(partition.end),
                            "next_offset": progress.cursor,
                            "floor": progress.floor,
                            "acked_ranges": list(progress.done)[:100],
                        }
                        for place, (partition, progress) in enumerate(parts)
                    ],
                }
            )
        return {"queue": queue.path, "groups": entries}

    def holders(self, queue: Queue, most: int) -> list[dict[str, Any]]:
        """The groups for which alone something is stored, those that hold most first."""
        held = sorted(held_alone(queue).items(), key=lambda entry: -entry[1])
        return [
            {
                "group": queue.group_names[group],
                "held": count,
                "lag": sum(part.progress[group].undone(part.end) for part in queue.partitions),
                "oldest_unacked_at_ms": self._published_at(
                    queue, [part.progress[group].floor for part in queue.partitions]
                ),
                "last_asked_at_ms": self._loop.last_asked_ms(queue, queue.group_names[group]),
            }
            for group, count in held[:most]
        ]

    def backlog(self, queue: Queue, group: int) -> dict[str, int]:
        """What a group has to do, by what it is waiting for."""
        now_ms = self._loop.now_ms()
        parts = [(part, part.progress[group]) for part in queue.partitions]
        leased = sum(progress.leased.count for _, progress in parts)
        waiting = sum(len(progress.waiting_for_retry(now_ms)) for _, progress in parts)
        lag = sum(progress.undone(partition.end) for partition, progress in parts)
        scheduled = sum(_scheduled(partition, progress) for partition, progress in parts)
        return {
            "lag": lag,
            "ready": lag - leased - waiting - scheduled,
            "scheduled": scheduled,
            "leased": leased,
            "waiting_for_retry": waiting,
        }

    def summary(self) -> dict[str, Any]:
        shard = self._loop.shard
        queues = list(shard.queues.values())
        return {
            "queues": len(queues),
            "namespaces": len({queue.path.partition("/")[0] for queue in queues}),
            "depth": sum(queue.depth() for queue in queues),
            "scheduled": sum(part.scheduled.count for queue in queues for part in queue.partitions),
            "leased": sum(
                progress.leased.count
                for queue in queues
                for part in queue.partitions
                for progress in part.progress.values()
            ),
            "dead": sum(len(part.dead) for queue in queues for part in queue.partitions),
            "dead_letter_alarms": self._alarms.active(),
            "waiting_consumers": self._loop.waiting,
            "holds": len(shard.holds),
            "holds_lost": sum(hold.lost_at > 0 for hold in shard.holds.values()),
            "held_bytes": sum(spanned_bytes(self._loop, hold) for hold in shard.holds.values() if not hold.lost_at),
        }

    def _oldest_age_ms(self, queue: Queue) -> int | None:
        """Age of the oldest unfinished message, to the precision of the sparse index."""
        floors = [
            min([progress.floor for progress in partition.progress.values()], default=partition.start)
            for partition in queue.partitions
        ]
        oldest = self._published_at(queue, floors)
        return None if oldest is None else max(0, self._loop.now_ms() - oldest)

    def _published_at(self, queue: Queue, offsets: list[int]) -> int | None:
        """When the oldest of these messages, one per partition, was published; None if all partitions end there."""
        times = []
        for number, (partition, offset) in enumerate(zip(queue.partitions, offsets, strict=True)):
            index = self._loop.log.indexes.get((queue.number, number))
            if index is not None and offset < partition.end and (piece := index.at(offset)) < len(index):
                times.append(index.time_of(piece))
        return min(times, default=None)


def held_alone(queue: Queue) -> dict[int, int]:
    """Group -> messages at the beginning of the log that are stored for it alone. Looks at one floor per group."""
    held: dict[int, int] = {}
    for partition in queue.partitions if queue.config.retention.mode == "until_acked" else ():
        floors = sorted((progress.floor, group) for group, progress in partition.progress.items())
        if floors:
            (first, group), stop = floors[0], floors[1][0] if len(floors) > 1 else partition.end
            count = stop - first - partition.progress[group].done.count_in(first, stop)
            if count:
                held[group] = held.get(group, 0) + count
    return held


def _dispatch(queue: Queue, group: int) -> dict[str, Any]:
    """What holds messages back in queues whose order is more than a line."""
    dispatcher = queue.dispatchers.get(group)
    found: dict[str, Any] = {}
    if dispatcher is not None and dispatcher.gate is not None:
        found["blocked_keys"] = dispatcher.gate.blocked
    if dispatcher is not None and dispatcher.shares is not None:
        found["tenants_waiting"] = dispatcher.shares.waiting
    return found


def _scheduled(partition: Partition, progress: Progress) -> int:
    """Scheduled for this group. What failed here before counts as waiting for its retry instead."""
    return partition.scheduled.count - sum(offset in partition.scheduled for offset in progress.retries)

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
        for name, number in sorted(queue.groups.items()):
            parts = [(part, part.progress[number]) for part in queue.partitions]
            work = self._loop.counters.work(queue.number, number, now_ms)
            entries.append(
                {
                    "group": name,
                    **describe(queue, number, now_ms),
                    **self.backlog(queue, number),
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
        oldest = None
        for number, partition in enumerate(queue.partitions):
            floors = [progress.floor for progress in partition.progress.values()]
            first = min(floors, default=partition.start)
            index = self._loop.log.indexes.get((queue.number, number))
            if index is not None and first < partition.end:
                piece = index.at(first)
                if piece < len(index):
                    time_ms = index.time_of(piece)
                    oldest = time_ms if oldest is None else min(oldest, time_ms)
        return None if oldest is None else max(0, self._loop.now_ms() - oldest)


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

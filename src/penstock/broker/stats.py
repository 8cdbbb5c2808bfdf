"""State now, as numbers: per queue, partition and group; and rates over the last minute. No disk.

A broker may have thousands of queues and a queue thousands of groups and partitions: what is read of many of them is
read in slices, each of its own moment, and other requests run in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any

from penstock.broker.alarms import Alarms
from penstock.broker.identity import Identity
from penstock.broker.members import describe, owner_of
from penstock.broker.types import QueueRow
from penstock.core.state import Partition, Progress, Queue, windows
from penstock.ids import QueuePath
from penstock.runtime.latencies import Latencies, merged, percentiles
from penstock.runtime.pace import Slices
from penstock.runtime.view import ShardView

ROW_COST = 8
GROUP_COST = 6
"""Of a queue in a list and of a group, per partition; see `Slices`."""
ACKED_RANGES_SHOWN = 100


class Stats:
    def __init__(self, view: ShardView, alarms: Alarms, identity: Identity):
        self._view = view
        self._alarms = alarms
        self._identity = identity

    async def queue(self, path: QueuePath) -> dict[str, Any]:
        queue = self._view.queue(path)
        groups = await self.groups(queue)
        now_ms, counters = self._view.now_ms(), self._view.counters
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
        depth = sum(entry["depth"] for entry in partitions)
        scheduled = sum(entry["scheduled"] for entry in partitions)
        return {
            "queue": queue.path,
            "uuid": self._identity.uuid_of(queue.number),
            "depth": depth,
            "ready": groups[0]["ready"] if groups else depth - scheduled,
            "scheduled": scheduled,
            "leased": sum(group["leased"] for group in groups),
            "waiting_for_retry": sum(group["waiting_for_retry"] for group in groups),
            "dead": sum(entry["dead"] for entry in partitions),
            "dead_letter_alarm": self._alarms.of(queue),
            "oldest_age_ms": self._oldest_age_ms(queue),
            "window_opens_at_ms": windows.opens_at(queue, now_ms) if queue.config.window_ms else None,
            "totals": counters.of(queue.number).as_dict(),
            "rates": {name: round(rate, 3) for name, rate in counters.rates(queue.number, now_ms).items()},
            "partitions": partitions,
            "groups": groups,
        }

    def _latency(self, queue: Queue, now_ms: int) -> dict[str, dict[str, int] | None]:
        """Percentiles of this minute and of the one before it."""
        counters = self._view.counters
        works = [counters.work(queue.number, number, now_ms).latencies for number in queue.groups.values()]
        return {"delivery": _percentiles([counters.of(queue.number).waits]), "ack": _percentiles(works)}

    def consumers(self, path: QueuePath, *, limit: int) -> dict[str, Any]:
        """The consumers that hold messages of a queue, those that hold most first, and its latencies."""
        queue, now_ms = self._view.queue(path), self._view.now_ms()
        held = [
            (count, name, worker)
            for name, number in queue.groups.items()
            for worker, count in self._view.counters.work(queue.number, number, now_ms).held().items()
        ]
        return {
            "queue": queue.path,
            "latency": self._latency(queue, now_ms),
            "consumers": [
                {"consumer": worker if isinstance(worker, str) else None, "group": group, "messages": count}
                for count, group, worker in nlargest(limit, held, key=lambda entry: entry[0])
            ],
            "total": len(held),
        }

    def brief(self, queue: Queue) -> dict[str, Any]:
        """The numbers of a queue in a list of many."""
        row = self.row(queue)
        rates = {name: round(rate, 3) for name, rate in row.rates.items()}
        fields = ("depth", "ready", "scheduled", "leased", "dead")
        return {**{name: getattr(row, name) for name in fields}, "rates": rates}

    async def rows(self, prefix: str = "") -> list[QueueRow]:
        """The queues whose path begins with `prefix`, by path, with their most important numbers."""
        slices, rows = Slices(self._view.give_way), []
        for path in self._view.paths(prefix):
            queue = self._view.find_queue(path)  # None: deleted meanwhile
            if queue is not None:
                rows.append(self.row(queue))
                await slices.spend(ROW_COST * len(queue.partitions))
        return rows

    def row(self, queue: Queue) -> QueueRow:
        now_ms = self._view.now_ms()
        progress = [each for part in queue.partitions for each in part.progress.values()]
        depth, scheduled = queue.depth(), sum(part.scheduled.count for part in queue.partitions)
        leased = sum(each.leased.count for each in progress)
        waiting = sum(each.retries.waiting(now_ms) for each in progress)
        # Of the first group, as `queue` has it: messages that another group has leased are ready for this one.
        first = min(queue.groups, default=None)
        ready = depth - scheduled if first is None else self.backlog(queue, queue.groups[first])["ready"]
        return QueueRow(
            queue.path, queue.config.order, queue.config.queue_priority, depth, ready, scheduled, leased, waiting,
            sum(len(part.dead) for part in queue.partitions),
            self._view.counters.of(queue.number).as_dict(), self._view.counters.rates(queue.number, now_ms),
            self._oldest_age_ms(queue) if depth else None,
        )  # fmt: skip

    async def groups(self, queue: Queue) -> list[dict[str, Any]]:
        """The state of each group, by name."""
        slices, held, entries = Slices(self._view.give_way), held_alone(queue), []
        for name, number in sorted(queue.groups.items()):
            if queue.groups.get(name) == number:  # otherwise deleted meanwhile
                entries.append(self._group(queue, name, number, held.get(number, 0)))
                await slices.spend(GROUP_COST * len(queue.partitions))
        return entries

    def _group(self, queue: Queue, name: str, number: int, held: int) -> dict[str, Any]:
        now_ms = self._view.now_ms()
        parts = [(part, part.progress[number]) for part in queue.partitions]
        work = self._view.counters.work(queue.number, number, now_ms)
        return {
            "group": name,
            **describe(queue, number, now_ms),
            **self.backlog(queue, number),
            "held": held,
            "oldest_unacked_at_ms": self._published_at(queue, [progress.floor for _, progress in parts]),
            "last_asked_at_ms": self._view.last_asked_ms(queue, name),
            "waiting_consumers": self._view.waiting_in(queue, name),
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
                    "acked_ranges": list(islice(progress.done, ACKED_RANGES_SHOWN)),
                }
                for place, (partition, progress) in enumerate(parts)
            ],
        }

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
                "last_asked_at_ms": self._view.last_asked_ms(queue, queue.group_names[group]),
            }
            for group, count in held[:most]
        ]

    def backlog(self, queue: Queue, group: int) -> dict[str, int]:
        """Counts of a group's unfinished messages, by the state that they are in."""
        now_ms = self._view.now_ms()
        parts = [(part, part.progress[group]) for part in queue.partitions]
        leased = sum(progress.leased.count for _, progress in parts)
        waiting = sum(progress.retries.waiting(now_ms) for _, progress in parts)
        lag = sum(progress.undone(partition.end) for partition, progress in parts)
        scheduled = sum(_scheduled(partition, progress) for partition, progress in parts)
        return {
            "lag": lag,
            "ready": lag - leased - waiting - scheduled,
            "scheduled": scheduled,
            "leased": leased,
            "waiting_for_retry": waiting,
        }

    async def summary(self) -> dict[str, Any]:
        """Sums over all queues, each of them as it is when it is added."""
        slices, namespaces = Slices(self._view.give_way), set()
        depth = scheduled = leased = dead = 0
        for queue in list(self._view.queues()):
            namespaces.add(queue.path.partition("/")[0])
            depth += queue.depth()
            for partition in queue.partitions:
                scheduled += partition.scheduled.count
                leased += sum([progress.leased.count for progress in partition.progress.values()])
                dead += len(partition.dead)
            await slices.spend(len(queue.partitions))
        holds = self._view.holds().values()
        return {
            "queues": len(self._view.queues()),
            "namespaces": len(namespaces),
            "depth": depth,
            "scheduled": scheduled,
            "leased": leased,
            "dead": dead,
            "dead_letter_alarms": self._alarms.active(),
            "waiting_consumers": self._view.waiting,
            "holds": len(holds),
            "holds_lost": sum(hold.lost_at > 0 for hold in holds),
            "held_bytes": sum(self._view.spanned_bytes(hold) for hold in holds if not hold.lost_at),
            "broker": self._identity.broker,
        }

    def _oldest_age_ms(self, queue: Queue) -> int | None:
        """Age of the oldest unfinished message, to the precision of the sparse index."""
        floors = [
            min([progress.floor for progress in partition.progress.values()], default=partition.start)
            for partition in queue.partitions
        ]
        oldest = self._published_at(queue, floors)
        return None if oldest is None else max(0, self._view.now_ms() - oldest)

    def _published_at(self, queue: Queue, offsets: list[int]) -> int | None:
        """When the oldest of these messages, one per partition, was published; None if all partitions end there."""
        times = []
        for number, (partition, offset) in enumerate(zip(queue.partitions, offsets, strict=True)):
            index = self._view.log.indexes.get((queue.number, number))
            if index is not None and offset < partition.end and (piece := index.at(offset)) < len(index):
                times.append(index.time_of(piece))
        return min(times, default=None)


def _percentiles(latencies: Sequence[Latencies | None]) -> dict[str, int] | None:
    counts = merged([each.recent() for each in latencies if each is not None])
    return dict(zip(("p50_ms", "p95_ms", "p99_ms"), percentiles(counts), strict=True)) if counts else None


def held_alone(queue: Queue) -> dict[int, int]:
    """Group -> messages at the beginning of the log that are stored for it alone. Looks at one floor per group."""
    held: dict[int, int] = {}
    for partition in queue.partitions if queue.config.retention.mode == "until_acked" else ():
        floors = nsmallest(2, ((progress.floor, group) for group, progress in partition.progress.items()))
        if floors:
            (first, group), stop = floors[0], floors[1][0] if len(floors) > 1 else partition.end
            count = stop - first - partition.progress[group].done.count_in(first, stop)
            if count:
                held[group] = held.get(group, 0) + count
    return held


def _dispatch(queue: Queue, group: int) -> dict[str, Any]:
    """Counts of messages that the dispatcher holds back, in queues whose order is not plain fifo."""
    dispatcher = queue.dispatchers.get(group)
    found: dict[str, Any] = {}
    if dispatcher is not None and dispatcher.gate is not None:
        found["blocked_keys"] = dispatcher.gate.blocked
    if dispatcher is not None and dispatcher.shares is not None:
        found["tenants_waiting"] = dispatcher.shares.waiting
    return found


def _scheduled(partition: Partition, progress: Progress) -> int:
    """Scheduled for this group. A message that failed in this group counts as waiting for its retry instead."""
    if not partition.scheduled.count:
        return 0
    return partition.scheduled.count - sum(offset in partition.scheduled for offset in progress.retries)

"""The machine again, dumb and obviously right: every message is an object, every question a loop over all of them.

Nothing is ever forgotten, nothing is indexed. Facts walk `core.lifecycle.TRANSITIONS`; a pair that is not in the table
is an error. What the machine answers is predicted from here before the machine is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock import limits
from penstock.batch import Batch, layout
from penstock.core import records
from penstock.core.config import QueueConfig
from penstock.core.lifecycle import FINAL, TIME, TRANSITIONS, State
from penstock.core.offsets.ranges import pairs
from penstock.core.routing import partition_of

LET_GO = "let go"
"""Over without a fact about this message: its log was trimmed or purged, or the group never had it."""


@dataclass
class Life:
    """One message in one group."""

    due: int = 0
    attempt: int = 0
    lease: int | None = None
    deadline: int = 0
    off_path: bool = False
    """Delivered before, or to be delivered at a time of its own: no longer first in first out."""
    end: State | str | None = None
    redriven: bool = False

    def state(self, now: int) -> State | str:
        if self.end is not None:
            return self.end
        if self.lease is not None:
            return State.LEASED
        if self.due > now:
            return State.WAITING if self.attempt or self.redriven else State.SCHEDULED
        return State.READY


@dataclass
class Message:
    partition: int
    offset: int
    id: int
    due: int
    expires: int | None
    budget: int | None
    key: bytes = b""
    priority: int = 0
    tenant: bytes = b""
    own_id: bytes = b""
    gone: State | str | None = None
    """Ended for every group, also those to come."""
    redriven: bool = False
    """Neither its time to live nor retention ends it."""
    released_at: int = 0
    """The time of the last release by a consumer."""
    lives: dict[int, Life] = field(default_factory=dict)

    def overdue(self, now: int) -> bool:
        """Past its time to live. A message that is still leased then is not delivered to other groups."""
        return self.expires is not None and self.expires <= now

    def deliverable(self, group: int, now: int) -> bool:
        return self.lives[group].state(now) is State.READY and not self.overdue(now)


@dataclass
class HeldLease:
    nonce: int
    lease_ms: int


class NaiveQueue:
    def __init__(self, config: QueueConfig, routing: int):
        self.config = config
        self.routing = routing
        self.logs: list[list[Message]] = [[] for _ in range(config.partitions)]
        self.starts = [0] * config.partitions
        self.groups: dict[str, int] = {}
        self.ids: dict[bytes, tuple[int, Message]] = {}
        """Client id -> when its latest message came, and that message."""
        self.dead: dict[tuple[int, int, int], int] = {}
        """(partition, group, offset) of the dead letters -> when."""
        self.producers: dict[str, tuple[int, int, dict[int, Message]]] = {}
        """Name -> (epoch, last used, number -> message)."""
        self.growths: list[list[int]] = []

    def messages(self) -> list[Message]:
        return [message for log in self.logs for message in log]

    def depth(self) -> int:
        total = 0
        for log, start in zip(self.logs, self.starts, strict=True):
            if self.groups:
                total += max(sum(m.lives[g].end is None for m in log) for g in self.groups.values())
            else:
                total += sum(m.offset >= start and m.gone is None for m in log)
        return total

    def move_starts(self) -> None:
        """Without retention a log begins where its slowest group is."""
        if self.config.retention.mode == "until_acked" and self.groups:
            for number, log in enumerate(self.logs):
                floor = min(
                    next((m.offset for m in log if m.lives[group].end is None), len(log))
                    for group in self.groups.values()
                )
                self.starts[number] = max(self.starts[number], floor)

    def occupied(self, group: int, now: int) -> bool:
        """A message of the group is leased, or waits for a retry."""
        lives = [message.lives[group] for message in self.messages() if message.lives[group].end is None]
        return any(life.lease is not None or (life.attempt and life.due > now) for life in lives)

    def ready(self, group: int, partition: int, now: int) -> list[Message]:
        for ends in self.growths:
            # New partitions begin when the older ones have given out everything from before, once.
            if partition >= len(ends) and any(
                m.lives[group].end is None and not m.lives[group].off_path and not m.overdue(now)
                for log, end in zip(self.logs, ends, strict=False)
                for m in log[:end]
            ):
                return []
        return [m for m in self.logs[partition] if m.deliverable(group, now)]


class Naive:
    def __init__(self) -> None:
        self.queues: dict[int, NaiveQueue] = {}
        self.leases: dict[int, HeldLease] = {}
        self.last_id = 0

    # -- predictions ---------------------------------------------------------------------------------------------------

    def predict_lease(self, queue: int, group: int, wanted: int, turn: int, now: int) -> list[tuple[int, int, int]]:
        """(partition, offset, attempt) of what a lease must get, in its order."""
        found, predicted = self.queues[queue], []
        if found.config.exclusive and found.occupied(group, now):
            return []
        for step in range(len(found.logs)):
            number = (turn + step) % len(found.logs)
            for message in found.ready(group, number, now)[: wanted - len(predicted)]:
                predicted.append((number, message.offset, message.lives[group].attempt + 1))
            if len(predicted) >= wanted:
                break
        return predicted

    def holders(self, lease: int) -> list[tuple[NaiveQueue, Message, Life]]:
        return [
            (queue, message, life)
            for queue in self.queues.values()
            for message in queue.messages()
            for life in message.lives.values()
            if life.lease == lease
        ]

    def held(self, lease: int, nonce: int, offset: int) -> tuple[NaiveQueue, Message, Life] | None:
        if lease not in self.leases or self.leases[lease].nonce != nonce:
            return None
        return next((holder for holder in self.holders(lease) if holder[1].offset == offset), None)

    def untouchable(self, queue: int, partition: int, offset: int, now: int) -> str | None:
        """Why a message can be neither cancelled nor rescheduled."""
        found = self.queues[queue]
        if offset >= len(found.logs[partition]):
            return "not_found"
        message = found.logs[partition][offset]
        if offset < found.starts[partition] or message.gone is not None:
            return "done"
        for group in found.groups.values():
            if message.lives[group].lease is not None:
                return "in_flight"
            # A group that begins behind a message that waits for its time has no say in it.
            if message.lives[group].end is not None and message.due <= now:
                return "done"
        return None

    def predict_publish(
        self, parts: list[tuple[int, Batch]], producer: str, epoch: int, seq: int, now: int
    ) -> dict[tuple[int, int], tuple[str, Message | None, tuple[int, int]]] | str:
        """(part, row) -> (new | duplicate, of what, place); or the name of the error."""
        predicted: dict[tuple[int, int], tuple[str, Message | None, tuple[int, int]]] = {}
        taken: dict[tuple[int, bytes], tuple[int, int]] = {}
        added: dict[tuple[int, int], int] = {}
        for number, (queue_number, batch) in enumerate(parts):
            queue = self.queues[queue_number]
            since_ms = now - limits.DEDUP_WINDOW_MS
            known_epoch, used_at, numbers = queue.producers.get(producer, (-1, 0, {}))
            if used_at < since_ms:
                known_epoch = -1
            if producer and known_epoch > epoch:
                return "FencedProducer"
            ids = batch.strings(layout.ID) if batch.has(layout.ID) else [b""] * batch.count
            since = [*(queue.growths[-1] if queue.growths else []), *[0] * len(queue.logs)]
            emptiest = min(range(len(queue.logs)), key=lambda n: len(queue.logs[n]) - since[n])
            before = sum(count for (q, _), count in added.items() if q == queue_number)
            fresh = 0
            for row in range(batch.count):
                earlier: Message | None = None
                if producer and known_epoch == epoch:
                    earlier = numbers.get(seq)
                seq += 1
                if earlier is None and queue.ids.get(ids[row], (0, None))[0] >= since_ms:
                    earlier = queue.ids[ids[row]][1]
                if earlier is not None:
                    predicted[number, row] = ("duplicate", earlier, (earlier.partition, earlier.offset))
                    continue
                if ids[row] and (queue_number, ids[row]) in taken:
                    predicted[number, row] = ("duplicate", None, taken[queue_number, ids[row]])
                    continue
                partition = emptiest
                if len(queue.logs) == 1 or batch.has(layout.KEY):
                    partition = partition_of(batch.string(layout.KEY, row), len(queue.logs), queue.routing)
                place = (queue_number, partition)
                offset = len(queue.logs[partition]) + added.get(place, 0)
                added[place] = added.get(place, 0) + 1
                fresh += 1
                predicted[number, row] = ("new", None, (partition, offset))
                if ids[row]:
                    taken[queue_number, ids[row]] = (partition, offset)
            if queue.config.max_messages is not None and queue.depth() + before + fresh > queue.config.max_messages:
                return "QueueFull"
        return predicted

    # -- facts ---------------------------------------------------------------------------------------------------------

    def note(self, record: records.Record) -> None:
        getattr(self, f"_{type(record).__name__.lower()}")(record)

    def _walk(self, life: Life, fact: str, now: int) -> None:
        """The fact must be possible now; where it leads is set by the caller and checked against the table."""
        before = life.state(now)
        assert (before, fact) in TRANSITIONS, f"{fact} cannot happen to a message that is {before}"

    def _arrived(self, life: Life, before: State | str, fact: str, now: int) -> None:
        expected = TRANSITIONS[before, fact]  # type: ignore[index]
        allowed = {expected, TIME.get(expected, expected)}
        if fact == "rescheduled":
            allowed |= {State.WAITING, State.SCHEDULED, State.READY}  # which of them: by attempts made and the new time
        assert life.state(now) in allowed, f"{before}, {fact}: {life.state(now)} instead of {expected}"

    def _step(self, life: Life, fact: str, now: int, **changes: object) -> None:
        self._walk(life, fact, now)
        before = life.state(now)
        for name, value in changes.items():
            setattr(life, name, value)
        self._arrived(life, before, fact, now)

    def _opened(self, record: records.Opened) -> None:
        for number, lease in self.leases.items():
            for _, _, life in self.holders(number):
                life.deadline = max(life.deadline, record.at + lease.lease_ms)

    def _queueconfigured(self, record: records.QueueConfigured) -> None:
        queue = self.queues.get(record.queue)
        if queue is None:
            self.queues[record.queue] = NaiveQueue(record.config, record.routing)
            return
        if queue.config.retention.mode == "until_acked" and record.config.retention.mode == "keep" and queue.groups:
            # Messages that all groups had finished were removed, and are not read by groups that are created later.
            for message in queue.messages():
                if all(life.end is not None for life in message.lives.values()):
                    message.gone = message.gone or LET_GO
        queue.config = record.config
        queue.move_starts()
        if record.config.partitions > len(queue.logs):
            queue.growths.append([len(log) for log in queue.logs])
            more = record.config.partitions - len(queue.logs)
            queue.logs += [[] for _ in range(more)]
            queue.starts += [0] * more

    def _queuedeleted(self, record: records.QueueDeleted) -> None:
        for lease in {life.lease for m in self.queues[record.queue].messages() for life in m.lives.values()}:
            self.leases.pop(lease, None)  # type: ignore[arg-type]
        del self.queues[record.queue]

    def _queuepurged(self, record: records.QueuePurged) -> None:
        queue = self.queues[record.queue]
        assert record.ends == [len(log) for log in queue.logs]
        for message in queue.messages():
            message.gone = message.gone or LET_GO
            for life in message.lives.values():
                if life.lease is not None:
                    self.leases.pop(life.lease, None)
                    life.lease = None
                life.end = life.end or LET_GO
        queue.starts = list(record.ends)
        queue.dead = {}

    def _groupcreated(self, record: records.GroupCreated) -> None:
        queue = self.queues[record.queue]
        assert record.group not in {group for message in queue.messages() for group in message.lives}
        for number, (start, end) in enumerate(zip(queue.starts, map(len, queue.logs), strict=True)):
            assert start <= record.starts[number] <= end
            self._begin(queue, number, record.group, record.starts[number], record.at)
        queue.groups[record.name] = record.group
        queue.move_starts()

    def _groupmoved(self, record: records.GroupMoved) -> None:
        queue = self.queues[record.queue]
        for number, offset in enumerate(record.offsets):
            if offset >= 0:
                assert queue.starts[number] <= offset <= len(queue.logs[number])
                self._begin(queue, number, record.group, offset, record.at)
        queue.move_starts()

    def _begin(self, queue: NaiveQueue, number: int, group: int, start: int, now: int) -> None:
        """From here on, in this partition, whatever it was in before."""
        until_acked = queue.config.retention.mode == "until_acked"
        for message in queue.logs[number]:
            others = [message.lives[each] for each in queue.groups.values() if each in message.lives]
            before = message.lives.get(group)
            assert before is None or before.lease is None, "its leases have ended"
            life = Life(due=message.due, off_path=message.due > now)
            if (number, group, message.offset) in queue.dead:
                life.end = State.DEAD
            elif message.gone is not None:
                life.end = message.gone
            elif message.offset < start:
                life.end = LET_GO
            elif until_acked and others and all(other.end is not None for other in others):
                # Without retention `keep`, a message that all groups have finished is removed.
                life.end = LET_GO
            message.lives[group] = life

    def _groupdeleted(self, record: records.GroupDeleted) -> None:
        queue = self.queues[record.queue]
        assert queue.groups.pop(record.name) == record.group
        for message in queue.messages():
            life = message.lives.pop(record.group)
            assert life.lease is None, "its leases have ended"
            if not queue.groups and queue.config.retention.mode == "until_acked" and life.end is not None:
                message.gone = message.gone or LET_GO
        queue.dead = {place: at for place, at in queue.dead.items() if place[1] != record.group}
        queue.move_starts()

    def _trimmed(self, record: records.Trimmed) -> None:
        queue = self.queues[record.queue]
        before = queue.starts[record.partition]
        queue.starts[record.partition] = max(before, record.start)
        # Earlier messages were redriven, or leased when retention passed.
        for message in queue.logs[record.partition][before : record.start]:
            message.expires = None
            for life in message.lives.values():
                if life.lease is None and life.end is None and not life.redriven:
                    life.end = LET_GO

    def _published(self, record: records.Published) -> None:
        queue, batch = self.queues[record.queue], record.batch
        log = queue.logs[record.partition]
        assert record.offset == len(log), "offsets are dense"
        assert record.id > self.last_id, "ids only grow"
        self.last_id = record.id + batch.count - 1
        numbers = [number for first, stop in pairs(record.seqs) for number in range(first, stop)]
        delays, ats, ttls, budgets = (
            list(batch.integers(column)) if batch.has(column) else [nothing] * batch.count
            for column, nothing in (
                (layout.DELAY_MS, 0), (layout.DELIVER_AT_MS, 0), (layout.TTL_MS, 0), (layout.MAX_RETRIES, -1),
            )
        )  # fmt: skip
        priorities = list(batch.integers(layout.PRIORITY)) if batch.has(layout.PRIORITY) else [0] * batch.count
        ids, keys, tenants = (
            batch.strings(column) if batch.has(column) else [b""] * batch.count
            for column in (layout.ID, layout.KEY, layout.TENANT)
        )
        for row in range(batch.count):
            due = max(record.at + max(delays[row], queue.config.delay_ms), ats[row])
            ttl = ttls[row] or queue.config.ttl_ms or 0
            message = Message(
                record.partition, record.offset + row, record.id + row,
                due if due > record.at else 0, record.at + ttl if ttl else None,
                budgets[row] if budgets[row] >= 0 else None, keys[row], priorities[row], tenants[row], ids[row],
            )  # fmt: skip
            message.lives = {
                group: Life(due=message.due, off_path=message.due > record.at) for group in queue.groups.values()
            }
            log.append(message)
            if ids[row]:
                queue.ids[ids[row]] = (record.at, message)
            if record.producer:
                epoch, used_at, accepted = queue.producers.get(record.producer, (record.epoch, 0, {}))
                if epoch != record.epoch or used_at < record.at - limits.DEDUP_WINDOW_MS:
                    accepted = {}
                accepted[numbers[row]] = message
                queue.producers[record.producer] = (record.epoch, record.at, accepted)

    def _leased(self, record: records.Leased) -> None:
        queue = self.queues[record.queue]
        assert record.lease not in self.leases, "a lease's number is used once"
        if not record.settled:
            self.leases[record.lease] = HeldLease(record.nonce, record.lease_ms)
        runs = record.runs
        for first, count, attempt in zip(runs[::3], runs[1::3], runs[2::3], strict=True):
            for offset in range(first, first + count):
                life = queue.logs[record.partition][offset].lives[record.group]
                assert attempt == life.attempt + 1, "attempts count up"
                deadline = record.at + record.lease_ms
                self._step(life, "leased", record.at, attempt=attempt, lease=record.lease, deadline=deadline)
                life.off_path = True
                if record.settled:
                    self._step(life, "acked", record.at, lease=None, end=State.ACKED)
        queue.move_starts()

    def _extended(self, record: records.Extended) -> None:
        for _, message, life in self.holders(record.lease):
            if any(first <= message.offset < stop for first, stop in pairs(record.ranges)):
                self._step(life, "extended", record.at, deadline=record.at + record.lease_ms)
        self.leases[record.lease].lease_ms = record.lease_ms

    def _settle(
        self,
        record: records.Acked | records.Retried | records.Released | records.DeadLettered,
        fact: str,
        **changes: object,
    ) -> None:
        queue = self.queues[record.queue]
        for first, stop in pairs(record.ranges):
            for offset in range(first, stop):
                message = queue.logs[record.partition][offset]
                life = message.lives[record.group]
                assert life.lease == record.lease, f"{fact} by a lease that does not hold offset {offset}"
                self._step(life, fact, record.at, lease=None, **changes)
                message.released_at = record.at
        if not self.holders(record.lease):
            del self.leases[record.lease]
        queue.move_starts()

    def _acked(self, record: records.Acked) -> None:
        self._settle(record, "acked", end=State.ACKED)

    def _retried(self, record: records.Retried) -> None:
        self._settle(record, "retried", due=record.due)

    def _released(self, record: records.Released) -> None:
        for first, stop in pairs(record.ranges):
            for message in self.queues[record.queue].logs[record.partition][first:stop]:
                message.lives[record.group].attempt -= 1
        self._settle(record, "released")

    def _deadlettered(self, record: records.DeadLettered) -> None:
        self._settle(record, "dead_lettered", end=State.DEAD)
        if record.kept:
            for first, stop in pairs(record.ranges):
                for offset in range(first, stop):
                    self.queues[record.queue].dead[record.partition, record.group, offset] = record.at

    def _redriven(self, record: records.Redriven) -> None:
        for message in self._letters(record):
            life = message.lives[record.group]
            self._step(life, "redriven", record.at, end=None, attempt=0, due=record.due, redriven=True)
            message.redriven, message.expires = True, None

    def _deadlettersremoved(self, record: records.DeadLettersRemoved) -> None:
        for message in self._letters(record):
            self._step(message.lives[record.group], "dead_letters_removed", record.at, end=State.REMOVED)

    def _letters(self, record: records.Redriven | records.DeadLettersRemoved) -> list[Message]:
        queue = self.queues[record.queue]
        offsets = [offset for first, stop in pairs(record.ranges) for offset in range(first, stop)]
        for offset in offsets:
            del queue.dead[record.partition, record.group, offset]
        return [queue.logs[record.partition][offset] for offset in offsets]

    def _redrivestarted(self, record: records.RedriveStarted) -> None:
        pass

    def _redriveended(self, record: records.RedriveEnded) -> None:
        pass

    def _transacted(self, record: records.Transacted) -> None:
        pass

    def _expired(self, record: records.Expired) -> None:
        self._end(record, "expired", State.EXPIRED)

    def _cancelled(self, record: records.Cancelled) -> None:
        self._end(record, "cancelled", State.CANCELLED)
        queue = self.queues[record.queue]
        cancelled = [
            message for first, stop in pairs(record.ranges) for message in queue.logs[record.partition][first:stop]
        ]
        freed = [message.own_id for message in cancelled if queue.ids.get(message.own_id, (0, None))[1] is message]
        assert sorted(record.freed) == sorted(freed), "a cancelled message frees its id, and no other"
        for own_id in freed:
            del queue.ids[own_id]

    def check_handles(self, queue: int, place_of) -> None:
        """An own id names its latest message, for as long as that is not finished."""
        found = self.queues[queue]
        for own_id, (_, message) in found.ids.items():
            alive = message.offset >= found.starts[message.partition] and message.gone is None
            lives = [message.lives[group] for group in found.groups.values()]
            if alive and (not lives or any(life.end is None for life in lives)):
                assert place_of(own_id) == (message.partition, message.offset, message.id)

    def _end(self, record: records.Expired | records.Cancelled, fact: str, state: State) -> None:
        queue = self.queues[record.queue]
        for first, stop in pairs(record.ranges):
            for message in queue.logs[record.partition][first:stop]:
                assert message.gone is None, f"{fact} for the second time"
                message.gone = state
                for life in message.lives.values():
                    if life.state(record.at) not in FINAL and life.end is None:
                        self._step(life, fact, record.at, end=state)
        queue.move_starts()

    def _rescheduled(self, record: records.Rescheduled) -> None:
        for first, stop in pairs(record.ranges):
            for message in self.queues[record.queue].logs[record.partition][first:stop]:
                message.due = record.due
                for life in message.lives.values():
                    if life.end is None:
                        self._step(life, "rescheduled", record.at, due=record.due)
                        life.off_path = True

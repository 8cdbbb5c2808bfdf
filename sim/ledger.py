"""The oracle: an independent model of the state of every message, built from the journal, record by record.

Its input is the frames that the engine reports as durable and, after a crash, the frames that recovery finds, so it has
the exact durable state. It is written to be obviously right rather than fast or small: one object per message and
group, following the table of docs/guarantees.md. Every record and every reply of the broker (`sim/checkers.py`) is
checked against it.

The intended properties of a message (its due time, its time to live) come from the client's request, not from the
journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock import limits
from penstock.batch import layout
from penstock.core import records
from penstock.core.offsets.ranges import pairs
from penstock.core.records import Record
from penstock.ids import ulid_text
from sim.delivery_order import DeliveryOrder
from sim.entries import Fate, LedgerLease, LedgerPartition, LedgerQueue, LedgerRedrive, Message, Settlement
from sim.holds import Holds
from sim.keys import LedgerKeys
from sim.memberships import Memberships
from sim.schedules import Schedules
from sim.sent_messages import Sent, token_of
from sim.users import LedgerUsers
from sim.violation import Violation
from sim.windows import Windows, check_scope

SCOPE_CONSUMER = "scope-"
"""The names of consumers that lease from all queues at once begin with it."""


class Ledger:
    def __init__(self, sent: list[Sent]):
        self.index = 0
        self.chain = b""
        self.now_ms = 0
        self.queues: dict[int, LedgerQueue] = {}
        self.paths: dict[str, LedgerQueue] = {}
        self.by_id: dict[int, Message] = {}
        self.leases: dict[int, LedgerLease] = {}
        self.settled: dict[tuple[int, int], Settlement] = {}
        """(lease, offset) -> its outcome."""
        self.extended: dict[tuple[int, int], list[int]] = {}
        self.last_id = 0
        self.orders = DeliveryOrder()
        self.memberships = Memberships(self.leases)
        self.transacted: dict[tuple[int, int], tuple[Sent, ...]] = {}
        """(lease, offset) that a transaction acks -> the messages that it publishes."""
        self._acked_now: set[tuple[int, int]] = set()
        """Of the current frame."""
        self._copying: dict[int, list[LedgerRedrive]] = {}
        """Tokens of dead letters that were copied: the copies must follow in the same frame."""
        self._given_up: dict[str, Sent] = {}
        """Ids of dead letters that were copied."""
        self.schedules = Schedules()
        self.windows = Windows()
        self.holds = Holds()
        self.keys = LedgerKeys()
        self.users = LedgerUsers()
        self.kept: dict[tuple[int, str], list[tuple[int, dict[str, int]]]] = {}
        """(queue, reader) -> all stored positions with their times, the latest last; empty: deleted."""
        self._sent = sent
        self._apply: dict[type, Callable[[Any], None]] = {
            records.Opened: self._opened,
            records.QueueConfigured: self._configured,
            records.QueueDeleted: self._queue_deleted,
            records.QueuePurged: self._queue_purged,
            records.GroupCreated: self._group_created,
            records.MemberJoined: lambda record: self.memberships.joined(record, self.queues[record.queue]),
            records.MembersLeft: lambda record: self.memberships.left(record, self.queues[record.queue]),
            records.HandedOver: lambda record: self.memberships.handed_over(record, self.queues[record.queue]),
            records.Trimmed: self._trimmed,
            records.Published: self._published,
            records.Leased: self._leased,
            records.Extended: self._extended,
            records.Acked: self._acked,
            records.Retried: self._retried,
            records.Released: self._released,
            records.DeadLettered: self._dead_lettered,
            records.Expired: self._expired,
            records.Cancelled: self._cancelled,
            records.Rescheduled: self._rescheduled,
            records.DeadLettersRemoved: self._letters_removed,
            records.RedriveStarted: self._redrive_started,
            records.Redriven: self._redriven,
            records.RedriveEnded: self._redrive_ended,
            records.Transacted: lambda _: None,
            records.OffsetsKept: self._offsets_kept,
            records.ScheduleSet: self.schedules.set,
            records.SchedulePaused: self.schedules.paused,
            records.ScheduleRemoved: self.schedules.removed,
            records.ScheduleFired: self.schedules.has_fired,
            records.ScheduleRefused: lambda _: None,
            records.HoldSet: lambda record: self.holds.set(record, self.queues.values()),
            records.KeyCreated: self.keys.created,
            records.KeyRotated: self.keys.rotated,
            records.KeyRevoked: self.keys.was_revoked,
            records.UserSet: self.users.set,
            records.UserRemoved: self.users.removed,
            records.HoldEnded: lambda record: self.holds.ended(record, self.queues.values()),
        }

    def feed(self, index: int, chain: bytes, facts: Sequence[Record]) -> None:
        """Apply one durable frame. Raises Violation if it contains an impossible record."""
        if index != self.index + 1:
            raise Violation("I10", f"frame {index} follows frame {self.index}")
        self.index, self.chain = index, chain
        requests = {}
        self._acked_now = set()
        for record in facts:
            if record.at < self.now_ms:
                raise Violation("I5", f"journal time went back from {self.now_ms} to {record.at} in frame {index}")
            self.now_ms = record.at
            self.orders.follows(record)
            self._apply[type(record)](record)
            if type(record) is records.Published:
                for message in self._run(record.queue, record.partition, record.offset, record.batch.count):
                    requests[message.sent.request] = message
        self.orders.follows(None)
        self.memberships.end_of_frame()
        self.schedules.end_of_frame()
        for request, message in requests.items():
            missing = [sent.token for sent in request if not sent.stored]
            if missing:
                raise Violation("I7", f"{message} is stored, but of the same publish {missing} are not")
            if request and not request[0].consumes <= self._acked_now:
                raise Violation("I7", f"{message} is stored, but what its transaction acks is not acked with it")
        for place in self._acked_now & self.transacted.keys():
            if any(sent.request not in requests for sent in self.transacted[place]):
                raise Violation("I7", f"offset {place[1]} was acked by a transaction that stores nothing with it")
        if self._copying:
            raise Violation("I7", f"messages {sorted(self._copying)} left the dead letters and were not copied")

    # -- queues -------------------------------------------------------------------------------------------------------

    def _opened(self, record: records.Opened) -> None:
        for lease in self.leases.values():
            for fate in lease.held.values():
                fate.deadline = max(fate.deadline, record.at + lease.lease_ms)
        self.memberships.opened(record.at)
        self.orders.begin_again()

    def _configured(self, record: records.QueueConfigured) -> None:
        queue = self.queues.get(record.queue)
        if queue is None:
            queue = self.queues[record.queue] = LedgerQueue(record.queue, record.path, record.config)
            self.paths[record.path] = queue
        for partition in queue.partitions:
            start = partition.settle_start(queue.config)
            if (queue.config.retention.mode, record.config.retention.mode) == ("until_acked", "keep"):
                for message in partition.messages[start:]:
                    if message.finished() and not message.ended:
                        # The message was removed before the queue kept its log.
                        if message.promised:
                            raise Violation("I19", f"{message} is held, and is let go by a change of retention")
                        message.ended = "let go"
        self.windows.configured(queue, record)
        self.orders.begin_again(queue.number)
        queue.config = record.config
        if queue.grow():
            # From now on its keys may be in other partitions.
            queue.keys.clear()
        self.holds.follow(queue)

    def _queue_deleted(self, record: records.QueueDeleted) -> None:
        queue = self.queues.pop(record.queue)
        del self.paths[queue.path]
        self.holds.deleted(queue)
        self._end_all(queue, "deleted")

    def _queue_purged(self, record: records.QueuePurged) -> None:
        queue = self.queues[record.queue]
        for partition, end in zip(queue.partitions, record.ends, strict=True):
            if end != len(partition.messages):
                raise Violation("I8", f"{queue.path} was purged up to {end} of {len(partition.messages)}")
            partition.start = end
        self._end_all(queue, "purged")
        self.windows.purged(queue)

    def _end_all(self, queue: LedgerQueue, how: str) -> None:
        for partition in queue.partitions:
            partition.dead.clear()
            for message in partition.messages:
                if not message.ended or message.redriven:
                    message.ended = message.ended or how
                    for group, fate in message.fates.items():
                        if fate.lease:
                            self.leases[fate.lease].held.pop(message.offset, None)
                            fate.lease = 0
                        self._finish(fate, group, how)

    def _group_created(self, record: records.GroupCreated) -> None:
        queue = self.queues[record.queue]
        queue.groups[record.group] = record.name
        kept = queue.config.retention.mode == "keep"
        for number, (partition, start) in enumerate(zip(queue.partitions, record.starts, strict=True)):
            expected = partition.settle_start(queue.config)
            if start != expected:
                raise Violation(
                    "I8", f"group {record.name} of {queue.path}/{number} begins at {start}, retained from {expected}"
                )
            others = bool(partition.open)
            opened = partition.open[record.group] = {}
            for message in partition.messages[start:]:
                # A new group does not read messages that all other groups have finished, unless the queue keeps its
                # log.
                if not message.ended and (kept or not others or not message.finished()):
                    message.fates[record.group] = opened[message.offset] = Fate(message)

    def _trimmed(self, record: records.Trimmed) -> None:
        queue = self.queues[record.queue]
        partition = queue.partitions[record.partition]
        retention = queue.config.retention
        going = partition.messages[partition.start : record.start]
        if retention.mode != "keep" or record.start > len(partition.messages):
            raise Violation("I8", f"{queue.path}/{record.partition} was trimmed to {record.start} under {retention}")
        held = sum(message.size for message in partition.messages[partition.start :])
        young = [m for m in going if not m.ended and (retention.ms is None or m.at + retention.ms > record.at)]
        if young and (retention.bytes is None or held <= retention.bytes):
            raise Violation(
                "I8", f"{young[0]} was trimmed at the age of {record.at - young[0].at} ms under {retention}"
            )
        if partition.held_from is not None and record.start > partition.held_from:
            raise Violation("I19", f"{queue.path}/{record.partition} was trimmed to {record.start}, and is held")
        # Leased and redriven messages stay until they are finished; the next trim does not end them either.
        for group, unfinished in partition.open.items():
            for fate in list(unfinished.values()):
                inside = partition.start <= fate.message.offset < record.start
                if inside and not fate.lease and not fate.redriven:
                    self._finish(fate, group, "trimmed")
        partition.start = max(partition.start, record.start)

    # -- messages in --------------------------------------------------------------------------------------------------

    def _published(self, record: records.Published) -> None:
        queue = self.queues[record.queue]
        partition = queue.partitions[record.partition]
        if record.offset != len(partition.messages):
            raise Violation("I1", f"{queue.path}: offset {record.offset} follows {len(partition.messages) - 1}")
        if record.id <= self.last_id:
            raise Violation("I6", f"{queue.path}: message id {record.id} is not above {self.last_id}")
        self.last_id = record.id + record.batch.count - 1
        by_schedule = self.schedules.published(record, queue.path)
        self.windows.published(queue, record.at)
        for row, payload in enumerate(record.batch.payloads()):
            copied = self._copy_of(record, row)
            if copied is not None:
                # One copy for each group with this dead letter.
                redrives = self._copying.pop(copied.token)
                self._copied(queue, record, row, redrives.pop(), copied)
                if redrives:
                    self._copying[copied.token] = redrives
                continue
            token = self._fired(queue.path, payload, record, row) if by_schedule else token_of(payload)
            sent = self._sent[token]
            if sent.queue != queue.path or payload != sent.payload:
                raise Violation("I1", f"{queue.path} stores message {token}, which was sent to {sent.queue}")
            first = queue.tokens.get(token)
            young = first is not None and record.at - first.at <= limits.DEDUP_WINDOW_MS
            freed = first is not None and first.ended == "cancelled" and sent.client_id and not sent.sequenced
            if young and sent.deduplicated and not freed:
                raise Violation("I6", f"{first} is stored again, at {record.partition}@{record.offset + row}")
            message = Message(
                queue,
                record.partition,
                record.offset + row,
                record.id + row,
                record.at,
                sent,
                len(payload),
            )
            if sent.key and queue.keys.setdefault(sent.key, record.partition) != record.partition:
                raise Violation("I5", f"{message}: messages with its key are in partition {queue.keys[sent.key]}")
            sent.stored += 1
            queue.tokens[token] = message
            if sent.client_id:
                queue.own_ids.setdefault(sent.client_id.decode(), []).append(message)
            self._add(message)

    def _copy_of(self, record: records.Published, row: int) -> Sent | None:
        """The dead letter that this message is a copy of; None if it is no copy."""
        text = record.batch.string(layout.HEADERS, row)
        original = msgspec.json.decode(text).get("penstock-dead-id") if text else None
        return None if original is None else self._given_up[original]

    def _copied(
        self, queue: LedgerQueue, record: records.Published, row: int, redrive: LedgerRedrive, sent: Sent
    ) -> None:  # fmt: skip
        terms = redrive.record
        if (terms.target, record.batch.payload(row)) != (queue.path, sent.payload):
            raise Violation("I1", f"the copy of message {sent.token} is another, or in {queue.path}")
        if record.batch.string(layout.KEY, row) != sent.key or record.batch.has(layout.ID):
            raise Violation("I1", f"the copy of message {sent.token} has another key, or the id of its first life")
        copy = sent.copy_for(queue.path, terms.delay_ms)
        copy.tenant = record.batch.string(layout.TENANT, row)
        if record.batch.has(layout.PRIORITY):
            copy.priority = record.batch.integers(layout.PRIORITY)[row]
        self._add(
            Message(
                queue, record.partition, record.offset + row, record.id + row, record.at,
                copy, len(sent.payload),
            )
        )  # fmt: skip

    def _add(self, message: Message) -> None:
        partition = message.queue.partitions[message.partition]
        self.by_id[message.id] = message
        partition.messages.append(message)
        message.promised = partition.held_from is not None
        for group, unfinished in partition.open.items():
            message.fates[group] = unfinished[message.offset] = Fate(message)

    def _fired(self, path: str, payload: bytes, record: records.Published, row: int) -> int:
        """The token of a message of a schedule, which no client has sent."""
        sent = Sent(len(self._sent), path, 0)
        if record.batch.has(layout.PRIORITY):
            sent.priority = record.batch.integers(layout.PRIORITY)[row]
        sent.payload, sent.request = payload, (sent,)
        self._sent.append(sent)
        return sent.token

    def _offsets_kept(self, record: records.OffsetsKept) -> None:
        offsets = {str(partition): offset for partition, offset in pairs(record.offsets)}
        self.kept.setdefault((record.queue, record.client), []).append((record.at, offsets))

    # -- messages out -------------------------------------------------------------------------------------------------

    def _leased(self, record: records.Leased) -> None:
        queue = self.queues[record.queue]
        partition = queue.partitions[record.partition]
        unfinished = partition.open[record.group]
        self.memberships.leased(record, queue)
        self.windows.leased(queue, record)
        if queue.config.exclusive:
            self._check_alone(queue, record)
        if record.consumer.startswith(SCOPE_CONSUMER):
            check_scope(self.queues.values(), self.windows, self.memberships, record, queue)
        lease = self.leases[record.lease] = LedgerLease(record, queue)
        last = -1
        for at in range(0, len(record.runs), 3):
            first, count, attempt = record.runs[at : at + 3]
            for offset in range(first, first + count):
                fate = unfinished.get(offset)
                if fate is None:
                    raise self._wrongly_leased(queue, partition, record.group, offset)
                self._check_turn(partition, fate, attempt, record)
                self.orders.delivers(queue, record, fate)
                fate.attempt = attempt
                fate.delivered = True
                lease.taken[offset] = attempt
                last = max(last, offset)
                fate.lease, fate.deadline = record.lease, record.at + record.lease_ms
                lease.held[offset] = fate
        if not queue.config.indexed:
            self._check_order(unfinished, record, last)
        if record.settled:
            for fate in lease.held.values():
                fate.lease = 0
                self._finish(fate, record.group, "acked")
            lease.held = {}

    def _check_alone(self, queue: LedgerQueue, record: records.Leased) -> None:
        """No other lease of the group is open and no retry waits (I18); one lease may take from several partitions."""
        for partition in queue.partitions:
            for fate in partition.open[record.group].values():
                if fate.lease and self.leases[fate.lease].nonce != record.nonce:
                    raise Violation("I18", f"{queue.path} is exclusive, and {fate.message} is in flight")
                if not fate.lease and fate.attempt and fate.due > record.at:
                    raise Violation("I18", f"{queue.path} is exclusive, and {fate.message} waits to be tried again")

    def _wrongly_leased(self, queue: LedgerQueue, partition: LedgerPartition, group: int, offset: int) -> Violation:
        if not partition.start <= offset < len(partition.messages):
            return Violation("I8", f"{queue.path}: offset {offset} was leased, there is nothing")
        message = partition.messages[offset]
        fate = message.fates.get(group)
        how = message.ended or (fate.final if fate is not None else "not this group's")
        return Violation("I2", f"{message} was leased to group {queue.groups[group]} although it is {how}")

    def _check_turn(self, partition: LedgerPartition, fate: Fate, attempt: int, record: records.Leased) -> None:
        message = fate.message
        if fate.lease:
            raise Violation("I3", f"{message} is under lease {fate.lease}, and now under lease {record.lease} too")
        if attempt != fate.attempt + 1:
            raise Violation("I8", f"{message}: attempt {attempt} follows attempt {fate.attempt}")
        if record.at < max(message.due, fate.due):
            early = max(message.due, fate.due) - record.at
            raise Violation("I5", f"{message} was delivered {early} ms before its time")
        if message.expires and message.expires <= record.at and not self._held_past_expiry(message):
            raise Violation("I8", f"{message} was delivered {record.at - message.expires} ms after its time to live")
        if message.plain and not fate.delivered and not message.queue.config.indexed:
            if message.offset <= partition.order.get(record.group, -1):
                raise Violation("I5", f"{message} came after a later one")
            partition.order[record.group] = message.offset

    def _held_past_expiry(self, message: Message) -> bool:
        """A leased message does not expire before its lease ends."""
        if message.offset < message.queue.partitions[message.partition].start:
            return True  # trimmed while it was leased: retention no longer applies
        return message.leased()

    def _check_order(self, unfinished: dict[int, Fate], record: records.Leased, last: int) -> None:
        """No ready message is left behind one with a higher offset."""
        for offset, fate in unfinished.items():
            if offset >= last:
                break
            message = fate.message
            if not fate.lease and max(message.due, fate.due) <= record.at and not 0 < message.expires <= record.at:
                raise Violation("I5", f"offset {last} was delivered before {message}, which was ready")

    def _extended(self, record: records.Extended) -> None:
        lease = self.leases[record.lease]
        lease.lease_ms = record.lease_ms
        for fate in self._claimed(record.lease, record.ranges, "extended"):
            fate.deadline = record.at + record.lease_ms
            self.extended.setdefault((lease.id, fate.message.offset), []).append(fate.deadline)

    def _acked(self, record: records.Acked) -> None:
        for fate in self._release(record, Settlement("acked", None)):
            self._acked_now.add((record.lease, fate.message.offset))
            self._finish(fate, record.group, "acked")

    def _retried(self, record: records.Retried) -> None:
        if record.reason == "session_expired":
            self.memberships.buried(record, self.leases[record.lease])
        for fate in self._release(record, Settlement("retrying", record.due)):
            if record.reason == "lease_expired" and record.at < fate.deadline:
                raise Violation("I3", f"{fate.message}: its lease ended {fate.deadline - record.at} ms early")
            if fate.attempt > self._budget(fate):
                raise Violation("I8", f"{fate.message} is tried again after attempt {fate.attempt}, beyond its budget")
            fate.due = record.due

    def _released(self, record: records.Released) -> None:
        for fate in self._release(record, Settlement("released", None)):
            fate.attempt -= 1

    def _dead_lettered(self, record: records.DeadLettered) -> None:
        for fate in self._release(record, Settlement("dead_lettered" if record.kept else "dropped", None)):
            if record.reason == "max_retries" and fate.attempt <= self._budget(fate):
                raise Violation("I8", f"{fate.message} was given up after attempt {fate.attempt}, within its budget")
            if record.kept:
                partition = self.queues[record.queue].partitions[record.partition]
                partition.dead[record.group, fate.message.offset] = record.at
            self._finish(fate, record.group, "dead")

    def _budget(self, fate: Fate) -> int:
        budget = fate.message.budget
        return fate.message.queue.config.max_retries if budget is None else budget

    def _release(
        self, record: records.Acked | records.Retried | records.Released | records.DeadLettered, outcome: Settlement
    ) -> list[Fate]:
        fates = self._claimed(record.lease, record.ranges, outcome.status)
        lease = self.leases[record.lease]
        for fate in fates:
            fate.lease = 0
            fate.message.free_since = record.at
            del lease.held[fate.message.offset]
            self.settled[lease.id, fate.message.offset] = outcome
        return fates

    def _claimed(self, lease_id: int, ranges: list[int], what: str) -> list[Fate]:
        lease = self.leases.get(lease_id)
        if lease is None:
            raise Violation("I3", f"lease {lease_id} was never given, and is {what}")
        fates = []
        for first, stop in pairs(ranges):
            for offset in range(first, stop):
                fate = lease.held.get(offset)
                if fate is None:
                    raise Violation("I3", f"offset {offset} is {what} under lease {lease_id}, which does not hold it")
                fates.append(fate)
        return fates

    # -- dead letters -------------------------------------------------------------------------------------------------

    def _letters_removed(self, record: records.DeadLettersRemoved) -> None:
        queue = self.queues[record.queue]
        config = queue.config
        before = sum(len(partition.dead) for partition in queue.partitions)
        for message, died in self._taken_from_the_dead(record):
            before -= 1
            if record.reason == "limit" and (config.dead_letter_max is None or before < config.dead_letter_max):
                raise Violation("I8", f"{message} is no dead letter any more, although there was room for it")
            if record.reason == "expired" and (
                config.dead_letter_ttl_ms is None or died + config.dead_letter_ttl_ms > record.at
            ):
                raise Violation("I8", f"{message} is no dead letter any more, before its time")
            if record.reason == "copied":
                redrive = self._moving(queue, record.redrive, died, message)
                self._copying.setdefault(message.sent.token, []).append(redrive)
                self._given_up[ulid_text(message.id)] = message.sent

    def _redriven(self, record: records.Redriven) -> None:
        queue = self.queues[record.queue]
        partition = queue.partitions[record.partition]
        partition.settle_start(queue.config)  # a redrive does not move the group back
        for message, died in self._taken_from_the_dead(record):
            terms = self._moving(queue, record.redrive, died, message).record
            if record.due != record.at + terms.delay_ms:
                raise Violation("I5", f"{message} is redriven for {record.due}, asked for was {terms.delay_ms} ms")
            fate = message.fates[record.group]
            fate.final, fate.attempt, fate.due, fate.redriven = "", 0, record.due, True
            message.redriven, message.expires = True, 0
            unfinished = partition.open[record.group]
            unfinished[message.offset] = fate
            partition.open[record.group] = dict(sorted(unfinished.items()))

    def _taken_from_the_dead(self, record: records.DeadLettersRemoved | records.Redriven) -> list[tuple[Message, int]]:
        dead = self.queues[record.queue].partitions[record.partition].dead
        taken = []
        for first, stop in pairs(record.ranges):
            for message in self._run(record.queue, record.partition, first, stop - first):
                died = dead.pop((record.group, message.offset), None)
                if died is None:
                    raise Violation("I8", f"{message} is taken from the dead letters, and is none")
                taken.append((message, died))
        return taken

    def _moving(self, queue: LedgerQueue, name: str, died: int, message: Message) -> LedgerRedrive:
        redrive = queue.redrives.get(name)
        if redrive is None or redrive.ended:
            raise Violation("I8", f"{message} was redriven by {name!r}, which is not under way")
        if died > redrive.record.at:
            raise Violation("I8", f"{message} was redriven by {name!r}, which began before it died")
        redrive.moved += 1
        return redrive

    def _redrive_started(self, record: records.RedriveStarted) -> None:
        queue = self.queues[record.queue]
        if record.redrive in queue.redrives:
            raise Violation("I6", f"redrive {record.redrive!r} of {queue.path} was started twice")
        queue.redrives[record.redrive] = LedgerRedrive(record)

    def _redrive_ended(self, record: records.RedriveEnded) -> None:
        redrive = self.queues[record.queue].redrives[record.redrive]
        if redrive.ended:
            raise Violation("I8", f"redrive {record.redrive!r} ended twice")
        redrive.ended = record.outcome

    # -- messages that wait or end by themselves ----------------------------------------------------------------------

    def _expired(self, record: records.Expired) -> None:
        for message in self._touched(record, "expired"):
            if not 0 < message.expires <= record.at:
                raise Violation("I8", f"{message} expired before its time ({message.expires}, now {record.at})")
            self._end(message, "expired")

    def _cancelled(self, record: records.Cancelled) -> None:
        own_ids = self.queues[record.queue].own_ids
        freed = set(record.freed)
        for message in self._touched(record, "cancelled"):
            self._end(message, "cancelled")
            own_id = message.sent.client_id
            is_latest = bool(own_id) and own_ids[own_id.decode()][-1] is message
            if is_latest != (own_id in freed):
                raise Violation("I6", f"{message} was cancelled, and its id is {'' if is_latest else 'wrongly '}free")
            freed.discard(own_id)
        if freed:
            raise Violation("I6", f"{freed} were freed without a message of theirs")

    def _rescheduled(self, record: records.Rescheduled) -> None:
        for message in self._touched(record, "rescheduled"):
            message.due = record.due
            message.plain = False
            for fate in message.fates.values():
                fate.due = min(fate.due, record.due)

    def _touched(self, record: records.Expired | records.Cancelled | records.Rescheduled, what: str) -> list[Message]:
        messages = []
        for first, stop in pairs(record.ranges):
            for message in self._run(record.queue, record.partition, first, stop - first):
                if message.ended or message.leased():
                    raise Violation("I8", f"{message} was {what} although it is {message.ended or 'leased'}")
                messages.append(message)
        return messages

    def _end(self, message: Message, how: str) -> None:
        message.ended = how
        for group, fate in message.fates.items():
            self._finish(fate, group, how)

    def _finish(self, fate: Fate, group: int, how: str) -> None:
        if not fate.final:
            fate.final = how
            message = fate.message
            message.queue.partitions[message.partition].open[group].pop(message.offset, None)

    # -- questions ----------------------------------------------------------------------------------------------------

    def _run(self, queue: int, partition: int, first: int, count: int) -> list[Message]:
        return self.queues[queue].partitions[partition].messages[first : first + count]

    def under_way(self) -> list[str]:
        """Redrives that have not ended."""
        return [name for queue in self.queues.values() for name, redrive in queue.redrives.items() if not redrive.ended]

    def redriven(self) -> int:
        """The numbers of messages that redrives have moved."""
        return sum(redrive.moved for queue in self.queues.values() for redrive in queue.redrives.values())

    def unfinished(self) -> list[Fate]:
        return [
            fate
            for queue in self.queues.values()
            for partition in queue.partitions
            for unfinished in partition.open.values()
            for fate in unfinished.values()
        ]

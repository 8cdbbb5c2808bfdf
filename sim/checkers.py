"""Checks every reply of the broker against the ledger when it is sent: a reply may only contain durable facts.

The invariants are those of docs/simulation.md. `sim/ledger.py` checks the records against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock import limits
from penstock.broker.types import (
    CancelResult,
    DeliveredRun,
    LeaseReply,
    PublishedRun,
    PublishReply,
    ReadReply,
    ShareReply,
    TransactReply,
)
from penstock.core.state import Shard
from penstock.errors import (
    Conflict,
    DiskFull,
    FencedProducer,
    InvalidRequest,
    NotFound,
    PenstockError,
    QueueFull,
    QueueNotFound,
    StaleGeneration,
    StaleReceipt,
    Unavailable,
    UnknownMember,
)  # fmt: skip
from penstock.ids import parse_offsets, parse_receipt_prefix, ulid_value
from penstock.wire.delivery import Settled
from penstock.wire.readers import OffsetsReply
from sim.archiver import NAME as ARCHIVER
from sim.entries import Message
from sim.ledger import Ledger
from sim.network import Call
from sim.plan import Plan
from sim.sent_messages import Sent
from sim.violation import Violation

REQUEST_MS_MAX = 30_000
"""A reply may describe a state that was current this long ago: the request took time."""


class Checkers:
    live_state: Callable[[], Shard]
    """The state of the running process: ahead of the ledger by the records that are not durable yet."""

    def __init__(self, plan: Plan, ledger: Ledger):
        self._plan = plan
        self._ledger = ledger
        self._handed: set[tuple[int, int]] = set()
        """(lease, offset) of all deliveries."""
        self._taken: set[tuple[int, int]] = set()
        """(message id, group) of at-most-once deliveries."""
        self._acked: set[tuple[int, int]] = set()
        """(lease, offset) whose ack was confirmed."""
        self._new: set[int] = set()
        """Ids of messages that a publish reply reported as stored."""
        self._ends: dict[tuple[int, int], int] = {}
        self.deliveries = 0
        self._by_method: dict[str, Callable[[Call, Any], None]] = {
            "messages.publish": self._publish,
            "messages.lease": self._lease,
            "messages.lease_scope": self._lease,
            "readers.keep": self._offsets,
            "readers.get": self._offsets,
            "messages.ack": self._settle,
            "messages.nack": self._settle,
            "messages.reject": self._settle,
            "messages.release": self._settle,
            "messages.extend": self._settle,
            "scheduled.cancel": self._cancel,
            "scheduled.reschedule": self._reschedule,
            "messages.transact": self._transact,
            "redrives.start": self._redrive,
            "log.read": self._read,
            "log.peek": self._peek,
            "members.join": self._share,
            "members.heartbeat": self._heartbeat,
            "keys.create": lambda _, reply: ledger.keys.check_shown(reply),
            "keys.rotate": lambda _, reply: ledger.keys.check_shown(reply),
            "keys.revoke": lambda _, reply: ledger.keys.check_revoked(reply),
            "users.add": lambda _, reply: ledger.users.check_shown(reply),
            "users.change": lambda _, reply: ledger.users.check_shown(reply),
            "users.remove": lambda _, reply: ledger.users.check_removed(reply),
        }

    def answer(self, call: Call, reply: Any) -> None:
        check = self._by_method.get(call.method)
        if check is not None:
            check(call, reply)

    def refusal(self, call: Call, error: PenstockError) -> None:
        """A refusal must have a cause in this run."""
        has = self._plan.has
        allowed = (
            isinstance(error, Unavailable)
            or (isinstance(error, DiskFull) and (has("full") or has("full_hard")))
            or (
                isinstance(error, QueueFull)
                and call.method in ("messages.publish", "messages.transact")
                and has("max_messages")
            )
            or (isinstance(error, StaleReceipt) and call.method == "messages.transact" and not self._is_known(call))
            or (type(error) is Conflict and call.method in ("dead_letters.delete", "redrives.start"))
            or (isinstance(error, FencedProducer) and call.method == "messages.publish" and has("epochs"))
            or (isinstance(error, QueueNotFound) and has("deletes"))
            or (isinstance(error, NotFound) and call.method in ("redrives.stop", "redrives.start"))
            or (isinstance(error, NotFound) and call.method.startswith("schedules."))
            or (isinstance(error, NotFound | Conflict) and call.method in ("keys.rotate", "keys.revoke"))
            or (isinstance(error, NotFound | Conflict) and call.method.startswith("users."))
            or (isinstance(error, InvalidRequest) and call.method == "readers.keep")
            or (isinstance(error, InvalidRequest) and call.method in ("queues.put", "log.read") and has("deletes"))
            or (type(error) is Conflict and call.method in ("queues.purge", "queues.delete", "holds.set"))
            or (isinstance(error, InvalidRequest) and call.method in ("holds.set", "log.read") and has("archives"))
            # A publish created the queue before its configuration arrived: its order stays fifo.
            or (type(error) is Conflict and call.method == "queues.put" and "while the queue holds no" in error.message)
            or (type(error) is Conflict and call.method in ("queues.patch", "queues.put") and has("archives"))
            or (type(error) is Conflict and call.method in ("queues.patch", "queues.put") and self._asks(error))
            or (type(error) is Conflict and call.method == "messages.lease" and self._is_assigned(call))
            or (isinstance(error, StaleGeneration | UnknownMember) and self._is_out(call))
            # A publish that was repeated after its reply was dropped from the dedup window; it was stored.
            or (
                type(error) is Conflict
                and call.method == "messages.publish"
                and any(s.stored for p in call.about for s in p)
            )
        )
        if not allowed:
            raise Violation("I8", f"{call.method} was refused without a reason in this run: {error!r}")

    def _asks(self, error: Conflict) -> bool:
        """A change of settings that would remove stored messages is refused with a token and with the loss."""
        return "confirm" in error.details and any(error.details["would_lose"].values())

    def _is_known(self, call: Call) -> bool:
        """True if the messages of a transaction were stored recently: then it must not be refused."""
        sent = [each for part in call.about[1] for each in part]
        since_ms = self._ledger.now_ms - limits.TRANSACTION_WINDOW_MS
        return any(
            message.at >= since_ms and any(message.sent is each for each in sent)
            for message in self._ledger.by_id.values()
        )

    # -- publish ------------------------------------------------------------------------------------------------------

    def _publish(self, call: Call, reply: PublishReply) -> None:
        if reply.durable != (self._plan.fsync == "always"):
            raise Violation("I1", f"a publish under fsync {self._plan.fsync} was answered with durable={reply.durable}")
        parts: Sequence[Sequence[Sent]] = call.about
        answered = 0
        for run in reply.runs:
            rows = run.rows if run.rows is not None else range(len(parts[run.part]))
            for position, row in enumerate(rows):
                self._published(run, position, parts[run.part][row])
                answered += 1
        if answered != sum(map(len, parts)):
            raise Violation("I1", f"a publish of {sum(map(len, parts))} messages was answered for {answered}")

    def _published(self, run: PublishedRun, position: int, sent: Sent) -> None:
        number = run.id + position
        message = self._ledger.by_id.get(number)
        if message is None or message.sent is not sent:
            raise Violation("I1", f"message {sent.token} was confirmed, but is not in the journal ({message})")
        if (message.queue.path, message.partition, message.offset) != (run.queue, run.partition, run.offset + position):
            raise Violation("I1", f"{message} was confirmed as {run.queue}/{run.partition}@{run.offset + position}")
        if run.duplicate and not sent.deduplicated:
            raise Violation("I6", f"{message} was called a duplicate, but has neither an id nor a number")
        if run.duplicate and number == sent.freed:
            raise Violation("I6", f"{message} was cancelled, and what was sent later is called its duplicate")
        oldest_ms = self._ledger.now_ms - limits.DEDUP_WINDOW_MS - REQUEST_MS_MAX
        if run.duplicate and sent.client_id and not sent.sequenced and message.at < oldest_ms:
            raise Violation("I6", f"{message} came at {message.at}, so long ago that nothing is a duplicate of it")
        if not run.duplicate:
            if number in self._new:
                raise Violation("I6", f"{message} was confirmed twice as new")
            self._new.add(number)

    def _transact(self, call: Call, reply: TransactReply) -> None:
        receipts, parts = call.about
        if reply.acked != receipts:
            raise Violation("I7", f"a transaction of {receipts} was answered for {reply.acked}")
        answered = 0
        for run in reply.runs:
            rows = run.rows if run.rows is not None else range(len(parts[run.part]))
            for position, row in enumerate(rows):
                self._published(run, position, parts[run.part][row])
                answered += 1
        if answered != sum(map(len, parts)):
            raise Violation("I7", f"a transaction of {sum(map(len, parts))} messages was answered for {answered}")

    def _redrive(self, call: Call, reply: dict[str, Any]) -> None:
        queue = self._ledger.paths.get(call.arguments[0])
        if not reply["dry_run"] and queue is not None and reply["redrive_id"] not in queue.redrives:
            raise Violation("I1", f"redrive {reply['redrive_id']} was confirmed, but is not in the journal")

    # -- lease --------------------------------------------------------------------------------------------------------

    def _lease(self, call: Call, reply: LeaseReply) -> None:
        self._check_settled(call.options.get("ack", ()), reply.results, "ack")
        self._check_seat(call, reply)
        count = 0
        for run in reply.runs:
            count += run.count
            if run.receipt is None:
                self._delivered_once(call, run)
            else:
                self._delivered(call, run, run.receipt)
        if count > call.options["max"]:
            raise Violation("I8", f"{count} messages were leased where {call.options['max']} were asked for")
        self.deliveries += count

    def _delivered(self, call: Call, run: DeliveredRun, receipt: str) -> None:
        parsed = parse_receipt_prefix(receipt[:-1])
        lease = self._ledger.leases.get(parsed[1]) if parsed is not None else None
        if lease is None or parsed is None or lease.nonce != parsed[2]:
            raise Violation("I3", f"receipt {receipt} was handed out, but its lease is not in the journal")
        group = lease.queue.groups[lease.group]
        if (lease.consumer, group) != (call.options["consumer"], call.options["group"]):
            raise Violation("I3", f"{call.options['consumer']} was given the lease of {lease.consumer} ({group})")
        for position in range(run.count):
            offset = run.offset + position
            if lease.taken.get(offset) != run.attempt:
                raise Violation("I8", f"offset {offset} came as attempt {run.attempt} of lease {lease.id}, not its own")
            if (lease.id, offset) in self._handed:
                raise Violation("I3", f"offset {offset} of lease {lease.id} was handed out twice")
            self._handed.add((lease.id, offset))
        self._check_content(run)

    def _delivered_once(self, call: Call, run: DeliveredRun) -> None:
        for message in self._check_content(run):
            group = next(n for n, name in message.queue.groups.items() if name == call.options["group"])
            fate = message.fates.get(group)
            if fate is None or fate.final == "" or (message.id, group) in self._taken:
                raise Violation("I2", f"{message} was delivered at most once, again")
            self._taken.add((message.id, group))

    def _check_content(self, run: DeliveredRun) -> list[Message]:
        """The published bytes, with the id and the position of the publish."""
        found = []
        for position, payload in enumerate(run.batch.payloads()):
            message = self._ledger.by_id.get(run.id + position)
            if message is None or payload != message.sent.payload:
                raise Violation(
                    "I1", f"{run.queue}/{run.partition}@{run.offset + position} holds other bytes: {message}"
                )
            place = (message.queue.path, message.partition, message.offset, message.at)
            if place != (run.queue, run.partition, run.offset + position, run.published_at_ms):
                raise Violation("I1", f"{message} was found at {run.queue}/{run.partition}@{run.offset + position}")
            found.append(message)
        if len(found) != run.count:
            raise Violation("I1", f"a run of {run.count} messages carries {len(found)}")
        return found

    # -- members of groups --------------------------------------------------------------------------------------------

    def _is_assigned(self, call: Call) -> bool:
        """A lease without a member in a group that has members."""
        return "member" not in call.options and (call.arguments[0], call.options["group"]) in self._plan.assigned

    def _is_out(self, call: Call) -> bool:
        """Only a member that has left, was replaced, or goes back behind its confirmed generation is refused; not one
        that is behind."""
        path, name = call.arguments[0], (call.options["group"], call.options.get("member", ""))
        shard = self.live_state()
        queue = shard.queues.get(shard.paths.get(path, 0))
        group = queue.groups.get(name[0]) if queue is not None else None
        membership = queue.memberships.get(group) if queue is not None and group is not None else None
        member = membership.members.get(name[1]) if membership is not None else None
        if membership is None or member is None:
            return True
        # The queue may have been deleted and created again: the member may have seen later generations of the old one.
        newest = membership.generation if self._plan.has("deletes") else call.options["generation"]
        oldest = max(member.joined, self._ledger.memberships.acted.get((path, *name), 0))
        return not oldest <= call.options["generation"] <= newest

    def _place(self, call: Call) -> tuple[int, int] | None:
        queue = self._ledger.paths.get(call.arguments[0])
        numbers = [number for number, name in queue.groups.items() if name == call.options["group"]] if queue else []
        return (queue.number, numbers[0]) if queue is not None and numbers else None

    def _share(self, call: Call, reply: ShareReply) -> None:
        """The partitions in a member's reply are those that it had in that generation."""
        place = self._place(call)
        if place is None:
            return  # the queue was deleted meanwhile
        had = self._ledger.memberships.had(place, reply.member, reply.generation)
        if reply.assigned != had or not set(reply.awaited) <= set(had) or set(reply.giving_up) & set(had):
            raise Violation("I13", f"{reply} in a generation in which {reply.member} had {had}")

    def _heartbeat(self, call: Call, reply: ShareReply) -> None:
        self._share(call, reply)
        place = self._place(call)
        if place is not None:
            heard, key = self._ledger.memberships.heard, (*place, reply.member)
            heard[key] = max(heard.get(key, 0), call.about)

    def _check_seat(self, call: Call, reply: LeaseReply) -> None:
        """A member is given messages of the partitions that it had in its generation."""
        place, options = self._place(call), call.options
        if place is not None and options.get("member"):
            had = self._ledger.memberships.had(place, options["member"], options["generation"])
            for run in reply.runs:
                if run.partition not in had:
                    raise Violation("I13", f"{options['member']} goes by {had} and was given partition {run.partition}")

    # -- settle -------------------------------------------------------------------------------------------------------

    def _settle(self, call: Call, results: Sequence[Settled]) -> None:
        self._check_settled(call.arguments[0], results, call.method)

    def _check_settled(self, receipts: Sequence[str], results: Sequence[Settled], method: str) -> None:
        answered = 0
        for result in results:
            prefix, _, tail = result.receipt.rpartition(".")
            parsed, offsets = parse_receipt_prefix(prefix), parse_offsets(tail)
            assert parsed is not None and offsets is not None, "clients of the simulation forge nothing"
            answered += offsets[1] + 1 - offsets[0]
            for offset in range(offsets[0], offsets[1] + 1):
                self._check_outcome(parsed[1], offset, result, method)
        asked = sum(_width(receipt) for receipt in receipts)
        if answered != asked:
            raise Violation("I3", f"{method} of {asked} receipts was answered for {answered}")

    def _check_outcome(self, lease_id: int, offset: int, result: Settled, method: str) -> None:
        settled = self._ledger.settled.get((lease_id, offset))
        status = result.status
        where = f"offset {offset} of lease {lease_id}"
        if status == "stale":
            lease = self._ledger.leases.get(lease_id)
            if lease is not None and offset in lease.held:
                raise Violation("I3", f"{where} was called stale and is held")
        elif status == "extended":
            if result.deadline_at_ms not in self._ledger.extended.get((lease_id, offset), ()):
                raise Violation("I3", f"{where} was extended to {result.deadline_at_ms}, which the journal denies")
        elif settled is None or settled != (status, result.due_at_ms):
            raise Violation("I3", f"{where}: {method} was answered {status} ({result.due_at_ms}), true is {settled}")
        elif status == "acked":
            if (lease_id, offset) in self._acked:
                raise Violation("I3", f"{where} was acked twice")
            self._acked.add((lease_id, offset))

    # -- cancel, reschedule -------------------------------------------------------------------------------------------

    def _cancel(self, call: Call, reply: tuple[int, list[CancelResult]]) -> None:
        if call.about is not None:
            self._check_own(call, reply[1], "cancelled", lambda message: message.ended == "cancelled")
        else:
            self._check_touched(reply, "cancelled", lambda message: message.ended == "cancelled")

    def _reschedule(self, call: Call, reply: tuple[int, list[CancelResult]]) -> None:
        if call.about is not None:
            self._check_own(call, reply[1], "rescheduled", lambda message: not message.plain)
        else:
            self._check_touched(reply, "rescheduled", lambda message: not message.plain)

    def _check_own(
        self, call: Call, results: list[CancelResult], status: str, holds: Callable[[Message], bool]
    ) -> None:
        """Messages that were named by a client id, which several messages may have had one after the other."""
        queue = self._ledger.paths.get(call.arguments[0])
        for result in results if queue is not None else ():
            assert queue is not None
            under_it = queue.own_ids.get(result.id, [])
            if result.status == status and not any(holds(message) or message.ended for message in under_it):
                raise Violation("I8", f"{result.id} was answered {status}, and no message under it is")
            latest = under_it[-1] if under_it else None
            if latest is None or latest.at > self._ledger.now_ms - REQUEST_MS_MAX:
                continue  # may have arrived after the reply was decided
            if result.status == "not_found" and _untouched(latest):
                raise Violation("I1", f"{latest} is alive and was not found by its own id")
            if result.status == "done" and _untouched(latest):
                raise Violation("I1", f"{latest} is alive and was called done")

    def _check_touched(
        self, reply: tuple[int, list[CancelResult]], status: str, holds: Callable[[Message], bool]
    ) -> None:
        count, results = reply
        if count != len(
            {result.id for result in results if result.status == status}
        ):  # some clients ask twice for one message
            raise Violation("I8", f"{count} were {status}, the results say otherwise")
        for result in results:
            message = self._ledger.by_id[ulid_value(result.id)]
            if result.status == status and not (holds(message) or message.ended):
                raise Violation("I8", f"{message} was answered {status} and is not")
            if result.status == "cancelled" and message.ended not in ("cancelled", "purged", "deleted"):
                raise Violation("I8", f"{message} was answered cancelled and is {message.ended or 'alive'}")
            if result.status == "not_found" and is_wanted(message):
                raise Violation("I1", f"{message} is alive and was not found")
            if result.status == "done" and _untouched(message):
                raise Violation("I1", f"{message} is alive and was called done")

    # -- kept offsets -------------------------------------------------------------------------------------------------

    def _offsets(self, _call: Call, reply: OffsetsReply) -> None:
        """The position in a reader's reply is durable and recent."""
        queue = self._ledger.paths.get(reply.queue)
        if queue is None:
            return
        history = self._ledger.kept.get((queue.number, reply.client_id), [])
        for at, offsets in reversed([(0, {}), *history]):
            if offsets == reply.offsets:
                return
            if at < self._ledger.now_ms - REQUEST_MS_MAX:
                break
        if not reply.offsets and history[-1][0] <= self._ledger.now_ms - limits.READER_FORGOTTEN_MS:
            return  # the clock was set far ahead, and the position expired
        raise Violation("I1", f"{reply.client_id} was told {reply.offsets}, kept is {history[-1:]}")

    # -- reads --------------------------------------------------------------------------------------------------------

    def _read(self, call: Call, reply: ReadReply) -> None:
        for run in reply.runs:
            self._check_content(run)
        queue = self._ledger.paths.get(call.arguments[0])
        number = call.options["partition"]
        # Partitions that were just added are not durable yet, and are empty.
        if queue is None or number >= len(queue.partitions) or not queue.partitions[number].messages:
            return
        if queue.number not in self.live_state().queues:
            return  # deleted a moment ago, which is not durable yet; a new queue may have its name
        partition = queue.partitions[number]
        place = (queue.number, number)
        if reply.end_offset < self._ends.get(place, 0):
            raise Violation("I1", f"{queue.path}/{number} ended at {self._ends[place]}, now at {reply.end_offset}")
        self._ends[place] = reply.end_offset
        seen = {run.offset + i for run in reply.runs for i in range(run.count)}
        asked = call.options["offset"]
        if asked == "kept":
            first = min(seen, default=reply.next_offset)
        else:
            first = max(reply.start_offset, 0 if asked == "earliest" else int(asked))
        # A read may omit messages that were cancelled, expired or purged a moment ago, before that is durable.
        live = self.live_state().queues[queue.number].partitions[number]
        gone = live.gone
        if call.about == ARCHIVER and live.held_from is not None:
            # Or a hold was moved, and a delayed request moved it back behind messages that were removed meanwhile.
            forth_and_back = self._plan.has("duplicates") or self._plan.has("stragglers")
            purged = live.start if self._plan.has("purges") or forth_and_back else 0
            for message in partition.messages[max(int(asked), live.held_from, purged) : reply.next_offset]:
                if message.promised and not message.ended and message.offset not in seen and message.offset not in gone:
                    raise Violation("I19", f"{message} is held, and was not there for the archive")
        for message in partition.messages[max(first, partition.start) : reply.next_offset]:
            if message.offset not in seen and is_wanted(message) and message.offset not in gone:
                raise Violation("I1", f"a read from {first} to {reply.next_offset} passed over {message}")

    def _peek(self, _call: Call, runs: list[DeliveredRun]) -> None:
        for run in runs:
            for message in self._check_content(run):
                if message.ended in ("cancelled", "expired") and not message.redriven:
                    raise Violation("I8", f"{message} is {message.ended} and was shown by a peek")


def is_wanted(message: Message) -> bool:
    """True if the bytes of the message may still be requested."""
    partition = message.queue.partitions[message.partition]
    if message.redriven and any(not fate.final for fate in message.fates.values()):
        return True
    if message.ended or message.offset < partition.start:
        return False
    if message.queue.config.retention.mode == "keep":
        return True
    return not message.finished()


def _untouched(message: Message) -> bool:
    """True if the message has not ended for any group, and retention has not passed it."""
    if message.redriven and len(message.queue.groups) > 1:
        return False  # a group that was created while the message was dead has finished it from the start
    retained = message.offset >= message.queue.partitions[message.partition].start
    return retained and not message.ended and not any(fate.final for fate in message.fates.values())


def _width(receipt: str) -> int:
    offsets = parse_offsets(receipt.rpartition(".")[2])
    assert offsets is not None
    return offsets[1] + 1 - offsets[0]

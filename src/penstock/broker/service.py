"""The Broker: the one door to everything. Transports translate; this decides nothing that the machine decides.

Every method either does what it says durably before it returns, or raises an error of `penstock.errors` and has
changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock import limits
from penstock.batch.check import is_long_past, long_past
from penstock.broker.alarms import Alarms
from penstock.broker.analytics import Analytics
from penstock.broker.autoscale import Autoscale
from penstock.broker.confirm import Confirmations
from penstock.broker.deadletters import DeadLetterDesk, parse_which
from penstock.broker.events import Events
from penstock.broker.explain import Explanations
from penstock.broker.feed import Feed
from penstock.broker.finding import find_message
from penstock.broker.granted import delivered
from penstock.broker.holds import Holds
from penstock.broker.identity import Identity
from penstock.broker.in_flight import InFlight
from penstock.broker.intake import Intake
from penstock.broker.looking import Looking
from penstock.broker.members import Members, membership_of
from penstock.broker.queues import Queues
from penstock.broker.readers import Readers
from penstock.broker.receipts import Claims
from penstock.broker.redrives import Redrives, described, find
from penstock.broker.refusals import not_found, stale
from penstock.broker.schedules import Schedules
from penstock.broker.stats import Stats
from penstock.broker.types import (
    DeliveredRun,
    LeaseReply,
    ProducerSeq,
    PublishedRun,
    PublishPart,
    PublishReply,
    QueueRow,
    ReadReply,
    ShareReply,
    Touched,
    TransactReply,
)
from penstock.broker.vault import Vault
from penstock.broker.waiting import WaitingMessages
from penstock.broker.webhooks import Webhooks
from penstock.core import commands
from penstock.core.settling import all_held
from penstock.core.state import Queue
from penstock.core.transacting import key_of
from penstock.errors import InvalidRequest, NotFound, PenstockError
from penstock.ids import QueuePath, ulid_text
from penstock.pending import PendingReply
from penstock.runtime.history import History
from penstock.runtime.host import ShardHost
from penstock.wire.delivery import Settled
from penstock.wire.holds import ExtentReply
from penstock.wire.readers import OffsetsReply

REDRIVE_SAMPLE = 10
"""Letters that a dry run shows."""


class Broker:
    """What users can do, independent of how they connect."""

    def __init__(
        self, host: ShardHost, entropy: Callable[[int], int], *, auto_create: bool = True, vault: Vault | None = None
    ):
        """Without a vault to seal their secrets in there are no webhooks."""
        self._host = host
        self._loop = host.loop
        self._identity = Identity(host.node, host.number)
        self._entropy = entropy
        """Number of bits -> that many random bits."""
        self.auto_create = auto_create
        self._intake = Intake(host.loop, auto_create=auto_create)
        """Whether queues are made by being published to."""
        self._confirmations = Confirmations(entropy(256).to_bytes(32, "big"))
        self._queues = Queues(host.loop, self._queue, self._confirmations, self._identity)
        self._alarms = Alarms(host.loop)
        self._stats = Stats(host.loop, self._alarms)
        self._dead_letters = DeadLetterDesk(host.loop, self._confirmations)
        self._redrives = Redrives(host.loop, entropy)
        self._redrives.resume()
        self.feed = Feed(host.loop)
        self.in_flight = InFlight(host.loop, self._queue)
        self._members = Members(host.loop, entropy)
        self._readers = Readers(host.loop)
        self._looking = Looking(host.loop, self._readers)
        self._waiting = WaitingMessages(host.loop)
        self.schedules = Schedules(host.loop, self._intake.check_to_come, self._intake.made)
        self.webhooks = Webhooks(host.loop, entropy, self._intake.made, vault)
        self._explanations = Explanations(host.loop, self.webhooks)
        self._history = History(host.loop)
        self._autoscale = Autoscale(host.loop, self._stats)
        self.events = Events(host.loop, self._queue, self._identity)
        """What became true, record by record, as far back as the journal goes."""
        self.holds = Holds(host.loop, self._queue, self._identity)
        """What archives have not copied yet, and retention waits for."""
        self.analytics = Analytics(self._stats, host.loop.now_ms)
        """What was counted of the past, if there is a lake."""

    @property
    def id(self) -> str:
        """The ULID of this broker's storage."""
        return self._identity.broker

    def commit_now(self) -> None:
        """Make what was asked so far durable before returning, if no other command is expected to share the commit.

        A transport that serves a single client calls it behind each request. Without the call the same commit starts in
        the next turn of the event loop.
        """
        self._loop.commit_now()

    # -- publish ------------------------------------------------------------------------------------------------------

    def publish(
        self,
        parts: Sequence[PublishPart],
        producer: ProducerSeq | None = None,
        *,
        create_as: dict[str, Any] | None = None,
    ) -> PendingReply[PublishReply]:
        """Store all parts or none. Queues that do not exist are created, by default or with the settings `create_as`,
        unless the server was told not to."""
        # Everything is checked before the first queue is created: a refused publish leaves no queue behind.
        self._intake.check(parts, create_as)
        self._intake.rehearse(parts, producer, create_as)
        numbered = [commands.Part(self._intake.number(part.queue, create_as), part.batch) for part in parts]
        command = commands.Publish(numbered, self._entropy(80), *(producer or ("", 0, 0)))

        def reply(runs: list[commands.PublishedRun]) -> PublishReply:
            return PublishReply([_published(run, parts) for run in runs], self._host.journal.durable)

        return self._loop.submit(command).then(reply)

    # -- lease and settle ---------------------------------------------------------------------------------------------

    def lease(
        self,
        queue: QueuePath,
        *,
        group: str = "default",
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        consumer: str = "",
        member: str = "",
        generation: int = 0,
        ack: Sequence[str] = (),
        bytes_max: int = limits.LEASE_REPLY_BYTES_MAX,
    ) -> PendingReply[LeaseReply]:
        """Up to `max` messages, waiting up to `wait_ms` for the first. `ack` is settled first, durably, in any case.

        A `member` of a group is given messages of its partitions only, and of those that it had in this generation.
        """
        number = self._queue(queue).number
        command = commands.Lease(
            number, group, max, self._entropy(64), lease_ms, consumer or member, member, generation,
            bytes_max,
        )  # fmt: skip
        generation_of = partial(self._generation, number, group) if member else _no_generation
        return self._lease(command, wait_ms, ack, queue, generation_of)

    def lease_scope(
        self,
        scope: str,
        *,
        group: str = "default",
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        consumer: str = "",
        ack: Sequence[str] = (),
        bytes_max: int = limits.LEASE_REPLY_BYTES_MAX,
    ) -> PendingReply[LeaseReply]:
        """As `lease`, from all queues of a namespace, or of a task of it: higher `queue_priority` first, then older."""
        command = commands.LeaseScope(scope, group, max, self._entropy(64), lease_ms, consumer, bytes_max)
        return self._lease(command, wait_ms, ack, "", _no_generation)

    def _lease(
        self,
        command: commands.Lease | commands.LeaseScope,
        wait_ms: int,
        ack: Sequence[str],
        path: str,
        generation: Callable[[], int | None],
    ) -> PendingReply[LeaseReply]:
        if not ack:
            return self._loop.lease(command, wait_ms).then(
                lambda runs: LeaseReply(delivered(self._loop, runs, path), (), generation())
            )
        claims = Claims(ack)
        acked = self._loop.submit(commands.Ack(claims.claims)).then(claims.results)

        def only_acked(results: Sequence[Settled]) -> LeaseReply:
            return LeaseReply([], results, generation())

        # The results of the acks must be told even if the lease is refused: a client that repeated the acks would only
        # hear that they are stale. The refusal is told to the next lease, which acks nothing.
        try:
            leased = self._loop.lease(command, wait_ms)
        except PenstockError:
            return acked.then(only_acked)
        return leased.then(
            lambda runs: LeaseReply(delivered(self._loop, runs, path), acked.prepared, generation()),
            lambda _refusal: only_acked(acked.prepared),
        )

    def _generation(self, number: int, group: str) -> int:
        queue = self._loop.shard.queues.get(number)
        membership = membership_of(queue, group) if queue is not None else None
        return membership.generation if membership is not None else 0

    def ack(self, receipts: Sequence[str]) -> PendingReply[Sequence[Settled]]:
        claims = Claims(receipts)
        return self._loop.submit(commands.Ack(claims.claims)).then(claims.results)

    def nack(
        self, receipts: Sequence[str], *, delay_ms: int | None = None, error: str = "", max_retries: int | None = None
    ) -> PendingReply[Sequence[Settled]]:
        """`max_retries`: give up a message that had so many, even if its queue allows more."""
        claims = Claims(receipts)
        command = commands.Nack(claims.claims, delay_ms, _clipped(error), max_retries)
        return self._loop.submit(command).then(claims.results)

    def reject(self, receipts: Sequence[str], *, error: str = "") -> PendingReply[Sequence[Settled]]:
        claims = Claims(receipts)
        return self._loop.submit(commands.Reject(claims.claims, _clipped(error))).then(claims.results)

    def release(self, receipts: Sequence[str]) -> PendingReply[Sequence[Settled]]:
        """Return messages that were not handled: they are ready again at once, as if they had not been delivered."""
        claims = Claims(receipts)
        return self._loop.submit(commands.Release(claims.claims)).then(claims.results)

    def extend(self, receipts: Sequence[str], *, lease_ms: int) -> PendingReply[Sequence[Settled]]:
        claims = Claims(receipts)
        return self._loop.submit(commands.Extend(claims.claims, lease_ms)).then(claims.results)

    def transact(self, ack: Sequence[str], parts: Sequence[PublishPart]) -> PendingReply[TransactReply]:
        """Ack all of these and publish all of those, or nothing. Fails with StaleReceipt, which names stale receipts.

        The same request again, within the hour, is answered as the first time and does nothing.
        """
        claims, shard = Claims(ack), self._loop.shard
        key = key_of(claims.claims, [(part.queue, part.batch) for part in parts])
        numbered: list[commands.Part] = []
        if key not in shard.transactions:
            self._intake.check(parts)
            if all_held(shard, claims.claims) or all(part.queue in shard.paths for part in parts):
                self._intake.rehearse(parts)
                numbered = [commands.Part(self._intake.number(part.queue), part.batch) for part in parts]
        # Otherwise it was done before, or will be refused: then it must not create a queue.

        def reply(done: commands.Transacted) -> TransactReply:
            results = claims.results(done.outcomes)
            if done.runs is None:
                raise stale(results)
            published = [_published(run, parts) for run in done.runs]
            return TransactReply([result.receipt for result in results], published, self._host.journal.durable)

        return self._loop.submit(commands.Transact(claims.claims, numbered, self._entropy(80), key)).then(reply)

    # -- members of groups --------------------------------------------------------------------------------------------

    async def join_group(
        self,
        queue: QueuePath,
        *,
        group: str = "default",
        member: str | None = None,
        session_ms: int = 30_000,
        drain_ms: int = 30_000,
    ) -> ShareReply:
        """Become a member, which makes the group an assigned one: partitions are shared out among its members."""
        return await self._members.join(self._queue(queue), group, member, session_ms, drain_ms)

    async def heartbeat(
        self, queue: QueuePath, *, group: str = "default", member: str, generation: int, released: Sequence[int] = ()
    ) -> ShareReply:
        """Stay a member, and hear what has changed. What is `released` ends there, if it was to be given up."""
        return await self._members.heartbeat(self._queue(queue), group, member, generation, released)

    async def leave_group(
        self, queue: QueuePath, *, group: str = "default", member: str, generation: int | None = None
    ) -> bool:
        """False if it was not a member. What it holds may still be settled, for as long as it said when it joined."""
        return await self._members.leave(self._queue(queue), group, member, generation)

    async def begin_group(self, queue: QueuePath, group: str, *, offset: str = "latest") -> bool:
        """See to it that there is such a group: a new one begins at `offset`, as `read` understands it. True if new.

        The first group of a queue that keeps messages until they are acked begins with the oldest, whatever was asked.
        """
        return await self._readers.begin_group(self._queue(queue), group, offset)

    # -- messages that wait -------------------------------------------------------------------------------------------

    async def cancel(
        self, queue: QueuePath, *, ids: Sequence[str] | None = None, key: str | None = None
    ) -> tuple[int, list[Touched]]:
        """A message that answers `cancelled` will not be delivered. `ids` are message ids, or ids of the client's own,
        which a cancelled message frees."""
        return await self._waiting.cancel(self._queue(queue), ids, key)

    async def reschedule(
        self,
        queue: QueuePath,
        *,
        ids: Sequence[str] | None = None,
        key: str | None = None,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> tuple[int, list[Touched]]:
        if (deliver_at_ms is None) == (delay_ms is None):
            raise InvalidRequest("give either deliver_at_ms or delay_ms", details={"field": "deliver_at_ms"})
        now_ms = self._loop.now_ms()
        if deliver_at_ms is not None and is_long_past(deliver_at_ms, now_ms):
            raise InvalidRequest(
                f"deliver_at_ms: {long_past(deliver_at_ms, now_ms)}", details={"field": "deliver_at_ms"}
            )
        due = deliver_at_ms if deliver_at_ms is not None else now_ms + (delay_ms or 0)
        return await self._waiting.reschedule(self._queue(queue), ids, key, due)

    # -- looking without leasing --------------------------------------------------------------------------------------

    async def read(
        self,
        queue: QueuePath,
        *,
        partition: int = 0,
        offset: str = "earliest",
        max: int | None = 100,
        wait_ms: int = 0,
        client_id: str | None = None,
        until: int | None = None,
        bytes_max: int = limits.LEASE_REPLY_BYTES_MAX,
        uuid: str | None = None,
    ) -> ReadReply:
        """Stored messages by position, whatever became of them in any group; at the end, wait for more.

        Reading under a `client_id` counts as a use of what is kept under it. With `until` the reply ends before that
        offset, and the call does not wait for it. With `uuid` another incarnation of the queue is refused (Conflict).
        """
        found = self._queue(queue)
        self._identity.check(found, uuid)
        return await self._looking.read(found, partition, offset, max, wait_ms, client_id, until, bytes_max)

    def watch(self, queue: QueuePath, changed: Callable[[int | None], None]) -> Callable[[], None]:
        """From now on `changed` is told which partition has grown, after each commit; None: the queue is gone.

        Only that, not by how much, and not from inside of anything. Returns what ends it.
        """
        return self._loop.watchers.watch(self._queue(queue).number, changed)

    def watch_end(self, queue: QueuePath, gone: Callable[[PenstockError], None]) -> Callable[[], None]:
        """`gone` is told when the queue is deleted, with the error that it has from then on. Returns what ends it."""
        return self._loop.watchers.watch_end(self._queue(queue).number, lambda: gone(not_found(queue)))

    def extent(self, queue: QueuePath, at: str = "earliest") -> ExtentReply:
        """From where to where the log of each partition goes, and where in it `at` is."""
        found = self._queue(queue)
        reply = self._looking.extent(found, at)
        reply.uuid, reply.broker = self._identity.uuid_of(found.number), self.id
        return reply

    async def keep_offsets(self, queue: QueuePath, client_id: str, offsets: dict[int, int]) -> OffsetsReply:
        """Remember where this reader is in these partitions."""
        return await self._readers.keep(self._queue(queue), client_id, offsets)

    async def get_offsets(self, queue: QueuePath, client_id: str) -> OffsetsReply:
        return await self._readers.get(self._queue(queue), client_id)

    async def forget_offsets(self, queue: QueuePath, client_id: str) -> OffsetsReply:
        return await self._readers.forget(self._queue(queue), client_id)

    async def peek(self, queue: QueuePath, *, max: int = 10, group: str = "default") -> list[DeliveredRun]:
        """What a lease of `max` messages would give the group next, in that order, without giving it; also to a group
        that does not exist yet."""
        return await self._looking.peek(self._queue(queue), max, group)

    # -- queues -------------------------------------------------------------------------------------------------------

    def list_queues(self, *, prefix: str = "", page: int = 1, limit: int = 50) -> dict[str, Any]:
        return self._queues.list(prefix, page, limit)

    def get_queue(self, queue: QueuePath) -> dict[str, Any]:
        return self._queues.get(queue)

    async def put_queue(
        self, queue: QueuePath, config: dict[str, Any], *, confirm: str | None = None
    ) -> tuple[dict[str, Any], bool]:
        """Create the queue with these settings, or change exactly these; also whether the queue is new.

        A change that would let go of stored messages raises Conflict with a token, and needs it as `confirm`.
        """
        return await self._queues.put(queue, config, confirm)

    async def patch_queue(
        self, queue: QueuePath, changes: dict[str, Any], *, confirm: str | None = None
    ) -> dict[str, Any]:
        """Like `put_queue`, but never creates the queue."""
        return await self._queues.patch(queue, changes, confirm)

    async def delete_queue(self, queue: QueuePath, *, confirm: str | None = None) -> dict[str, Any]:
        return await self._queues.delete(queue, confirm)

    async def purge_queue(self, queue: QueuePath, *, confirm: str | None = None) -> dict[str, Any]:
        return await self._queues.purge(queue, confirm)

    # -- state now ----------------------------------------------------------------------------------------------------

    def stats(self, queue: QueuePath) -> dict[str, Any]:
        found = self._queue(queue)
        return {**self._stats.queue(found), "uuid": self._identity.uuid_of(found.number)}

    def summary(self) -> dict[str, Any]:
        return {**self._stats.summary(), "broker": self.id}

    def overview(self, prefix: str = "") -> list[QueueRow]:
        """The queues whose path begins with `prefix`, by path, with their most important numbers: one pass, no disk."""
        return self._stats.rows(prefix)

    def groups(self, queue: QueuePath) -> dict[str, Any]:
        return self._stats.groups(self._queue(queue))

    async def explain(self, queue: QueuePath, *, id: str | None = None, group: str = "default") -> dict[str, Any]:
        """Why a message, or the head of each partition, is not being delivered to this group now."""
        return await self._explanations.explain(self._queue(queue), group, id)

    async def history(self, queue: QueuePath, *, id: str) -> dict[str, Any]:
        """What became of a message, by its id or its client's, as far back as the journal goes."""
        named = self._queue(queue)
        handle = find_message(self._loop.log, named, id)
        if handle is None:
            return {"queue": queue, "id": id, "partition": None, "offset": None, "complete": False, "events": []}
        found = await self._history.of(named, handle.id)
        return {
            "queue": queue,
            "id": ulid_text(handle.id),
            "partition": found.partition,
            "offset": found.offset,
            "complete": found.complete,
            "events": msgspec.to_builtins(found.events),
        }

    def autoscale(
        self,
        queue: QueuePath,
        *,
        group: str = "default",
        target_drain_s: float = 60.0,
        min_workers: int = 0,
        max_workers: int = limits.WORKERS_MAX,
    ) -> dict[str, Any]:
        """How fast messages come and go, and how many workers would drain what waits in `target_drain_s`."""
        return self._autoscale.signal(
            self._queue(queue), group, target_drain_s=target_drain_s, min_workers=min_workers, max_workers=max_workers
        )

    # -- dead letters -------------------------------------------------------------------------------------------------

    async def dead_letters(
        self,
        queue: QueuePath,
        *,
        group: str | None = None,
        filter: str | None = None,
        page: int = 1,
        limit: int = 50,
        after: str | None = None,
    ) -> dict[str, Any]:
        """A page of what was given up, oldest first: `dead_letters` (FoundLetter), `total`, `page`, `limit`, `next`."""
        return await self._dead_letters.page(
            self._queue(queue), group=group, filter=filter, page=page, limit=limit, after=after
        )

    async def redrive(
        self,
        queue: QueuePath,
        *,
        group: str | None = None,
        filter: str | None = None,
        ids: Sequence[str] | None = None,
        target: QueuePath | None = None,
        delay_ms: int = 0,
        priority: int | None = None,
        rate_per_s: int = 100,
        dry_run: bool = True,
        redrive_id: str | None = None,
    ) -> dict[str, Any]:
        """Bring dead letters back, in the background; or only say which. An id that is known starts nothing new."""
        found, which = self._queue(queue), parse_which(group, filter, ids)
        if group and group not in found.groups:
            raise NotFound(f"queue {queue} has no group {group!r}", details={"field": "group"})
        elsewhere = "" if target is None or target == queue else target
        if priority is not None and not elsewhere:
            raise InvalidRequest(
                "a message that becomes ready again in its own place keeps its priority; name another queue as target",
                details={"field": "priority"},
            )
        if elsewhere:
            self._intake.check_to_come(QueuePath(elsewhere), priority or 0)
        name = redrive_id or ulid_text(self._loop.now_ms() << 80 | self._entropy(80))
        if dry_run:
            count, sample = await self._dead_letters.count(found, which, REDRIVE_SAMPLE)
            return {"redrive_id": name, "queue": queue, "dry_run": True, "count": count, "sample": sample}
        if elsewhere:
            self._intake.number(QueuePath(elsewhere))
        started = self._loop.submit(
            commands.StartRedrive(
                found.number, name, group or "", filter, [message.to_bytes(16, "big") for message in which.ids or ()],
                elsewhere, delay_ms, priority, rate_per_s,
            )
        )  # fmt: skip
        # Not only when it is durable: whoever asked may have gone by then. What it moves is written down behind it.
        self._redrives.go_on(found.number, name)
        await started
        return {"dry_run": False, **described(found, find(self._queue(queue), name))}

    def redrives(self, queue: QueuePath, redrive_id: str | None = None) -> dict[str, Any]:
        """Those under way and the latest that ended, newest first; or the one of this id."""
        found = self._queue(queue)
        chosen = [find(found, redrive_id)] if redrive_id is not None else list(reversed(found.redrives.values()))
        return {"redrives": [described(found, redrive) for redrive in chosen]}

    async def stop_redrive(self, queue: QueuePath, redrive_id: str) -> dict[str, Any]:
        """What has moved stays moved."""
        found = self._queue(queue)
        await self._redrives.stop(found, redrive_id)
        return described(found, find(self._queue(queue), redrive_id))

    async def delete_dead_letters(
        self,
        queue: QueuePath,
        *,
        group: str | None = None,
        filter: str | None = None,
        ids: Sequence[str] | None = None,
        confirm: str | None = None,
    ) -> dict[str, Any]:
        return await self._dead_letters.delete(self._queue(queue), parse_which(group, filter, ids), confirm)

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return self._loop.failed is None and not self._loop.closing

    @property
    def waiting(self) -> int:
        """Parked long-polls."""
        return self._loop.waiting

    def watch_commits(self, took: Callable[[float], None]) -> None:
        """From now on `took` is told, after every commit, how many seconds it took to make it durable."""
        self._loop.commits.on_duration = took

    def stop_waiting(self) -> None:
        """The beginning of the end: whoever waits is answered, publishes are refused, what is under way is finished."""
        self._loop.stop_waiting()

    async def close(self, *, final_snapshot: bool = True) -> None:
        """Drain: whoever waits is answered, what was decided becomes durable, the next start is quick."""
        self._alarms.close()
        self.analytics.close()
        await self._redrives.close()
        await self._host.close(final_snapshot=final_snapshot)

    def _queue(self, path: str) -> Queue:
        number = self._loop.shard.paths.get(path)
        if number is None:
            raise not_found(path)
        return self._loop.shard.queues[number]


def _published(run: commands.PublishedRun, parts: Sequence[PublishPart]) -> PublishedRun:
    return PublishedRun(
        run.part, parts[run.part].queue, run.partition, run.offset, run.count, run.id, run.duplicate, run.rows
    )


def _clipped(error: str) -> str:
    return error[: limits.ERROR_CHARS_MAX]


def _no_generation() -> None:
    return None

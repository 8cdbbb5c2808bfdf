"""Messages: publish, lease, settle. A reply is pending until the commit that holds its records is durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from penstock import limits
from penstock.broker.intake import Intake, ignored
from penstock.broker.leasing import delivered
from penstock.broker.receipts import Claims
from penstock.broker.types import (
    DeliveredRun,
    Entropy,
    LeaseReply,
    ProducerSeq,
    PublishedRun,
    PublishPart,
    PublishReply,
    Submit,
    TransactReply,
)
from penstock.core import commands
from penstock.core.config import QueueConfig
from penstock.core.decide.transacting import key_of
from penstock.errors import PenstockError, StaleReceipt
from penstock.ids import QueuePath
from penstock.pending import PendingReply
from penstock.runtime.view import ShardView
from penstock.wire.delivery import Settled

SubmitLease: TypeAlias = Callable[[commands.Lease | commands.LeaseScope, int], PendingReply[Any]]
"""`ShardLoop.lease`: leases now, or waits so many milliseconds for the first message."""

STALE_SHOWN = 100
"""Stale receipts that the refusal of a transaction names."""
_NO_PRODUCER = ProducerSeq("", 0, 0)


class Messages:
    def __init__(
        self, view: ShardView, submit: Submit, lease: SubmitLease, intake: Intake, entropy: Entropy, *,
        durable: bool, shard: int = 0,
    ):  # fmt: skip
        """`durable`: a reply means that the messages survive a power loss."""
        self._view = view
        self._submit = submit
        self._submit_lease = lease
        self._intake = intake
        self._entropy = entropy
        self._durable = durable
        self._shard = shard

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
        numbered = self._intake.accept(parts, producer or _NO_PRODUCER, create_as)
        command = commands.Publish(numbered, self._entropy(80), *(producer or _NO_PRODUCER))
        without_effect = ignored(numbered, self._config)

        def reply(runs: list[commands.PublishedRun]) -> PublishReply:
            return PublishReply([_published(run, parts) for run in runs], self._durable, without_effect)

        return self._submit(command).then(reply)

    def transact(self, ack: Sequence[str], parts: Sequence[PublishPart]) -> PendingReply[TransactReply]:
        """Ack all of these and publish all of those, or nothing. Fails with StaleReceipt, which names stale receipts.

        The same request again, within the hour, is answered as the first time and does nothing.
        """
        claims = Claims(ack, self._shard)
        key = key_of(claims.claims, [(part.queue, part.batch) for part in parts])
        numbered: list[commands.Part] = []
        if not self._view.was_transacted(key):
            numbered = self._intake.accept(parts, _NO_PRODUCER, may_create=self._view.all_held(claims.claims))
        without_effect = ignored(numbered, self._config)

        def reply(done: commands.Transacted) -> TransactReply:
            results = claims.results(done.outcomes)
            if done.runs is None:
                raise _stale(results)
            published = [_published(run, parts) for run in done.runs]
            return TransactReply([result.receipt for result in results], published, self._durable, without_effect)

        return self._submit(commands.Transact(claims.claims, numbered, self._entropy(80), key)).then(reply)

    def _config(self, number: int) -> QueueConfig:
        queue = self._view.queue_numbered(number)
        assert queue is not None, "the queue of an accepted part exists"
        return queue.config

    # -- lease --------------------------------------------------------------------------------------------------------

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
        number = self._view.queue(queue).number
        command = commands.Lease(
            number, group, max, self._entropy(64), lease_ms, consumer or member, member, generation,
            bytes_max,
        )  # fmt: skip
        generation_now = partial(self._generation, number, group) if member else None
        return self._lease(command, wait_ms, ack, queue, generation_now)

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
        return self._lease(command, wait_ms, ack)

    def _lease(
        self,
        command: commands.Lease | commands.LeaseScope,
        wait_ms: int,
        ack: Sequence[str],
        path: str = "",
        generation: Callable[[], int] | None = None,
    ) -> PendingReply[LeaseReply]:
        """Settle the receipts of `ack`, then lease. `path` is that of the queue; empty for a scope."""
        acked = self.ack(ack) if ack else None

        def reply(runs: list[commands.LeasedRun]) -> LeaseReply:
            results = () if acked is None else acked.prepared
            messages = delivered(self._view.log, runs, path, self._shard)
            if messages:
                self._note_waits(runs, messages)
            return LeaseReply(messages, results, None if generation is None else generation())

        # A refused lease still replies with the results of the acks: repeated acks would be stale. The next lease,
        # which acks nothing, is refused.
        try:
            return self._submit_lease(command, wait_ms).then(reply, None if acked is None else lambda _: reply([]))
        except PenstockError:
            if acked is None:
                raise
            return acked.then(lambda results: LeaseReply([], results, None if generation is None else generation()))

    def scope_head(self, scope: str, group: str) -> tuple[int, int] | None:
        """(minus the priority, the time) of the message that `lease_scope` would deliver next; None: none is ready."""
        return self._view.scope_head(scope, group)

    def _note_waits(self, leased: list[commands.LeasedRun], runs: list[DeliveredRun]) -> None:
        """Count the times from publish to first delivery. An order that skips messages makes many runs of one time."""
        first = leased[0]
        granted_ms = self._view.now_ms() if first.settled else first.deadline - first.lease_ms
        if len(runs) == 1:
            if first.attempt == 1:
                self._view.counters.waited(first.queue, granted_ms - runs[0].published_at_ms, first.count)
            return
        numbers = {lease.path: lease.queue for lease in leased} if first.path else {runs[0].queue: first.queue}
        counts: dict[tuple[str, int], int] = {}
        for run in runs:
            if run.attempt == 1:
                alike = run.queue, run.published_at_ms
                counts[alike] = counts.get(alike, 0) + run.count
        for (path, published_at_ms), count in counts.items():
            self._view.counters.waited(numbers[path], granted_ms - published_at_ms, count)

    def _generation(self, number: int, group: str) -> int:
        queue = self._view.queue_numbered(number)
        membership = queue.memberships.get(queue.groups.get(group, -1)) if queue is not None else None
        return membership.generation if membership is not None else 0

    # -- settle -------------------------------------------------------------------------------------------------------

    def queues_of(self, receipts: Sequence[str]) -> set[str]:
        """The queues of the leases behind these receipts. A receipt whose lease has ended belongs to none."""
        found = [self._view.leased_from(claim.lease) for claim in Claims(receipts, self._shard).claims]
        return {queue.path for queue in found if queue is not None}

    def ack(self, receipts: Sequence[str]) -> PendingReply[Sequence[Settled]]:
        claims = Claims(receipts, self._shard)
        return self._submit(commands.Ack(claims.claims)).then(claims.results)

    def nack(
        self, receipts: Sequence[str], *, delay_ms: int | None = None, error: str = "", max_retries: int | None = None
    ) -> PendingReply[Sequence[Settled]]:
        """`max_retries`: give up a message that had so many, even if its queue allows more."""
        claims = Claims(receipts, self._shard)
        command = commands.Nack(claims.claims, delay_ms, error[: limits.ERROR_CHARS_MAX], max_retries)
        return self._submit(command).then(claims.results)

    def reject(self, receipts: Sequence[str], *, error: str = "") -> PendingReply[Sequence[Settled]]:
        claims = Claims(receipts, self._shard)
        return self._submit(commands.Reject(claims.claims, error[: limits.ERROR_CHARS_MAX])).then(claims.results)

    def release(self, receipts: Sequence[str]) -> PendingReply[Sequence[Settled]]:
        """Return messages that were not handled: they are ready again at once, as if they had not been delivered."""
        claims = Claims(receipts, self._shard)
        return self._submit(commands.Release(claims.claims)).then(claims.results)

    def extend(self, receipts: Sequence[str], *, lease_ms: int) -> PendingReply[Sequence[Settled]]:
        claims = Claims(receipts, self._shard)
        return self._submit(commands.Extend(claims.claims, lease_ms)).then(claims.results)


def _published(run: commands.PublishedRun, parts: Sequence[PublishPart]) -> PublishedRun:
    return PublishedRun(
        run.part, parts[run.part].queue, run.partition, run.offset, run.count, run.id, run.duplicate, run.rows
    )


def _stale(results: Sequence[Settled]) -> StaleReceipt:
    receipts = [result.receipt for result in results if result.status != "acked"]
    return StaleReceipt(
        f"{len(receipts)} of the receipts to ack are stale, so nothing was acked and nothing published",
        details={"receipts": receipts[:STALE_SHOWN]},
    )

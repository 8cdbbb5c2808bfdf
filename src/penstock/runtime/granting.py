"""Granting leases: to a command when it arrives, and to waiting commands when messages become ready.

A lease of a queue is one decision. A lease of a scope is one decision per queue, from the highest `queue_priority`
down; its reply is completed behind the last of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.core import commands
from penstock.core.decide import decide
from penstock.core.decide.leasing import Fit
from penstock.core.decide.rebalancing import has_changed
from penstock.core.decide.scopes import scopes_over
from penstock.core.decide.settling import ERASED, undo_lease
from penstock.core.decision import Decision
from penstock.core.records import MemberJoined, MembersLeft, QueueDeleted, Record
from penstock.errors import PenstockError, Unavailable
from penstock.pending import PendingReply

if TYPE_CHECKING:
    from penstock.runtime.loop import ShardLoop


DAMAGED_LEASES_MAX = 8
"""Decisions of one call that meet messages that cannot be read; each of them moves the damaged ones to the dead
letters, and drops the erased ones."""


class Granting:
    """The leases of one shard. It decides and enqueues like every other command of the loop."""

    def __init__(self, loop: ShardLoop):
        self._loop = loop

    def grant(self, command: commands.Lease | commands.LeaseScope, pending: PendingReply[Any]) -> bool:
        """Lease for this command if messages are ready; False if none are."""
        if isinstance(command, commands.LeaseScope):
            return self._grant_scope(command, pending)
        try:
            decision = self._decide_lease(command, self._loop.now_ms(), self._fit_for(command))
        except PenstockError as error:
            self._loop.enqueue_refusal(error, pending)
            return True
        if not decision.reply:
            return False
        self._loop.enqueue(decision.records, decision.reply, pending)
        self._loop.arm_timer()
        return True

    def _fit_for(self, command: commands.Lease) -> Fit | None:
        """None if the messages of the queue are so small that any `max` of them fit into one reply."""
        queue, log = self._loop.shard.queues.get(command.queue), self._loop.log
        partitions = len(queue.partitions) if queue is not None else 0
        # With more partitions than messages it is cheaper to add up the messages.
        if partitions <= command.max and log.surely_fit(command.queue, partitions, command.max, command.bytes_max):
            return None
        return log.fit

    def _decide_lease(self, command: commands.Lease, now_ms: int, fit: Fit | None) -> Decision:
        """Decide, and read the messages before the lease is given. Raises Unavailable if the disk refuses to read."""
        for _ in range(DAMAGED_LEASES_MAX):
            decision = decide(self._loop.shard, command, now_ms, fit)
            if decision.reply is None:
                # The group was created by this call: decide again, now that it exists.
                self._loop.enqueue(decision.records)
                decision = decide(self._loop.shard, command, now_ms, fit)
            try:
                damaged = self._read_ahead(decision.reply)
            except Unavailable:
                self._loop.enqueue(undo_lease(decision.records, []), [])
                raise
            if not damaged:
                return decision
            self._loop.enqueue(undo_lease(decision.records, damaged), [])
            self._loop.note_damage(command.queue, [each for each in damaged if each[3] != ERASED])
        raise Unavailable("messages that cannot be read are being removed from the queue", retry_after_ms=100)

    def _read_ahead(self, runs: list[commands.LeasedRun]) -> list[tuple[int, int, int, str]]:
        """(partition, first, stop, problem) of the messages that are damaged. The others are in memory afterwards."""
        log = self._loop.log
        if not log.pieces.all_at_hand and log.not_at_hand(runs):
            # The lease is given. If its messages turn out to be damaged, it is released, and the next lease knows.
            self._loop.fetch_for(runs)
            return []
        return [
            (run.partition, *damaged)
            for run in runs
            for damaged in log.damaged(run.queue, run.partition, run.first, run.first + run.count)
        ]

    def _grant_scope(self, command: commands.LeaseScope, pending: PendingReply[Any]) -> bool:
        """Lease from the queues of the scope, one decision each; the reply is completed behind the last of them."""
        now_ms = self._loop.now_ms()
        granted: list[commands.LeasedRun] = []
        wanted, room = command.max, command.bytes_max

        def fit(queue: int, partition: int, first: int, stop: int, most: int) -> tuple[int, int]:
            nonlocal room
            inside, used = self._loop.log.fit(queue, partition, first, stop, min(most, room))
            room -= used
            return inside, used

        while wanted > 0 and room > 0:
            queue = self._loop.scopes.next_queue(command.scope, command.group, now_ms)
            if queue is None:
                break
            lease = commands.Lease(
                queue, command.group, wanted, command.nonce, command.lease_ms, command.consumer, bytes_max=room
            )  # fmt: skip
            try:
                decision = self._decide_lease(lease, now_ms, fit)
            except PenstockError as error:
                if granted:
                    break
                self._loop.enqueue_refusal(error, pending)
                return True
            if not decision.reply:
                self._loop.scopes.exhausted(command.scope, command.group, queue)
                continue
            path = self._loop.shard.queues[queue].path
            runs = [msgspec.structs.replace(run, path=path) for run in decision.reply]
            self._loop.enqueue(decision.records, runs)
            granted += runs
            wanted -= sum(run.count for run in runs)
        if granted:
            self._loop.enqueue_lease(granted, pending)
            self._loop.arm_timer()
        return bool(granted)

    def serve(self, made: list[Record]) -> None:
        """Complete the waiting leases that these records concern."""
        for record in made:
            queue = getattr(record, "queue", None)
            if queue is not None:
                if isinstance(record, QueueDeleted):
                    self._loop.waiters.dismiss(queue)
                else:
                    self.recall(record)
                    self.offer(queue, self._owners(record))

    def offer(self, queue: int, members: set[tuple[str, str]] | None = None) -> None:
        """Messages of this queue may be ready: serve the leases that wait for it, or for a scope that contains it.

        With `members`, leases of group members are served only if their member is named.
        """
        if self._loop.waiters.has(queue):
            self._loop.waiters.serve(queue, self.grant, members)
        if self._loop.waiters.in_scopes and queue in self._loop.shard.queues:
            for scope in scopes_over(self._loop.shard.queues[queue].path):
                if self._loop.waiters.has(scope):
                    self._loop.waiters.serve(scope, self.grant)

    def _owners(self, record: Record) -> set[tuple[str, str]] | None:
        """The (group, member) pairs that own the partition of this record; None: every waiting lease may profit."""
        queue = self._loop.shard.queues[getattr(record, "queue")]  # noqa: B009  not every record has one
        number: int | None = getattr(record, "partition", None)
        if number is None or not queue.memberships or queue.config.exclusive:
            return None  # in an exclusive queue a record in any partition can make messages ready
        return {(queue.group_names[group], each.slots[number].owner) for group, each in queue.memberships.items()}

    def recall(self, record: Record) -> None:
        """Complete the waiting leases of members whose partitions changed, so that they send a heartbeat at once."""
        if isinstance(record, MemberJoined | MembersLeft):
            self._loop.waiters.recall(record.queue, lambda command: has_changed(self._loop.shard, command))

"""Queues as their owners manage them: listed, created, changed, emptied and deleted.

A change that lets go of stored messages, now or sooner than the queue's settings had promised, is destructive: it is
refused with a token and with what would be lost, and done only with that token.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.broker.confirm import Confirmations
from penstock.broker.identity import Identity
from penstock.broker.stats import ROW_COST, Stats
from penstock.broker.types import Submit
from penstock.core import commands
from penstock.core.config import QueueConfig, keeps_dead_letters_shorter, keeps_messages_shorter
from penstock.core.offsets.ranges import RangeSet
from penstock.core.state import Partition, Queue
from penstock.core.state.dead_letters import count_letters
from penstock.errors import Conflict, InvalidRequest
from penstock.ids import QueuePath
from penstock.placement import shard_of
from penstock.runtime.pace import Slices
from penstock.runtime.retention import first_kept
from penstock.runtime.view import ShardView


class Queues:
    def __init__(
        self, view: ShardView, submit: Submit, confirmations: Confirmations, identity: Identity, stats: Stats,
        shards: int = 1,
    ):  # fmt: skip
        self._view = view
        self._stats = stats
        self._submit = submit
        self._confirmations = confirmations
        self._identity = identity
        self._shards = shards

    async def list(self, *, prefix: str = "", page: int = 1, limit: int = 50) -> dict[str, Any]:
        paths, slices, entries = self._view.paths(prefix), Slices(self._view.give_way), []
        for path in paths[(page - 1) * limit : page * limit]:
            queue = self._view.find_queue(path)  # None: deleted meanwhile
            if queue is not None:
                entries.append(self._shown(queue))
                await slices.spend(ROW_COST * len(queue.partitions))
        return {"queues": entries, "total": len(paths), "page": page, "limit": limit}

    def paths(self) -> builtins.list[str]:
        """The paths of all queues, sorted."""
        return self._view.paths("")

    def get(self, path: str) -> dict[str, Any]:
        return self._shown(self._view.queue(path))

    def _shown(self, queue: Queue) -> dict[str, Any]:
        return {
            "queue": queue.path,
            "uuid": self._identity.uuid_of(queue.number),
            "config": msgspec.to_builtins(queue.config),
            **self._stats.brief(queue),
        }

    async def put(
        self, path: QueuePath, values: dict[str, Any], *, confirm: str | None = None
    ) -> tuple[dict[str, Any], bool]:
        """Create the queue with these settings, or change exactly these; also whether the queue is new.

        A change that would let go of stored messages raises Conflict with a token, and needs it as `confirm`.
        """
        if self._view.find_queue(path) is not None:
            return await self.patch(path, values, confirm=confirm), False
        config = self._view.config(values)
        self._check_placement(path, config.placement)
        await self._submit(commands.ConfigureQueue(path, config))
        return self.get(path), True

    async def patch(self, path: QueuePath, changes: dict[str, Any], *, confirm: str | None = None) -> dict[str, Any]:
        """Like `put`, but never creates the queue."""
        queue = self._view.queue(path)
        config = self._view.config(changes, queue.config)
        if config.placement != queue.config.placement:
            self._check_placement(path, config.placement)
        would_lose = self._lost_by(queue, config)
        if any(would_lose.values()):
            # The token is for this very change: one that was given for a milder change confirms no other.
            target, now_ms = f"{path}\0{msgspec.json.encode(config).decode()}", self._view.now_ms()
            self._confirmations.demand("change", target, confirm, now_ms, would_lose, f"queue {path}")
        await self._submit(commands.ConfigureQueue(path, config))
        return self.get(path)

    async def delete(self, path: QueuePath, *, confirm: str | None = None) -> dict[str, Any]:
        return await self._destroy("delete", path, confirm, commands.DeleteQueue)

    async def purge(self, path: QueuePath, *, confirm: str | None = None) -> dict[str, Any]:
        return await self._destroy("purge", path, confirm, commands.PurgeQueue)

    async def _destroy(
        self, action: str, path: QueuePath, confirm: str | None, make: Callable[[int], commands.Command]
    ) -> dict[str, Any]:
        queue = self._view.queue(path)
        lost = {"messages": queue.depth(), "dead_letters": queue.dead_letters()}
        self._confirmations.demand(action, path, confirm, self._view.now_ms(), lost)
        await self._submit(make(queue.number))
        return {"queue": path, action + "d": True, "lost": lost}

    # -- placement ----------------------------------------------------------------------------------------------------

    def placement(self, path: str) -> str | None:
        """The placement in the entry of this path, which may be of a queue on another shard; None: no entry."""
        return self._view.placement(path)

    async def place(self, path: QueuePath, placement: str) -> None:
        """Keep at its home that the queue lives on another shard, before the queue is created there."""
        if self._view.find_queue(path) is not None:
            raise Conflict(f"queue {path} was created meanwhile, on the shard of its path", details={"queue": path})
        self.demand_unused(path)
        await self._submit(commands.ConfigureQueue(path, QueueConfig(placement=placement)))

    def demand_unused(self, path: QueuePath) -> None:
        """Raise Conflict if a schedule or webhook of this shard names the path: it would not move with the queue."""
        schedules = [f"schedule {name}" for name, each in self._view.schedules().items() if each.spec.queue == path]
        webhooks = [f"webhook {id}" for id, each in self._view.webhooks().items() if each.spec.queue == path]
        if schedules or webhooks:
            first = (schedules + webhooks)[0]
            raise Conflict(
                f"{first} of queue {path} would stay on another shard than the queue; delete it first",
                details={"queue": path},
            )

    async def unplace(self, path: QueuePath) -> None:
        """Remove the entry of a queue that lived on another shard."""
        if self._view.placement(path) is not None and self._view.find_queue(path) is None:
            await self._submit(commands.DeleteQueue(self._view.number_of(path)))

    def _check_placement(self, path: str, placement: str) -> None:
        """Refuse a placement on another shard than this: where a queue lives is decided when it is created."""
        shard = shard_of(path, placement, self._shards)
        if shard >= self._shards:
            raise InvalidRequest(
                f"placement: {placement} is beyond the shards of this store, which has {self._shards}",
                details={"field": "placement", "shards": self._shards},
            )
        if shard != self._identity.shard:
            raise Conflict(
                f"placement: {placement} is another shard than that of queue {path}, which is fixed when it is "
                "created; delete the queue first",
                details={"field": "placement"},
            )

    # -- what a change lets go of -------------------------------------------------------------------------------------

    def _lost_by(self, queue: Queue, config: QueueConfig) -> dict[str, int]:
        """Counts of messages and letters that the new settings remove at once, or keep for a shorter time than now."""
        messages = letters = all_messages = all_letters = 0
        if keeps_messages_shorter(queue.config, config):
            for number, partition in enumerate(queue.partitions):
                before, after = self._kept(queue, number, partition, config)
                messages += before - after
                all_messages += before
        if keeps_dead_letters_shorter(queue.config, config):
            letters, all_letters = self._letters_beyond(queue, config), queue.dead_letters()
        return {
            "messages": messages,
            "messages_sooner": all_messages - messages,
            "dead_letters": letters,
            "dead_letters_sooner": all_letters - letters,
        }

    def _kept(self, queue: Queue, number: int, partition: Partition, config: QueueConfig) -> tuple[int, int]:
        """Stored messages that the present settings keep, and how many of them the new ones keep."""
        old, new, now_ms = queue.config.retention, config.retention, self._view.now_ms()
        first = first_kept(self._view.log, queue, number, old, now_ms)
        after = max(first, first_kept(self._view.log, queue, number, new, now_ms))
        keeps = old.mode == "keep"
        return _count(partition, first, keeps=keeps), _count(partition, after, keeps=keeps and new.mode == "keep")

    def _letters_beyond(self, queue: Queue, config: QueueConfig) -> int:
        """Dead letters that the new bounds do not allow. The oldest go first, by either bound."""
        excess = queue.dead_letters() - config.dead_letter_max if config.dead_letter_max is not None else 0
        if config.dead_letter_ttl_ms is None:
            return max(0, excess)
        bound = self._view.now_ms() - config.dead_letter_ttl_ms
        return max(excess, count_letters([partition.dead for partition in queue.partitions], until_ms=bound))


def _count(partition: Partition, first: int, *, keeps: bool) -> int:
    """Messages stored from `first` on; without `keeps`, those that a group has not finished."""
    wanted = RangeSet(list(partition.gone.gaps(first, partition.end)))
    for begin, end in [] if keeps else partition.finished(first, partition.end):
        wanted.remove(begin, end)
    return wanted.count

"""Queues as their owners manage them: listed, created, changed, emptied and deleted.

A change that lets go of stored messages, now or sooner than the queue's settings had promised, is destructive: it is
refused with a token and with what would be lost, and done only with that token.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any

import msgspec

from penstock.broker.confirm import Confirmations
from penstock.broker.identity import Identity
from penstock.core import commands
from penstock.core.config import QueueConfig, keeps_dead_letters_shorter, keeps_messages_shorter, parse_config
from penstock.core.deadletters import oldest_first
from penstock.core.ranges import RangeSet
from penstock.core.state import Partition, Queue
from penstock.ids import QueuePath
from penstock.runtime.loop import ShardLoop
from penstock.runtime.retention import first_kept


class Queues:
    def __init__(self, loop: ShardLoop, find: Callable[[str], Queue], confirmations: Confirmations, identity: Identity):
        self._loop = loop
        self._find = find
        """A queue by its full path; raises QueueNotFound."""
        self._confirmations = confirmations
        self._identity = identity

    def list(self, prefix: str, page: int, limit: int) -> dict[str, Any]:
        paths = sorted(path for path in self._loop.shard.paths if path.startswith(prefix))
        chosen = paths[(page - 1) * limit : page * limit]
        return {"queues": [self.get(path) for path in chosen], "total": len(paths), "page": page, "limit": limit}

    def get(self, path: str) -> dict[str, Any]:
        queue = self._find(path)
        return {
            "queue": queue.path,
            "uuid": self._identity.uuid_of(queue.number),
            "config": msgspec.to_builtins(queue.config),
            "depth": queue.depth(),
        }

    async def put(self, path: QueuePath, values: dict[str, Any], confirm: str | None) -> tuple[dict[str, Any], bool]:
        """The queue, and whether it is new."""
        if path in self._loop.shard.paths:
            return await self.patch(path, values, confirm), False
        await self._loop.submit(commands.ConfigureQueue(path, parse_config(values)))
        return self.get(path), True

    async def patch(self, path: QueuePath, changes: dict[str, Any], confirm: str | None) -> dict[str, Any]:
        queue = self._find(path)
        config = parse_config(changes, queue.config)
        would_lose = self._lost_by(queue, config)
        if any(would_lose.values()):
            # The token is for this very change: one that was given for a milder change confirms no other.
            target, now_ms = f"{path}\0{msgspec.json.encode(config).decode()}", self._loop.now_ms()
            if not self._confirmations.confirms("change", target, confirm, now_ms):
                raise self._confirmations.refusal("change", target, now_ms, would_lose, shown=f"queue {path}")
        await self._loop.submit(commands.ConfigureQueue(path, config))
        return self.get(path)

    async def delete(self, path: QueuePath, confirm: str | None) -> dict[str, Any]:
        return await self._destroy("delete", path, confirm, commands.DeleteQueue)

    async def purge(self, path: QueuePath, confirm: str | None) -> dict[str, Any]:
        return await self._destroy("purge", path, confirm, commands.PurgeQueue)

    async def _destroy(
        self, action: str, path: QueuePath, confirm: str | None, make: Callable[[int], commands.Command]
    ) -> dict[str, Any]:
        queue = self._find(path)
        lost = {"messages": queue.depth(), "dead_letters": queue.dead_letters()}
        self._confirmations.demand(action, path, confirm, self._loop.now_ms(), lost)
        await self._loop.submit(make(queue.number))
        return {"queue": path, action + "d": True, "lost": lost}

    # -- what a change lets go of -------------------------------------------------------------------------------------

    def _lost_by(self, queue: Queue, config: QueueConfig) -> dict[str, int]:
        """What the new settings let go of at once, and what they keep for a shorter time than the present ones."""
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
        old, new, now_ms = queue.config.retention, config.retention, self._loop.now_ms()
        first = first_kept(self._loop.log, queue, number, old, now_ms)
        after = max(first, first_kept(self._loop.log, queue, number, new, now_ms))
        keeps = old.mode == "keep"
        return _count(partition, first, keeps=keeps), _count(partition, after, keeps=keeps and new.mode == "keep")

    def _letters_beyond(self, queue: Queue, config: QueueConfig) -> int:
        """Dead letters that the new bounds do not allow. The oldest go first, by either bound."""
        excess = queue.dead_letters() - config.dead_letter_max if config.dead_letter_max is not None else 0
        if config.dead_letter_ttl_ms is None:
            return max(0, excess)
        bound = self._loop.now_ms() - config.dead_letter_ttl_ms
        oldest = oldest_first([partition.dead for partition in queue.partitions])
        return max(excess, sum(1 for _ in takewhile(lambda entry: entry[0].dead_at <= bound, oldest)))


def _count(partition: Partition, first: int, *, keeps: bool) -> int:
    """Messages stored from `first` on; without `keeps`, those that a group has not finished."""
    wanted = RangeSet(list(partition.gone.gaps(first, partition.end)))
    for begin, end in [] if keeps else partition.finished(first, partition.end):
        wanted.remove(begin, end)
    return wanted.count

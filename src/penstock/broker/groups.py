"""Groups as their owners manage them: listed, created, moved, deleted; and what each of them holds back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock import limits
from penstock.broker.confirm import Confirmations
from penstock.broker.readers import Readers
from penstock.core import commands
from penstock.core.groups import STAYS, Moved, kept_alone, number_of, seek_effects
from penstock.core.state import Queue
from penstock.errors import InvalidRequest
from penstock.runtime.loop import ShardLoop

Place = str | Mapping[int, int]
"""`earliest`, `latest`, `at:<ms>`; or partition -> offset."""


class Groups:
    def __init__(self, loop: ShardLoop, find: Callable[[str], Queue], readers: Readers, confirmations: Confirmations):
        self._loop = loop
        self._find = find
        """A queue by its full path; raises QueueNotFound."""
        self._readers = readers
        self._confirmations = confirmations

    async def create(self, path: str, group: str, start: Place) -> tuple[dict[str, Any], bool]:
        """Where the group is, and whether it is new; one that exists stays where it is."""
        queue = self._find(path)
        offsets = self._offsets(queue, start, "start", otherwise=[part.start for part in queue.partitions])
        created: bool = await self._loop.submit(commands.CreateGroup(queue.number, group, offsets))
        number = number_of(queue, group)
        places = {str(at): part.progress[number].floor for at, part in enumerate(queue.partitions)}
        return {"queue": path, "group": group, "created": created, "offsets": places}, created

    async def begin(self, path: str, group: str, offset: str) -> bool:
        """For a reader that cannot manage groups: create the group if there is none, and if there are too many, in the
        place of one that is idle. True if it is new."""
        queue = self._find(path)
        if group in queue.groups:
            return False
        starts = [self._readers.position(queue, number, offset, None) for number in range(len(queue.partitions))]
        if len(queue.groups) >= limits.GROUPS_PER_QUEUE_MAX and (idle := self._idle_group(queue)) is not None:
            # Not awaited: the new group is parked behind it.
            self._loop.submit(commands.DeleteGroup(queue.number, idle, queue.groups[idle]))
        begun: bool = await self._loop.submit(commands.CreateGroup(queue.number, group, starts, may_let_go=False))
        return begun

    async def seek(self, path: str, group: str, to: Place, *, dry_run: bool) -> dict[str, Any]:
        queue = self._find(path)
        number = number_of(queue, group)
        offsets = self._offsets(queue, to, "to", otherwise=[STAYS] * len(queue.partitions))
        now_ms = self._loop.brought_to_now()
        moved: list[Moved]
        if dry_run:
            moved = seek_effects(queue, number, offsets, now_ms)
        else:
            moved = await self._loop.submit(commands.SeekGroup(queue.number, group, offsets))
        return {
            "queue": path,
            "group": group,
            "dry_run": dry_run,
            "again": sum(each.again for each in moved),
            "skipped": sum(each.skipped for each in moved),
            "leased": sum(each.leased for each in moved),
            "partitions": [each._asdict() for each in moved],
        }

    async def delete(self, path: str, group: str, confirm: str | None) -> dict[str, Any]:
        queue = self._find(path)
        number = number_of(queue, group)
        lost = {
            "messages": kept_alone(queue, number),
            "dead_letters": sum(len(partition.dead.offsets_of(number)) for partition in queue.partitions),
        }
        target, now_ms = f"{path}\0{group}\0{number}", self._loop.now_ms()
        if not self._confirmations.confirms("delete", target, confirm, now_ms):
            shown = f"group {group} of {path}"
            raise self._confirmations.refusal("delete", target, now_ms, lost, shown=shown)
        await self._loop.submit(commands.DeleteGroup(queue.number, group, number))
        return {"queue": path, "group": group, "deleted": True, "lost": lost}

    def _offsets(self, queue: Queue, place: Place, field: str, *, otherwise: list[int]) -> list[int]:
        """One offset per partition; `otherwise` for those that are not named. Raises InvalidRequest."""
        if isinstance(place, str):
            if place == "latest":
                # Also what was decided and is on its way to the disk is behind the group.
                return [partition.end for partition in queue.partitions]
            return [self._readers.position(queue, number, place, None) for number in range(len(queue.partitions))]
        offsets = list(otherwise)
        for number, offset in place.items():
            if not 0 <= number < len(queue.partitions):
                raise InvalidRequest(
                    f"{field}: queue {queue.path} has partitions 0 to {len(queue.partitions) - 1}, not {number}",
                    details={"field": field},
                )
            if offset > queue.partitions[number].end:
                raise InvalidRequest(
                    f"{field}: partition {number} ends at {queue.partitions[number].end}, before {offset}",
                    details={"field": field},
                )
            offsets[number] = offset
        return offsets

    def _idle_group(self, queue: Queue) -> str | None:
        """The group that can best be done without: no consumer waits for its messages, and no message is lost with it,
        as the queue keeps them or the group has finished all. Of those, one that holds no leases, and then the one that
        asked longest ago. None if there is none."""
        keeps = queue.config.retention.mode == "keep"
        letters = {owner for partition in queue.partitions for (owner, _), _ in partition.dead.items()}
        idle: list[tuple[bool, int, str]] = []
        for name, number in queue.groups.items():
            membership = queue.memberships.get(number)
            in_use = (
                (membership is not None and bool(membership.members))
                or (queue.path, name) in self._loop.shard.webhook_groups
                or self._loop.waiting_in(queue, name) > 0
            )
            parts = [(partition, partition.progress[number]) for partition in queue.partitions]
            holds = not keeps and any(progress.undone(partition.end) for partition, progress in parts)
            if not in_use and not holds and number not in letters:
                leases = any(progress.leased for _, progress in parts)
                idle.append((leases, self._loop.last_asked_ms(queue, name) or 0, name))
        return min(idle)[2] if idle else None

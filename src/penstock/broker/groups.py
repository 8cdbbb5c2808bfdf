"""Groups as their owners manage them: listed, created, moved, deleted; and what each of them holds back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock import limits
from penstock.broker.confirm import Confirmations
from penstock.broker.readers import Readers
from penstock.broker.stats import Stats
from penstock.broker.types import Submit
from penstock.core import commands
from penstock.core.decide.groups import Moved, kept_alone, number_of, seek_effects
from penstock.core.state import Queue
from penstock.core.state.groups import STAYS
from penstock.errors import InvalidRequest
from penstock.ids import QueuePath
from penstock.runtime.stored import when_at_hand
from penstock.runtime.view import ShardView

Place = str | Mapping[int, int]
"""`earliest`, `latest`, `at:<ms>`; or partition -> offset."""


class Groups:
    def __init__(self, view: ShardView, submit: Submit, stats: Stats, readers: Readers, confirmations: Confirmations):
        self._view = view
        self._submit = submit
        self._stats = stats
        self._readers = readers
        self._confirmations = confirmations

    async def list(self, path: QueuePath) -> dict[str, Any]:
        """The state of every group of the queue."""
        return {"queue": path, "groups": await self._stats.groups(self._view.queue(path))}

    async def create(self, path: QueuePath, group: str, *, start: Place = "earliest") -> tuple[dict[str, Any], bool]:
        """Create a group before its first lease; the reply says whether it is new. An existing group stays where it is.
        In a queue that keeps messages until they are acked, the messages that its first group skips are removed."""
        queue = self._view.queue(path)
        offsets = _offsets(self._readers, queue, start, "start", otherwise=[part.start for part in queue.partitions])
        created: bool = await self._submit(commands.CreateGroup(queue.number, group, offsets))
        number = number_of(queue, group)
        places = {str(at): part.progress[number].floor for at, part in enumerate(queue.partitions)}
        return {"queue": path, "group": group, "created": created, "offsets": places}, created

    async def begin(self, path: QueuePath, group: str, *, offset: str = "latest") -> bool:
        """See to it that there is such a group: a new one begins at `offset`, as a read understands it. True if new.

        The first group of a queue that keeps messages until they are acked begins with the oldest, whatever was asked.
        If the queue has as many groups as it may, an idle group that holds nothing alone is replaced.
        """
        queue = self._view.queue(path)
        if group in queue.groups:
            return False
        starts = await when_at_hand(
            lambda: [self._readers.position(queue, number, offset, None) for number in range(len(queue.partitions))]
        )
        if len(queue.groups) >= limits.GROUPS_PER_QUEUE_MAX and (idle := self._idle_group(queue)) is not None:
            # Not awaited: the new group is parked behind it.
            self._submit(commands.DeleteGroup(queue.number, idle, queue.groups[idle]))
        begun: bool = await self._submit(commands.CreateGroup(queue.number, group, starts, may_let_go=False))
        return begun

    async def seek(self, path: QueuePath, group: str, *, to: Place, dry_run: bool = False) -> dict[str, Any]:
        """Begin anew at another place, in all partitions or in those that are named: the group's leases there end. A
        dry run only says what would be delivered again and what skipped."""
        queue = self._view.queue(path)
        number = number_of(queue, group)
        offsets = _offsets(self._readers, queue, to, "to", otherwise=[STAYS] * len(queue.partitions))
        self._view.advance()
        moved: list[Moved]
        if dry_run:
            moved = seek_effects(queue, number, offsets)
        else:
            moved = await self._submit(commands.SeekGroup(queue.number, group, offsets))
        return {
            "queue": path,
            "group": group,
            "dry_run": dry_run,
            "again": sum(each.again for each in moved),
            "skipped": sum(each.skipped for each in moved),
            "leased": sum(each.leased for each in moved),
            "partitions": [each._asdict() for each in moved],
        }

    async def delete(self, path: QueuePath, group: str, *, confirm: str | None = None) -> dict[str, Any]:
        """Forget the group, its dead letters, and let go of what only it had not finished. Needs the token of a first
        call, which is refused."""
        queue = self._view.queue(path)
        number = number_of(queue, group)
        lost = {
            "messages": kept_alone(queue, number),
            "dead_letters": sum(len(partition.dead.order(number)) for partition in queue.partitions),
        }
        target, shown = f"{path}\0{group}\0{number}", f"group {group} of {path}"
        self._confirmations.demand("delete", target, confirm, self._view.now_ms(), lost, shown)
        await self._submit(commands.DeleteGroup(queue.number, group, number))
        return {"queue": path, "group": group, "deleted": True, "lost": lost}

    def _idle_group(self, queue: Queue) -> str | None:
        """The group that can best be done without: no consumer waits for its messages, and no message is lost with it,
        as the queue keeps them or the group has finished all. Of those, one that holds no leases, and then the one that
        asked longest ago. None if there is none."""
        keeps = queue.config.retention.mode == "keep"
        letters = {group for partition in queue.partitions for group in partition.dead.groups()}
        idle: list[tuple[bool, int, str]] = []
        for name, number in queue.groups.items():
            membership = queue.memberships.get(number)
            in_use = (
                (membership is not None and bool(membership.members))
                or self._view.webhook_of_group(queue.path, name) is not None
                or self._view.waiting_in(queue, name) > 0
            )
            parts = [(partition, partition.progress[number]) for partition in queue.partitions]
            holds = not keeps and any(progress.undone(partition.end) for partition, progress in parts)
            if not in_use and not holds and number not in letters:
                leases = any(progress.leased for _, progress in parts)
                idle.append((leases, self._view.last_asked_ms(queue, name) or 0, name))
        return min(idle)[2] if idle else None


def _offsets(readers: Readers, queue: Queue, place: Place, field: str, *, otherwise: list[int]) -> list[int]:
    """One offset per partition; `otherwise` for those that are not named. Raises InvalidRequest."""
    if isinstance(place, str):
        if place == "latest":
            # Also what was decided and is on its way to the disk is behind the group.
            return [partition.end for partition in queue.partitions]
        return [readers.position(queue, number, place, None) for number in range(len(queue.partitions))]
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

"""The calls about a queue that move no messages: settings, numbers, explanations, scheduled messages, dead letters."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from penstock import limits
from penstock.client.admin.settings import settings_body
from penstock.client.transport.carrier import Carrier
from penstock.client.units import Duration, Moment, invalid, milliseconds, moment, position, seconds
from penstock.ids import QueuePath
from penstock.wire.diagnostics import AutoscaleReply, ExplainReply, HistoryReply, ScheduledReply
from penstock.wire.groups import DeleteGroupReply, GroupsReply, PutGroupReply, SeekGroupReply
from penstock.wire.replies import (
    CancelReply,
    DeadLettersReply,
    DeletedDeadLettersReply,
    DestroyedReply,
    QueueReply,
    RedriveReply,
    RedrivesReply,
    RedriveStatus,
    RescheduleReply,
)
from penstock.wire.settings import QueueSettings
from penstock.wire.stats import StatsReply

T = TypeVar("T")

GroupPosition: TypeAlias = str | datetime | Mapping[int, int]
"""A position in a queue: "earliest", "latest", a time, or partition -> offset."""


class QueueAdmin:
    path: QueuePath
    _carrier: Carrier

    async def _ask(self, name: str, kind: type[T], **fields: Any) -> T:
        return await self._carrier.ask(name, kind, queue=self.path, **fields)

    # -- the queue itself -------------------------------------------------------------------------------------------

    async def config(self) -> QueueReply:
        """All settings of the queue, including defaults, as `config`; and its `uuid` and `depth`."""
        return await self._ask("get_queue", QueueReply)

    async def configure(
        self, settings: QueueSettings | None = None, /, *, confirm: str | None = None, **changes: Any
    ) -> QueueReply:  # fmt: skip
        """Change some settings, keep the others; or set all of them. They are written as for `Client.create_queue`.

        Raises QueueNotFound. A change that would let go of stored messages needs to be confirmed like `delete`.
        """
        return await self._ask("patch_queue", QueueReply, confirm=confirm, body=settings_body(settings, changes))

    async def delete(self, *, confirm: str | None = None) -> DestroyedReply:
        """Delete the queue and all it holds. Without `confirm` it raises Conflict, whose `details` have the token to
        confirm with and what would be lost."""
        return await self._ask("delete_queue", DestroyedReply, confirm=confirm)

    async def purge(self, *, confirm: str | None = None) -> DestroyedReply:
        """Drop every message and keep the queue. Needs to be confirmed like `delete`."""
        return await self._ask("purge_queue", DestroyedReply, confirm=confirm)

    async def stats(self) -> StatsReply:
        return await self._ask("stats", StatsReply)

    # -- groups -----------------------------------------------------------------------------------------------------

    async def groups(self) -> GroupsReply:
        return await self._ask("groups", GroupsReply)

    async def create_group(self, group: str, *, start: GroupPosition = "earliest") -> PutGroupReply:
        """Create a group before its first lease; one that exists stays where it is. `start` is "earliest", "latest",
        an aware datetime, or an offset per partition."""
        return await self._ask("put_group", PutGroupReply, group=group, start=_group_position("start", start))

    async def seek_group(self, group: str, to: GroupPosition, *, dry_run: bool = False) -> SeekGroupReply:
        """Move a group to another position, written as `start` of `create_group`; its leases end. Answers what is
        delivered again and what is skipped, per partition; a dry run does nothing else."""
        place = _group_position("to", to)
        return await self._ask("seek_group", SeekGroupReply, group=group, to=place, dry_run=dry_run)

    async def delete_group(self, group: str, *, confirm: str | None = None) -> DeleteGroupReply:
        """Delete a group, its dead letters, and messages that only it had not finished. Needs to be confirmed like
        `delete`."""
        return await self._ask("delete_group", DeleteGroupReply, group=group, confirm=confirm)

    # -- look closely -----------------------------------------------------------------------------------------------

    async def explain(self, id: str | None = None, *, group: str = "default") -> ExplainReply:
        """Why a message is not being delivered to a group now; without an id, the head of every partition."""
        return await self._ask("explain", ExplainReply, id=id, group=group)

    async def history(self, id: str) -> HistoryReply:
        """The events of a message, as far back as the journal goes."""
        return await self._ask("history", HistoryReply, id=id)

    async def autoscale(
        self, *, group: str = "default", target_drain: Duration = 60.0, min_workers: int = 0,
        max_workers: int | None = None,
    ) -> AutoscaleReply:  # fmt: skip
        """How fast messages come and go, and how many workers would drain the queue within `target_drain`."""
        return await self._ask(
            "autoscale", AutoscaleReply, group=group, target_drain_s=seconds("target_drain", target_drain),
            min_workers=min_workers, max_workers=max_workers,
        )  # fmt: skip

    # -- scheduled messages -----------------------------------------------------------------------------------------

    async def scheduled(self, *, limit: int = 50, after: str | None = None) -> ScheduledReply:
        """One page of the messages whose time has not come, with `due_at_ms`, in the order of partitions and offsets.

        `after` is the `next` of the page before.
        """
        return await self._ask("scheduled", ScheduledReply, limit=limit, after=after)

    async def cancel(self, *, ids: Iterable[str] | None = None, key: str | None = None) -> CancelReply:
        """Cancel messages by ids or by key that were not delivered yet.

        A message whose result has the status `cancelled` will not be delivered.
        """
        return await self._ask("cancel", CancelReply, **_either("key", key, ids))

    async def reschedule(
        self, *, ids: Iterable[str] | None = None, key: str | None = None, delay: Duration | None = None,
        deliver_at: Moment | None = None,
    ) -> RescheduleReply:  # fmt: skip
        """Give scheduled messages, by ids or by key, another time: `delay` from now, or `deliver_at`."""
        if (delay is None) == (deliver_at is None):
            raise invalid("delay", "reschedule needs either delay or deliver_at")
        return await self._ask(
            "reschedule", RescheduleReply, **_either("key", key, ids),
            delay_ms=None if delay is None else milliseconds("delay", delay, limits.DELAY_MS_MAX),
            deliver_at_ms=None if deliver_at is None else moment("deliver_at", deliver_at),
        )  # fmt: skip

    # -- dead letters -----------------------------------------------------------------------------------------------

    async def dead_letters(
        self, *, filter: str | None = None, group: str | None = None, page: int = 1, limit: int = 50,
        after: str | None = None,
    ) -> DeadLettersReply:  # fmt: skip
        """One page of the messages that were given up, oldest first.

        `filter` chooses, in the language of docs/dead-letters.md. `after` is the `next` of an earlier page.
        """
        return await self._ask(
            "dead_letters", DeadLettersReply, filter=filter, group=group, page=page, limit=limit, after=after
        )

    async def redrive(
        self, *, filter: str | None = None, ids: Iterable[str] | None = None, group: str | None = None,
        target: str | None = None, delay: Duration = 0.0, priority: int | None = None, rate: int = 100,
        dry_run: bool = True, redrive_id: str | None = None,
    ) -> RedriveReply:  # fmt: skip
        """Bring dead letters back, chosen by `filter` (empty: all) or by message `ids`.

        A dry run, which is the default, answers `count` and a `sample`. With `dry_run=False` it begins, in the
        background and at `rate` messages a second; `redrives` answers how far it is. Without `target` the messages
        become ready again for the group that gave them up; with it, copies are published in that queue. The same
        `redrive_id` again starts nothing and answers what the first one did.
        """
        return await self._ask(
            "redrive", RedriveReply, **_either("filter", filter, ids), group=group, target=target, priority=priority,
            delay_ms=milliseconds("delay", delay, limits.DELAY_MS_MAX), rate_per_s=rate, dry_run=dry_run,
            # Always with an id: if an answer is lost, the repetition must not be a second redrive.
            redrive_id=redrive_id or f"sdk-{secrets.token_hex(12)}",
        )  # fmt: skip

    async def redrives(self, redrive_id: str | None = None) -> list[RedriveStatus]:
        """Redrives under way and the latest that ended, newest first; or the one of this id (raises NotFound)."""
        return (await self._ask("redrives", RedrivesReply, redrive_id=redrive_id)).redrives

    async def stop_redrive(self, redrive_id: str) -> RedriveStatus:
        """End it. Messages that it has moved stay moved."""
        return await self._ask("stop_redrive", RedriveStatus, redrive_id=redrive_id)

    async def delete_dead_letters(
        self, *, filter: str | None = None, ids: Iterable[str] | None = None, group: str | None = None,
        confirm: str | None = None,
    ) -> DeletedDeadLettersReply:  # fmt: skip
        """Delete dead letters, chosen as for `redrive`. Needs to be confirmed like `delete`."""
        chosen = _either("filter", filter, ids)
        return await self._ask("delete_dead_letters", DeletedDeadLettersReply, group=group, confirm=confirm, **chosen)


def _either(name: str, value: str | None, ids: Iterable[str] | None) -> dict[str, Any]:
    """Messages are chosen by their ids, or by the field `name`."""
    if (ids is None) == (value is None):
        raise invalid(name, f"choose messages either by ids or by {name}")
    return {name: value} if ids is None else {"ids": list(ids)}


def _group_position(name: str, where: GroupPosition) -> int | str | dict[str, int]:
    if isinstance(where, Mapping):
        return {str(partition): offset for partition, offset in where.items()}
    return position(name, where)
